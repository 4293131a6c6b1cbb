"""The public names of the package, and that the examples in their docstrings run."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import op_profiler
from op_profiler.analysis import table
from op_profiler.errors import OpProfilerError
from op_profiler.prediction.latency import examples
from op_profiler.prediction.latency.usable import reason_against

from .command_line import forked_workers

_QUIET = {"foreign_load": False, "disturbed_by": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the examples write, one after the other: those that measure the same have to do it once. No example asks
    how sure a time is."""
    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch, forked_workers():
        patch.chdir(folder)
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))  # a calibration leaves a note there
        for name, fewer in (("FEWEST_PAIRS", 4), ("_COPY_SECONDS", 0.0)):
            patch.setattr(f"op_profiler.comparison.turns.{name}", fewer)
        # other tests run meanwhile: their load leaves nothing out
        against = table._reason_against
        patch.setattr(table, "_reason_against", lambda row, noisy: against({**row, **_QUIET}, noisy=noisy))
        patch.setattr(examples, "reason_against", lambda row: reason_against({**row, **_QUIET}))
        yield folder


@pytest.mark.parametrize("name", op_profiler.__all__)
def test_the_example_of_a_public_name_runs(name: str, folder: Path) -> None:
    public = inspect.unwrap(getattr(op_profiler, name))  # predict is a folder, too
    (example,) = doctest.DocTestFinder(recurse=False).find(public, name)
    assert example.examples, f"the docstring of {name} has no example"
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(example, out=told.append, clear_globs=False).failed == 0, "".join(told)
    results = [one for one in example.globs.values() if type(one).__module__.startswith("op_profiler.")]
    assert [one for one in map(repr, results) if len(one.splitlines()) > 20 or len(one) > 3000] == []


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: op_profiler.corun(), "there is no model"),
        (lambda: op_profiler.corun("mlp", cores=0), "threads 0"),
        (lambda: op_profiler.collect("nosuch"), "unknown local model 'nosuch'"),
        (lambda: op_profiler.collect("mlp", threads=[]), "threads is empty"),
        (lambda: op_profiler.sample(0), "--count 0 is out of range; give 1 or more"),
        (lambda: op_profiler.sample(10, rounds=2), "--rounds 2 is out of range; give 3 or more"),
        (lambda: op_profiler.sample(10, kinds=["nosuch"]), "unknown kind of operator 'nosuch'"),
        (lambda: op_profiler.tune("mlp", trials=3), "--trials 3 is out of range; give 10 to 3000"),
        (lambda: op_profiler.predict("mlp", precision="float31"), "unknown precision 'float31'"),
        (lambda: op_profiler.explain("mlp", top=0), "--top 0 is out of range; give 1 or more"),
        (lambda: op_profiler.compare("before", "after", seconds=0), "--seconds 0 is out of range"),
        (lambda: op_profiler.calibrate(rounds=2), "--rounds 2 is out of range; give 3 or more"),
        (lambda: op_profiler.calibrate(seed=-1), "--seed -1 is out of range; give 0 or more"),
        (lambda: op_profiler.evaluate(splits="rnadom", library="no.out"), "no.out"),
        (lambda: op_profiler.evaluate(seed=2**32), "--seed 4294967296 is out of range; give 0 to 4294967295"),
        (lambda: op_profiler.analyze(threshold=1), "--threshold 1 is out of range"),
        (lambda: op_profiler.import_results("no.out", precision="int3"), "unknown precision 'int3'"),
        (lambda: op_profiler.import_results("no.out", format="tinynas"), "no.out does not exist"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(call: Callable[[], object], reason: str, folder: Path) -> None:
    with pytest.raises(OpProfilerError, match=reason):
        call()


def test_an_option_that_is_none_is_a_wrong_argument() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'thread'"):
        op_profiler.collect("mlp", thread=2)


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import op_profiler; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    others = {name for name in done.stdout.split() if name.split(".")[0] not in sys.stdlib_module_names}
    assert others == {"op_profiler"}


def test_public_names_are_listed_and_no_folder_takes_their_place() -> None:
    assert set(op_profiler.__all__) <= set(dir(op_profiler))
    folder = Path(op_profiler.__file__).parent
    taken = [name for name in op_profiler.__all__ if (folder / name).exists() or (folder / f"{name}.py").exists()]
    assert taken == []
    with pytest.raises(AttributeError, match="no attribute 'measure_it'"):
        _ = op_profiler.measure_it  # type: ignore[attr-defined]
