"""What is written as JSON can be read by every reader of JSON."""

from __future__ import annotations

import json
import math

from op_profiler import json_text


def test_numbers_that_json_does_not_know_are_null() -> None:
    value = {"a": [1.5, math.nan, (math.inf, {"b": -math.inf})], "c": "NaN", "d": True}
    text = json_text.dumps(value)
    assert json.loads(text, parse_constant=lambda _: 1 / 0) == {
        "a": [1.5, None, [None, {"b": None}]],
        "c": "NaN",
        "d": True,
    }


def test_other_values_are_as_json_writes_them() -> None:
    value = {"a": [1, 2.5, None], "\u00e4": "\u00e4"}
    assert json_text.dumps(value, indent=1) == json.dumps(value, indent=1)
    assert json_text.dumps(value, ensure_ascii=False) == json.dumps(value, ensure_ascii=False)
