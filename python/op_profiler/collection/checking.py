"""``op-profiler check``: predicts the times of a model, measures them on this machine, and compares both."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import math
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.collection.check_request import CheckRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.collection.supervisor import Collection
from op_profiler.cores import binding_order
from op_profiler.errors import MeasureError, UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.measure.background import report_background_load
from op_profiler.prediction.latency import answer, checks
from op_profiler.prediction.latency.checks import Check
from op_profiler.prediction.latency.operator_predictor import TIERS, UNSUPPORTED
from op_profiler.prediction.latency.request import PredictRequest
from op_profiler.targets.target import kind_of

if TYPE_CHECKING:
    from op_profiler.collection.progress import Progress
    from op_profiler.collection.summary import ThreadReport
    from op_profiler.measure.measurement import Measurement
    from op_profiler.prediction.latency.network import NetworkPrediction

_FEWEST_ROUNDS, _MOST_ROUNDS = 3, 100
_WALKS_OF_A_ROUND = 4
"""Approximate duration of a round, in runs of the model; a round runs the model as a whole and operator by operator."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Result of `check`.

    Attributes:
        origin: a sentence about the device that the predictor was fitted on.
        network: result for the whole network; None if its total was not predicted or not measured.
        operators: results of the operators, the slowest first.
        not_compared: labels of operators without an estimate or without a measurement.
    """

    origin: str
    network: Check | None
    operators: tuple[Check, ...]
    not_compared: tuple[str, ...]

    @property
    def held(self) -> bool:
        """Whether the predicted interval of the network contains the measured time.

        If `network` is None: whether the interval of each operator contains its time. Disturbed measurements count as
        contained.
        """
        return all(one.verdict != "did not hold" for one in ([self.network] if self.network else self.operators))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary of the attributes and `held`."""
        return dataclasses.asdict(self) | {"held": self.held}


def check(request: CheckRequest, progress: Progress, note: Callable[[str], None]) -> CheckResult:
    """Predict the times of a model, measure them, compare both, and store the comparisons as checks of the predictor.

    The measurements go to a temporary dataset, which is deleted.

    Args:
        request: a request whose method `check` raised nothing.
        note: called with the processes that keep the processor busy, and before each slow step until the measurement
            begins.

    Raises:
        UsageError: the chosen device is not this machine's processor.
        MeasureError: the model could not be measured.
        OpProfilerError: the model cannot be lowered, no predictor is available, or the checks cannot be stored.
    """
    report_background_load(binding_order()[: max(request.predicted.threads or (1,))], note)
    asked = dataclasses.replace(request.predicted, target="llvm")
    chosen = answer.choose(asked, note)
    if not chosen.for_this_machine:
        device = chosen.predictor.device
        raise UsageError(
            f"{device.processor} ({device.target}) is not this machine's processor, so nothing here checks its times; "
            "leave out --device, or run the command there"
        )
    network, _ = answer.network_of(chosen, asked, note)
    (threads,) = chosen.threads
    predicted = chosen.predict(network, threads)
    found = _measured(request, asked, chosen.target, threads, predicted.partial_us, progress)
    kind = kind_of(chosen.target)
    about = {
        "run": secrets.token_hex(8),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": kind.machine_identity(),
        "processor": kind.processor_name(),
        "threads": threads,
        "predictor": chosen.version,
    }
    factor = chosen.widening(threads)
    operators, left = _operators(predicted, found, factor, about)
    whole = found.timing.whole_model if found.timing is not None else None
    of_network = None
    if whole is not None and whole.median_us is not None and math.isfinite(predicted.total_us):
        keys = "".join(f"{o.key}{calls}" for o, calls in zip(network.operators, network.calls))
        tier = max(predicted.tiers, key=lambda name: predicted.tiers[name])
        names = {"kind": "network", "key": hashlib.sha256(keys.encode()).hexdigest()[:16], "name": network.name}
        times = (predicted.total_us, predicted.low_us, predicted.high_us)
        of_network = _compared(times, whole, factor, about | names | {"tier": tier})
    checks.add([*operators, *([of_network] if of_network else [])])
    operators.sort(key=lambda one: -one.measured_us)
    return CheckResult(origin=chosen.origin, network=of_network, operators=tuple(operators), not_compared=tuple(left))


def _measured(
    request: CheckRequest, asked: PredictRequest, target: str, threads: int, total_us: float, progress: Progress
) -> ThreadReport:
    rounds = _MOST_ROUNDS
    if math.isfinite(total_us):
        affordable = int(request.seconds * 1e6 / (_WALKS_OF_A_ROUND * total_us))
        rounds = min(max(affordable, _FEWEST_ROUNDS), _MOST_ROUNDS)
    with tempfile.TemporaryDirectory(prefix="op_profiler-") as folder:
        db = f"sqlite:///{Path(folder, 'check.db')}"
        measuring = Measuring(rounds=rounds, energy="none")
        collect = CollectRequest(build=asked.build(target, threads), measuring=measuring, db=db)
        collect.check()
        with Collection(db) as collection:
            (report,) = collection.run(FRONTENDS.get(asked.model.source), [collect], progress)
    if threads not in report.threads:
        raise MeasureError(f"{asked.model.name} could not be measured: {report.error}")
    return report.threads[threads]


def _operators(
    predicted: NetworkPrediction, found: ThreadReport, factor: float, about: dict[str, Any]
) -> tuple[list[Check], list[str]]:
    """Return the comparisons of operators, and the labels of the operators that cannot be compared."""
    compared, left = [], []
    estimates = predicted.operators
    columns = (estimates.latency_us, estimates.low_us, estimates.high_us, estimates.tier)
    for operator, middle, low, high, tier in zip(predicted.network.operators, *columns):
        measured = found.measurements.get(operator.workload)
        name = operator.label(predicted.network.layers.get(operator.key, ()))
        if measured is None or measured.median_us is None or tier == UNSUPPORTED:
            left.append(name)
            continue
        names = {"kind": "operator", "key": operator.key, "name": name, "tier": TIERS[tier]}
        compared.append(_compared((float(middle), float(low), float(high)), measured, factor, about | names))
    return compared, left


def _compared(times: tuple[float, float, float], measured: Measurement, factor: float, about: dict[str, Any]) -> Check:
    """Compare predicted times (estimate, low, high) with a measurement.

    If `high` is not finite, the prediction is only a lower bound and holds if the measured time is not below `low`.
    """
    middle, low, high = times
    us = float(measured.median_us or math.nan)
    bounded = not math.isfinite(high)
    score = None
    if measured.foreign_load or measured.disturbed_by is not None:
        verdict: checks.Verdict = "disturbed"
    else:
        verdict = "held" if us >= low and (bounded or us <= high) else "did not hold"
        if not bounded and high > middle:
            score = abs(math.log(us / middle)) / (math.log(high / middle) / factor)
    return Check(
        **about,
        predicted_us=None if bounded else middle,
        low_us=low,
        high_us=None if bounded else high,
        measured_us=us,
        score=score,
        verdict=verdict,
    )
