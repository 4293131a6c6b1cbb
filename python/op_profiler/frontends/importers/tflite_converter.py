"""TVM's converter of TFLite operators, with what real models need beyond it. Imported after TVM is loaded."""

from __future__ import annotations

from typing import Any

from tvm import relay
from tvm.relay.frontend.tflite import OperatorConverter


class Converter(OperatorConverter):
    """Differences to TVM's: the batch size may change, PReLU stays one operator, sparse half-precision weights work.

    Attributes:
        own_batch: the batch size that the model was made for, where another one is wanted.
    """

    own_batch: int | None = None

    def get_op_code_str(self, op: Any) -> str:
        """Name custom operators, so that the error for unknown ones can."""
        from tflite.BuiltinOperator import BuiltinOperator

        code = self.model.OperatorCodes(op.OpcodeIndex())
        custom = code.CustomCode()
        is_custom = BuiltinOperator.CUSTOM in (code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if is_custom and custom and custom != b"TFLite_Detection_PostProcess":
            return str(custom.decode(errors="replace"))
        return str(super().get_op_code_str(op))

    def convert_reshape(self, op: Any) -> Any:
        """A reshape that keeps the model's own batch size in front keeps whatever is in front (0 in Relay)."""
        result = super().convert_reshape(op)
        before = self.get_input_tensors(op)[0].tensor.ShapeAsNumpy()
        if self.own_batch is None or not isinstance(result, relay.Call) or result.op.name != "reshape":
            return result
        after = [int(size) for size in result.attrs.newshape]
        if not after or not len(before) or not before[0] == after[0] == self.own_batch:
            return result
        return relay.reshape(result.args[0], newshape=(0, *after[1:]))

    def convert_prelu(self, op: Any) -> Any:
        """One slope per channel is what `nn.prelu` does; TVM's repeats the slopes for every element and flattens."""
        data, slopes = self.get_input_tensors(op)
        shape = data.tensor.ShapeAsNumpy()
        if self.has_expr(slopes.tensor_idx):
            alpha, sizes = self.get_expr(slopes.tensor_idx), slopes.tensor.ShapeAsNumpy()
        else:
            values = self.get_tensor_value(slopes)
            kind = self.get_tensor_type_str(slopes.tensor.Type())
            alpha, sizes = self.exp_tab.new_const(values, dtype=kind, source_name=slopes.tensor.Name()), values.shape
        count = 1
        for size in sizes:
            count *= int(size)
        if not len(sizes) or count != shape[-1] or sizes[-1] != shape[-1]:
            return super().convert_prelu(op)
        return relay.nn.prelu(self.get_expr(data.tensor_idx), relay.reshape(alpha, [-1]), axis=len(shape) - 1)

    def convert_dequantize(self, op: Any) -> Any:
        """Half-precision weights that were stored sparse: `convert_densify` has made them dense already."""
        (data,) = self.get_input_tensors(op)
        if not self.is_prefetched(data.tensor_idx):
            return super().convert_dequantize(op)
        values = self.get_prefetched_node(data.tensor_idx)
        return self.exp_tab.new_const(values.astype("float32"), dtype="float32", source_name=data.tensor.Name())
