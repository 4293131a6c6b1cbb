"""torch, set up for importing: every file of the importer that needs torch takes it from here.

Importing this file raises MissingPackageError if torch is not installed.
"""

from __future__ import annotations

from op_profiler.errors import MissingPackageError

try:
    import torch
except ImportError as missing:
    raise MissingPackageError("torch", "this model") from missing

__all__ = ["torch"]

# The fused attention of nn.MultiheadAttention has no counterpart in Relay; without it torch runs plain operators.
torch.backends.mha.set_fastpath_enabled(False)
