"""How many cores a process can keep busy, as the kernel's files tell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from op_profiler import cores


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "100000000 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu.max": "something else"}, None),
    ],
)
def test_a_container_has_no_more_cores_than_it_has_time_of(
    files: dict[str, str], limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(cores, "_CGROUPS", tmp_path)
    assert cores.usable_cores() == (len(os.sched_getaffinity(0)) if limit is None else limit)


@pytest.mark.skipif(len(cores.available_cores()) < 2, reason="one core")
def test_a_thread_that_is_bound_changes_nothing_and_can_be_unbound() -> None:
    """As TVM's pool binds the one that calls it."""
    usable, available = cores.usable_cores(), cores.available_cores()
    os.sched_setaffinity(0, available[:1])
    assert (cores.usable_cores(), cores.available_cores()) == (usable, available)
    cores.unbind()
    assert os.sched_getaffinity(0) == set(available)
