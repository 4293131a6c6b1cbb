"""The collector's screen: layers, and how much of the time its operators take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest
from op_profiler.collection.summary import ModelReport, ThreadReport
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Measurement
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.report.collection import Screen


def _operator(name: str, size: int) -> Operator:
    output = (TensorSpec((1, size), "float32"),)
    return Operator(name, name, (name,), output, (), output, ({},), {}, "", 0, 4 * size, 4 * size)


@pytest.fixture
def report() -> ModelReport:
    dense, softmax = _operator("nn.dense", 64), _operator("nn.softmax", 8)
    times = {
        dense.key: Measurement(samples_us=((60.0, 20.0),) * 3, median_us=40.0),
        softmax.key: Measurement(samples_us=((20.0,),) * 3, median_us=20.0),
    }
    request = CollectRequest(build=BuildRequest(model=ModelRequest(source="local", name="net")), db="sqlite:///net.db")
    thread = ThreadReport(settings=None, timing=None, measurements=times, measured=2, reused=0)
    layers: dict[str, Sequence[Sequence[str]]] = {dense.key: [["encoder.0.fc", "encoder.0.act"], ["encoder.1.fc"]]}
    return ModelReport(request, operators=((dense, 2), (softmax, 1)), threads={1: thread}, layers=layers)


def _shown(report: ModelReport, capsys: pytest.CaptureFixture[str], depth: int | None) -> str:
    Screen(quiet=False).show([report], layer_depth=depth)
    return capsys.readouterr().out


def _row(text: str, start: str) -> list[str]:
    line = [line for line in text.splitlines() if f"│ {start} " in line][-1]
    return [cell.strip() for cell in line.strip("│").split("│")]


@pytest.mark.parametrize(("coverage", "told"), [(0.5, "1 of 2 operators, 80% of"), (0.95, "2 of 2 operators, 100% of")])
def test_the_share_is_that_of_the_operators_shown(
    coverage: float, told: str, report: ModelReport, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring = dataclasses.replace(report.request.measuring, coverage=coverage)
    asked = dataclasses.replace(report, request=dataclasses.replace(report.request, measuring=measuring))
    assert told in _shown(asked, capsys, None)


def test_times_have_the_half_width_of_their_interval_and_a_mark_for_noise(
    report: ModelReport, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "!" not in _shown(report, capsys, None)
    of_ends = (39.0, 41.0), (19.9, 20.1)
    times = {
        key: dataclasses.replace(time, ci_low_us=low, ci_high_us=high, settled=time.median_us != 40.0)
        for (key, time), (low, high) in zip(report.threads[1].measurements.items(), of_ends)
    }
    threads = {1: dataclasses.replace(report.threads[1], measurements=times)}
    text = _shown(dataclasses.replace(report, threads=threads), capsys, None)
    assert _row(text, "80.0%")[3:5] == ["!40.0", "2.5%"] and _row(text, "20.0%")[3:5] == ["20.00", "0.5%"]
    assert "! the time is disturbed, or its interval did not converge" in text


def test_operators_tell_their_layers(report: ModelReport, capsys: pytest.CaptureFixture[str]) -> None:
    text = _shown(report, capsys, None)
    assert _row(text, "80.0%")[1:4] == ["dense", "encoder.0.fc (+1)", "40.0"]
    assert "time by layer" not in text


def test_time_by_layer(report: ModelReport, capsys: pytest.CaptureFixture[str]) -> None:
    text = _shown(report, capsys, 0)
    assert "time by layer, 80.0% of it attributed" in text
    assert _row(text, "encoder.0.fc") == ["60.0%", "encoder.0.fc", "60.0", "1"]
    assert _row(text, "not known") == ["20.0%", "not known", "20.0", "1"]
    assert _row(_shown(report, capsys, 1), "encoder") == ["80.0%", "encoder", "80.0", "2"]


def test_where_no_layer_is_known_a_sentence_says_so(report: ModelReport, capsys: pytest.CaptureFixture[str]) -> None:
    assert "names no layers" in _shown(dataclasses.replace(report, layers={}), capsys, 0)


def test_the_summary_tells_them(report: ModelReport) -> None:
    entry: dict[str, Any] = report.to_json()[0]
    assert entry["attributed_to_layers"] == pytest.approx(0.8)
    assert entry["layers"][0] == {"layer": "encoder.0.fc", "us": 60.0, "calls": 1, "share": 0.6}
