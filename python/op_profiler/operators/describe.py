"""Builds the `Operator` of a fused function from its ops, which are added one after the other."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from op_profiler.operators import cost
from op_profiler.operators.operator import PARAMETER, Operator, TensorSpec

_EXPONENT = re.compile(r"^power\([^,]+,const:\w+\[\]=(.+)\)$")
PLAIN_EXPONENTS = frozenset({-1.0, 0.0, 0.5, 1.0, 2.0})
"""Exponents that LLVM compiles to a product, a quotient or a root."""
_VALUE = re.compile(r"(?<=\])=[^,)]+")


def constant(spec: TensorSpec, value: float | None = None) -> str:
    """Return the text that represents a constant of the function in `Operator.structure`.

    Args:
        value: value of a scalar, which `Description.op` includes if it affects the code; None for a tensor.
    """
    return f"const:{spec.dtype}{list(spec.shape)}" + ("" if value is None else f"={value}")


def value_decides(op: str, dtype: str) -> bool:
    """Return whether the kernel of an op depends on the value of a scalar constant that the op reads.

    LLVM compiles a power to a product, a square root or a call, and a remainder or quotient of integers to shifts or to
    wide products; it calls ``fmod`` unless the divisor is a power of two. Other element-wise ops compile to nearly the
    same instructions for every constant.
    """
    whole = not dtype.startswith(("float", "bfloat"))
    return op == "power" or op.endswith("mod") or (whole and op.endswith("divide"))


def calls_power(edge: str) -> bool:
    """Return whether the op of an edge of `Operator.structure` is a power that calls the C library for each value:
    any exponent except `PLAIN_EXPONENTS`.
    """
    return edge.startswith("power(") and exponent_of(edge) not in PLAIN_EXPONENTS


def exponent_of(edge: str) -> float | None:
    """Return the exponent of an edge of `Operator.structure` whose op is a power with a constant exponent; otherwise
    None."""
    found = _EXPONENT.match(edge)
    return None if found is None else float(found[1])


class Description:
    """The ops of one fused function, with their edges and costs.

    Args:
        parameters: the tensors of each parameter of the function.
        constant: for each parameter, whether the model passes a constant (a weight).
    """

    def __init__(self, parameters: Sequence[Sequence[TensorSpec]], constant: Sequence[bool]) -> None:
        self.parameters: list[tuple[TensorSpec, ...]] = []
        self._constant: list[bool] = []
        self.names: list[str] = []
        """Text that represents each parameter in the arguments of `op`."""
        for tensors, fixed in zip(parameters, constant, strict=True):
            self.parameter(tensors, fixed)
        self._reads: dict[tuple[int, str], float] = {}
        """Largest number of bytes that all uses of a parameter, or of one of its fields, read."""
        self._inputs: list[Sequence[TensorSpec]] = []
        self._ops: list[str] = []
        self._attrs: list[dict[str, Any]] = []
        self._edges: list[str] = []
        self._flops: list[int] = []

    @property
    def constant(self) -> tuple[bool, ...]:
        """For each parameter, whether the model passes a constant."""
        return tuple(self._constant)

    def parameter(self, tensors: Sequence[TensorSpec], constant: bool) -> str:
        """Add a parameter after the others; return the text that represents it in the arguments of `op`."""
        self.names.append(f"{'p' if constant else 'i'}{len(self.names)}")
        self.parameters.append(tuple(tensors))
        self._constant.append(constant)
        return self.names[-1]

    def op(
        self,
        name: str,
        attrs: dict[str, Any],
        arguments: Sequence[str],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> str:
        """Add the next op.

        Args:
            attrs: its attributes as plain JSON values.
            arguments: for each argument, the text that `parameter`, `constant` or an earlier call of `op` returned.

        Returns:
            The text that represents its result.
        """
        if not value_decides(name, inputs[0].dtype if inputs else ""):
            arguments = [_VALUE.sub("", argument) if "=" in argument else argument for argument in arguments]
        self._ops.append(name)
        self._attrs.append(attrs)
        self._inputs.append(inputs)
        self._flops.append(cost.flops(name, attrs, inputs, outputs))
        self._edges.append(f"{name}({','.join(arguments)})")
        for at, argument in enumerate(arguments):
            if argument.startswith("%"):
                continue
            looks_up = at == 0 and name in cost.LOOKS_UP
            most = sum(cost.size_bytes(t) for t in outputs) if looks_up else math.inf
            for _, number, field in PARAMETER.findall(argument):
                read = int(number), field
                self._reads[read] = self._reads.get(read, 0.0) + most
        return f"%{len(self._ops) - 1}"

    def anchor(self) -> int:
        """Return the index of the first heavy op; without a heavy op, the index of the op with most operations."""
        for index, op in enumerate(self._ops):
            if op in cost.HEAVY:
                return index
        return max(range(len(self._ops)), key=lambda i: self._flops[i], default=0)

    def anchor_signature(self) -> str:
        """Return the `signature` of the anchor; empty for a function without ops."""
        if not self._ops:
            return ""
        anchor = self.anchor()
        return signature(self._ops[anchor], self._attrs[anchor], self._inputs[anchor])

    def operator(self, outputs: Sequence[TensorSpec]) -> Operator:
        """Return the operator that consists of all parameters and ops that were added.

        Args:
            outputs: tensors that the function returns.
        """
        anchor = self.anchor()
        anchor_attrs = self._attrs[anchor] if self._ops else {}
        parameters = list(zip(self.parameters, self._constant))
        return Operator(
            name="fused_" + "_".join(op.replace(".", "_") for op in self._ops),
            anchor=self._ops[anchor] if self._ops else "identity",
            op_names=tuple(self._ops),
            inputs=tuple(t for tensors, fixed in parameters if not fixed for t in tensors),
            params=tuple(t for tensors, fixed in parameters if fixed for t in tensors),
            outputs=tuple(outputs),
            attrs=tuple(self._attrs),
            layouts={k: str(v) for k, v in anchor_attrs.items() if k.endswith("layout")},
            structure=";".join(self._edges),
            flops=sum(self._flops),
            bytes_read=sum(self._bytes_read()),
            bytes_written=sum(cost.size_bytes(t) for t in outputs),
        )

    def _bytes_read(self) -> Iterator[int]:
        """Return the bytes read from each tensor. Tensors that no op uses, such as other results of a ``split``, are
        not read; a parameter that no edge names is read as a whole.
        """
        named = {number for number, _ in self._reads}
        for number, tensors in enumerate(self.parameters):
            for at, tensor in enumerate(tensors):
                most = self._reads.get((number, ""), 0.0) + self._reads.get((number, str(at)), 0.0)
                yield int(min(cost.size_bytes(tensor), most if number in named else math.inf))


def signature(op: str, attrs: dict[str, Any], inputs: Sequence[TensorSpec]) -> str:
    """Return, as JSON, what determines a compiler's choice of an implementation: the op, its attributes, and the
    tensors that it reads."""
    return json.dumps([op, attrs, [(t.shape, t.dtype) for t in inputs]], sort_keys=True)
