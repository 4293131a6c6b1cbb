"""Replaces padding that ONNX computes from sizes by plain numbers."""

from __future__ import annotations

from typing import Any

from op_profiler.frontends.importers.onnx_graph import attribute, set_attributes
from op_profiler.frontends.importers.onnx_rewriting import Rewriting

_WEIGHTS = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Index of the input with the weights."""
_POOLS = ("AveragePool", "LpPool", "MaxPool")


class Padding(Rewriting):
    """Rewrites the padding of one model; sizes along the padded axes must be known."""

    def spell_out(self) -> None:
        """Rewrite the padding of all convolutions and pools.

        Raises:
            ModelError: a size is unknown, or the padding of a window is negative.
        """
        self.rewrite({**dict.fromkeys(_WEIGHTS, self._pad), **dict.fromkeys(_POOLS, self._pad)})

    def _pad(self, graph: Any, node: Any) -> list[Any]:
        mode = attribute(node, "auto_pad", b"NOTSET")
        if node.op_type == "ConvTranspose" and (
            mode not in (b"NOTSET", b"VALID") or attribute(node, "output_shape", 0)
        ):
            return self._transposed(node, mode)
        if mode in (b"SAME_UPPER", b"SAME_LOWER"):
            spans = self._spans(node)
            totals = [max((-(-size // step) - 1) * step + reach - size, 0) for size, reach, step in spans]
            set_attributes(node, pads=_shared(totals, lower=mode == b"SAME_LOWER"), auto_pad=None, ceil_mode=None)
        elif mode == b"VALID":
            set_attributes(node, auto_pad=None, pads=None)
        if min(attribute(node, "pads", [0]), default=0) < 0:
            raise self.refused(node, "is padded by less than nothing; export it with pads of 0 or more")
        return [node]

    def _transposed(self, node: Any, mode: bytes) -> list[Any]:
        """Compute the padding of a transposed convolution from the requested output size."""
        spans = self._spans(node)
        more = attribute(node, "output_padding", [0] * len(spans))
        wanted = attribute(node, "output_shape", None) or [size * step for size, _, step in spans]
        wanted = wanted[-len(spans) :]
        totals = [
            step * (size - 1) + extra + reach - out
            for (size, reach, step), extra, out in zip(spans, more, wanted, strict=True)
        ]
        if attribute(node, "output_shape", None) and min(totals) < 0:
            raise self.refused(node, "asks for a larger output than it computes; export it with output_padding")
        totals = [max(total, 0) for total in totals]
        # onnxruntime leaves an output that is too small as it is, and has the odd one behind for SAME_UPPER only
        set_attributes(node, pads=_shared(totals, lower=mode != b"SAME_UPPER"), auto_pad=None, output_shape=None)
        return [node]

    def _spans(self, node: Any) -> list[tuple[int, int, int]]:
        """Return for each axis the size of the data, the extent of a window, and its step."""
        data = self.sizes.get(node.input[0], ())[2:]
        if not data or None in data:
            raise self.refused(node, "has auto_pad, and sizes that are only known at run time; export it with pads")
        kernel = self._kernel(node)
        ones = [1] * len(data)
        apart = attribute(node, "dilations", ones)
        steps = attribute(node, "strides", ones)
        return [(d, (k - 1) * a + 1, s) for d, k, a, s in zip(data, kernel, apart, steps, strict=True)]

    def _kernel(self, node: Any) -> list[int]:
        given = attribute(node, "kernel_shape", None)
        if given:
            return list(given)
        sizes = self.sizes.get(node.input[_WEIGHTS[node.op_type]], ())[2:]
        if not sizes or None in sizes:
            raise self.refused(node, "has a kernel whose size is only known at run time; export it with kernel_shape")
        return list(sizes)


def _shared(totals: list[int], *, lower: bool) -> list[int]:
    """Return the padding before and after; if it is odd, the larger part is before with `lower`."""
    front = [total - total // 2 if lower else total // 2 for total in totals]
    return [*front, *(total - before for total, before in zip(totals, front, strict=True))]
