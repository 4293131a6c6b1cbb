"""Kernels of vendors' libraries: torch functions for the computation of a task, with the same number of threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from op_profiler.cores import binding_order
from op_profiler.errors import MeasureError, MissingPackageError
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.reference import Reference, transposed, window_of


def vendor_kernels(task: TaskSpec, reference: Reference, threads: int) -> dict[str, Callable[[], Any]]:
    """Return torch functions that compute a task on the inputs of its reference, by name.

    A convolution has several functions: in torch's two memory layouts and in oneDNN's own layout.

    Raises:
        MissingPackageError: torch is not installed.
        MeasureError: torch uses another number of threads.
    """
    # Without places, two OpenMP threads may share a core, and each waits until the other's time slice ends.
    os.environ["OMP_PLACES"] = ",".join(f"{{{core}}}" for core in binding_order()[:threads])
    os.environ["OMP_PROC_BIND"] = "true"
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError("torch", "timing the vendor's kernels") from error
    torch.set_num_threads(threads)
    if torch.get_num_threads() != threads:  # times are stored with the thread count of TVM's pool
        raise MeasureError(f"torch runs on {torch.get_num_threads()} threads, not on {threads}")
    data, weight = (torch.from_numpy(array.copy()) for array in reference.arrays)
    kernels = plain_kernels(torch, task, data, weight)
    # Some builds of torch, and some processors, have no oneDNN.
    with contextlib.suppress(RuntimeError, NotImplementedError, AttributeError):
        if data.dim() == 4:
            kernels |= _convolution_of_mkldnn(torch, task, data, weight)
        elif data.dim() == 2:
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.to_mkldnn(), data.shape[0])
            pointwise = torch.ops.mkldnn._linear_pointwise
            kernels["torch.ops.mkldnn.linear prepacked"] = _inference(
                torch, lambda x, w: pointwise(x, w, None, "none", [], ""), data, packed
            )
    return kernels


def plain_kernels(torch: Any, task: TaskSpec, data: Any, weight: Any) -> dict[str, Callable[[], Any]]:
    """Return torch functions that compute a task on tensors of any device, by name.

    Args:
        torch: the module.
        data, weight: input tensors.
    """
    if data.dim() == 4:
        return _convolutions(torch, task, data, weight)
    if data.dim() == 3:
        return {"torch.bmm": _inference(torch, torch.bmm, *_oriented(task, data, weight))}
    return {"torch.nn.functional.linear": _inference(torch, torch.nn.functional.linear, data, weight)}


def _oriented(task: TaskSpec, a: Any, b: Any) -> tuple[Any, Any]:
    transpose_a, transpose_b = transposed(task)
    a, b = (a.transpose(1, 2) if transpose_a else a), (b.transpose(1, 2) if transpose_b else b)
    batch = max(a.shape[0], b.shape[0])
    return a.expand(batch, *a.shape[1:]), b.expand(batch, *b.shape[1:])


def _convolutions(torch: Any, task: TaskSpec, data: Any, weight: Any) -> dict[str, Callable[[], Any]]:
    (strides, (top, left, bottom, right), dilation), groups = window_of(task), data.shape[1] // weight.shape[1]

    def convolve(x: Any, w: Any) -> Any:
        if (top, left) != (bottom, right):  # torch pads both sides equally
            x = torch.nn.functional.pad(x, (left, right, top, bottom))
            return torch.nn.functional.conv2d(x, w, None, strides, 0, dilation, groups)
        return torch.nn.functional.conv2d(x, w, None, strides, (top, left), dilation, groups)

    layouts = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
    return {
        f"torch.nn.functional.conv2d {name}": _inference(
            torch, convolve, data.to(memory_format=layout), weight.to(memory_format=layout)
        )
        for name, layout in layouts.items()
    }


def _convolution_of_mkldnn(torch: Any, task: TaskSpec, data: Any, weight: Any) -> dict[str, Callable[[], Any]]:
    """Return a convolution in oneDNN's own blocked layouts, with a weight that is already reordered; empty if the
    padding is not symmetric."""
    (strides, (top, left, bottom, right), dilation), groups = window_of(task), data.shape[1] // weight.shape[1]
    if (top, left) != (bottom, right):
        return {}
    padding = top, left
    packed = torch._C._nn.mkldnn_reorder_conv2d_weight(weight.to_mkldnn(), padding, strides, dilation, groups)

    def convolve(x: Any, w: Any) -> Any:
        return torch.conv2d(x, w, None, strides, padding, dilation, groups)

    return {"torch.conv2d mkldnn": _inference(torch, convolve, data.to_mkldnn(), packed)}


def _inference(torch: Any, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    def call() -> Any:
        with torch.inference_mode():
            return function(*arguments)

    return call
