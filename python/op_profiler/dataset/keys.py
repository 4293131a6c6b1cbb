"""Computes the keys of rows from requested values, not from effective ones.

Datasets contain these keys, so their computation must never change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from op_profiler.dataset.row import CorunMember
from op_profiler.measure.measurement import Settings


def measurement_key(operator_key: str, schedule_key: str, device_key: str, settings: Settings, model_key: str) -> str:
    """Return the key of a measurement, 32 hex digits; a measurement whose key is in the dataset was made already."""
    return _digest([operator_key, schedule_key, device_key, settings.requested, model_key])


def timing_key(model_key: str, device_key: str, settings: Settings) -> str:
    """Return the key of the timing of a whole model, 32 hex digits."""
    return _digest([model_key, device_key, settings.requested])


def corun_key(device_key: str, members: Iterable[CorunMember]) -> str:
    """Return the key of a co-run group, 32 hex digits; it does not depend on the order of the members."""
    identities = [[m.operator_key, m.schedule.key, m.settings.requested, m.model_key] for m in members]
    return _digest([device_key, sorted(identities, key=lambda one: json.dumps(one, sort_keys=True))])


def failure_key(measured_key: str, error: str) -> str:
    """Return the key of a failure, 32 hex digits.

    Args:
        measured_key: key of the measurement or model timing that failed.
        error: message of the failure.
    """
    return _digest([measured_key, error])


def quarantine_key(base_key: str) -> str:
    """Return the key of a quarantined model, 32 hex digits; it is the same on every machine.

    Args:
        base_key: `BuildRequest.base_key` without a machine.
    """
    return _digest(["put aside", base_key])


def _digest(identity: list[Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
