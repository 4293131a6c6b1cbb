"""A collection as users run it, with all that `hurry.py` switches off for the other tests: it waits for the load of
others, reads what the host does to the cores, and goes on for as long as its limits say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from op_profiler.cores import binding_order
from op_profiler.measure.caches import beyond_caches_bytes
from op_profiler.measure.limits import Limits
from op_profiler.measure.steadiness import FIRST_MEMORY_BYTES

from .collector import SCRIPT, environment, in_workers_first, rows, summary

_SPIN = "import os\nos.sched_setaffinity(0, {{{}}})\nprint(flush=True)\nwhile True: pass"
_NO_METER = "from op_profiler.targets.llvm.host import Host; Host.meter = lambda *_: None"


def collected(folder: Path, *words: str, **changes: str) -> None:
    command = [sys.executable, str(SCRIPT), "--modelname=mlp", "--summary-json=summary.json", *words]
    own = environment(OP_PROFILER_CACHE=str(folder / "cache"), **changes)
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
        (folder / name).write_text(text)


def details(folder: Path) -> list[dict[str, Any]]:
    """Of the timings, one a thread count."""
    query = "SELECT details FROM model_timings t JOIN settings s ON s.key = t.settings_key ORDER BY threads"
    return [json.loads(text) for (text,) in rows(folder, query)]


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a collection that another process disturbs on its core from beginning to end."""
    folder = tmp_path_factory.mktemp("disturbed")
    spin = [sys.executable, "-c", _SPIN.format(binding_order()[0])]
    with subprocess.Popen(spin, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline()
            collected(folder, "--threads=1", OP_PROFILER_PATIENCE_SECONDS="1")
        finally:
            other.kill()
    return folder


def test_windows_under_load_are_repeated_until_patience_ends_then_kept_and_marked(disturbed: Path) -> None:
    (entry,) = summary(disturbed)
    assert entry["foreign_load"] and entry["discarded_rounds"] > 0
    found = rows(disturbed, "SELECT DISTINCT load_before, load_after, foreign_load, discarded_rounds FROM measurements")
    ((before, after, foreign, discarded),) = found
    assert before > 0.15 and after > 0.15 and foreign and discarded == entry["discarded_rounds"]
    assert not list((disturbed / "cache").rglob("states/*.json")), "what is usual is not learned under load"


def test_the_load_is_named_before_anything_is_measured_and_what_it_disturbed_is_counted(disturbed: Path) -> None:
    (note,) = [line for line in (disturbed / "stderr").read_text().splitlines() if "processor is busy" in line]
    assert "% of a core" in note
    (entry,) = summary(disturbed)
    assert entry["disturbed"] == {"background load": 4}
    assert "4 of 4 timings are disturbed (background load 4); predictors" in (disturbed / "stdout").read_text()


def test_rounds_go_on_until_they_settle_or_reach_the_limits(disturbed: Path) -> None:
    ((entry,), (told,), limits) = summary(disturbed), details(disturbed), Limits()
    seconds = told["measuring_seconds"]
    usual = entry["rounds"] >= limits.usual_rounds and seconds > limits.usual_seconds
    most = entry["rounds"] == limits.maximum_rounds or seconds > limits.maximum_seconds
    assert entry["rounds"] >= limits.minimum_rounds and (entry["settled"] or usual or most)


def test_the_probe_reads_beyond_the_caches_in_each_window(disturbed: Path) -> None:
    (told,) = details(disturbed)
    windows = told["gauge_windows_us"]
    assert sum(rounds for rounds, *_ in windows) == told["rounds"]
    assert all(us > 0 for _, *read in windows for us in read)
    assert told["gauge_bytes"]["memory"] >= min(beyond_caches_bytes(1 << 60), FIRST_MEMORY_BYTES)


def test_what_the_host_does_to_the_cores_is_read_and_kept_for_later_runs(tmp_path: Path) -> None:
    """Nobody looks for the load of others, so that there may be some."""
    threads = range(1, min(len(binding_order()), 2) + 1)
    words = f"--threads={','.join(map(str, threads))}"
    collected(tmp_path, words, OP_PROFILER_PATIENCE_SECONDS="0", **in_workers_first(tmp_path / "hook", _NO_METER))
    for count, told in zip(threads, details(tmp_path), strict=True):
        assert told["compute_usual_us"] > 0 and ("exchange_us" in told) == (count > 1)
    kept = {path.name.split("-")[2] for path in (tmp_path / "cache").rglob("states/*-*-*-*.json")}
    assert kept >= ({"compute", "exchange"} if len(threads) > 1 else {"compute"})
