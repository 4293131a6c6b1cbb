"""What is written as JSON can be read by every reader of JSON."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from pathlib import Path

import msgspec
import pytest

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


@dataclasses.dataclass
class Inner:
    path: Path
    share: float = 0.5


class Outer(msgspec.Struct):
    inner: tuple[Inner, ...]
    when: datetime.datetime


class Renamed(Inner):
    def to_json(self) -> dict[str, object]:
        return {"file": self.path, "share": self.share}


@pytest.mark.parametrize("share", [0.5, math.nan])
def test_results_are_written_as_their_fields(share: float) -> None:
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.timezone.utc)
    text = json_text.dumps(Outer((Inner(Path("a"), share), Renamed(Path("b"))), when))
    plain = None if math.isnan(share) else share
    assert json.loads(text) == {
        "inner": [{"path": "a", "share": plain}, {"file": "b", "share": 0.5}],
        "when": "2026-01-02T03:04:05+00:00",
    }


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no form"):
        json_text.dumps([math.nan, object()])
