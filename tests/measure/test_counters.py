"""The kernel's counters, with the events that this kernel has."""

from __future__ import annotations

import mmap
import threading
import time
from pathlib import Path

import pytest

from op_profiler.measure import counters as module
from op_profiler.measure.counters import EVENT_NAMES, Counters, Counts, counts_of_calls, scaled

PAGES = 64


def write_new_pages() -> None:
    """The kernel gives each page when it is written to first."""
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1


def test_every_event_is_counted_or_has_a_reason() -> None:
    (found,) = counts_of_calls([write_new_pages], 3)
    assert set(found.values) | set(found.missing) == set(EVENT_NAMES)
    assert not set(found.values) & set(found.missing)
    assert all(reason for reason in found.missing.values())
    assert all(value >= 0 for value in found.values.values())


def test_page_faults_of_a_call_are_its_own() -> None:
    none, some, again = counts_of_calls([lambda: None, write_new_pages, lambda: None], 5)
    if "page_faults" in some.missing:
        assert "perf_event_paranoid" in some.missing["page_faults"] or "refuses" in some.missing["page_faults"]
        pytest.skip(some.missing["page_faults"])
    assert some.values["page_faults"] >= PAGES
    assert none.values["page_faults"] < PAGES and again.values["page_faults"] < PAGES


def test_threads_are_counted_beside_the_one_that_asks() -> None:
    begin, done = threading.Event(), threading.Event()

    def work() -> None:
        begin.wait()
        write_new_pages()
        done.set()
        stop.wait()

    stop = threading.Event()
    thread = threading.Thread(target=work)
    thread.start()

    def let_it_work() -> None:
        begin.set()
        done.wait()

    with Counters() as counters:
        (found,) = counters.of_each([let_it_work])
    stop.set()
    thread.join()
    if "page_faults" in found.missing:
        pytest.skip(found.missing["page_faults"])
    assert found.values["page_faults"] >= PAGES


def test_a_call_that_sleeps_is_switched() -> None:
    with Counters([threading.get_native_id()]) as counters:
        (found,) = counters.of_each([lambda: time.sleep(0.001)])
    if "context_switches" in found.missing:
        pytest.skip(found.missing["context_switches"])
    assert found.values["context_switches"] >= 1


def test_a_group_that_took_turns_is_scaled() -> None:
    assert scaled(100, enabled=10, running=5) == 200.0
    assert scaled(100, enabled=10, running=10) == 100.0
    assert scaled(0, enabled=10, running=0) == 0.0


def test_an_event_that_some_walks_missed_is_the_median_of_the_others() -> None:
    others = {"cycles": "in use by others"}
    missed = Counts({}, others)
    empty = [Counts({"cycles": 5.0}, {}), missed]
    assert module._median([*(Counts({"cycles": n}, {}) for n in (90.0, 105.0, 125.0)), missed], empty).values == {
        "cycles": 100.0
    }
    assert module._median([Counts({"cycles": 7.0}, {})], [missed]) == Counts({"cycles": 7.0}, {})
    assert module._median([missed, missed], empty) == Counts({}, others)


def test_what_is_forbidden_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/perf_event_paranoid").write_text("3\n")
    (tmp_path / "cpuinfo").write_text("vendor_id\t: SomeoneElse\n")
    monkeypatch.setattr(module, "_perf_event_open", lambda *_: (-1, 13))
    with Counters([1], proc=tmp_path) as counters:
        (found,) = counters.of_each([lambda: None])
    assert found.values == {}
    assert found.missing["l2_misses"] == "no event of this processor is known for it"
    assert "perf_event_paranoid is 3" in found.missing["cycles"] and "sysctl" in found.missing["cycles"]
