"""What a cluster is doing, as plain values."""

from __future__ import annotations

from typing import Any

import msgspec

from op_profiler.fleet.cluster import Cluster


def state_of(address: str) -> list[dict[str, Any]]:
    """Every worker: the fields of `FleetMachine`, its ``address``, Dask's ``status``, and ``requests`` that are its.

    Raises:
        MeasureError: no scheduler answers.
        OpProfilerError: a worker is none of op_profiler's.
    """
    with Cluster(address) as cluster:
        processing = cluster.processing()
        return [
            {
                "address": worker,
                "status": about["status"],
                **msgspec.to_builtins(machine),
                "requests": [_model(key) for key in processing.get(worker, ())],
            }
            for worker, (machine, about) in sorted(cluster.workers().items())
        ]


def _model(key: str) -> str:
    """The model's name in a key of `Cluster`."""
    return key.rsplit("-", 2)[0]
