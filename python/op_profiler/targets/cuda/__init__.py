"""The GPU of this machine, through the TVM with CUDA."""
