"""Models that a Python program has in its hands: measured, predicted and compared without a name or a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import op_profiler
from op_profiler.errors import OpProfilerError, UsageError
from op_profiler.frontends.live import source_and_name_of

from ..command_line import forked_workers
from ..installed import needs

pytestmark = needs("torch")
DEVICE = "emeraldrapids"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch, forked_workers():
        patch.chdir(folder)
        yield folder


def network(width: int = 32) -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, width), torch.nn.Dropout(), torch.nn.Linear(width, 8))


def example() -> Any:
    import torch

    return torch.zeros(4, 16)


def test_a_module_is_measured_shown_and_reported(folder: Path) -> None:
    module = network()
    run = op_profiler.collect(module, example(), threads=[1], db="sqlite:///live.db")
    assert run.error is None and module.training, "a module is left as it was"
    table = run.to_pandas()
    assert set(table.operator_key) == {operator.key for operator, _ in run.operators}
    assert "Sequential" in repr(run) and run._repr_html_().startswith("<pre>")
    run.report("page.html")
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")
    again = op_profiler.collect(network(), (example(),), threads=[1], db="sqlite:///live.db")
    assert again.model_key == run.model_key and again.threads[1].measured == 0, "the same weights are the same model"


def test_a_search_asks_about_many_modules_in_one_call(folder: Path) -> None:
    found = op_profiler.predict([(network(width), example()) for width in (16, 256)], device=DEVICE)
    alone = op_profiler.predict(network(256), example(), threads=1, device=DEVICE)
    assert isinstance(found, list) and not isinstance(alone, list)
    assert found[0].total_us < found[1].total_us == alone.total_us
    assert op_profiler.predict([], device=DEVICE) == []


def test_a_run_is_what_other_functions_take(folder: Path) -> None:
    run = op_profiler.collect(network(), example(), threads=[1], label="first", db="sqlite:///live.db")
    other = op_profiler.collect(network(), example(), threads=[1], label="second", db="sqlite:///live.db")
    assert list(op_profiler.compare(run, other).rows)
    cores = os.sched_getaffinity(0)
    assert op_profiler.explain(run, top=1, threads=[1]).operators
    assert os.sched_getaffinity(0) == cores


@needs("onnx")
def test_a_model_of_onnx_is_lowered(folder: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ports[:1], ports[1:])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    found = op_profiler.predict(model, device=DEVICE)
    assert not isinstance(found, list) and found.total_us > 0


def test_what_is_no_model_is_refused_with_the_reason() -> None:
    for model, inputs, reason in (
        (network(), None, "example inputs"),
        ("mlp", example(), "inputs are for a torch module"),
        (3, None, "int is no model"),
    ):
        with pytest.raises(UsageError, match=reason):
            source_and_name_of(model, inputs, "local")
    with pytest.raises(OpProfilerError, match=r"cannot be exported by torch\.export"):
        source_and_name_of(network(), example()[:, :3], "local")
