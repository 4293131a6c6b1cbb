"""The time of a model by the layers of the user's model."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping

from op_profiler.measure.measurement import Measurement
from op_profiler.operators.layers import CallLayers, shortened


@dataclasses.dataclass(frozen=True)
class LayerTime:
    """What the kernels of a layer take together.

    Attributes:
        layer: empty for what belongs to no layer that is known.
        us: microseconds in one run of the model.
        calls: kernels that are called.
        share: of the sum of all operators.
    """

    layer: str
    us: float
    calls: int
    share: float


def time_by_layer(
    measurements: Mapping[str, Measurement],
    calls: Mapping[str, int],
    layers: Mapping[str, CallLayers],
    depth: int | None = None,
) -> list[LayerTime]:
    """The layers of a model, the slowest first; the time of a kernel is that of the layer of its anchor.

    Args:
        measurements: of the model's operators, by workload key; what has no time is left out.
        calls: how often the model calls each operator.
        layers: of each of the calls, by workload key.
        depth: parts of a layer's path that are kept; None for all.
    """
    times: dict[str, list[float]] = {}
    for key, measurement in measurements.items():
        for call, us in enumerate(_call_times_us(measurement, calls.get(key, 0))):
            names = layers[key][call] if call < len(layers.get(key, ())) else ()
            layer = names[0] if names else ""
            times.setdefault(shortened(layer, depth) if depth is not None else layer, []).append(us)
    total = sum(map(sum, times.values()))
    found = [LayerTime(layer, sum(us), len(us), sum(us) / total if total else 0.0) for layer, us in times.items()]
    return sorted(found, key=lambda one: one.us, reverse=True)


def attributed(times: list[LayerTime]) -> float | None:
    """Share of the time that belongs to a known layer; None where there is no time."""
    return sum(one.share for one in times if one.layer) if times else None


def _call_times_us(measurement: Measurement, calls: int) -> list[float]:
    """The time of each call, so that they add up to the operator's."""
    if measurement.median_us is None:
        return []
    columns = list(zip(*measurement.samples_us)) if measurement.samples_us else []
    if len(columns) != calls:
        return [measurement.median_us] * calls
    medians = [statistics.median(column) for column in columns]
    whole = sum(medians)
    if not whole:
        return [measurement.median_us] * calls
    return [us * measurement.median_us * calls / whole for us in medians]
