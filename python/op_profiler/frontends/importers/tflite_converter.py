"""TVM's converter of TFLite operators, extended for models in use. Import it after TVM."""

from __future__ import annotations

import math
from typing import Any

from tvm import relay
from tvm.relay.frontend.tflite import OperatorConverter

from op_profiler.frontends.importers.tflite_forms import FormsConverter
from op_profiler.frontends.importers.tflite_names import custom_name, options_of
from op_profiler.frontends.importers.tflite_quantized import QuantizedConverter

_MAY_BE_CONSTANT = ("BATCH_MATMUL", "ONE_HOT")
"""Operators for which TVM's converter does not expect constants."""


class OptionsConverter(OperatorConverter):
    """Converts operators whose options TVM's converter ignores."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for name in _MAY_BE_CONSTANT:
            self.convert_map[name] = self._with_constants(self.convert_map[name])

    def _with_constants(self, convert: Any) -> Any:
        def converted(op: Any) -> Any:
            for one in self.get_input_tensors(op):
                if one.tensor_idx >= 0 and not self.has_expr(one.tensor_idx):
                    name = one.tensor.Name()
                    self.exp_tab.set_expr(name if isinstance(name, str) else name.decode(), self.get_tensor_expr(one))
            return convert(op)

        return converted

    def convert_softmax(self, op: Any) -> Any:
        """Convert a softmax with its factor beta, by which the input is multiplied first."""
        beta = options_of(op, "SoftmaxOptions").Beta()
        if beta == 1:
            return super().convert_softmax(op)
        (data,), (output,) = self.get_input_tensors(op), self.get_output_tensors(op)
        taken = self.get_expr(data.tensor_idx)
        taken = self.dequantize(taken, data) if data.qnn_params else taken
        made = relay.nn.softmax(taken * relay.const(beta, "float32"), axis=-1)
        return self.quantize(made, output) if output.qnn_params else made

    def _convert_arg_min_max(self, relay_op: Any, op: Any) -> Any:
        """Convert arg-min or arg-max, with indices of the requested type."""
        (output,) = self.get_output_tensors(op)
        made = super()._convert_arg_min_max(relay_op, op)
        return relay.cast(made, self.get_tensor_type_str(output.tensor.Type()))

    def convert_arg_min(self, op: Any) -> Any:
        """Convert arg-min; for quantized numbers, find the smallest integer."""
        return self._convert_arg_min_max(relay.argmin, op)

    def convert_gather(self, op: Any) -> Any:
        """Convert a gather, also one in which each batch has separate indices (``batch_dims``)."""
        options = options_of(op, "GatherOptions")
        if not options.BatchDims():
            return super().convert_gather(op)
        data, indices = (self.get_tensor_expr(one) for one in self.get_input_tensors(op))
        return relay.take(data, indices, axis=options.Axis(), batch_dims=options.BatchDims(), mode="clip")


class TfliteConverter(QuantizedConverter, OptionsConverter, FormsConverter):
    """Converts TFLite operators to Relay. Differences from TVM's converter: the batch size may change, PReLU stays one
    operator, and sparse half-precision weights are supported.

    Attributes:
        own_batch: the batch size of the file, if another one is requested.
    """

    own_batch: int | None = None

    def get_op_code_str(self, op: Any) -> str:
        """Return the name of an operator, also of a custom one, so that errors can name it."""
        return custom_name(self.model, op) or str(super().get_op_code_str(op))

    def convert_reshape(self, op: Any) -> Any:
        """Convert a reshape; a first size that equals the file's batch size becomes 0, with which Relay keeps the
        size of the input."""
        result = super().convert_reshape(op)
        before = self.get_input_tensors(op)[0].tensor.ShapeAsNumpy()
        if self.own_batch is None or not isinstance(result, relay.Call) or result.op.name != "reshape":
            return result
        after = [int(size) for size in result.attrs.newshape]
        if not after or not len(before) or not before[0] == after[0] == self.own_batch:
            return result
        return relay.reshape(result.args[0], newshape=(0, *after[1:]))

    def convert_prelu(self, op: Any) -> Any:
        """Convert PReLU with one slope per channel to `nn.prelu`; TVM's converter repeats the slopes for every element
        and flattens."""
        data, slopes = self.get_input_tensors(op)
        shape = data.tensor.ShapeAsNumpy()
        if self.has_expr(slopes.tensor_idx):
            alpha, sizes = self.get_expr(slopes.tensor_idx), slopes.tensor.ShapeAsNumpy()
        else:
            values = self.get_tensor_value(slopes)
            kind = self.get_tensor_type_str(slopes.tensor.Type())
            alpha, sizes = self.exp_tab.new_const(values, dtype=kind, source_name=slopes.tensor.Name()), values.shape
        if not len(sizes) or math.prod(map(int, sizes)) != shape[-1] or sizes[-1] != shape[-1]:
            return super().convert_prelu(op)
        return relay.nn.prelu(self.get_expr(data.tensor_idx), relay.reshape(alpha, [-1]), axis=len(shape) - 1)

    def convert_dequantize(self, op: Any) -> Any:
        """Convert half-precision weights that were stored sparse, which `convert_densify` has made dense."""
        (data,) = self.get_input_tensors(op)
        if not self.is_prefetched(data.tensor_idx):
            return super().convert_dequantize(op)
        values = self.get_prefetched_node(data.tensor_idx)
        return self.exp_tab.new_const(values.astype("float32"), dtype="float32", source_name=data.tensor.Name())
