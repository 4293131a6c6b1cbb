"""Losses and advice from evidence that is made by hand: no machine is asked."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from op_profiler.analysis.explain.evidence import Cycles, Evidence, OtherTimes, ProcessorLimits
from op_profiler.analysis.explain.explain import in_chain
from op_profiler.analysis.explain.explanation import Loss, ModelAdvice, ModelExplanation
from op_profiler.analysis.explain.machine_code import KernelCode, MachineLoop
from op_profiler.analysis.explain.verdict import verdict_of
from op_profiler.analysis.explain.words import explained, sureness_of
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.prediction.schedules.tuning_gain import TunedTime
from op_profiler.report.explanation import show

MODEL = ModelRequest(source="local", name="net")
LIMITS = ProcessorLimits(
    flops_per_us={1: 100_000.0, 2: 200_000.0},
    bytes_per_us={"l1": {1: 400_000.0, 2: 800_000.0}, "memory": {1: 10_000.0, 2: 20_000.0}},
    cache_bytes={"l1": 48 << 10, "l2": 2 << 20},
    lanes=16,
    peak_flops_per_cycle=32.0,
)
FMA = tuple(f"vfmadd231ps %zmm13, %zmm14, %zmm{i}" for i in range(12))
GOOD = MachineLoop((*FMA, "jne .L"), 2)


def evidence(times: dict[tuple[str, int], float], **changes: Any) -> Evidence:
    """10 MFLOP over 100 kB: 100 us at the peak of one thread."""
    tensor = TensorSpec((1,), "float32")
    operator = Operator(
        *("fused", "nn.conv2d", ("nn.conv2d", "nn.relu"), (tensor,), (), (tensor,), ({}, {}), {}, ""),
        *(10_000_000, 90_000, 10_000),
    )
    code = KernelCode((GOOD,), parallel=True)
    usual: dict[str, Any] = {"operator": operator, "code": code, "cycles": Cycles(12, 12, True)}
    samples: Any = {state: np.full(9, us) + np.arange(9) * 1e-3 for state, us in times.items()}
    return Evidence(calls=1, threads=2, samples=samples, limits=LIMITS, **(usual | changes))


FINE = {("model", 1): 101.0, ("hot", 1): 100.0, ("model", 2): 51.0, ("hot", 2): 50.0, ("cold", 2): 60.0}


def first(one: Evidence) -> str | None:
    found = explained(one, 1000.0, MODEL)
    return found.losses[0].cause if found.losses and found.losses[0].lost_us > 2 else None


def test_an_operator_at_the_peak_loses_nothing_to_speak_of() -> None:
    found = explained(evidence(FINE), 1000.0, MODEL)
    assert first(evidence(FINE)) is None
    assert found.compute_share == pytest.approx(50 / 51, rel=0.01) and found.unexplained_us < 1
    assert "No detectable loss is larger than" in found.sentence
    assert found.traffic_shares["memory"] == pytest.approx(100_000 / 20_000 / 51, rel=0.01)


def test_what_a_level_cannot_have_delivered_came_from_a_nearer_one(capsys: pytest.CaptureFixture[str]) -> None:
    quick = explained(evidence({state: us / 20 for state, us in FINE.items()}), 1000.0, MODEL)
    usual = explained(evidence(FINE), 1000.0, MODEL)
    for one, told in ((quick, True), (usual, False)):
        whole = ModelExplanation(
            model="net",
            processor="any",
            threads=2,
            whole_model_us=1000.0,
            verdict="",
            advice=[],
            operators=[one],
            notes=[],
        )
        show(whole, tables=True)
        shown = capsys.readouterr().out
        assert ("memory >100%" in shown, "a cache nearer to the core" in shown) == (told, told)
    assert quick.traffic_shares["memory"] == pytest.approx(2, rel=0.05)


def test_scalars_are_named() -> None:
    scalar = MachineLoop(tuple(f"vfmadd231ss %xmm13, %xmm14, %xmm{i}" for i in range(12)), 2)
    slow = {state: 16 * us for state, us in FINE.items()}
    one = evidence(slow, code=KernelCode((scalar,), parallel=True), cycles=Cycles(12, 12, True))
    assert first(one) == "vectorization"
    assert explained(one, 1000.0, MODEL).code.lanes == 1.0  # type: ignore[union-attr]


def test_a_function_that_is_called_for_each_value_is_named_with_what_to_write_instead() -> None:
    calling = MachineLoop(("callq\t*powf@GOTPCREL(%rip)", "vmovss\t%xmm0, (%rax)"), 2)
    slow = evidence({state: 16 * us for state, us in FINE.items()}, code=KernelCode((calling,), parallel=True))
    power: dict[str, Any] = {"op_names": ("power",), "anchor": "power", "attrs": ({},), "flops": 1000}
    for exponent, text in (("3.0", "x * x * x"), ("-1.5", "1 / (x * sqrt(x))"), ("0.3", "vectors have no")):
        structure = f"power(i0,const:float32[]={exponent})"
        one = dataclasses.replace(slow, operator=dataclasses.replace(slow.operator, structure=structure, **power))
        found = explained(one, 10_000.0, MODEL)
        assert found.losses[0].cause == "function calls" and "powf is called for each value" in found.sentence
        assert found.advice is not None and text in found.advice.text
        assert (found.advice.gain_us is None) == ("vectors" in text)


def test_a_chain_of_multiply_adds_is_named() -> None:
    slow = {state: 4 * us for state, us in FINE.items()}
    assert first(evidence(slow, cycles=Cycles(48, 48, True))) == "register tile"


def test_spilling_is_named_also_where_the_model_of_the_processor_does_not_see_it() -> None:
    spilling = MachineLoop((*FMA, "vmovups %zmm1, 64(%rsp)", "vmovups 64(%rsp), %zmm1"), 2)
    slow = {state: 3 * us for state, us in FINE.items()}
    assert first(evidence(slow, code=KernelCode((spilling,), parallel=True))) == "spills"


def test_memory_is_what_the_model_takes_more_than_hot() -> None:
    one = evidence(FINE | {("model", 1): 200.0, ("model", 2): 100.0})
    found = explained(one, 1000.0, MODEL)
    assert first(one) == "memory" and found.losses[0].basis == "measured"
    assert found.losses[0].lost_us == pytest.approx(50.0) and found.sureness == 1.0
    assert found.advice is not None and "--precision int8" in found.advice.command


def test_what_no_near_cache_holds_waits_for_memory_also_when_it_is_hot() -> None:
    one = evidence({state: 8 * us for state, us in FINE.items()})
    large = dataclasses.replace(one, operator=dataclasses.replace(one.operator, bytes_read=100 << 20))
    assert large.level == "memory" and first(large) == "memory"


def test_threads_that_cost_more_than_they_bring() -> None:
    tiny = {("model", 1): 1.0, ("hot", 1): 1.0, ("model", 2): 9.0, ("hot", 2): 5.0, ("cold", 2): 5.0}
    one = evidence(tiny)
    one = dataclasses.replace(one, operator=dataclasses.replace(one.operator, flops=100_000))
    assert first(one) == "thread overhead"
    advice = explained(one, 1000.0, MODEL).advice
    assert advice is not None and advice.command == "op-profiler corun net --policy threads"
    assert advice.gain_us == pytest.approx(8.0)


def test_no_parallel_loop_and_one_part_too_many() -> None:
    serial = FINE | {("model", 2): 101.0, ("hot", 2): 100.0}
    assert first(evidence(serial, code=KernelCode((GOOD,), parallel=False))) == "serial"
    serial |= {("model", 2): 100.5}  # two threads are no slower
    beside = explained(evidence(serial, code=KernelCode((GOOD,), parallel=False)), 1000.0, MODEL).advice
    assert beside is not None and beside.command == "op-profiler corun net" and "1 thread waiting" in beside.text
    chained = evidence(serial, code=KernelCode((GOOD,), parallel=False), in_chain=True)
    alone = explained(chained, 1000.0, MODEL).advice
    assert alone is not None and alone.command == "" and alone.gain_us is None and "meanwhile" in alone.text
    uneven = FINE | {("model", 2): 67.0, ("hot", 2): 66.7}
    assert first(evidence(uneven, parallel_loop=3)) == "imbalance"


def test_in_a_chain_nothing_runs_beside_another() -> None:
    assert in_chain([[], [0], [1]], [0, 1, 2])
    branches = [[], [0], [0], [1, 2]]
    assert [in_chain(branches, [n]) for n in range(4)] == [True, False, False, True]
    assert not in_chain([], []), "not known"


def test_what_only_moves_values_is_lost_as_a_whole() -> None:
    for names, cause in ((("layout_transform",), "layout"), (("add", "nn.relu"), "fusion")):
        one = evidence(FINE)
        one = dataclasses.replace(one, operator=dataclasses.replace(one.operator, op_names=names, flops=0))
        found = explained(one, 1000.0, MODEL)
        assert found.losses[0].cause == cause and found.losses[0].lost_us == found.time_us


def test_fusing_does_not_save_functions_that_a_loop_calls() -> None:
    calling = KernelCode((MachineLoop(("callq erff@PLT", "jne .L"), 1),), parallel=True)
    one = evidence(FINE | {("model", 2): 60.0}, code=calling)
    one = dataclasses.replace(one, operator=dataclasses.replace(one.operator, op_names=("erf", "multiply"), flops=0))
    found = explained(one, 1000.0, MODEL)
    lost = {loss.cause: loss.lost_us for loss in found.losses}
    assert found.losses[0].cause == "function calls" and lost["fusion"] < 15
    assert sum(lost.values()) <= found.time_us


def test_a_better_known_schedule_is_named_where_nothing_else_is() -> None:
    slow = {state: 2 * us for state, us in FINE.items()}
    one = evidence(slow, cycles=None, others=OtherTimes(best_us=60.0, best_from="conv2d.op_profiler"))
    found = explained(one, 1000.0, MODEL)
    assert found.losses[0].cause == "schedule" and found.losses[0].lost_us == pytest.approx(40.0, abs=0.1)
    assert found.advice is not None and found.advice.gain_us == pytest.approx(40.0, abs=0.1)


def test_the_interval_of_the_vendors_time_is_that_of_the_loss() -> None:
    slow = {state: 2 * us for state, us in FINE.items()}
    one = evidence(slow, cycles=None, others=OtherTimes(vendor=(60.0, 48.0, 90.0)))
    (loss,) = (loss for loss in explained(one, 1000.0, MODEL).losses if loss.cause == "schedule")
    assert (loss.lost_us, loss.low_us, loss.high_us) == pytest.approx((40.0, 10.0, 52.0), abs=0.1)


def test_what_a_search_is_predicted_to_find_is_promised() -> None:
    slow = {state: 4 * us for state, us in FINE.items()}
    one = evidence(slow, cycles=Cycles(48, 48, True), others=OtherTimes(tuned=TunedTime(80.0, 60.0, 120.0)))
    found = explained(one, 1000.0, MODEL)
    assert found.losses[0].cause == "register tile"  # which is what a search would change
    assert found.advice is not None and "--iftune true" in found.advice.command
    gains = found.advice.gain_low_us, found.advice.gain_us, found.advice.gain_high_us
    assert gains == pytest.approx((80.0, 120.0, 140.0), abs=0.1)
    assert "register tile" in found.sentence


def test_only_what_no_template_computes_cannot_be_searched() -> None:
    slow = {state: 4 * us for state, us in FINE.items()}
    told = {}
    for searchable in (False, True):
        others = OtherTimes(searchable=searchable, no_gain_reason="it is small" if searchable else "")
        advice = explained(evidence(slow, cycles=Cycles(48, 48, True), others=others), 1000.0, MODEL).advice
        assert advice is not None and advice.gain_us is None
        told[searchable] = advice
    assert not told[False].command and "no template of this project computes it" in told[False].text
    assert "--iftune true" in told[True].command and "cannot be predicted: it is small" in told[True].text


def test_sureness_falls_where_intervals_overlap() -> None:
    def loss(us: float, off: float) -> Loss:
        return Loss(cause="memory", lost_us=us, low_us=us - off, high_us=us + off, basis="measured", because="")

    assert sureness_of([loss(10, 1), loss(2, 1)]) == 1.0
    assert 0.45 < (sureness_of([loss(10, 5), loss(10, 5)]) or 0) < 0.55
    assert sureness_of([]) is None


def test_a_verdict_does_not_promise_what_may_be_nothing() -> None:
    def advice(action: str, operators: list[str], gain: float, low: float, high: float) -> ModelAdvice:
        gains = {"gain_us": gain, "gain_low_us": low, "gain_high_us": high}
        return ModelAdvice(action=action, command="", text="", operators=operators, **gains)

    precision = advice("int8 for", ["a"], 7800.0, 0.0, 7800.0)
    tuning = advice("tuning", ["a", "b"], 5000.0, 3000.0, 6000.0)
    assert verdict_of([precision, tuning], 20_000.0) == (
        "int8 for 1 operator: saves up to 7.8 ms; tuning 2 operators: saves 5.0 ms (3.0 ms to 6.0 ms)"
    )
    assert verdict_of([tuning], 20_000.0) == "tuning 2 operators: 20.0 ms to 15.0 ms (14.0 ms to 17.0 ms)"
