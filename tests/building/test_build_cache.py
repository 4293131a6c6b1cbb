"""Built models in the cache folder: what is read back is what was built, and only that is read back."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler import cache
from op_profiler.building import build_cache
from op_profiler.building.build import build_model, fuse_model
from op_profiler.building.request import BuildRequest
from op_profiler.compilers.compiled_model import BuiltModel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.errors import ModelError, UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.schedules import record_files
from op_profiler.schedules.records import Conditions, Record
from op_profiler.targets.cuda import tvm_build

from ..command_line import op_profiler

ROOT = Path(__file__).resolve().parents[2]
REQUEST = BuildRequest(model=ModelRequest(source="test", name="small"), schedules="none")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(small_network: Any) -> Any:
    return dataclasses.replace(small_network, content="small")


def forbidden(*_: object) -> Any:
    raise ModelError("it was built again")


def object_code(built: BuiltModel, path: Path) -> bytes:
    kernels = built.compiled.library.lib if built.compiled.executor == "vm" else built.compiled.library.get_lib()
    kernels.save(str(path))
    return path.read_bytes()


@pytest.mark.parametrize("executor", ["default", "vm"])
def test_what_is_read_back_is_what_was_built(
    executor: str, folder: Path, small: Any, target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = dataclasses.replace(REQUEST, executor=executor)
    made = build_model(request, small, target)
    monkeypatch.setattr("op_profiler.compilers.relay.lower.compile_model", forbidden)
    read = build_model(request, small, target)
    for name in ("executor", "build_seconds", "launches", "loops", "left_out", "notes"):
        assert getattr(read.compiled, name) == getattr(made.compiled, name), name
    assert (read.schedules, read.asked) == (made.schedules, made.asked) and read.asked
    assert [s.factors for s in read.schedules.values()] == [s.factors for s in made.schedules.values()]
    assert list(read.compiled.by_label) == list(made.compiled.by_label)
    pairs = [*zip(read.compiled.occurrences, made.compiled.occurrences, strict=True)]
    for one, other in [*pairs, *zip(read.compiled.by_label.values(), made.compiled.by_label.values())]:
        for name in ("operator", "label", "constant", "anchor_signature"):
            assert getattr(one, name) == getattr(other, name), name
    assert object_code(read, tmp_path / "a.o") == object_code(made, tmp_path / "b.o")
    inputs = {"data": np.random.default_rng(0).standard_normal((1, 16, 32, 32)).astype("float32")}
    if executor == "vm":
        from tvm.runtime.vm import VirtualMachine

        from op_profiler.compilers.tvm_build import load_tvm

        cpu = load_tvm().cpu()
        ours, theirs = (VirtualMachine(b.compiled.library, cpu).run(**inputs).numpy() for b in (read, made))
        assert np.array_equal(ours, theirs)
        return
    assert read.compiled.library.get_graph_json() == made.compiled.library.get_graph_json()
    from op_profiler.compilers.tvm_build import runtime_device

    loaded = [load_graph(b.compiled, runtime_device(target), inputs) for b in (read, made)]
    assert loaded[0].labels == loaded[1].labels
    for ours, theirs in zip(*(one.output_arrays() for one in loaded), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    "name", ["library0.bc", "params.bin", "functions.json", "graph.json", "about.json", "build.json"]
)
def test_a_damaged_build_is_not_read(
    name: str, folder: Path, small: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_model(REQUEST, small, target)
    (file,) = folder.rglob(name)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    monkeypatch.setattr("op_profiler.compilers.relay.compiled_files.read_compiled", forbidden)
    monkeypatch.setattr("op_profiler.compilers.relay.lower.compile_model", forbidden)
    with pytest.raises(ModelError, match="built again"):
        build_model(REQUEST, small, target)


def record_of(target: Any, tvm: Any, arguments: Any) -> Record:
    """Of a convolution, with the first point of its space that its template can build."""
    from op_profiler.compilers.relay.templates import register_templates
    from op_profiler.tuning.candidate import TaskSpec

    register_templates()
    task = TaskSpec("conv2d_NCHWc.op_profiler", arguments)
    space = compiler_in_use().task(task, target)
    config = space.config(next(point for point in range(space.size) if space.is_valid(point)))
    return Record(str(target), task.template, task.arguments, config, (1e-5,), conditions=Conditions(1))


def test_only_records_that_a_build_asks_for_make_it_another(
    folder: Path, small: Any, target: Any, tvm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = dataclasses.replace(REQUEST, schedules=str(tmp_path / "records"))
    file = recorded.record_file()
    assert file is not None
    made = build_model(recorded, small, target)
    (conv,) = {s.template for s in made.schedules.values() if "conv2d" in s.template}
    assert conv == "conv2d_NCHWc.x86"
    asked = _convolutions_asked(small, target)
    strides = {arguments[2] for arguments in asked}
    assert strides == {(1, 1), (2, 2)}
    ours = next(a for a in asked if a[2] == (2, 2))
    (kind, (batch, chunks, _, _, block), dtype), *rest = ours
    foreign = ((kind, (batch, chunks, 99, 99, block), dtype), *rest)
    record_files.keep(file, record_of(target, tvm, foreign))
    with monkeypatch.context() as patched:
        patched.setattr("op_profiler.compilers.relay.lower.compile_model", forbidden)
        assert build_model(recorded, small, target).schedules == made.schedules
        assert recorded.model_key("base", made.asked) == "base"
    record_files.keep(file, record_of(target, tvm, ours))
    tuned = build_model(recorded, small, target)
    assert {s.origin for s in tuned.schedules.values()} == {"default", "tuned"}
    assert tuned.notes == (f"compiled with schedule records: 1 of {file}",) and made.notes == ()
    fused = fuse_model(recorded, small, target)
    assert (fused.asked, fused.notes) == (tuned.asked, tuned.notes)
    with monkeypatch.context() as patched:
        patched.setattr("op_profiler.compilers.relay.lower.compile_model", forbidden)
        assert build_model(recorded, small, target).schedules == tuned.schedules
        assert build_model(REQUEST, small, target).schedules == made.schedules
        assert recorded.model_key("base", made.asked) != "base"


def _convolutions_asked(small: Any, target: Any) -> set[Any]:
    """Arguments of the tasks of blocked convolutions that a build comes across."""
    from op_profiler.compilers.relay.chosen import chosen_schedules
    from op_profiler.compilers.relay.lower import compile_model

    with chosen_schedules() as choices:
        compiled = compile_model(small, target)
    tasks = [task for o in compiled.by_label.values() for task in choices.tasks_of(o)]
    return {tuple(arguments) for name, arguments in tasks if name == "conv2d_NCHWc.x86"}


def test_the_oldest_goes_when_there_is_too_much(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(name: str, age: float) -> Path:
        place = folder / "built" / "base" / name

        def fill(partial: Path) -> None:
            (partial / "data").write_bytes(bytes(2**20))
            (partial / cache.ABOUT).write_text(json.dumps({"title": name}))

        cache.keep(place, fill)
        os.utime(place / cache.ABOUT, (time.time() - age,) * 2)
        return place

    first, second = write("first", 300), write("second", 200)
    cache.touch(first)
    monkeypatch.setenv("OP_PROFILER_CACHE_GIB", str(2.5 / 1024))
    third = write("third", 0)
    assert first.is_dir() and third.is_dir() and not second.exists()
    assert [entry.title for entry in cache.entries()] == ["first", "third"]
    half = folder / "built" / "base" / ".fourth.123"
    half.mkdir()
    cache.trim()
    assert half.is_dir(), "another process may be writing it"
    os.utime(half, (0, 0))
    cache.trim()
    assert not half.exists()
    for wrong in ("much", "-1", "inf", "nan"):
        monkeypatch.setenv("OP_PROFILER_CACHE_GIB", wrong)
        with pytest.raises(UsageError, match="OP_PROFILER_CACHE_GIB"):
            cache.limit_bytes()


def test_what_goes_away_while_it_is_listed_is_left_out(folder: Path) -> None:
    """Another process's `trim` takes the last entry of a folder with the folder."""
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for number in range(20):
                (folder / "built" / f"{number}" / "entry").mkdir(parents=True)
            for number in range(20):
                (folder / "built" / f"{number}" / "entry").rmdir()
                (folder / "built" / f"{number}").rmdir()

    (folder / "built" / "stays" / "entry").mkdir(parents=True)
    beside = threading.Thread(target=come_and_go)
    beside.start()
    try:
        for _ in range(300):
            assert "entry" in [entry.title for entry in cache.entries()]
    finally:
        stop.set()
        beside.join()


def test_a_cache_that_cannot_be_written_costs_the_entry_no_more(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "built").write_text("a file in the place of the folder")
    cache.keep(folder / "built" / "base" / "name", lambda partial: None)
    assert (folder / "built").is_file()


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'python'}", **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


NO_COMPILER = """
import op_profiler.compilers.relay.lower as lower
def compile_model(*_):
    raise SystemExit("it was built again")
lower.compile_model = compile_model
"""


def test_other_thread_counts_and_caches_go_on_with_the_same_build(tmp_path: Path) -> None:
    """As a run that was killed does."""
    home = {"OP_PROFILER_CACHE": str(tmp_path / "cache")}
    mlp = ("collect", "--modelname=mlp", "--quiet", "--threads=1")
    done = op_profiler(*mlp, folder=tmp_path, environment=home)
    assert done.returncode == 0, done.stderr
    hot = (*mlp, "--cache=hot", "--summary-json=summary.json")
    done = op_profiler(*hot, folder=tmp_path, environment=home, in_workers=NO_COMPILER)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "summary.json").read_text())[0]["measured"] == 4

    def of_cache(*words: str) -> subprocess.CompletedProcess[str]:
        return op_profiler("cache", *words, environment=home)

    shown = json.loads(of_cache("--json").stdout)
    titles = {entry["kind"]: entry["title"] for entry in shown["entries"]}
    assert titles["built"] == "local:mlp, batch 1, float32, llvm" and shown["folder"] == home["OP_PROFILER_CACHE"]
    assert "local:mlp" in of_cache().stdout
    for_predictions = tmp_path / "cache" / "networks" / "x.json"
    for_predictions.parent.mkdir()
    for_predictions.write_text("{}")
    cleared = json.loads(of_cache("--clear", "--json").stdout)
    assert [entry["kind"] for entry in cleared["removed"]] == ["built", "networks"]
    assert "built" not in {entry["kind"] for entry in cleared["entries"]} and cleared["entries"]
    assert json.loads(of_cache("--clear", "--all", "--json").stdout)["entries"] == []
    assert of_cache("--all").returncode == 2
    done = op_profiler(*mlp, "--cache=cold", folder=tmp_path, environment=home, in_workers=NO_COMPILER)
    assert done.returncode != 0, "there was nothing to go on with"


GPU = """
import json, pathlib, sys
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.targets.target import resolve_target, use_build_for
use_build_for("cuda")
tvm = load_tvm()
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.lowered_cache import load_cached
from op_profiler.compilers.relay.compiled_files import read_compiled, write_compiled
from op_profiler.compilers.relay.lower import compile_model
model = load_cached(FRONTENDS.get("local"), ModelRequest(source="local", name="mlp"))
made = compile_model(model, resolve_target("cuda -arch=sm_90"))
folder = pathlib.Path(sys.argv[1])
write_compiled(folder, made)
read = read_compiled(folder)
(device,) = read.library.get_lib().imported_modules
assert device.type_key == "cuda"
again = folder / "again"
again.mkdir()
write_compiled(again, read)
code = folder / json.loads((folder / "build.json").read_text())["modules"][1]
assert code.read_bytes() == (again / code.name).read_bytes() and b"fused_nn" in code.read_bytes()
assert read.launches == made.launches and made.launches
assert [o.operator for o in read.occurrences] == [o.operator for o in made.occurrences]
print(sorted(path.name for path in folder.iterdir()))
"""


@pytest.mark.skipif(bool(tvm_build.missing()), reason="there is no TVM with CUDA")
def test_the_code_of_a_gpu_is_kept_with_its_host_part(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    done = run(tmp_path, "-c", GPU, str(tmp_path / "kept"))
    assert done.returncode == 0, done.stderr
    assert "library0.bc" in done.stdout and "library1." in done.stdout


def test_a_damaged_build_is_replaced(folder: Path, small: Any, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = build_cache.folder_of(build_model(REQUEST, small, target).kept)
    for name in ("graph.json", cache.ABOUT):
        (place / name).write_text("{")
        assert build_cache.read_kept(build_model(REQUEST, small, target).kept) is not None
    monkeypatch.setattr("op_profiler.compilers.relay.lower.compile_model", forbidden)
    assert build_model(REQUEST, small, target).kept


def test_a_build_with_a_shared_library_is_not_read(folder: Path, small: Any, target: Any) -> None:
    """Reading one runs code."""
    from op_profiler.compilers.relay import compiled_files

    kept = build_cache.folder_of(build_model(REQUEST, small, target).kept)
    build = json.loads((kept / "build.json").read_text())
    for name in ("evil.so", "../evil.bc"):
        (kept / "build.json").write_text(json.dumps(build | {"modules": [name]}))
        with pytest.raises(ValueError, match="is no module of a build"):
            compiled_files.read_compiled(kept)


def test_targets_of_opposite_options_have_records_of_their_own() -> None:
    wide, narrow = (
        dataclasses.replace(REQUEST, schedules="auto", target=f"llvm -mcpu=skylake-avx512 -mattr={sign}prefer-256-bit")
        for sign in "+-"
    )
    assert wide.record_file() != narrow.record_file()
