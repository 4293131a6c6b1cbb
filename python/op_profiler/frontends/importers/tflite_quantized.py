"""Quantized operators of TFLite whose scales TVM's converter ignores, or that it rejects. Import it after TVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.frontend.tflite import OperatorConverter

from op_profiler.frontends.importers.tflite_names import options_of

_OVER_FLOATS = ("BATCH_MATMUL", "DIV", "ELU", "GELU", "L2_NORMALIZATION", "PRELU", "SQUARE")
"""Operators that TVM computes on the integers as if they were numbers, or does not support quantized. They are computed
in floats, as TVM does for softmax."""


class QuantizedConverter(OperatorConverter):
    """Converts operators on quantized numbers. Differences from TVM's converter: scales and zero points of outputs are
    kept; weights of dense layers have one scale per row."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._as_floats = False
        super().__init__(*arguments, **options)
        self.convert_map |= {name: self._over_floats(self.convert_map[name]) for name in _OVER_FLOATS}

    def get_tensors(self, tensors_idx_list: Any) -> Any:
        """Return tensors, without quantization parameters while an operator is converted in floats."""
        found = super().get_tensors(tensors_idx_list)
        for one in found if self._as_floats else ():
            one.qnn_params = None
        return found

    def get_tensor_type_str(self, tensor_type: int) -> Any:
        """Return the dtype of a type of tensors; ``float32`` while an operator is converted in floats."""
        return "float32" if self._as_floats else super().get_tensor_type_str(tensor_type)

    def _over_floats(self, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a converter that computes an operator of quantized tensors in floats and quantizes its output."""

        def converted(op: Any) -> Any:
            inputs, (output,) = self.get_input_tensors(op), self.get_output_tensors(op)
            if not inputs[0].qnn_params or not output.qnn_params:
                return convert(op)
            names = [one.tensor.Name() for one in inputs if one.qnn_params]
            names = [name if isinstance(name, str) else name.decode() for name in names]
            whole = dict(self.exp_tab.exprs)
            floats = [self.dequantize(self.get_tensor_expr(one), one) for one in inputs if one.qnn_params]
            try:
                self.exp_tab.exprs.update(zip(names, floats, strict=True))
                self._as_floats = True
                made = convert(op)
            finally:
                self._as_floats = False
                self.exp_tab.exprs.update({name: whole[name] for name in names if name in whole})
                for name in set(names) - set(whole):
                    del self.exp_tab.exprs[name]
            return self.quantize(made, output)

        return converted

    def convert_reduce_mean(self, op: Any) -> Any:
        """Convert a mean to a sum of integers, whose scale includes the division; TVM's converter divides integers."""
        return self._sum(op, super().convert_reduce_mean, mean=True)

    def convert_reduce_sum(self, op: Any) -> Any:
        """Convert a sum. The zero point is subtracted for each number; TVM's converter subtracts it only once."""
        return self._sum(op, super().convert_reduce_sum, mean=False)

    def _sum(self, op: Any, convert: Callable[[Any], Any], *, mean: bool) -> Any:
        data, axes = self.get_input_tensors(op)
        (output,) = self.get_output_tensors(op)
        if not data.qnn_params or not output.qnn_params:
            return convert(op)

        options = options_of(op, "ReducerOptions")
        shape = [int(size) for size in data.tensor.ShapeAsNumpy()]
        axis = [int(one) % len(shape) for one in np.atleast_1d(self.get_tensor_value(axes))]
        count = int(np.prod([shape[one] for one in set(axis)]))
        total = relay.sum(relay.cast(self.get_expr(data.tensor_idx), "int32"), axis, bool(options.KeepDims()))
        scale, zero_point = (data.qnn_params[name].data.numpy() for name in ("scale", "zero_point"))
        return relay.qnn.op.requantize(
            total,
            input_scale=relay.const(np.float32(scale / count if mean else scale)),
            input_zero_point=relay.const(np.int32(zero_point * count)),
            output_scale=output.qnn_params["scale"],
            output_zero_point=output.qnn_params["zero_point"],
            out_dtype=self.get_tensor_type_str(output.tensor.Type()),
        )

    def convert_fully_connected(self, op: Any) -> Any:
        """Convert a dense layer with one scale for each row of the weights; TVM uses one scale for all rows."""
        inputs, (output,) = self.get_input_tensors(op), self.get_output_tensors(op)
        scales = inputs[1].qnn_params["scale"].data.numpy() if inputs[1].qnn_params else np.zeros(())
        if not inputs[0].qnn_params or scales.size == 1:
            return super().convert_fully_connected(op)

        options = options_of(op, "FullyConnectedOptions")
        units, width = (int(size) for size in inputs[1].tensor.ShapeAsNumpy())
        data = self.get_tensor_expr(inputs[0])
        about, of_weights = inputs[0].qnn_params, inputs[1].qnn_params
        made = relay.qnn.op.dense(
            relay.reshape(data, (-1, width)),
            self.get_tensor_expr(inputs[1]),
            input_zero_point=about["zero_point"],
            kernel_zero_point=of_weights["zero_point"],
            input_scale=about["scale"],
            kernel_scale=of_weights["scale"],
            units=units,
            out_dtype="int32",
        )
        if len(inputs) == 3 and inputs[2].tensor_idx != -1:
            made = relay.nn.bias_add(made, self.get_tensor_expr(inputs[2]))
        kind = self.get_tensor_type_str(output.tensor.Type())
        scale, zero_point = (output.qnn_params[name] for name in ("scale", "zero_point"))
        made = relay.qnn.op.requantize(
            made,
            input_scale=relay.const(about["scale"].data.numpy() * scales),
            input_zero_point=relay.const(0),
            output_scale=scale,
            output_zero_point=zero_point,
            out_dtype=kind,
            axis=1,
        )
        ends = float(scale.data.numpy()), int(zero_point.data.numpy()), kind
        made = self.convert_qnn_fused_activation_function(made, options.FusedActivationFunction(), *ends)
        if not options.KeepNumDims():
            return made
        return relay.reshape(made, [*(int(size) for size in inputs[0].tensor.ShapeAsNumpy())][:-1] + [units])

    def convert_space_to_batch_nd(self, op: Any) -> Any:
        """Convert a space-to-batch; quantized numbers are padded with their zero point, where TVM pads with zeros."""
        data, block, pads = self.get_input_tensors(op)
        if not data.qnn_params:
            return super().convert_space_to_batch_nd(op)
        sizes = [int(one) for one in self.get_tensor_value(block)]
        around = self.get_tensor_value(pads).tolist()
        value = float(data.qnn_params["zero_point"].data.numpy())
        return relay.nn.space_to_batch_nd(self.get_expr(data.tensor_idx), sizes, around, value)
