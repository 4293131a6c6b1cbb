"""Dataclasses that the dataset stores: settings, devices, measurements and timings of whole models."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, Literal

from op_profiler.measure import disturbance
from op_profiler.registry import DEFAULT_COMPILER

Cache = Literal["model", "hot", "cold"]
CoreType = Literal["common", "SM", "IP"]
Precision = Literal["float32", "float16", "int8"]

KERNEL_UNCERTAINTY = "kernel_uncertainty_us"
"""Name in `Device.properties` of the systematic error of all kernel times on a GPU, microseconds; None if it was not
measured. Repetitions do not reduce this error, so both ends of the intervals are widened by it."""
SHORT_KERNEL_US = 5.0
"""Below this time, the systematic error `KERNEL_UNCERTAINTY` is at least a tenth of it (`ModelTiming.is_short`)."""

RESOURCE_FIELDS = ("governor", "cache_ways", "numa_node", "sm_share_percent", "gpu_clock_mhz")
"""Fields of `Settings` for resources. The value None means that the resource was left unchanged. The effective value is
in ``<name>_effective``; None if it could not be read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings under which an operator is measured: requested values, and effective values that were read back.

    Attributes:
        threads: requested thread count; 0 lets the runtime decide.
        threads_effective: value of ``runtime.NumThreads``; None if the target does not report threads.
        core_set: requested cores; empty lets the runtime decide.
        core_set_effective: cores that the worker threads may run on, read from the operating system.
        cache: state of the caches before each call. ``model``: as the preceding operators of the model left them;
            ``hot``: as a previous call of the same operator left them; ``cold``: the operator's tensors were flushed.
        cache_mechanism: how the state of the caches was produced (``in-graph``, ``repeat``, ``clflush``), because it
            cannot be read.
        parallel_type: ``sequential``, ``stream`` or ``full``.
        streams: number of device streams.
        precision: requested data type of the arithmetic.
        executor: ``graph``, ``vm``, or ``kernel`` for an operator that is called in isolation.
        governor: frequency governor of the cores.
        cache_ways: ways of the last-level cache that may be filled.
        numa_node: NUMA node that memory is bound to; an effective value of None means no binding.
        sm_share_percent: share of a GPU's SMs, percent.
        gpu_clock_mhz: clock of a GPU's SMs, MHz.
    """

    threads: int
    threads_effective: int | None = None
    core_set: tuple[int, ...] = ()
    core_set_effective: tuple[int, ...] = ()
    cache: Cache = "model"
    cache_mechanism: str = ""
    parallel_type: str = "sequential"
    streams: int = 1
    precision: Precision = "float32"
    executor: str = "graph"
    governor: str | None = None
    governor_effective: str | None = None
    cache_ways: int | None = None
    cache_ways_effective: int | None = None
    numa_node: int | None = None
    numa_node_effective: int | None = None
    sm_share_percent: int | None = None
    sm_share_percent_effective: int | None = None
    gpu_clock_mhz: int | None = None
    gpu_clock_mhz_effective: int | None = None

    @property
    def key(self) -> str:
        """Return a digest (16 hex digits) of all fields, requested and effective."""
        return hashlib.sha256(json.dumps(self._identity(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def requested(self) -> dict[str, Any]:
        """Return the requested values by field name, without the values that were read back."""
        return {name: value for name, value in self._identity().items() if name not in _READ_BACK}

    def _identity(self) -> dict[str, Any]:
        """Return the values of all fields that form the key, by name.

        Fields for resources are left out if they are None, so that keys are the same as before these fields existed.
        """
        fields = _fields_of(self)
        for name in (*RESOURCE_FIELDS, *map(effective, RESOURCE_FIELDS)):
            if fields[name] is None:
                del fields[name]
        return fields


def _fields_of(item: Settings | Device) -> dict[str, Any]:
    """Return the values of all fields by name, without copying them.

    Keys are computed for every row, and ``dataclasses.asdict`` would copy nested values.
    """
    return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}


def effective(resource: str) -> str:
    """Return the name of the field of `Settings` that contains the effective value of a resource."""
    return f"{resource}_effective"


_READ_BACK = ("threads_effective", "core_set_effective", "cache_mechanism", *map(effective, RESOURCE_FIELDS))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """The device that an operator runs on. Unknown values are None, never a guess.

    Attributes:
        kind: kind of the target, such as ``llvm`` or ``cuda``.
        target: the full TVM target string that the code was compiled for.
        processor: name of the processor.
        cores: number of usable cores.
        clock_mhz: clock when the device was last described, MHz.
        host_fingerprint: 16 hex digits, equal on all machines of one hardware model.
        machine_id: distinguishes machines of one hardware model: the UUID of a GPU; for a host or a board, a hash of
            its unique properties. None if unknown (imported measurements).
        compiler: name of the compiler that generated the code.
        core_type: ``common`` (processor), ``SM`` (GPU) or ``IP`` (a compiled function of the user, as on an FPGA).
        properties: further JSON-serializable properties without a column in the dataset (peaks, SM count, ...).
    """

    kind: str
    target: str
    processor: str
    cores: int | None
    clock_mhz: float | None = None
    l1_bytes: int | None = None
    l2_bytes: int | None = None
    l3_bytes: int | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    compiler: str = DEFAULT_COMPILER
    tvm_version: str = ""
    llvm_version: str | None = None
    host_fingerprint: str = ""
    machine_id: str | None = None
    core_type: CoreType = "common"
    properties: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return the key of the device, 16 hex digits; equal on the same machine with the same compiler and target.

        The clock is not part of the key, because it changes between two readings.
        """
        fields = _fields_of(self)
        del fields["clock_mhz"], fields["properties"], fields["memory_bytes"]
        if self.core_type == "common":  # keeps the keys from before there were other core types
            del fields["core_type"]
        if self.machine_id is None:
            del fields["machine_id"]
        if self.compiler == DEFAULT_COMPILER:
            del fields["compiler"]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def identity(self) -> str:
        """Return an identifier of the machine that does not depend on compiler and target.

        It is used to look up the stored times of a model.
        """
        return f"{self.host_fingerprint} {self.machine_id}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """Times of one operator, or of a whole model, under one set of settings, or the reason why it has no time.

    All times are in microseconds per call.

    Attributes:
        samples_us: all samples of the rounds that were not discarded, one row per round and one column per call of the
            operator in the model (one column outside of models). Empty if `error` is set.
        min_us, mean_us, std_us: statistics over the rounds, each round being the mean of its calls; a single round has
            no standard deviation.
        median_us: median over the quiet rounds (`measure.quiet_rounds`).
        ci_low_us, ci_high_us: 95 % confidence interval of the median (order statistics); None for too few rounds.
        load_before, load_after: share (0 to 1) of the cores in use, or of the GPU, that other processes used before and
            after the measurement; None if unknown.
        foreign_load: True if samples were taken under background load, although they were repeated.
        disturbed_by: other disturbances of the run (`measure.disturbance`) that repeating did not remove; None if no
            disturbance is known.
        quiet_share: share (0 to 1) of the run's rounds that are quiet; None if unknown.
        discarded_rounds, discarded_share: number of the run's rounds that were disturbed, discarded and repeated, and
            their share (0 to 1) of all rounds; None if unknown.
        energy_mj: energy of one call, millijoules; None if it was not measured.
        energy_cache: state of the caches during the energy measurement: ``hot`` for an operator, because a counter
            needs many calls in a row; None if the energy was not measured.
        error: why there is no time; None if there is a time.
        settled: whether the interval of the median converged (`Limits.target`); for a whole model, whether the
            intervals of all heavy operators converged too. None if unknown.
        call_overhead_us: call overhead that was subtracted from every sample; None if nothing was subtracted.
        steady_us: time at the machine's reference state (`measure.between_runs`); None if unknown.
        steady_low_us, steady_high_us: between-run interval, which contains the `steady_us` of 95 % of other runs; None
            if unknown.
        again_low_us, again_high_us: between-run interval, which contains the `median_us` of 95 % of other runs; None if
            unknown.
        cycles, instructions, branch_misses, l1_misses, l2_misses, llc_misses, page_faults, context_switches: events of
            one call in the model, summed over all threads, counted in separate passes (`measure.counters`); None if
            they were not requested or could not be counted.
        dram_percent, sm_percent, tensor_cores_percent: share of the peak of the memory, the SMs and their tensor cores
            that a GPU kernel reaches from cold caches, percent; None if not requested or not counted.
        occupancy_percent: active warps of the kernel, percent of the largest number of warps that an SM supports; None
            if not requested or not counted.
        counters_missing: why counters could not be read, by name of the counter; None if none were requested.
    """

    samples_us: tuple[tuple[float, ...], ...] = ()
    min_us: float | None = None
    median_us: float | None = None
    mean_us: float | None = None
    std_us: float | None = None
    ci_low_us: float | None = None
    ci_high_us: float | None = None
    load_before: float | None = None
    load_after: float | None = None
    foreign_load: bool = False
    disturbed_by: str | None = None
    quiet_share: float | None = None
    discarded_rounds: int | None = None
    discarded_share: float | None = None
    energy_mj: float | None = None
    energy_cache: Cache | None = None
    error: str | None = None
    settled: bool | None = None
    call_overhead_us: float | None = None
    steady_us: float | None = None
    steady_low_us: float | None = None
    steady_high_us: float | None = None
    again_low_us: float | None = None
    again_high_us: float | None = None
    cycles: float | None = None
    instructions: float | None = None
    branch_misses: float | None = None
    l1_misses: float | None = None
    l2_misses: float | None = None
    llc_misses: float | None = None
    page_faults: float | None = None
    context_switches: float | None = None
    dram_percent: float | None = None
    sm_percent: float | None = None
    occupancy_percent: float | None = None
    tensor_cores_percent: float | None = None
    counters_missing: dict[str, str] | None = None

    @property
    def is_noisy(self) -> bool:
        """Return whether the time is disturbed or did not converge."""
        return self.foreign_load or self.disturbed_by is not None or self.settled is False


_PAIR_TOLERANCE = 0.03  # on a quiet machine, models of every size were within it
_POSSIBLE = (0.5, 2.0)
"""Smallest and largest plausible ratio of the sum of operators to the time of the whole model in one run. The ratios in
``benchmarks/results/additivity.json`` and ``gpu.json`` are from 0.92 to 1.03. Beyond these limits, one of the two times
misses most of the work of the other."""
_NO_PAIR = "whole model and operators were not obtained as a pair"
LAUNCH_GAP_METHOD = "launches timed one by one"
"""Value of ``launch_gap_method`` in `ModelTiming.details`: how `ModelTiming.launch_gap_us` was measured. Earlier
versions stored no method; some of them scaled the launches to the time of the whole model, so that the sum of a
launch-bound model always equaled the whole."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelTiming:
    """Times of the whole model and the sum of its operators, from one run at one thread count.

    Attributes:
        whole_model: latency of the whole model, measured in the same rounds as the operators.
        before_us, after_us: median of the whole model before the first and after the last round; None if unknown.
        sum_of_operators_us: median over the rounds of the sum over all calls; if not every round timed every operator,
            the sum over operators of median times number of calls. None if an operator has no time.
        unmeasured: workload keys of operators without a time, which are missing from the sum.
        coverage: share of the model's time in the operators that were required to converge; None if unknown.
        details: further JSON-serializable details of the run.
    """

    whole_model: Measurement
    before_us: float | None
    after_us: float | None
    sum_of_operators_us: float | None
    unmeasured: tuple[str, ...] = ()
    coverage: float | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Return the sum of operators plus waits for launches, divided by the time of the whole model.

        The result is None if one of the times is missing, or if they cannot be compared (`not_a_pair`).
        """
        return None if self.not_a_pair is not None else self._quotient

    @property
    def _quotient(self) -> float | None:
        if self.sum_of_operators_us is None or not self.whole_model.median_us:
            return None
        return (self.sum_of_operators_us + (self.launch_gap_us or 0.0)) / self.whole_model.median_us

    @property
    def launch_gap_us(self) -> float | None:
        """Return the time in which the whole model waits for kernel launches, microseconds; None without launches.

        It is computed from separately timed kernels and launches.
        """
        found = self.details.get("launch_gap_us")
        return None if found is None else float(found)

    def placement(self, threads: int) -> list[str]:
        """Return notes on the cores that the threads ran on (`cores.placement`); empty if there is nothing to note.

        Noted are threads that share physical cores, and the kind of the cores of a hybrid processor.

        Args:
            threads: thread count of the run.
        """
        physical, kinds = self.details.get("physical_cores", threads), self.details.get("core_kinds")
        shared = [f"{threads} threads on {physical} physical core{'s' * (physical != 1)}"] if physical < threads else []
        return shared + ([f"on cores of the kind {', '.join(kinds)}"] if kinds else [])

    @property
    def kernel_uncertainty_us(self) -> float | None:
        """Return the `KERNEL_UNCERTAINTY` of the device, microseconds; None if it is unknown."""
        found = self.details.get(KERNEL_UNCERTAINTY)
        return None if found is None else float(found)

    def is_short(self, median_us: float | None) -> bool:
        """Return whether a time is below `SHORT_KERNEL_US`; False if it or `kernel_uncertainty_us` is None."""
        return self.kernel_uncertainty_us is not None and median_us is not None and median_us < SHORT_KERNEL_US

    @property
    def held_back_by(self) -> tuple[str, ...]:
        """Return the reasons that limited the clock of a GPU in any window of the rounds."""
        windows = self.details.get("conditions_windows") or ()
        return tuple(sorted({reason for window in windows for reason in window.get("held_back_by", ())}))

    @property
    def disturbed_by(self) -> str | None:
        """Return why the run is disturbed, except by background load, joined by ``; ``; None if it is not disturbed."""
        return disturbance.disturbed_by(self.details, self.whole_model.disturbed_by)

    @property
    def not_a_pair(self) -> str | None:
        """Return why the whole model and the sum of operators cannot be compared; None if they can be compared.

        The text also names the option that measures both again. The two times cannot be compared if they differ by more
        than their intervals allow and a reason is known: operators in the sum were measured in another run, or a
        disturbance affected the two times differently. (If every round has a few stalls, these are in the median of the
        whole model, but not in the medians of its operators.) A difference without a known reason is accepted as a
        result, unless it is outside of `_POSSIBLE`. The two times also cannot be compared if `launch_gap_us` was
        computed from the whole model itself.
        """
        quotient = self._quotient
        reason = None if quotient is None else self._reason_against(quotient)
        return None if reason is None else f"{_NO_PAIR}: {reason}; to measure again, use --remeasure noisy"

    def _reason_against(self, quotient: float) -> str | None:
        whole, (least, most) = self.whole_model, _POSSIBLE
        if self.launch_gap_us is not None and self.details.get("launch_gap_method") != LAUNCH_GAP_METHOD:
            return "an earlier version computed the waits for launches in another way"
        if abs(quotient - 1) <= _PAIR_TOLERANCE + self._half_widths() and least <= quotient <= most:
            return None
        readings = [time for time in (self.before_us, whole.median_us, self.after_us) if time is not None]
        if reused := self.details.get("reused_operators"):
            return f"operators measured in another run: {reused}"
        if whole.foreign_load:
            return "under background load"
        if disturbance.apart(min(readings), max(readings)):
            times = ", ".join(f"{time:.1f}" for time in readings)
            return f"before, between and after it took {times} us"
        if self._of_other_rounds(quotient):
            return "the two medians are of different rounds"
        if not least <= quotient <= most:
            return "the two times do not belong together, for an unknown reason"
        return None

    def _of_other_rounds(self, quotient: float) -> bool:
        """Return whether the median ratio of the rounds differs from the ratio of the two medians (`quotient`).

        This occurs in runs of earlier versions, whose medians could be from two modes. If not every round timed every
        operator, the result is True for these versions, because they did not count reused operators.
        """
        of_rounds = self.details.get("ratio_per_round")
        if of_rounds is None:
            return "reused_operators" not in self.details
        return abs(quotient / of_rounds - 1) > _PAIR_TOLERANCE + self._half_widths()

    def _half_widths(self) -> float:
        """Return the sum of two half widths: of the whole model's interval, relative to its median, and of the interval
        of the rounds' ratios."""
        whole = self.whole_model
        of_whole = (whole.ci_low_us, whole.ci_high_us), whole.median_us or 1.0
        of_ratio = self.details.get("ratio_per_round_ci") or (None, None), 1.0
        widths = [
            (high - low) / unit for (low, high), unit in (of_whole, of_ratio) if low is not None and high is not None
        ]
        return sum(widths) / 2
