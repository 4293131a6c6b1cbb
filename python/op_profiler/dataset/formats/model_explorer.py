"""Custom node data for Google's Model Explorer: the time of each node of the user's model in one run, in microseconds.

Load the file while the model's graph is shown ("Load node data"). A node of an ONNX model and a call of a torch.export
program are matched by their names. If the dataset has no call names of a torch model, a layer's time is shown at the
node of the layer's weight. The time of a fused operator is shown at the node of its heavy op. The format can be
exported, not imported.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from op_profiler.dataset.formats.model_runs import ModelFormat, ModelRun
from op_profiler.errors import UsageError

_COLOURS = {50: "#fff7ec", 75: "#fdd49e", 90: "#fc8d59", 97: "#d7301f", 100: "#7f0000"}
"""Colours of nodes, by the percentile of the node's time among all nodes."""


class ModelExplorer(ModelFormat):
    """The format ``model_explorer``: times of a model's nodes, as custom node data for Google's Model Explorer."""

    def content(self, runs: Sequence[ModelRun]) -> dict[str, Any]:
        """Return the node data of one run in Model Explorer's format; raises UsageError for several runs."""
        if len(runs) > 1:
            raise UsageError(
                f"{len(runs)} runs fit, and the file is for one graph; choose with --threads, --device and --where "
                f"\"model_key = '...'\": {'; '.join(run.title for run in runs[:8])}"
            )
        times: dict[str, float] = collections.defaultdict(float)
        calls = [call for run in runs for call in run.calls]
        program = any(call.fx_nodes for call in calls)  # its nodes may have the names of other layers
        for call in calls:
            for node in call.fx_nodes[:1] if program else _names(call.layers[:1]):
                times[node] += call.us
        known = list(times.values())
        bounds = [(float(np.percentile(known, share)), colour) for share, colour in _COLOURS.items()] if known else []
        return {
            "results": {node: {"value": round(us, 3)} for node, us in times.items()},
            "thresholds": [{"value": value, "bgColor": colour} for value, colour in bounds],
        }


def _names(layers: Sequence[str]) -> Iterator[str]:
    """Yield the names that the nodes of these layers may have in the model's graph."""
    for layer in layers:
        yield layer
        if "/" not in layer:
            yield f"p_{layer.replace('.', '_')}_weight"


FORMAT = ModelExplorer()
