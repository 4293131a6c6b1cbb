"""TVM with Relay: from a model to fused operators and built kernels."""
