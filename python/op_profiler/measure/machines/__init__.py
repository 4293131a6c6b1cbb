"""Where kernels run: this host's processor, its GPU, or another machine behind TVM's RPC."""

from op_profiler.measure.machines._base import LoadedModel, Machine, Place
from op_profiler.measure.machines._open import default_thread_counts, open_machine

__all__ = ["LoadedModel", "Machine", "Place", "default_thread_counts", "open_machine"]
