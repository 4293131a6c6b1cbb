"""`explain`: from a request to the explanations of a model's heavy operators."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from op_profiler.analysis.explain.evidence import Evidence, ProcessorLimits, quiet_us
from op_profiler.analysis.explain.explanation import ModelExplanation
from op_profiler.analysis.explain.keeping import keep
from op_profiler.analysis.explain.other_times import KnownSchedules
from op_profiler.analysis.explain.reading import read_code
from op_profiler.analysis.explain.request import ExplainRequest
from op_profiler.analysis.explain.verdict import advice_by_command, verdict_of
from op_profiler.analysis.explain.words import explained
from op_profiler.building.prepared_model import PreparedModel, in_words
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import host_cpu, load_tvm
from op_profiler.errors import UsageError
from op_profiler.measure.cache_states import time_cache_states
from op_profiler.operators.cost import least_flops
from op_profiler.operators.layers import by_operator
from op_profiler.operators.locations import values

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import BuiltModel
    from op_profiler.measure.measurement import Device
    from op_profiler.operators.operator import Operator
    from op_profiler.targets.machine import Machine

_MOST_OF_THE_MODEL = 0.95
Announce = Callable[[str], None]


def explain(request: ExplainRequest, announce: Announce) -> ModelExplanation:
    """Return the explanation of a model's heavy operators.

    The model is built, or an earlier build is read; it is measured, its machine code is read, and the explanation is
    stored in the dataset of the request, if there is one.

    Raises:
        OpProfilerError: the model or the machine cannot be used.
    """
    request.check()
    announce("reading what is known of schedules")
    known = KnownSchedules.read(request.db, shipped=request.shipped, threads=max(request.build.threads))
    with PreparedModel(request.build, in_words(announce)) as job:
        job.begin_compiling()
        job.load()
        built = job.built
        machine = job.machine
        found = explain_built(built, machine, job.inputs, request, known, announce)
    lines = _source_lines(built)
    operators = [msgspec.structs.replace(one, source_lines=lines.get(one.key, [])) for one in found.operators]
    found = msgspec.structs.replace(found, operators=operators, notes=[str(job.model.agreement), *found.notes])
    if request.db is None:
        return found
    return keep(request.db, request.build, job.model.content, machine.device.identity, found)


def explain_built(
    built: BuiltModel,
    machine: Machine,
    inputs: Mapping[str, np.ndarray],
    request: ExplainRequest,
    known: KnownSchedules,
    announce: Announce,
) -> ModelExplanation:
    """Return the explanation of a model that was built for the graph executor; `machine` measures the model.

    Raises:
        UsageError: the model does not contain the requested operator.
        MeasureError: the model does not run.
    """
    compiled, threads = built.compiled, max(request.build.threads)
    loaded = machine.load(compiled, dict(inputs))
    operators = [compiled.by_label[label].operator for label in loaded.labels]
    keys = [operator.key for operator in operators]
    if request.operator is not None and request.operator not in keys:
        raise UsageError(f"{request.build.model.name} has no operator {request.operator} as it is built here")
    counts = tuple(sorted({1, *request.build.threads}))
    announce("measuring")
    times = time_cache_states(machine, loaded, counts, lambda us: _heavy(us, keys, request), announce)
    announce("reading machine code")
    layers = {key: [*map(list, of)] for key, of in by_operator(keys, compiled.layers_of(loaded.labels)).items()}
    labels = {keys[number]: loaded.labels[number] for number in times.heavy}
    lanes = compiler_in_use().vector_lanes(load_tvm().target.Target(machine.device.target))
    code = read_code(compiled, labels.values(), cpu_of(machine.device), lanes)
    attained = {n: _attained(times.kernels["hot", n], operators) for n in counts}
    limits = _limits_of(machine.device, attained, lanes, code.peak_flops_per_cycle)
    whole_us = float(quiet_us(times.whole[threads]))
    host, peak, found, vendor_disturbed = machine.device.host_fingerprint, limits.flops_per_us[threads], [], 0
    for key, label in labels.items():
        numbers = [number for number, other in enumerate(keys) if other == key]
        evidence = Evidence(
            operator=compiled.by_label[label].operator,
            calls=len(numbers),
            threads=threads,
            samples={state: rows[:, numbers].mean(axis=1) for state, rows in times.kernels.items()},
            limits=limits,
            code=code.kernels.get(label),
            cycles=code.cycles.get(label),
            parallel_loop=compiled.loops[label][-1] if compiled.loops.get(label) else None,
            in_chain=in_chain([call.inputs for call in compiled.calls], numbers),
        )
        others = known.of(compiled.by_label[label], host, evidence.us("hot"), peak)
        vendor_disturbed += others.vendor_is_disturbed
        one = explained(dataclasses.replace(evidence, others=others), whole_us, request.build.model)
        found.append(msgspec.structs.replace(one, foreign_load=times.foreign_load, layers=layers.get(key, [])))
    advice = advice_by_command(found)
    return ModelExplanation(
        model=request.build.model.name,
        processor=machine.device.processor,
        threads=threads,
        whole_model_us=whole_us,
        verdict=verdict_of(advice, whole_us),
        advice=advice,
        operators=sorted(found, key=lambda one: -one.model_share),
        notes=[*built.notes, *_notes(times.foreign_load, vendor_disturbed, attained[threads] >= peak, code.note)],
    )


def _source_lines(built: BuiltModel) -> dict[str, list[str]]:
    """Return, by workload key, the source lines of an operator's calls."""
    locations: dict[str, list[str]] = {}
    for call in built.compiled.occurrences:
        locations.setdefault(call.operator.key, []).extend(call.locations)
    return {key: list(values(of, "source_line")) for key, of in locations.items()}


def _notes(foreign_load: bool | None, vendor_disturbed: int, attains_peak: bool, of_code: str) -> list[str]:
    """Return notes on limits of the comparisons: background load, missing vendor times, the peak, the cycles."""
    notes = ["other programs used the machine; measure again when it is idle"] if foreign_load else []
    if vendor_disturbed:
        count = f"{vendor_disturbed} operators" if vendor_disturbed > 1 else "1 operator"
        notes.append(f"the vendor's times of {count} were disturbed, so nothing is compared with them")
    if attains_peak:
        notes.append("the compute peak is what its fastest operator attains, which is more than the probe attained")
    return [*notes, of_code] if of_code else notes


def _heavy(times_us: np.ndarray, keys: Sequence[str], request: ExplainRequest) -> list[int]:
    """Return the kernels to explain: those of the requested operator, or those that take most of the model's time."""
    totals: dict[str, float] = {}
    for key, time_us in zip(keys, times_us):
        totals[key] = totals.get(key, 0.0) + float(time_us)
    wanted: list[str] = []
    for key in sorted(totals, key=lambda key: -totals[key]):
        enough = sum(totals[one] for one in wanted) >= _MOST_OF_THE_MODEL * sum(totals.values())
        if len(wanted) < request.top and not enough:
            wanted.append(key)
    if request.operator is not None:
        wanted = [request.operator]
    return [number for number, key in enumerate(keys) if key in wanted]


def _attained(hot_us: np.ndarray, operators: Sequence[Operator]) -> float:
    """Return the least FLOPs per microsecond of the fastest operator."""
    rates = [float(least_flops(operator) / us) for operator, us in zip(operators, quiet_us(hot_us.T)) if us > 0]
    return max(rates, default=0.0)


def in_chain(inputs: Sequence[Sequence[int]], numbers: Sequence[int]) -> bool:
    """Return whether each of the calls `numbers` waits for or precedes every other call of the model; False if `inputs`
    is empty.

    Args:
        inputs: for each call of the model, the numbers of the calls whose outputs it reads.
        numbers: numbers of the calls to check.
    """
    before: list[int] = []  # of each call a bit for every call that it waits for
    for reads in inputs:
        waits_for = 0
        for number in reads:
            waits_for |= before[number] | 1 << number
        before.append(waits_for)
    everything = (1 << len(before)) - 1

    def alone(number: int) -> bool:
        after = sum(1 << n for n, earlier in enumerate(before) if earlier >> number & 1)
        return before[number] | after | 1 << number == everything

    return bool(before) and all(map(alone, numbers))


def _limits_of(
    device: Device, attained: Mapping[int, float], lanes: int, peak_flops_per_cycle: float
) -> ProcessorLimits:
    """Return the limits of the processor: the measured peaks, interpolated linearly between thread counts.

    The peak of arithmetic is replaced by the rate of an operator if that is higher.

    Args:
        attained: highest FLOPs per microsecond of an operator, by thread count.
    """
    peaks, counts = device.properties["peaks"], sorted(attained)

    def at(rates: Sequence[float]) -> dict[int, float]:
        return {n: float(np.interp(n, peaks["threads"], rates)) for n in counts}

    levels = {**peaks["cache_bytes_per_us"], "memory": peaks["bytes_per_us"]}
    sizes = {"l1": device.l1_bytes, "l2": device.l2_bytes, "l3": device.l3_bytes}
    return ProcessorLimits(
        flops_per_us={n: max(rate, attained[n]) for n, rate in at(peaks["flops_per_us"]).items()},
        bytes_per_us={level: at(rates) for level, rates in levels.items()},
        cache_bytes={level: size for level, size in sizes.items() if size},
        lanes=lanes,
        peak_flops_per_cycle=peak_flops_per_cycle,
    )


def cpu_of(device: Device) -> str:
    """Return LLVM's name of the processor for which code was compiled."""
    named = re.search(r"-mcpu=(\S+)", device.target)
    return named[1] if named is not None else host_cpu()
