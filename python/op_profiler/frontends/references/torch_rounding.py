"""Changes the last digit of every sum while torch runs, as another order of adding may do."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from op_profiler.frontends.importers.torch_library import torch

_POOLS = {"_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d"}
_PRODUCTS = {"addbmm", "addmm", "addmv", "baddbmm", "bmm", "convolution", "dot", "einsum", "linear", "mm", "mv"}
_ATTENTION = {"_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention_for_cpu"}
_NORMS = {"_native_batch_norm_legit_no_training", "native_batch_norm", "native_group_norm", "native_layer_norm"}
_REDUCTIONS = {"_softmax", "cumsum", "linalg_vector_norm", "logsumexp", "mean", "sum", "var", "var_mean"}
_SUMS = _POOLS | _PRODUCTS | _ATTENTION | _NORMS | _REDUCTIONS


class OtherRounding(TorchDispatchMode):
    """Context manager in which torch changes each element of a product, mean or other sum by up to one unit in its last
    digit.

    The changes are random; every instance makes the same sequence of changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._random = torch.Generator().manual_seed(0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if str(func.overloadpacket).removeprefix("aten.") not in _SUMS:
            return made
        return torch.utils._pytree.tree_map(self._rounded, made)

    def _rounded(self, made: Any) -> Any:
        if not isinstance(made, torch.Tensor) or made.dtype not in (torch.float32, torch.float64):
            return made
        units = torch.rand(made.shape, generator=self._random, dtype=made.dtype).mul_(2).sub_(1)
        return made * units.mul_(torch.finfo(made.dtype).eps).add_(1)
