"""The processor of this machine."""
