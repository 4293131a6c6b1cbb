"""Operators of exported rows."""

from __future__ import annotations

from op_profiler.dataset.convert import to_columns
from op_profiler.dataset.formats.flat_table import operator_of_row
from op_profiler.operators.describe import Description
from op_profiler.operators.operator import Operator, TensorSpec

PART = TensorSpec((1, 128, 768), "float32")
PART_BYTES = 128 * 768 * 4


def of_row(operator: Operator, bytes_read: int) -> Operator:
    row = {**to_columns(operator), "attrs": operator.attrs, "operator_name": operator.name, "bytes_read": bytes_read}
    return operator_of_row(row)


def test_rows_that_count_parts_which_nothing_takes_are_put_right() -> None:
    description = Description([(PART, PART, PART), (PART,)], [False, False])
    description.op("add", {}, ["i0.1", "i1"], [PART, PART], [PART])
    operator = description.operator([PART])
    assert operator.bytes_read == 2 * PART_BYTES
    found = of_row(operator, 4 * PART_BYTES)
    assert found.bytes_read == 2 * PART_BYTES and found.key == operator.key


def test_rows_of_look_ups_stay_as_they_are() -> None:
    description = Description([(PART,)], [False])
    row = TensorSpec((1, 1, 768), "float32")
    description.op("strided_slice", {}, ["i0"], [PART], [row])
    operator = description.operator([row])
    assert operator.bytes_read == 768 * 4
    assert of_row(operator, 768 * 4) == operator
