"""From the ops of a fused function, told one after the other, to the `Operator` that they are together."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from op_profiler.operators import cost
from op_profiler.operators.operator import PARAMETER, Operator, TensorSpec


class Description:
    """Ops with their edges and costs.

    Args:
        parameters: the tensors of each parameter of the function.
        constant: for each of them, whether the model passes a constant (a weight).
    """

    def __init__(self, parameters: Sequence[Sequence[TensorSpec]], constant: Sequence[bool]) -> None:
        self.parameters = [tuple(tensors) for tensors in parameters]
        self.constant = tuple(constant)
        self.names = [f"{'p' if fixed else 'i'}{index}" for index, fixed in enumerate(constant)]
        """What stands for each parameter in `op`."""
        self._reads: dict[tuple[int, str], list[float]] = {}
        """Bytes that each use of a parameter, or of a field of one, reads at most."""
        self._inputs: list[Sequence[TensorSpec]] = []
        self._ops: list[str] = []
        self._attrs: list[dict[str, Any]] = []
        self._edges: list[str] = []
        self._flops: list[int] = []

    def op(
        self,
        name: str,
        attrs: dict[str, Any],
        arguments: Sequence[str],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> str:
        """The next op.

        Args:
            attrs: its attributes as plain JSON values.
            arguments: names of parameters, and what `op` answered for earlier ones.

        Returns:
            What stands for its result.
        """
        self._ops.append(name)
        self._attrs.append(attrs)
        self._inputs.append(inputs)
        self._flops.append(cost.flops(name, attrs, inputs, outputs))
        self._edges.append(f"{name}({','.join(arguments)})")
        returned = sum(cost.size_bytes(t) for t in outputs)
        for at, argument in enumerate(arguments):
            most = returned if at == 0 and cost.looks_up(name) else math.inf
            for _, number, field in PARAMETER.findall(argument):
                self._reads.setdefault((int(number), field), []).append(most)
        return f"%{len(self._ops) - 1}"

    def anchor(self) -> int:
        """Index of the heavy op; else of the one with most arithmetic; else the first."""
        for index, op in enumerate(self._ops):
            if op in cost.HEAVY:
                return index
        return max(range(len(self._ops)), key=lambda i: self._flops[i], default=0)

    def anchor_signature(self) -> str:
        """`signature` of the anchor; empty for a function without ops."""
        if not self._ops:
            return ""
        anchor = self.anchor()
        return signature(self._ops[anchor], self._attrs[anchor], self._inputs[anchor])

    def operator(self, outputs: Sequence[TensorSpec]) -> Operator:
        """All that was told.

        Args:
            outputs: tensors that the function returns.
        """
        anchor = self.anchor()
        anchor_attrs = self._attrs[anchor] if self._ops else {}
        parameters = list(zip(self.parameters, self.constant))
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
        """Of each tensor; those that no op takes, as the other parts of a ``split``, are not read. A parameter that no
        edge names is read whole."""
        named = {number for number, _ in self._reads}
        for number, tensors in enumerate(self.parameters):
            for at, tensor in enumerate(tensors):
                reads = [*self._reads.get((number, ""), []), *self._reads.get((number, str(at)), [])]
                yield int(min(cost.size_bytes(tensor), sum(reads) if number in named else math.inf))


def signature(op: str, attrs: dict[str, Any], inputs: Sequence[TensorSpec]) -> str:
    """What a compiler chooses an implementation by: the op, its attributes, and the tensors that it reads."""
    return json.dumps([op, attrs, [(t.shape, t.dtype) for t in inputs]], sort_keys=True)
