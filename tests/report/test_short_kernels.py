"""The collector's screen marks kernels of a GPU whose times are mostly systematic error."""

from __future__ import annotations

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest
from op_profiler.collection.summary import ModelReport, ThreadReport
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import KERNEL_UNCERTAINTY, Measurement, ModelTiming
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.report.collection import Screen


def shown(capsys: pytest.CaptureFixture[str], **details: float) -> str:
    operators = []
    for name, size in (("nn.dense", 64), ("nn.softmax", 8)):
        output = (TensorSpec((1, size), "float32"),)
        operators.append(Operator(name, name, (name,), output, (), output, ({},), {}, "", 0, 4 * size, 4 * size))
    times = {one.key: Measurement(median_us=us) for one, us in zip(operators, (40.0, 3.2), strict=True)}
    timing = ModelTiming(
        whole_model=Measurement(median_us=50.0),
        before_us=None,
        after_us=None,
        sum_of_operators_us=43.2,
        details=dict(details),
    )
    request = CollectRequest(build=BuildRequest(model=ModelRequest(source="local", name="net")), db="sqlite:///net.db")
    thread = ThreadReport(settings=None, timing=timing, measurements=times, measured=2, reused=0)
    Screen(quiet=False).show([ModelReport(request, operators=tuple((o, 1) for o in operators), threads={0: thread})])
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_short_kernels_are_marked_where_a_device_has_a_systematic_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    text = shown(capsys, **{KERNEL_UNCERTAINTY: 0.93})
    assert " ~3.20 " in text and " 40.0 " in text
    assert "1 operator under 5 us (~): systematic error up to 0.93 us" in text
    assert "~" not in shown(capsys)
