"""Printed names of operators: what an operator does, where it is, and its output shape."""

from __future__ import annotations

import io

from rich.console import Console

from op_profiler.building.request import BuildRequest
from op_profiler.collection.denormals import notes_on
from op_profiler.collection.request import CollectRequest
from op_profiler.collection.summary import ModelReport, ThreadReport
from op_profiler.dataset.row import Failure
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Measurement
from op_profiler.operators.layers import CallLayers
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.report.collection import show_model

_OPERATOR = Operator(
    name="fused_nn_contrib_dense_pack_nn_relu",
    anchor="nn.dense",
    op_names=("nn.contrib_dense_pack", "nn.relu"),
    inputs=(TensorSpec((1, 64), "float32"),),
    params=(),
    outputs=(TensorSpec((1, 128), "float32"),),
    attrs=({}, {}),
    layouts={},
    structure="",
    flops=1,
    bytes_read=1,
    bytes_written=1,
)
_LAYERS: dict[str, CallLayers] = {_OPERATOR.key: [("fc1", "relu1"), ("fc2", "relu2")]}


def test_a_label_has_what_is_known() -> None:
    assert _OPERATOR.label(_LAYERS[_OPERATOR.key]) == "dense + relu | fc1 | 1x128"
    assert _OPERATOR.label() == _OPERATOR.label([()]) == "dense + relu | 1x128"


def test_a_note_on_denormal_numbers_names_layers() -> None:
    (note,) = notes_on({_OPERATOR.key: 0.5}, [_OPERATOR], _LAYERS)
    assert note.startswith("dense + relu | fc1 | 1x128: up to 50% of")


def test_failures_name_layers_and_count_threads() -> None:
    request = CollectRequest(build=BuildRequest(model=ModelRequest(name="mlp")))
    settings = request.settings(1)
    kept = Failure(
        operator_name=_OPERATOR.name,
        operator_label=_OPERATOR.label(),
        settings=settings,
        device_key="d",
        model_key="m",
        error="broken",
        cause="operator",
        machine_state=None,
        failed_at="2026-11-30T00:00",
        run_id=None,
        timed_at=None,
    )
    thread = ThreadReport(
        settings=settings, timing=None, measurements={_OPERATOR.key: Measurement(error="no time")}, measured=0, reused=0
    )
    report = ModelReport(
        request, "m", ((_OPERATOR, 2),), {1: thread}, layers=_LAYERS, kept_failures=(kept,), run_id="r"
    )
    shown = io.StringIO()
    show_model(Console(file=shown, width=200), report)
    assert "failed: dense + relu | fc1 | 1x128: no time" in shown.getvalue()
    assert "dense + relu | 1x128 at 1 thread: broken" in shown.getvalue()
    assert "fused_" not in shown.getvalue()
