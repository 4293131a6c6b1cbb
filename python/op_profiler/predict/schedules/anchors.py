"""From the key of an operator to what schedules are of: its heavy op alone, which is called its anchor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.errors import ModelError
from op_profiler.operators.cost import HEAVY

if TYPE_CHECKING:
    from op_profiler.dataset import Dataset
    from op_profiler.operators.operator import Operator


def anchor_of_key(dataset: Dataset, key: str) -> Operator | None:
    """The anchor of an operator of a dataset, by the key of either; None where the dataset has no such key.

    A dataset holds anchors of searches only; those of other operators are made from these.

    Raises:
        ModelError: the operator has no heavy op, or cannot be made again from its description.
    """
    found = dataset.find_operator(key)
    if found is None:
        return next((anchor for anchor in _anchors(dataset) if anchor.key == key), None)
    if found.anchor not in HEAVY:
        raise ModelError(
            f"operator {key} ({found.name}) has no heavy op such as a convolution or a dense layer, and nothing else "
            "has schedules to choose from"
        )
    return compiler_in_use().described_anchor(found)


def _anchors(dataset: Dataset) -> Iterator[Operator]:
    for operator in dataset.operators_around(HEAVY):
        try:
            yield compiler_in_use().described_anchor(operator)
        except ModelError:  # of another compiler, or of an op of another package
            continue
