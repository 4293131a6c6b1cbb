"""Every option of the collector under ``--compiler relax``: it comes as far as building, or is refused before that."""

from __future__ import annotations

import contextlib
import inspect
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from op_profiler.cli import _collector
from op_profiler.cli.collect import collect
from op_profiler.cli.command import command
from op_profiler.collection import user_module
from op_profiler.collection.supervisor import Collection
from op_profiler.compilers.relax import tvm_package
from op_profiler.cores import available_cores
from op_profiler.errors import OpProfilerError
from op_profiler.fleet import cluster, runs
from op_profiler.frontends import downloads

MLP = ["--modelname", "mlp"]
BOARD = ["--target", "pynq", "--host", "127.0.0.1", "--port", "9190"]
CLUSTER = ["--cluster", "tcp://127.0.0.1:8786"]
MODULE = ["--module", "f.so", "--entry", "f", "--inputshape", "64;64", *BOARD]

WORKS: list[tuple[str, list[str]]] = [
    ("modelsource", ["--modelsource", "local", *MLP]),
    ("modelname", MLP),
    ("batch_size", [*MLP, "--batchsize", "2"]),
    ("input_names", [*MLP, "--inputname", "data"]),
    ("input_shapes", [*MLP, "--inputshape", "2,1,28,28"]),
    ("sequence_length", ["--modelname", "lstm", "--sequence-length", "8"]),
    ("prefill", ["--modelname", "llama", "--prefill", "8,16"]),
    ("decode", ["--modelname", "llama", "--decode", "1", "--past", "8,16"]),
    ("past", ["--modelname", "llama", "--decode", "1,2", "--past", "8"]),
    ("refetch", ["--modelsource", "remoteonnx", "--modelname", "https://nowhere.invalid/m.onnx", "--refetch"]),
    ("target", [*MLP, "--target", "llvm -mcpu=skylake-avx512"]),
    ("compiler", MLP),
    ("pipeline", [*MLP, "--pipeline", "stock"]),
    ("importer", [*MLP, "--importer", "relay"]),
    ("importer", [*MLP, "--importer", "relax"]),
    ("check_outputs", [*MLP, "--check-outputs", "always"]),
    ("precision", [*MLP, "--precision", "float32"]),
    ("input_data", [*MLP, "--inputdata", "inputs.npz"]),
    ("executor", [*MLP, "--executor", "default"]),
    ("threads", [*MLP, "--threads", "1"]),
    ("coverage", [*MLP, "--coverage", "0.5"]),
    ("cache", [*MLP, "--cache", "hot"]),
    ("cache", [*MLP, "--cache", "cold"]),
    ("sweep", [*MLP, "--threads", "1", "--sweep", f"core_set={available_cores()[0]}"]),
    ("remeasure", [*MLP, "--remeasure", "noisy"]),
    ("energy", [*MLP, "--energy", "none"]),
    ("counters", [*MLP, "--counters"]),
    ("label", [*MLP, "--label", "before"]),
    ("iftune", [*MLP, "--iftune", "true"]),
    ("ifcompare", [*MLP, "--ifcompare", "true"]),
    ("partial", [*MLP, "--iftune", "true", "--ifpartial", "true"]),
    ("tuner", [*MLP, "--iftune", "true", "--tuner", "trees"]),
    ("space", [*MLP, "--iftune", "true", "--space", "automatic"]),
    ("trials", [*MLP, "--iftune", "true", "--trials", "16"]),
    ("schedules", [*MLP, "--schedules", "none"]),
    ("host", [*MLP, *BOARD]),
    ("port", [*MLP, *BOARD]),
    ("device_key", [*MLP, *BOARD, "--device-key", "mine"]),
    ("module", MODULE),
    ("entry", MODULE),
    ("cluster", [*MLP, *CLUSTER]),
    ("each", [*MLP, *CLUSTER, "--each"]),
    ("needs", [*MLP, *CLUSTER, "--needs", "avx2"]),
    ("db", [*MLP, "--db", "sqlite:///times.db"]),
    ("summary_json", [*MLP, "--summary-json", "summary.json"]),
    ("report", [*MLP, "--report", "page.html"]),
    ("trace", [*MLP, "--trace", "trace.json"]),
    ("tables", [*MLP, "--tables"]),
    ("by_layer", [*MLP, "--by-layer", "1"]),
    ("dry_run", [*MLP, "--dry-run"]),
    ("quiet", [*MLP, "--quiet"]),
]

REFUSED: list[tuple[str, list[str], str]] = [
    ("precision", [*MLP, "--precision", "float16"], "--precision float32"),
    ("precision", [*MLP, "--precision", "float32,int8"], "--precision float32"),
    ("executor", [*MLP, "--executor", "vm"], "leave out --executor"),
    ("vendor", [*MLP, "--vendor", "true"], "--vendor is not there for --compiler relax"),
    ("importer", [*MLP, "--importer", "onnx"], "relay"),
    ("importer", ["--modelname", "llama", "--prefill", "8", "--importer", "relax"], "leave out --importer"),
    ("tuner", [*MLP, "--iftune", "true", "--tuner", "ga"], "give .*trees"),
    ("iftune", [*MLP, *BOARD, "--iftune", "true"], "--iftune with --host is not there"),
    ("pipeline", [*MLP, "--pipeline", "stock", "--iftune", "true"], "leave out --iftune"),
    ("pipeline", [*MLP, "--pipeline", "stok"], "stock"),
]


class Reached(Exception):
    """The next step would be to build."""


@pytest.fixture(autouse=True)
def nothing_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def reached(*_: object, **__: object) -> None:
        raise Reached

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tvm_package, "version", lambda: "0.27.0")
    for owner, name in ((Collection, "_one"), (Collection, "_studied"), (runs, "collect")):
        monkeypatch.setattr(owner, name, reached)
    monkeypatch.setattr(user_module, "measure_module", reached)
    monkeypatch.setattr(cluster, "Cluster", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(downloads, "download", lambda *_, **__: tmp_path)


def outcome(*arguments: str) -> BaseException | None:
    return CliRunner().invoke(_collector(), ["--compiler", "relax", *arguments]).exception


@pytest.mark.parametrize(("option", "arguments"), WORKS, ids=lambda value: str(value))
def test_what_has_its_effect_comes_as_far_as_building(option: str, arguments: list[str]) -> None:
    np.savez("inputs.npz", data=np.zeros((1, 1, 28, 28), "float32"))
    assert option in inspect.signature(command(collect)).parameters
    assert isinstance(found := outcome(*arguments), Reached), repr(found)


@pytest.mark.parametrize(("option", "arguments", "words"), REFUSED, ids=lambda value: str(value))
def test_what_has_none_is_refused_with_a_sentence(option: str, arguments: list[str], words: str) -> None:
    assert option in inspect.signature(command(collect)).parameters
    with pytest.raises(OpProfilerError, match=words) as refused:
        raise outcome(*arguments) or AssertionError("nothing was refused")
    assert refused.value.exit_code == 2 and list(Path().iterdir()) == []


def test_every_option_is_among_them() -> None:
    told = {option for option, *_ in (*WORKS, *REFUSED)}
    assert told == inspect.signature(command(collect)).parameters.keys() - {"context", "model"}
