"""Correlations of latency and factors: known answers, what is not enough, and the trials that ship."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from op_profiler.analysis import table as table_module
from op_profiler.analysis.correlations import MINIMUM, Correlation, correlations
from op_profiler.analysis.table import Factor, FactorTable, factor_table, load_rows, plain_anchor
from op_profiler.dataset.flat import COLUMNS
from op_profiler.errors import DatasetError, UnknownNameError
from op_profiler.report.page.analyses import analysis_part
from op_profiler.shipped import shipped_trials

from ..installed import needs

pytestmark = needs("pandas", "sklearn")


def row(**changes: Any) -> dict[str, Any]:
    """A measurement in the flat table, of an operator around a convolution."""
    values: dict[str, Any] = dict.fromkeys(column.name for column in COLUMNS)
    size = changes.pop("size", 8)
    values |= {"operator_key": "o", "anchor": "nn.conv2d", "op_names": ["nn.conv2d"], "schedule_key": "s"}
    values |= {"inputs": [{"shape": [1, 4, size, size, 16], "dtype": "float32"}], "layouts": {"data_layout": "NCHW16c"}}
    values |= {"outputs": [{"shape": [1, 2, size, size, 16], "dtype": "float32"}], "params": [], "structure": ""}
    values |= {"attrs": [{"kernel_size": [3, 3], "strides": [1, 1]}], "flops": size * size, "bytes_read": 4}
    values |= {"bytes_written": 4, "threads": 1, "cache": "hot", "device_key": "d", "model_key": "", "rounds": 9}
    values |= {"ci_low_us": None, "ci_high_us": None, "std_us": 0.0, "complete": True, "foreign_load": False}
    return values | {"origin": "default", "median_us": 1.0} | changes


def one(rows: list[dict[str, Any]], factor: str) -> Correlation:
    (found,) = correlations(factor_table(rows), [factor])
    return found


def test_a_power_law_between_operators_is_a_correlation_of_one() -> None:
    rows = [row(operator_key=str(n), size=n, median_us=3.0 * n**2) for n in range(2, 14)]
    found = one(rows, "input_size")
    assert (found.compared, found.samples, found.not_enough) == ("between operators", 12, None)
    assert found.pearson == pytest.approx(1) and found.spearman == pytest.approx(1)
    assert found.kendall == pytest.approx(1) and found.kendall_p is not None and found.kendall_p < 1e-6
    assert found.mutual_information is not None and found.mutual_information > 0.5


def test_a_thousand_trials_of_one_operator_are_one_sample_between_operators() -> None:
    rows = [row(operator_key=str(n), size=n, schedule_key=str(k), median_us=n + k) for n in (2, 3) for k in range(500)]
    found = one(rows, "flops")
    assert found.samples == 2 and found.spearman is None
    assert found.not_enough == f"2 samples (operators), {MINIMUM} are needed"


def test_schedules_are_compared_within_operators() -> None:
    """Large operators have large tiles, and yet a larger tile is faster in each: between operators it looks slower."""
    rows = [
        row(operator_key=str(n), schedule_key=f"{n}{k}", tile={"oc": 2, "oh": n * 2**k}, median_us=100.0**n / 2**k)
        for n in (1, 2, 3)
        for k in range(5)
    ]
    for factor in ("tile", "tile.oh"):
        found = one(rows, factor)
        assert (found.compared, found.samples, found.operators) == ("within operators", 15, 3)
        assert found.pearson == pytest.approx(-1) and found.spearman == pytest.approx(-1)
        assert found.kendall is not None and found.kendall < -0.9
    assert one(rows, "tile.oc").not_enough == "it is 2 in every measurement"


def test_threads_are_compared_within_a_schedule() -> None:
    rows = [row(schedule_key=str(k), threads=n, median_us=10.0 * 2**k / n) for k in range(4) for n in (1, 2, 4)]
    found = one(rows, "threads")
    assert found.samples == 12 and found.spearman == pytest.approx(-1) and found.pearson == pytest.approx(-1)
    apart = [row(schedule_key=str(n), threads=n, median_us=10.0 / n) for n in range(1, 20)]
    assert "does not vary within" in str(one(apart, "threads").not_enough)


def test_what_goes_up_and_down_has_information_and_no_correlation() -> None:
    rows = [
        row(schedule_key=f"{x}{k}", vectorize=2**x, median_us=math.exp((x - 3) ** 2) + k / 100)
        for x in range(7)
        for k in range(20)
    ]
    found = one(rows, "vectorize")
    assert found.spearman == pytest.approx(0, abs=0.05)
    assert found.mutual_information is not None and found.mutual_information > 1


def test_categories_have_eta_and_no_pearson() -> None:
    told = [row(schedule_key=str(k), unroll="ab"[k % 2], median_us=1.0 + k % 2) for k in range(20)]
    found = one(told, "unroll")
    assert found.eta == pytest.approx(1) and found.eta_p is not None and found.eta_p < 1e-3
    assert found.pearson is None and found.spearman is None and found.kendall is None
    draw = random.Random(0)
    noise = [row(schedule_key=str(k), unroll=draw.choice("ab"), median_us=draw.uniform(1, 2)) for k in range(400)]
    found = one(noise, "unroll")
    assert found.eta is not None and found.eta < 0.15 and found.eta_p is not None and found.eta_p > 0.05


def test_what_is_not_enough_says_why_and_is_never_zero() -> None:
    rows = [row(schedule_key=str(k), fuse=k % 3, median_us=1.0 + k) for k in range(MINIMUM - 1)]
    reasons = {name: one(rows, name) for name in ("fuse", "stride", "compute_at", "threads")}
    assert reasons["fuse"].not_enough == f"{MINIMUM - 1} samples (measurements), {MINIMUM} are needed"
    assert reasons["stride"].not_enough == "it is 1 in every measurement"
    assert reasons["compute_at"].not_enough == "no measurement contains it"
    same = [row(schedule_key=str(k), fuse=k % 3) for k in range(30)]
    reasons["same"] = one(same, "fuse")
    assert reasons["same"].not_enough == "the latency is the same in every sample"
    assert all(c.spearman is None and c.mutual_information is None for c in reasons.values())


def test_measurements_that_say_nothing_are_left_out() -> None:
    bad: list[dict[str, Any]] = [
        {"error": "crash", "median_us": None},
        {"complete": False},
        {"foreign_load": True},
        {"origin": "vendor"},
    ]
    rows = [row(), *(row(**changes) for changes in bad)]
    table = factor_table(rows)
    assert len(table.frame) == 1
    assert table.left_out == {"failed": 1, "not complete": 1, "disturbed": 1, "of a vendor's kernel": 1}
    assert len(factor_table(rows, noisy=True).frame) == 2
    with pytest.raises(DatasetError, match="no usable measurement .1 failed, .*op-profiler collect.*--include-noisy"):
        factor_table(rows[1:])


def test_of_too_many_measurements_operators_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row(operator_key=str(n), schedule_key=str(k), tile={"oc": k} if k else None, median_us=1.0 + n + k)
        for k in range(5)
        for n in range(40)
    ]
    assert factor_table(rows).drawn == ""
    monkeypatch.setattr(table_module, "MOST_ROWS", 60)
    table = factor_table(rows)
    counts = table.frame["operator_key"].value_counts()
    assert 40 < len(table.frame) <= 60 and set(counts) == {5}
    assert table.not_drawn == 200 - len(table.frame)
    assert f"{len(counts)} operators that were drawn" in table.drawn and f": {table.not_drawn} usable" in table.drawn
    whole = factor_table([one for one in rows if one["operator_key"] in counts.index])
    assert whole.frame.equals(table.frame) and whole.not_drawn == 0
    assert analysis_part([], [], table.drawn).drawn == table.drawn


def test_factors_of_an_operator() -> None:
    (first,) = factor_table([row(size=8)]).frame.to_dict("records")
    assert (first["input_channels"], first["output_channels"], first["input_size"]) == (64, 32, 4096)
    assert (first["batch"], first["kernel"], first["stride"], first["bytes"]) == (1, 9, 1, 8)


def test_intervals_are_those_stored_or_of_student() -> None:
    stored = row(ci_low_us=0.9, ci_high_us=1.2)
    few = row(rounds=3, std_us=0.1)
    frame = factor_table([stored, few, row(rounds=1)]).frame
    half = 4.3027 * 0.1 / math.sqrt(3)
    assert frame["low_us"][:2].tolist() == pytest.approx([0.9, 1 - half], rel=1e-4)
    assert frame["high_us"][1] == pytest.approx(1 + half, rel=1e-4) and math.isnan(frame["low_us"][2])


@pytest.fixture(scope="module")
def shipped() -> Iterator[FactorTable]:
    path = shipped_trials()
    if path is None:
        pytest.skip("no results/schedule_trials.parquet here")
    yield factor_table(load_rows(None, Path(path)))


@pytest.mark.parametrize(("kind", "levels", "groups"), [("number", 2, 15), ("number", 8, 3), ("category", 2, 15)])
def test_nothing_is_found_within_operators_where_nothing_is(
    kind: Literal["number", "category"], levels: int, groups: int
) -> None:
    """Of two samples a group one tells nothing new: p below 0.05 comes in 5 % of cases."""
    noise, found = np.random.default_rng(0), list[Correlation]()
    for _ in range(300):
        rows = [
            row(operator_key=str(group), threads=threads, median_us=(1 + group) * np.exp(noise.normal(0, 0.05)))
            for group in range(groups)
            for threads in range(1, levels + 1)
        ]
        frame = factor_table(rows).frame
        frame["threads"] = frame["threads"].astype(str if kind == "category" else float)
        table = FactorTable(frame, {"threads": Factor("threads", "setting", kind, "threads")}, {})
        found += correlations(table, ["threads"])
    for name in ("eta_p",) if kind == "category" else ("pearson_p", "spearman_p", "kendall_p"):
        assert 0.02 < np.mean([getattr(one, name) < 0.05 for one in found]) < 0.09


def test_of_combinations_that_all_operators_have_the_same_is_chosen_in_whatever_order() -> None:
    noise = np.random.default_rng(0)
    rows = [
        row(operator_key=str(n), size=n, threads=threads, median_us=n**2 * (1 if threads == 1 else noise.uniform(1, 9)))
        for n in range(2, 14)
        for threads in (1, 2)
    ]
    found = [one(rows, "input_size"), one(rows[::-1], "input_size")]
    assert found[0] == found[1] and found[0].pearson == pytest.approx(1)
    assert found[0].under == {"threads": 1}


def test_the_shipped_trials(shipped: FactorTable) -> None:
    assert len(shipped.frame) > 6900
    found = {(plain_anchor(c.anchor), c.factor): c for c in correlations(shipped, ["flops", "vectorize", "threads"])}
    flops = found["nn.conv2d", "flops"]
    assert flops.spearman is not None and flops.spearman > 0.7 and flops.samples == flops.operators
    lanes = found["nn.conv2d", "vectorize"]
    assert lanes.pearson is not None and lanes.pearson < -0.2 and lanes.operators > 25
    assert found["nn.conv2d", "threads"].not_enough == "it is 2 in every measurement"


def test_names_that_do_not_exist(shipped: FactorTable) -> None:
    with pytest.raises(UnknownNameError, match="nearest known: threads"):
        correlations(shipped, ["thread"])
    assert set(shipped.of_anchor("nn.conv2d").frame["anchor"]) == {"nn.contrib_conv2d_NCHWc"}
    with pytest.raises(UnknownNameError, match="nn.contrib_conv2d_NCHWc"):
        shipped.of_anchor("nn.conv2")
