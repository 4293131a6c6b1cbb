"""Rows that look wrong are found, and others are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.dataset.checks import DISAGREEMENT, check_rows
from op_profiler.dataset.formats import tinynas
from op_profiler.operators.kinds.shapes import operator_of

LIBRARY = Path(__file__).resolve().parents[4] / "shared" / "data" / "tinynas_v100_fp32.txt"


@pytest.fixture
def table() -> dict[str, np.ndarray]:
    """A device with 1 TFLOP/s and 5 us a call, and 10 % of noise."""
    generator = np.random.default_rng(0)
    flops = 10 ** generator.uniform(6, 11, 200)
    latency = (5 + flops / 1e6) * generator.lognormal(0, 0.1, 200)
    return {"flops": flops, "bytes_moved": flops / 50, "latency_us": latency, "identity": np.arange(200)}


def kinds(**table: Any) -> list[tuple[int, str]]:
    return [(finding.row, finding.kind) for finding in check_rows(**table)]


def test_nothing_is_wrong_with_a_clean_table(table: dict[str, np.ndarray]) -> None:
    assert kinds(**table) == []


def test_a_factor_of_a_thousand(table: dict[str, np.ndarray]) -> None:
    table["latency_us"][7] /= 1000
    table["latency_us"][100] *= 1000
    found = kinds(**table)
    assert (7, "unit") in found and (100, "unit") in found
    assert {row for row, _ in found} == {7, 100}


def test_too_fast_for_the_device(table: dict[str, np.ndarray]) -> None:
    row = int(np.argmax(table["flops"]))
    assert kinds(**table, peak_flops_per_s=3e12, peak_bytes_per_s=1e12) == []
    table["latency_us"][row] /= 10
    assert kinds(**table, peak_flops_per_s=3e12) == [(row, "compute"), (row, "memory")]
    few = {name: values[[row]] for name, values in table.items()}
    assert kinds(**few) == []  # one row tells nothing about its device
    assert kinds(**few, peak_flops_per_s=3e12, peak_bytes_per_s=1e9) == [(row - row, "compute"), (0, "memory")]


def test_failures_are_found_and_do_not_disturb(table: dict[str, np.ndarray]) -> None:
    table["latency_us"][:4] = [np.nan, np.inf, 0, -1]
    assert kinds(**table) == [(row, "failed") for row in range(4)]


def test_duplicates_that_disagree(table: dict[str, np.ndarray]) -> None:
    identity = table["identity"] = table["identity"].astype(str)
    identity[1] = identity[0]
    table["flops"][1], table["bytes_moved"][1] = table["flops"][0], table["bytes_moved"][0]
    table["latency_us"][1] = table["latency_us"][0] * (DISAGREEMENT - 0.01)
    assert kinds(**table) == []
    table["latency_us"][1] = table["latency_us"][0] * (DISAGREEMENT + 0.01)
    assert kinds(**table) == [(0, "duplicate"), (1, "duplicate")]


def test_of_three_duplicates_only_the_odd_one() -> None:
    time = np.array([100.0, 103.0, 250.0])
    (found,) = check_rows(np.ones(3), np.ones(3), time, np.zeros(3, dtype=int))
    assert (found.row, found.kind) == (2, "duplicate") and "100 to 250 us" in found.reason


def test_an_empty_table() -> None:
    assert check_rows(np.array([]), np.array([]), np.array([]), np.array([])) == []


@pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not here")
def test_a_real_table_has_few_suspicious_rows_and_a_wrong_unit_stands_out() -> None:
    entries = [entry for _, entry in tinynas.FORMAT.read(LIBRARY, "float32").entries[::10]]
    operators = [operator_of(entry.shape) for entry in entries]
    latency = np.array([entry.median_us or np.nan for entry in entries])
    flops = np.array([operator.flops for operator in operators], dtype=float)
    moved = np.array([operator.bytes_read + operator.bytes_written for operator in operators], dtype=float)
    identity = np.arange(len(entries))
    found = [f for f in check_rows(flops, moved, latency, identity) if f.kind != "failed"]
    assert len(found) < len(entries) / 500
    wrong = np.flatnonzero(np.isfinite(latency) & (latency > 50))[:20]
    latency[wrong] /= 1000
    again = {f.row for f in check_rows(flops, moved, latency, identity) if f.kind != "failed"}
    assert set(wrong.tolist()) <= again
