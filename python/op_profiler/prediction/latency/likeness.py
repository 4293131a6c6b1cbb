"""Scaling of another device's kernel model to a device with few measurements, by the peaks of both.

Processors of one vendor differ little. Processors of two vendors differ in the bandwidth of their caches, more than a
few kernels can show: that of the third cache by up to a factor of three.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.traffic import MOVED, TERMS

_FROM = {"past_32k": "l2", "past_48k": "l2", "past_1m": "l3", "past_2m": "l3", "past_32m": "memory"}
"""Cache or memory that serves the traffic from behind a cache of this size."""
_RATES = ("arithmetic", "memory", "l1", "l2", "l3")
_FAR = 0.13
"""Mean difference between the peaks of two devices, on a logarithmic scale, at which the weight is 1/e."""
_FARTHEST = 1.0
"""Difference that is assumed for devices with unknown peaks."""

Peaks = Mapping[str, Any]
"""Plain values with the fields of `op_profiler.targets.llvm.peaks.Peaks` (`DeviceName.peaks`)."""


def likeness(there: Peaks | None, here: Peaks | None) -> float:
    """Return the weight of another device's measurements: 1 for equal peaks; the more the peaks differ, the less.

    Args:
        there, here: peaks of the other device, and of the device to predict for; None if unknown.
    """
    ratios = [_ratio(there, here, name, threads=1) for name in _RATES]
    apart = [abs(np.log(ratio)) for ratio in ratios if ratio is not None]
    return float(np.exp(-(np.mean(apart) if apart else _FARTHEST) / _FAR))


def as_if_here(kernels: KernelModel, there: Peaks | None, here: Peaks | None) -> KernelModel:
    """Return another device's kernel model with its costs of cache traffic scaled to this device.

    The cost of a byte is assumed to be inversely proportional to the bandwidth.

    Args:
        there, here: peaks of the device of `kernels`, and of the device to predict for. If the bandwidth of a cache is
            unknown on one of the devices, the costs of its bytes are not scaled.
    """
    change = np.zeros((len(kernels.threads), kernels.log_costs.shape[1]))
    for at, threads in enumerate(kernels.threads):
        for name, cache in _FROM.items():
            ratio = _ratio(there, here, cache, int(threads))
            if ratio is not None:
                change[at, len(TERMS) + MOVED.index(name)] = np.log(ratio)
    return dataclasses.replace(
        kernels,
        log_costs=kernels.log_costs + change,
        log_costs_of_kinds=kernels.log_costs_of_kinds + change[:, None],
    )


def _ratio(there: Peaks | None, here: Peaks | None, name: str, threads: int) -> float | None:
    """Return the ratio of two devices' peaks, each at its nearest thread count; None if one of them is unknown."""
    rates = [_rate(peaks, name, threads) for peaks in (there, here) if peaks is not None]
    return rates[0] / rates[1] if len(rates) == 2 and all(rates) else None


def _rate(peaks: Peaks, name: str, threads: int) -> float:
    """Return the operations or bytes per microsecond of a unit; 0 if unknown."""
    known = {"arithmetic": peaks.get("flops_per_us"), "memory": peaks.get("bytes_per_us")}
    rates = (known | peaks.get("cache_bytes_per_us", {})).get(name)
    if not rates:
        return 0.0
    return float(rates[int(np.argmin(np.abs(np.array(peaks["threads"]) - threads)))])
