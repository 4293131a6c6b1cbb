"""Forms of TFLite's operators that TVM's converter rejects or gets wrong. Import it after TVM."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay
from tvm.relay.frontend.common import infer_shape
from tvm.relay.frontend.tflite import OperatorConverter

from op_profiler.frontends.importers.tflite_names import options_of


class FormsConverter(OperatorConverter):
    """Converts operators in forms that TVM's converter does not support. Conditions are broadcast, a squeeze that names
    no dimensions removes all dimensions of size 1, and non-maximum suppression fills its outputs with zeros after the
    selected boxes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.convert_map |= {"SELECT_V2": self.convert_select, "WHERE": self.convert_where}

    def convert_select(self, op: Any) -> Any:
        """Convert a selection: a one-dimensional condition selects rows of operands with more dimensions; in SELECT_V2,
        the condition and the operands are broadcast."""
        condition, one, other = (self.get_tensor_expr(given) for given in self.get_input_tensors(op))
        rank, rows = len(infer_shape(one)), infer_shape(condition)
        if self.get_op_code_str(op) == "SELECT" and len(rows) == 1 and rank > 1:
            condition = relay.reshape(condition, [*rows, *[1] * (rank - 1)])
        return relay.where(condition, one, other)

    def convert_where(self, op: Any) -> Any:
        """Convert ``WHERE``: with a condition only, to the positions where it is true; otherwise to a selection."""
        given = self.get_input_tensors(op)
        if len(given) != 1:
            return self.convert_select(op)
        return relay.cast(relay.argwhere(self.get_tensor_expr(given[0])), "int64")

    def convert_squeeze(self, op: Any) -> Any:
        """Convert a squeeze; if it names no dimensions, all dimensions of size 1 are removed."""
        if op.BuiltinOptions() is not None and options_of(op, "SqueezeOptions").SqueezeDimsLength():
            return super().convert_squeeze(op)
        return relay.squeeze(self.get_expr(self.get_input_tensors(op)[0].tensor_idx))

    def convert_squared_difference(self, op: Any) -> Any:
        """Convert a squared difference to a product, because LLVM has no power of integers."""
        one, other = self.get_input_tensors(op)
        if one.qnn_params:
            return super().convert_squared_difference(op)
        difference = self.get_tensor_expr(one) - self.get_tensor_expr(other)
        return difference * difference

    def convert_reverse_v2(self, op: Any) -> Any:
        """Convert a reversal along each of the given axes."""
        data, axes = self.get_input_tensors(op)
        made = self.get_tensor_expr(data)
        for axis in self.get_tensor_value(axes).reshape(-1):
            made = relay.reverse(made, int(axis))
        return made

    def convert_range(self, op: Any) -> Any:
        """Convert a range; reject floating-point steps, because TVM computes the length by an integer division, which
        crashes for steps of 0.5."""
        steps = self.get_input_tensors(op)[2]
        if self.get_tensor_type_str(steps.tensor.Type()).startswith("float"):
            raise tvm.error.OpNotImplemented("a range of floats has a length that is only known at run time")
        return super().convert_range(op)

    def convert_nms_v5(self, op: Any) -> Any:
        """Convert non-maximum suppression: zeros follow the selected boxes, and their number is a scalar."""
        places, scores, count = super().convert_nms_v5(op)
        chosen = places >= relay.const(0)
        zero = relay.const(0.0)
        made = [
            relay.where(chosen, places, relay.const(0)),
            relay.where(chosen, scores, zero),
            relay.reshape(count, ()),
        ]
        return relay.TupleWrapper(relay.Tuple(made), 3)
