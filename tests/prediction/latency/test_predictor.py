"""Predictors of operators and networks, on times that follow a known law."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from op_profiler.errors import DatasetError, UnknownNameError, UsageError
from op_profiler.operators.kinds.shapes import Conv, DenseLayer, operator_of
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.prediction.latency import PREDICTORS, adapt
from op_profiler.prediction.latency.adapt import adapted
from op_profiler.prediction.latency.coverage import Coverage
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.features import NAMES
from op_profiler.prediction.latency.fit import fingerprint, fit, measured_of
from op_profiler.prediction.latency.interpolation import families_of
from op_profiler.prediction.latency.intervals import conformal_quantile, first_half, sum_correlation, sum_half_width
from op_profiler.prediction.latency.network import Network, predict_network, predict_networks
from op_profiler.prediction.latency.operator_predictor import MEASURED, UNSUPPORTED, OperatorPredictor, query_of
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.roofline import Roofline, Work
from op_profiler.report.page.predictions import estimates_of, prediction_part
from op_profiler.report.prediction import regressor_csv, render, show_prediction, summary

Law = Callable[[Operator, int], float]
Fitted = Callable[[str], OperatorPredictor]
NOISE = 0.02  # of the dataset in conftest.py


def test_what_was_measured_is_looked_up(predictor: OperatorPredictor, known: Examples) -> None:
    found = predictor.predict(query_of(known))
    assert (found.tier == MEASURED).all()
    assert found.latency_us == pytest.approx(known.latency_us)


def test_strangers_are_close_and_their_intervals_hold(
    law_us: Law, predictor: OperatorPredictor, strangers: list[Operator]
) -> None:
    for threads in (1, 2):
        found = predictor.predict(strangers, threads=threads, traffic_bytes=1e6)
        truth = np.array([law_us(o, threads) for o in strangers])
        assert not {"measured", "unsupported"} & set(found.tiers())
        error = np.abs(found.latency_us / truth - 1)
        assert np.median(error) < 0.1
        assert np.mean((found.low_us <= truth) & (truth <= found.high_us)) > 0.8


def test_the_tile_of_a_prime_width_is_seen(predictor: OperatorPredictor) -> None:
    def conv(size: int) -> Operator:
        sizes: dict[str, Any] = {"batch": 1, "in_channels": 112, "height": size, "width": size, "out_channels": 144}
        shape = Conv(**sizes, kernel=(3, 3), stride=(1, 1), padding=(1, 1, 1, 1), activation="nn.relu")
        return operator_of(shape)

    prime, whole = predictor.predict([conv(29), conv(28)], traffic_bytes=1e6).latency_us
    assert prime / whole > 1.6


def test_a_probe_raises_the_peaks_that_operators_missed(known: Examples) -> None:
    query = query_of(known)
    alone = Roofline.of(query.amounts, query.threads, known.latency_us)
    probed = {"threads": [1, 4], "flops_per_us": [2 * alone.flops_per_us[0], 1e9], "bytes_per_us": [7e3, 1.0]}
    both = Roofline.of(query.amounts, query.threads, known.latency_us, probed)
    assert both.flops_per_us.tolist() == [2 * alone.flops_per_us[0], alone.flops_per_us[1]]
    # No operator is larger than caches: of memory the probe knows more.
    assert both.bytes_per_us.tolist() == [7e3, alone.bytes_per_us[1]]


def test_what_stays_in_a_cache_is_no_traffic_of_the_memory() -> None:
    cache, memory, call = 300e3, 50e3, 0.5
    moved = np.repeat([40e3, 1e6, 200e6], 20)
    latency = call + moved / np.where(moved > 64e6, memory, cache)
    latency[:20] = call + 0.03  # of so short ones most is the call
    work = Work(np.zeros(60), moved, np.zeros(60))
    threads = np.ones(60, dtype=int)
    found = Roofline.of(work, threads, latency, cache_bytes=32 << 20)
    assert found.bytes_per_us[0] == pytest.approx(memory, rel=0.05)
    assert not found.memory_probed[0]
    probe: dict[str, list[float]] = {"threads": [1], "flops_per_us": [1.0], "bytes_per_us": [48e3]}
    small = slice(0, 40)  # nothing that caches cannot hold
    few = Roofline.of(Work(*(part[small] for part in (work.flops, moved, work.functions))), threads[small],
                      latency[small], probe, 32 << 20)  # fmt: skip
    assert few.bytes_per_us.tolist() == [48e3]
    assert few.memory_probed[0]


def test_a_sampled_time_is_corrected_for_a_network(law_us: Law, known: Examples) -> None:
    factor = np.where(known.sampled[known.model], 1.6, 1.0)
    fitted = fit(dataclasses.replace(known, latency_us=known.latency_us * factor), folds=2)
    rows = np.flatnonzero(known.sampled[known.model])
    alone = query_of(known).take(rows)
    measured = fitted.predict(alone)
    assert set(measured.tiers()) == {"measured"}
    inside = fitted.predict(dataclasses.replace(alone, network=np.ones(len(rows), dtype=bool)))
    assert set(inside.tiers()) == {"sampled"}
    truth = np.array([law_us(known.operators[i], n) for i, n in zip(known.operator[rows], known.threads[rows])])
    assert np.median(np.abs(measured.latency_us / truth - 1)) > 0.5
    assert np.median(np.abs(inside.latency_us / truth - 1)) < 0.3
    assert (inside.low_us < inside.latency_us).all()


def test_a_sampled_time_belongs_to_the_batch_that_tells_how_it_was_called(known: Examples) -> None:
    batch = np.flatnonzero(known.sampled[known.model])[0]
    three = known.where(np.full(3, batch))
    three = dataclasses.replace(
        three,
        latency_us=np.array([1.8, 3.0, 2.9]),
        traffic_bytes=np.full(3, 9e6),
        working_set_bytes=np.array([5e5, 2e6, 9e6]),
        occurrences=np.array([10, 1, 1]),
    )
    for batches, (latency_us, calls, working_set_bytes) in (
        (slice(0, 2), (1.8, 10, 5e5)),
        (slice(0, 3), (2.9, 1, 9e6)),
    ):
        some = three.where(np.arange(3)[batches])
        measured = measured_of(some, query_of(some))
        asked = dataclasses.replace(query_of(some).take(np.array([0])), network=np.array([True]), calls=np.array([20]))
        there, at = measured.find(asked.sampled())
        alone = measured.as_sampled(asked, at)
        assert there.all() and measured.latency_us[at].tolist() == [latency_us] and not alone.network.any()
        assert (alone.calls.tolist(), alone.working_set_bytes.tolist()) == ([calls], [working_set_bytes])


def test_families_keep_blocks_transposes_and_contexts_apart(strangers: list[Operator]) -> None:
    one = Query.of(strangers[:1])
    names = ("in_block", "out_block", "transposed_a", "transposed_b")
    others = []
    for name in names:
        features = one.features.copy()
        features[:, NAMES.index(name)] += 1
        others.append(dataclasses.replace(one, features=features))
    others.append(one.sampled())
    assert len({int(families_of(query)[0]) for query in (one, *others)}) == len(others) + 1


def test_both_thread_counts_of_an_operator_are_on_one_side(known: Examples) -> None:
    half = first_half(query_of(known))
    assert 0.3 < half.mean() < 0.7
    for operator in np.unique(known.operator):
        assert len(np.unique(half[known.operator == operator])) == 1


def test_thread_counts_that_were_not_measured_are_refused(
    predictor: OperatorPredictor, strangers: list[Operator]
) -> None:
    with pytest.raises(UsageError, match="no measurements at 3 threads.*there are at 1, 2"):
        predictor.predict(strangers[:1], threads=3)


def test_unknown_ops_get_a_least_time_and_unknown_dtypes_nothing(
    law_us: Law, predictor: OperatorPredictor, strangers: list[Operator]
) -> None:
    new_op = dataclasses.replace(strangers[0], anchor="nn.unheard_of", op_names=("nn.unheard_of",))
    halves = tuple(TensorSpec(t.shape, "float16") for t in strangers[0].inputs)
    found = predictor.predict([new_op, dataclasses.replace(strangers[0], inputs=halves)])
    assert found.tiers() == ["bound", "unsupported"]
    assert np.isnan([*found.latency_us, *found.high_us, found.low_us[1]]).all(), "no interval, since nobody knows one"
    assert 0.2 * law_us(strangers[0], 1) < found.low_us[0] < law_us(strangers[0], 1)
    assert not found.outside.any()


def test_what_caches_may_hold_does_not_count_for_a_least_time() -> None:
    line = Roofline(*(np.array([one]) for one in (1, 100.0, 10.0, 1.0, 0.5, False, 1e4)))
    work = Work(np.array([500.0, 0, 0]), np.array([1e4, 1e4, 1e6]), np.array([0.0, 7, 0]))
    threads = np.ones(3, dtype=int)
    assert line.least_us(work, threads, 20_000).tolist() == [5, 1, 1e5]
    assert line.least_us(work, threads, None).tolist() == [5, 1, 100], "how much caches hold is not known"


def test_behind_a_heavy_op_an_unknown_one_widens_the_interval(predictor: OperatorPredictor) -> None:
    known = operator_of(DenseLayer(batch=60, in_features=500, out_features=500))
    more = dataclasses.replace(known, op_names=(*known.op_names, "nn.unheard_of"))
    found = predictor.predict([known, more])
    assert found.tiers()[1] == "regressed" and found.outside.tolist() == [False, True]
    assert found.latency_us[1] == pytest.approx(found.latency_us[0], rel=0.3)
    width = np.log(found.high_us / found.low_us)
    assert width[1] > 1.3 * width[0]


def test_beyond_the_data_is_said_and_widens_the_interval(predictor: OperatorPredictor) -> None:
    inside = operator_of(DenseLayer(batch=64, in_features=500, out_features=500, bias=True))
    huge = operator_of(DenseLayer(batch=4096, in_features=8192, out_features=8192, bias=True))
    found = predictor.predict([inside, huge])
    assert found.outside.tolist() == [False, True]
    width = np.log(found.high_us / found.low_us)
    assert width[1] > width[0]
    # The roofline carries it: a thousand times the work takes some hundred times as long, not as long as the largest.
    assert found.latency_us[1] > 50 * found.latency_us[0]


@pytest.mark.parametrize("choice", ["lookup", "interpolation", "xgboost", "random_forest", "decision_tree", "roofline"])
def test_every_choice_answers_by_its_own_tier(choice: str, fitted: Fitted, strangers: list[Operator]) -> None:
    tiers = set(fitted(choice).predict(strangers, traffic_bytes=1e6).tiers())
    allowed = {
        "lookup": {"unsupported"},
        "interpolation": {"interpolated", "unsupported"},
    }.get(choice, {"regressed"})
    assert tiers <= allowed
    assert tiers & allowed


def test_mean_is_the_mean_of_the_three(fitted: Fitted, strangers: list[Operator]) -> None:
    parts = [fitted(choice).predict(strangers) for choice in ("xgboost", "random_forest", "decision_tree")]
    found = fitted("mean").predict(strangers)
    assert found.latency_us == pytest.approx(np.mean([p.latency_us for p in parts], axis=0), rel=1e-6)


def test_all_that_only_regress_stand_beside_each_other(fitted: Fitted, strangers: list[Operator]) -> None:
    choices = [name for name, method in PREDICTORS.available() if method.only_regresses]
    assert choices == ["decision_tree", "random_forest", "xgboost", "mean"]
    network = Network.of("net", strangers[:8])
    found = {name: predict_network(fitted(name), network) for name in choices}
    rows = list(csv.DictReader(io.StringIO(regressor_csv(found))))
    convolutions = [at for at, one in enumerate(network.operators) if "conv2d" in one.anchor]
    assert 0 < len(rows) == len(convolutions) < 8
    for name, prediction in found.items():
        times = prediction.operators.latency_us[convolutions]
        assert [float(row[f"{name}_us"]) for row in rows] == pytest.approx(times.tolist(), rel=1e-5)


def test_a_network_is_the_sum_of_its_calls(
    law_us: Law, predictor: OperatorPredictor, strangers: list[Operator]
) -> None:
    network = Network.of("net", [*strangers[:10], *strangers[:5]])
    found = predict_network(predictor, network, threads=2)
    assert network.calls.tolist() == [2] * 5 + [1] * 5
    kernels = float((found.operators.latency_us * network.calls).sum())
    assert found.total_us == pytest.approx(kernels)
    truth = sum(law_us(o, 2) for o in [*strangers[:10], *strangers[:5]])
    assert found.total_us == pytest.approx(truth, rel=0.1)
    assert found.low_us < found.total_us < found.high_us
    assert sum(found.tiers.values()) == pytest.approx(1.0)
    assert json.loads(json.dumps(found.to_json()))["unsupported"] == []


def test_a_network_of_one_operator_has_the_interval_of_its_operator(
    predictor: OperatorPredictor, strangers: list[Operator]
) -> None:
    predictor = dataclasses.replace(predictor, correlation=0.3)
    for calls in (1, 5):
        found = predict_network(predictor, Network.of("net", strangers[:1] * calls))
        one = [found.operators.low_us[0] * calls, found.operators.high_us[0] * calls]
        assert [found.low_us, found.high_us] == pytest.approx(one)
    many = predict_network(predictor, Network.of("net", strangers[:50]))
    width = np.log(many.high_us / many.total_us)
    shares = many.operators.latency_us / many.total_us
    mean = float((shares * np.log(many.operators.high_us / many.operators.latency_us)).sum())
    assert np.sqrt(0.3) * mean < width < 0.8 * mean


def test_the_interval_of_a_sum_is_calibrated_by_what_its_operators_have_in_common() -> None:
    rng = np.random.default_rng(3)
    shares, widths = rng.dirichlet(np.ones(12), 2000), rng.uniform(0.1, 0.3, (2000, 12))
    for correlation in (0.0, 0.4):
        common = rng.standard_normal((2000, 1)) * np.sqrt(correlation)
        errors = widths / 1.645 * (common + np.sqrt(1 - correlation) * rng.standard_normal((2000, 12)))
        off, parts = (shares * errors).sum(axis=1), shares * widths
        seen = [sum_correlation(part, error) for part, error in zip(parts[:1000], off[:1000])]
        half = [sum_half_width(part, conformal_quantile(np.array(seen))) for part in parts[1000:]]
        assert 0.86 < np.mean(np.abs(off[1000:]) <= half) < 0.94
    assert np.isnan(sum_correlation(np.array([0.2]), 0.1)), "one operator does not tell"


def test_a_network_names_what_is_missing(predictor: OperatorPredictor, strangers: list[Operator]) -> None:
    foreign = dataclasses.replace(
        strangers[0], name="fused_foreign", inputs=tuple(TensorSpec(t.shape, "int8") for t in strangers[0].inputs)
    )
    found = predict_network(predictor, Network.of("net", [foreign, *strangers[1:4]]))
    assert found.unsupported == found.without_estimate == ("fused_foreign",)
    alone = predict_network(predictor, Network.of("net", strangers[1:4]))
    assert found.operators.tier[0] == UNSUPPORTED
    assert found.partial_us == pytest.approx(alone.total_us, rel=0.05)
    assert found.low_us == pytest.approx(alone.low_us, rel=0.05), "what the others take, the network takes at least"
    told = json.loads(json.dumps(found.to_json()))
    assert told["total_us"] is None and told["interval_us"] == [found.low_us, None]
    assert told["partial_us"] == found.partial_us
    assert summary(found).startswith(
        f"total at 1 thread: unknown, at least {found.low_us:.1f} us: 1 of 4 operators without an estimate; the "
        f"others take {found.partial_us:.1f} us ("
    )
    lines = render([found], "runtime_lut", predictor.device).splitlines()
    assert lines[-3:] == [
        "not found: fused_foreign",
        f"The run-time latency of the others is {found.partial_us:.1f}",
        "The network run-time latency is not found",
    ]


def test_a_network_takes_at_least_what_its_bounded_operators_do(
    predictor: OperatorPredictor, strangers: list[Operator]
) -> None:
    new_op = dataclasses.replace(strangers[0], name="fused_new", anchor="unheard_of", op_names=("unheard_of",))
    alone = predict_network(predictor, Network.of("net", [new_op, new_op]))
    assert alone.bounded == ("fused_new",) and not alone.unsupported and not alone.tiers
    assert alone.low_us == 2 * alone.operators.low_us[0] > 0
    assert np.isnan([alone.total_us, alone.high_us, alone.partial_us]).all()
    both = predict_network(predictor, Network.of("net", [new_op, new_op, *strangers[1:4]]))
    rest = predict_network(predictor, Network.of("net", strangers[1:4]))
    assert both.low_us == pytest.approx(rest.low_us + alone.low_us, rel=0.05) and np.isnan(both.total_us)
    (row, *_) = csv.DictReader(io.StringIO(render([both], "csv", predictor.device)))
    assert (row["tier"], row["latency_us"], row["high_us"]) == ("bound", "", "") and float(row["low_us"]) > 0
    (part,) = [estimate for estimate in estimates_of(both).values() if estimate.tier == "bound"]
    assert part.us is None and part.high_us is None and part.low_us is not None
    shown = prediction_part(both)
    assert shown.us is None and shown.partial_us == pytest.approx(both.partial_us, rel=1e-3)
    assert shown.without_estimate == ["fused_new"]
    console = Console(file=io.StringIO(), width=150)
    show_prediction(console, both, predictor)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"at least {both.operators.low_us[0]:.3g}" in text and "fused_" not in text
    assert "since too few similar operators were measured: unheard_of " in text


def test_a_heavy_op_in_a_dtype_that_only_others_had_is_bounded(
    predictor: OperatorPredictor, strangers: list[Operator]
) -> None:
    """Who has seen int8 in a cast knows nothing of a convolution of int8."""
    known, inputs = strangers[0], tuple(TensorSpec(t.shape, "int8") for t in strangers[0].inputs)
    foreign = dataclasses.replace(known, inputs=inputs)
    knows_casts = dataclasses.replace(predictor, coverage=_with_words(predictor.coverage, "cast", "dtype int8"))
    found = knows_casts.predict([foreign, known], traffic_bytes=1e6)
    assert found.tiers()[0] == "bound" and found.tiers()[1] != "bound"
    has_seen = dataclasses.replace(knows_casts, coverage=_with_words(knows_casts.coverage, f"{known.anchor} of int8"))
    assert has_seen.predict([foreign], traffic_bytes=1e6).tiers() != ["bound"]


def _with_words(coverage: Coverage, *words: str) -> Coverage:
    more = dict.fromkeys(words, coverage.least)
    return dataclasses.replace(coverage, own=coverage.own | more, taught=coverage.taught | more)


def test_what_the_memory_cannot_hold_has_no_time(predictor: OperatorPredictor, strangers: list[Operator]) -> None:
    small = dataclasses.replace(
        predictor, device=dataclasses.replace(predictor.device, memory_bytes=int(_moved(strangers[0])) - 1)
    )
    network = Network.of("net", strangers[:1])
    found = predict_network(small, network)
    assert found.unsupported == found.too_large == (strangers[0].name,)
    assert not found.outside
    assert np.isnan([found.total_us, found.low_us, found.high_us]).all()
    assert json.loads(json.dumps(found.to_json()))["total_us"] is None
    assert "unknown" in summary(found)
    assert "does not fit into the device's memory" in summary(found)
    assert predict_network(predictor, network).total_us > 0  # how much memory there is was not told


def _moved(operator: Operator) -> float:
    return operator.bytes_read + operator.bytes_written


def test_an_operator_is_asked_about_as_in_a_network(predictor: OperatorPredictor, strangers: list[Operator]) -> None:
    assert predictor.median_traffic_bytes > max(map(_moved, strangers))
    usual = predictor.predict(strangers, traffic_bytes=predictor.median_traffic_bytes)
    np.testing.assert_array_equal(predictor.predict(strangers).latency_us, usual.latency_us)


def test_too_little_to_learn_from(known: Examples) -> None:
    with pytest.raises(DatasetError, match="at least 25 measurements.*op-profiler sample"):
        fit(known.where(np.arange(len(known)) < 10))
    with pytest.raises(UnknownNameError, match="xgboost"):
        fit(known, choice="xgbost")


def test_a_new_device_from_few_samples(
    law_us: Law,
    predictor: OperatorPredictor,
    known: Examples,
    strangers: list[Operator],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slower = dataclasses.replace(
        known,
        latency_us=known.latency_us * 1.7,
        devices=[dataclasses.replace(known.devices[0], key="fedcba9876543210", processor="another")],
    )
    errors = {}
    with pytest.raises(DatasetError, match="3 operators at .* are too few"):
        adapted(predictor, slower.where(slower.operator < 3))
    for count in (10, 50):
        few = slower.where(slower.operator < count)
        assert len(np.unique(few.operator)) == count
        found = adapted(dataclasses.replace(predictor, correlation=0.2), few)
        assert found.device.processor == "another"
        assert found.correlation == 1.0, "as of fit where all widths are one"
        truth = np.array([1.7 * law_us(o, 1) for o in strangers])
        predicted = found.predict(strangers, traffic_bytes=1e6)
        errors[count] = float(np.median(np.abs(predicted.latency_us / truth - 1)))
        assert np.mean((predicted.low_us <= truth) & (truth <= predicted.high_us)) > 0.85
    assert errors[50] < 0.12
    assert errors[10] < 0.3
    monkeypatch.setattr(adapt, "MOST_LEARNED", 60)
    of_many = adapted(predictor, slower)
    assert of_many.base.correction is not None and of_many.base.correction.plain is not None
    assert len(of_many.base.correction.plain.noise) == 60 < len(slower)
    assert (of_many.predict(query_of(slower)).tier == MEASURED).all(), "all are looked up"


def test_what_other_devices_measured_teaches_too(law_us: Law, known: Examples, strangers: list[Operator]) -> None:
    """Nothing of a slow width was measured here; on a device that takes longer for everything it was."""
    slow = np.array([_is_slow(operator) for operator in known.operators])
    here = known.where(~slow[known.operator])
    there = dataclasses.replace(
        known, latency_us=1.7 * known.latency_us, devices=[dataclasses.replace(known.devices[0], key="another")]
    )
    asked = [operator for operator in strangers if _is_slow(operator)]
    truth = np.array([law_us(operator, 1) for operator in asked])
    alone, taught = fit(here, folds=2), fit(here, folds=2, others=[there])
    off = [np.abs(np.log(one.predict(asked).latency_us / truth)).mean() for one in (alone, taught)]
    assert off[1] < off[0] / 2
    assert taught.device == here.devices[0] and taught.fingerprint == alone.fingerprint
    assert np.array_equal(taught.measured.latency_us, alone.measured.latency_us), (
        "no time of another device is looked up"
    )
    assert np.array_equal(taught.roofline.call_us, alone.roofline.call_us)


def _is_slow(operator: Operator) -> bool:
    """As the law of these tests has it."""
    return len(operator.outputs[0].shape) == 4 and operator.outputs[0].shape[-1] in (13, 29, 53)


def test_the_fingerprint_tells_all_that_is_learned_from(known: Examples) -> None:
    order = np.random.default_rng(6).permutation(len(known))
    assert fingerprint(known.where(order)) == fingerprint(known), "in whatever order"
    (device,) = known.devices
    twice = ("occurrences", "traffic_bytes", "working_set_bytes", "half_width", "whole_model_us", "latency_us")
    changes: list[dict[str, Any]] = [{name: 2 * getattr(known, name)} for name in twice]
    changes += [{"reference_us": np.ones_like(known.reference_us)}, {"steady_us": known.latency_us}]
    changes += [{"sampled": ~known.sampled}, {"launches": known.launches + 1}]
    peaks = {"threads": [1.0], "flops_per_us": [1.0], "bytes_per_us": [1.0]}
    changes += [{"devices": [dataclasses.replace(device, cache_bytes=1)]}]
    changes += [{"devices": [dataclasses.replace(device, peaks=peaks)]}]
    assert len({fingerprint(dataclasses.replace(known, **one)) for one in ({}, *changes)}) == 1 + len(changes)


def test_conformal_quantile_covers_a_new_one() -> None:
    rng = np.random.default_rng(0)
    inside = [rng.random() <= conformal_quantile(rng.random(39)) for _ in range(2000)]
    assert 0.87 < np.mean(inside) < 0.93
    assert conformal_quantile(np.arange(5.0)) == 4.0  # five cannot tell: the largest


def test_repeated_operators_give_the_looked_up_interval(known: Examples) -> None:
    rng = np.random.default_rng(5)
    again = dataclasses.replace(
        known,
        latency_us=np.concatenate(
            [known.latency_us, known.latency_us * np.exp(NOISE * rng.standard_normal(len(known)))]
        ),
        **{  # type: ignore[arg-type]  # the names of arrays
            name: np.concatenate([getattr(known, name)] * 2)
            for name in (
                "operator",
                "threads",
                "half_width",
                "steady_us",
                "device",
                "occurrences",
                "traffic_bytes",
                "working_set_bytes",
                "reference_us",
                "reference_bytes",
                "whole_model_us",
            )
        },
        model=np.concatenate([known.model, (known.model + 1) % len(known.models)]),
    )
    spread = fit(again, choice="lookup").measured.spread
    assert 1.2 * NOISE < np.median(spread) < 4 * NOISE


def test_networks_asked_at_once_are_those_asked_one_by_one(
    predictor: OperatorPredictor, strangers: list[Operator]
) -> None:
    foreign = dataclasses.replace(strangers[0], op_names=("foreign",))
    parts = strangers[:3], [foreign, *strangers[2:5]], strangers[:1]
    networks = [Network.of(f"net {n}", part) for n, part in enumerate(parts)]
    together = predict_networks(predictor, networks, threads=2)
    for network, found in zip(networks, together, strict=True):
        alone = predict_network(predictor, network, threads=2)
        assert found.to_json() == alone.to_json()
    assert predict_networks(predictor, []) == []
