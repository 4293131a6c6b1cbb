"""Collections over values of this machine's resources."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.collection.supervisor import Collection
from op_profiler.collection.sweep import parse_sweeps, swept
from op_profiler.cores import available_cores
from op_profiler.dataset import flat_rows
from op_profiler.errors import UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.report.collection import Screen
from op_profiler.resources import applied
from op_profiler.resources.numa_node import NumaNode
from op_profiler.resources.resource import ResourceError

from . import collector
from .collector import rows, summary

two_cores = pytest.mark.skipif(available_cores()[:2] != (0, 1), reason="needs cores 0 and 1")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return collector.run(folder, "--modelname", "mlp", "--summary-json", "summary.json", *arguments)


@pytest.fixture
def request_of_mlp() -> CollectRequest:
    return CollectRequest(build=BuildRequest(model=ModelRequest(source="local", name="mlp"), threads=(1, 2)))


@two_cores
def test_each_core_set_is_measured_stored_and_found_again(tmp_path: Path) -> None:
    done = run(tmp_path, "--threads", "1", "--sweep", "core_set=0,1")
    assert done.returncode == 0, done.stderr
    assert "core_set (1,)" in done.stdout
    first, second = summary(tmp_path)
    assert (first["resources"], second["resources"]) == ({"core_set": [0]}, {"core_set": [1]})
    assert (first["core_set_effective"], second["core_set_effective"]) == ([0], [1])
    assert first["measured"] == second["measured"] == 4

    again = run(tmp_path, "--threads", "1", "--sweep", "core_set=1")
    assert again.returncode == 0 and summary(tmp_path)[0]["reused"] == 4
    plain = run(tmp_path, "--threads", "1")
    assert plain.returncode == 0 and summary(tmp_path)[0]["reused"] == 4
    assert summary(tmp_path)[0]["resources"] == {} and summary(tmp_path)[0]["core_set_effective"] == [0]

    query = (
        "SELECT core_set, core_set_effective, governor, count(*) FROM measurements m "
        "JOIN settings s ON s.key = m.settings_key WHERE m.median_us > 0 GROUP BY s.key ORDER BY core_set"
    )
    assert rows(tmp_path, query) == [("[0]", "[0]", None, 4), ("[1]", "[1]", None, 4)]


def test_a_worker_has_what_its_supervisor_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_of_mlp: CollectRequest
) -> None:
    """Binding memory works on a machine with one node too, only there it means nothing, so it is refused."""
    monkeypatch.setattr(NumaNode, "check_settable", lambda self: None)
    try:
        with applied({"numa_node": 0}):
            pass
    except ResourceError as error:
        pytest.skip(str(error))
    db = f"sqlite:///{tmp_path}/test.db"
    measuring = Measuring(rounds=3, resources={"numa_node": 0})
    bound = dataclasses.replace(request_of_mlp.of(threads=(1,)), measuring=measuring, db=db)
    with Collection(db) as collection:
        (report,) = collection.run(FRONTENDS.get("local"), [bound], Screen(quiet=True))
        measured = list(flat_rows(collection.dataset))
    assert report.exit_code == 0
    assert [(row["numa_node"], row["numa_node_effective"]) for row in measured] == [(0, 0)] * 4
    assert NumaNode(Path("/sys")).read() is None


@two_cores
def test_every_combination_with_the_thread_counts_that_fit(request_of_mlp: CollectRequest) -> None:
    combinations = parse_sweeps(["core_set=0,1,0-1,1"])
    assert combinations == [{"core_set": (0,)}, {"core_set": (1,)}, {"core_set": (0, 1)}]
    requests = swept(request_of_mlp, [one | {"numa_node": n} for one in combinations for n in (0, 1)])
    assert [(r.measuring.resources["numa_node"], r.build.threads) for r in requests] == [(0, (1,)), (1, (1,))] * 2 + [
        (0, (1, 2)),
        (1, (1, 2)),
    ]
    assert requests[-1].requested_resources(1) == {"core_set": (0,), "numa_node": 1}
    assert requests[2].requested_resources(1) == {"core_set": (1,), "numa_node": 0}


def test_without_a_sweep_there_is_one_request(request_of_mlp: CollectRequest) -> None:
    assert swept(request_of_mlp, parse_sweeps([])) == [request_of_mlp]
    assert request_of_mlp.requested_resources(1) == {"core_set": available_cores()[:1]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["core_set"], "NAME=VALUE,VALUE such as core_set=0,1,0-1; not 'core_set'"),
        (["core_set="], "not 'core_set='"),
        (["core_set=0", "core_set=1"], "core_set is there twice"),
        (["core_set=0,x"], "'x' is no set of cores"),
        (["threads=1,2"], "--threads 1,2,4"),
        (["streams=1,2"], "--sweep streams is not possible here: "),
        (["colour=red"], "unknown resource 'colour'"),
    ],
)
def test_sweeps_that_are_none_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_sweeps(words)
    assert message in str(refused.value)


def test_a_sweep_that_does_not_fit_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    core = str(available_cores()[0])
    for arguments, words in (
        (["--sweep", f"core_set={core}", "--threads", "2"], "--threads 2 needs a set of as many cores"),
        (["--sweep", f"core_set={core}", "--iftune", "true"], "--sweep only measures"),
        (["--sweep", f"core_set={core}", "--dry-run"], "--sweep only measures"),
        (["--sweep", f"core_set={core}", "--target", "pynq", "--host", "127.0.0.1", "--port", "9"], "this machine"),
    ):
        done = run(tmp_path, *arguments)
        assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []
