"""Advice for layers that take longer in this project's build than in another runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from op_profiler.analysis.explain.advice import explain_command, tune_command
from op_profiler.analysis.explain.explain import explain_built
from op_profiler.analysis.explain.other_times import KnownSchedules
from op_profiler.analysis.explain.request import ExplainRequest

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.building.request import BuildRequest
    from op_profiler.comparison.peers.result import PeerLayer
    from op_profiler.compilers.compiled_model import BuiltModel
    from op_profiler.targets.machine import Machine

_MOST = 10
"""Largest number of layers with advice."""
_FASTER_MEMORY = "the other runtime reads the same bytes in less time: search for a schedule"


def with_advice(
    layers: Sequence[PeerLayer],
    built: BuiltModel,
    machine: Machine,
    inputs: Mapping[str, np.ndarray],
    build: BuildRequest,
    announce: Callable[[str], None],
) -> tuple[PeerLayer, ...]:
    """Return a copy of `layers` in which the layers that lose most have advice: the advice for one of the layer's
    operators or, if there is none, the command that explains the model.

    Args:
        layers: layers, sorted by descending loss; at most the first `_MOST` get advice.
        built: the build that the layers belong to.
    """
    request = ExplainRequest(build=build, top=3 * _MOST)
    known = KnownSchedules.read(None, shipped=True, threads=max(build.threads))
    found = explain_built(built, machine, inputs, request, known, announce)
    search = tune_command(build.model, max(build.threads))
    advice = {
        # In float32 the other runtime moves as many bytes, so these are not what it gains by.
        one.key: (_FASTER_MEMORY, search) if one.losses[0].cause == "memory" else (one.advice.text, one.advice.command)
        for one in found.operators
        if one.advice is not None
    }
    explain = f"{explain_command(build.model)} --threads {max(build.threads)}"
    advised = []
    for layer in layers[:_MOST]:
        ours = next((advice[key] for key in layer.operators if key in advice), None)
        if layer.lost_us is None or layer.lost_us <= 0:
            advised.append(layer)
        elif ours is not None:
            advised.append(dataclasses.replace(layer, advice=ours[0], command=ours[1]))
        else:
            advised.append(dataclasses.replace(layer, advice="find out what it loses to", command=explain))
    return (*advised, *layers[_MOST:])
