"""Measures a model in this project's builds and in other runtimes, alternately."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.building.build import build_model
from op_profiler.building.prepared_model import PreparedModel, in_words
from op_profiler.collection.studies.compare import allowed_difference, difference
from op_profiler.comparison.peers import PEERS
from op_profiler.comparison.peers.advice import with_advice
from op_profiler.comparison.peers.child import PeerFailure, PeerProfile, PeerTask, RunningPeer, timed_runs
from op_profiler.comparison.peers.forms import INPUTS, Forms, write_forms
from op_profiler.comparison.peers.layers import OurLayers, by_layer, layer_times
from op_profiler.comparison.peers.request import PeersRequest
from op_profiler.comparison.peers.result import OURS, AtThreads, PeerComparison, PeerLayer, RuntimeTime
from op_profiler.measure.load import CoreMeter
from op_profiler.measure.rounds import no_garbage_collection
from op_profiler.measure.statistics import median_interval
from op_profiler.option_values import threads_text
from op_profiler.schedules.records import NONE, RULE

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import BuiltModel
    from op_profiler.targets.machine import LoadedModel, Machine

_LEAST_ROUNDS, _MOST_ROUNDS = 6, 40
_WALKS = 9
Announce = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class OurBuild:
    """A build of the model by this project, loaded into this process.

    Attributes:
        name: one of `OURS`.
    """

    name: str
    built: BuiltModel
    loaded: LoadedModel

    def time_us(self) -> float:
        """Return the median time of a run in microseconds."""

        def run() -> float:
            self.loaded.move_stack()
            return self.loaded.time_model()

        return timed_runs(run)

    def layers(self) -> OurLayers:
        """Return the kernels by layer, timed inside the model at the current thread count; their times sum up to
        approximately the time of the model."""
        loaded, compiled = self.loaded, self.built.compiled
        loaded.run_model()
        rows = [loaded.walk("model", [True] * len(loaded.labels)) for _ in range(_WALKS)]
        times = np.maximum(np.median(rows, axis=0) - (loaded.call_overhead_us() or 0.0), 0.0)
        names = compiled.layers_of(loaded.labels)
        keys = [compiled.by_label[label].operator.key for label in loaded.labels]
        return OurLayers.of(zip(names, keys, times.tolist(), strict=True))


def compare_with_peers(request: PeersRequest, announce: Announce, *, advise: bool = True) -> PeerComparison:
    """Build the model, measure it alternately with every runtime, and compare outputs and layers.

    Args:
        request: the model and the runtimes.
        announce: called with a text before each step that takes long.
        advise: whether to explain the operators of the layers that lose most, which takes as long as `op-profiler
            explain`.

    Raises:
        OpProfilerError: the request is invalid, or this project cannot build or run the model. Failures of a runtime
            are part of the result.
    """
    request.check()
    build = request.build
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(PreparedModel(build, in_words(announce)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="op_profiler-")))
        job.begin_compiling()
        job.load()
        announce("writing the model for other runtimes")
        wanted = tuple(dict.fromkeys(form for name in request.against for form in PEERS.get(name).forms))
        forms = write_forms(build, wanted, job.inputs, folder)
        announce("compiling")
        builds = _builds(request, job)
        machine = job.machine
        loaded = [OurBuild(name, one, machine.load(one.compiled, job.inputs)) for name, one in builds.items()]
        at = []
        for threads in build.threads:
            machine.threads.use(threads)
            announce(f"measuring in turns, threads: {threads}, up to {request.seconds:.0f} s")
            found = _at_threads(request, machine, loaded, forms, folder, threads)
            if advise and found.layers and threads == max(build.threads):
                announce("explaining the layers that lose most")
                layers = with_advice(found.layers, loaded[-1].built, machine, job.inputs, build, announce)
                found = dataclasses.replace(found, layers=layers)
            at.append(found)
        return PeerComparison(
            model=build.model.name,
            processor=machine.device.processor,
            compiler=build.compiler,
            at=tuple(at),
            notes=tuple(dict.fromkeys((*job.model.notes, *(note for one in builds.values() for note in one.notes)))),
        )


def _builds(request: PeersRequest, job: PreparedModel) -> dict[str, BuiltModel]:
    """Return this project's builds, by their names in `OURS`."""
    default, tuned, by_rule = OURS
    choices = {default: NONE, by_rule: RULE, tuned: request.build.schedules}
    requests = {name: dataclasses.replace(request.build, schedules=choice) for name, choice in choices.items()}

    def built(name: str) -> BuiltModel:
        return build_model(requests[name], job.model, job.target)

    ours = built(default)
    asked = ours.asked - ours.refused
    digests = {name: one.usable_records().digest(asked) for name, one in requests.items()}
    differing = [name for name in requests if digests[name] and (name != tuned or digests[name] != digests[by_rule])]
    return {default: ours} | {name: built(name) for name in differing}


def _at_threads(
    request: PeersRequest,
    machine: Machine,
    ours: Sequence[OurBuild],
    forms: Forms,
    folder: Path,
    threads: int,
) -> AtThreads:
    for one in ours:
        one.loaded.run_model()
    expected = ours[0].loaded.output_arrays()
    cores = machine.threads.core_set(threads)
    failures: dict[str, str] = {}
    peers: dict[str, RunningPeer] = {}
    with contextlib.ExitStack() as stack:
        for name in dict.fromkeys(request.against):
            try:
                peers[name] = stack.enter_context(_started(name, forms, folder, cores))
            except PeerFailure as error:
                failures[name] = str(error)
        outputs = {name: peer.outputs() for name, peer in peers.items()}
        sides: dict[str, Callable[[], float]] = {
            **{one.name: one.time_us for one in ours},
            **{name: peer.time_us for name, peer in peers.items()},
        }
        measured, foreign = _in_turns(sides, failures, request.seconds, cores, {n: p.process for n, p in peers.items()})
        layers = ours[-1].layers()
    times = [_our_time(one, measured, expected, request.build.compiler, threads) for one in ours]
    for name in dict.fromkeys(request.against):
        if name in failures:
            times.append(RuntimeTime(name=name, problem=failures[name]))
        else:
            times.append(_peer_time(name, peers[name], measured, outputs[name], expected))
    agreeing = {one.name for one in times if one.agree}
    profiles = {name: peer.profile for name, peer in peers.items() if name in agreeing and peer.profile is not None}
    medians = {name: float(np.median(column)) for name, column in measured.items()}
    best = min(profiles, key=lambda name: medians[name], default="")
    rows, elsewhere = _layers(layers, medians[ours[-1].name], profiles, medians, best)
    return AtThreads(
        threads=threads,
        rounds=len(measured[OURS[0]]),
        foreign_load=foreign,
        runtimes=tuple(times),
        build=ours[-1].name,
        best=best,
        elsewhere_us=elsewhere,
        layers=rows,
    )


@contextlib.contextmanager
def _started(name: str, forms: Forms, folder: Path, cores: Sequence[int]) -> Iterator[RunningPeer]:
    """Yield a runtime that has loaded the model and is bound to `cores`.

    Raises:
        PeerFailure: the runtime cannot load the model, or uses another number of threads than it has cores.
    """
    peer = PEERS.get(name)
    form = next((form for form in peer.forms if form in forms.files), None)
    if form is None:
        raise PeerFailure("; ".join(dict.fromkeys(forms.problems[one] for one in peer.forms)))
    own = folder / name
    own.mkdir(exist_ok=True)
    task = PeerTask(
        peer=name,
        file=str(forms.files[form]),
        inputs=str(folder / INPUTS),
        outputs=str(own / "outputs.npz"),
        folder=str(own),
        cores=tuple(cores),
        profiled=True,
    )
    with RunningPeer(task) as running:
        asked = len(cores)
        if running.threads != asked or running.busy_threads > asked:
            raise PeerFailure(
                f"it was asked for {threads_text(asked)}, reports {running.threads}, and {running.busy_threads} worked"
            )
        yield running


def _in_turns(
    sides: Mapping[str, Callable[[], float]],
    failures: dict[str, str],
    seconds: float,
    cores: Sequence[int],
    processes: Mapping[str, int],
) -> tuple[dict[str, np.ndarray], bool]:
    """Return the times of every side in microseconds, shape (rounds,), and whether there was background load.

    Rounds with background load are used only if there are too few rounds without.

    Args:
        sides: by name, functions that measure a build or a runtime once and return microseconds.
        failures: reason of each failure, by the name of the side; failing sides are added.
        seconds: time limit of the measurement.
        processes: process identifiers of the sides that run in a separate process.
    """
    names = [name for name in sides]
    rows: list[dict[str, float]] = []
    quiet: list[bool] = []
    meter = CoreMeter(cores, processes=tuple(processes.values()))
    started = time.monotonic()
    while len(rows) < _LEAST_ROUNDS or (len(rows) < _MOST_ROUNDS and time.monotonic() - started < seconds):
        row: dict[str, float] = {}
        first = len(rows) % len(names)
        for name in (*names[first:], *names[:first]):
            try:
                with no_garbage_collection():
                    row[name] = sides[name]()
            except PeerFailure as error:
                failures[name] = str(error)
                names.remove(name)
                meter = CoreMeter(cores, processes=[pid for n, pid in processes.items() if n in names])
        load = meter.read()
        rows.append(row)
        quiet.append(load is None or not load.disturbs)
    foreign = sum(quiet) < _LEAST_ROUNDS
    kept = [row for row, undisturbed in zip(rows, quiet) if undisturbed or foreign]
    return {name: np.array([row[name] for row in kept]) for name in names}, foreign


def _our_time(
    one: OurBuild, measured: Mapping[str, np.ndarray], expected: Sequence[np.ndarray], compiler: str, threads: int
) -> RuntimeTime:
    found = _time(one.name, measured, version=compiler, threads=threads)
    return found if one.name == OURS[0] else _compared(found, one.loaded.output_arrays(), expected)


def _peer_time(
    name: str,
    peer: RunningPeer,
    measured: Mapping[str, np.ndarray],
    outputs: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
) -> RuntimeTime:
    found = dataclasses.replace(
        _time(name, measured, version=peer.version, threads=peer.threads),
        busy_threads=peer.busy_threads,
        distortion=peer.profile.distortion if peer.profile else None,
    )
    return _compared(found, outputs, expected)


def _time(name: str, measured: Mapping[str, np.ndarray], *, version: str, threads: int) -> RuntimeTime:
    ratios = measured[OURS[0]] / measured[name]
    low, high = median_interval(ratios)
    return RuntimeTime(
        name=name,
        version=version,
        threads=threads,
        median_us=float(np.median(measured[name])),
        ratio=float(np.median(ratios)),
        ratio_low=low if math.isfinite(low) else None,
        ratio_high=high if math.isfinite(high) else None,
    )


def _compared(one: RuntimeTime, outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> RuntimeTime:
    """Return a result with the difference between its outputs and those of the default build filled in.

    Shapes are not compared, only numbers of elements: a runtime may omit dimensions of size one.
    """
    if [array.size for array in outputs] != [array.size for array in expected]:
        return dataclasses.replace(one, difference=math.inf, agree=False)
    largest = max(difference(a.reshape(b.shape), b) for a, b in zip(outputs, expected))
    allowed = allowed_difference({str(array.dtype) for array in expected})
    return dataclasses.replace(one, difference=largest, agree=largest <= allowed)


def _layers(
    ours: OurLayers, whole_us: float, profiles: Mapping[str, PeerProfile], medians: Mapping[str, float], best: str
) -> tuple[tuple[PeerLayer, ...], dict[str, float]]:
    """Return the times of layers in all runtimes, and by runtime the time of its nodes without a layer.

    Both are empty if no runtime has times of layers.
    """
    if not best:
        return (), {}
    share = whole_us / (sum(ours.times_us.values()) or 1.0)
    scaled = dataclasses.replace(ours, times_us={name: us * share for name, us in ours.times_us.items()})
    found = {name: by_layer(scaled, profile.nodes, medians[name]) for name, profile in profiles.items()}
    rows = layer_times(scaled, {name: times for name, (times, _) in found.items()}, best)
    return rows, {name: elsewhere for name, (_, elsewhere) in found.items()}
