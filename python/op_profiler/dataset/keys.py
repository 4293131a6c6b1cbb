"""Keys of rows, from requested, not effective values. Datasets contain the keys, so they never change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from op_profiler.dataset.row import CorunMember
from op_profiler.measure.measurement import Settings


def measurement_key(operator_key: str, schedule_key: str, device_key: str, settings: Settings, model_key: str) -> str:
    """Return the identity of a measurement, 32 hex digits; an equal key means that it was already measured."""
    return _digest([operator_key, schedule_key, device_key, settings.requested, model_key])


def timing_key(model_key: str, device_key: str, settings: Settings) -> str:
    """Return the identity of the timing of a whole model, 32 hex digits."""
    return _digest([model_key, device_key, settings.requested])


def corun_key(device_key: str, members: Iterable[CorunMember]) -> str:
    """Return the key of a group, 32 hex digits: its members and their requested settings, in any order."""
    identities = [[m.operator_key, m.schedule.key, m.settings.requested, m.model_key] for m in members]
    return _digest([device_key, sorted(identities, key=lambda one: json.dumps(one, sort_keys=True))])


def failure_key(measured_key: str, error: str) -> str:
    """Return the identity of a failure, 32 hex digits."""
    return _digest([measured_key, error])


def quarantine_key(base_key: str) -> str:
    """Return the identity of a quarantined model, the same on every machine: 32 hex digits.

    Args:
        base_key: `BuildRequest.base_key` without a machine.
    """
    return _digest(["put aside", base_key])


def _digest(identity: list[Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
