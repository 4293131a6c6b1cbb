"""The peaks that a device's probe attained, as rooflines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.report.page.document import Roof, Roofline

if TYPE_CHECKING:
    from op_profiler.measure.measurement import Device

NOT_PROBED = (
    "The peaks of this device are not known: it was measured by an older version, or its kind has no probe. A new "
    "collection on it brings them."
)


def rooflines_of(device: Device) -> list[Roofline]:
    """One a thread count of the probe; empty where there was none."""
    peaks = device.properties.get("peaks") or {}
    caches: dict[str, list[float]] = peaks.get("cache_bytes_per_us") or {}
    return [
        Roofline(
            threads=int(threads),
            flops_per_us=float(peaks["flops_per_us"][i]),
            roofs=[
                Roof(level="memory", bytes_per_us=float(peaks["bytes_per_us"][i])),
                *(Roof(level=level.upper(), bytes_per_us=float(rates[i])) for level, rates in caches.items()),
            ],
        )
        for i, threads in enumerate(peaks.get("threads", ()))
    ]
