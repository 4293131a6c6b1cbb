"""Traces for Perfetto (ui.perfetto.dev) and chrome://tracing: one run of a model, call after call, in microseconds.

Each process of the trace is a model at one thread count on one device. Calls are nested in the layers of the model to
which they belong. The length of a call is its median over the rounds. Below a call are the losses that ``op-profiler
explain`` found for its operator, the largest first. The format can be exported, not imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from op_profiler.dataset.formats.model_runs import ModelFormat, ModelRun, TimedCall


class ChromeTrace(ModelFormat):
    """The format ``chrome_trace``: runs of models as traces for Perfetto and chrome://tracing."""

    def content(self, runs: Sequence[ModelRun]) -> dict[str, Any]:
        """Return the events of the runs in the Trace Event Format, one process per run."""
        events = [event for number, run in enumerate(runs, 1) for event in _events(number, run)]
        return {"traceEvents": events, "displayTimeUnit": "ns"}


def _events(number: int, run: ModelRun) -> Iterator[dict[str, Any]]:
    where = {"pid": number, "tid": 1}
    yield {"name": "process_name", "ph": "M", **where, "args": {"name": run.title}}
    open_layers: list[tuple[str, float]] = []  # from the outermost, each with its start
    now = 0.0
    for call in (*run.calls, None):
        path = _path(call) if call is not None else []
        shared = 0
        while shared < min(len(path), len(open_layers)) and path[shared] == open_layers[shared][0]:
            shared += 1
        for name, start in reversed(open_layers[shared:]):
            yield {
                "name": name,
                "cat": "layer",
                "ph": "X",
                **where,
                "ts": round(start, 3),
                "dur": round(now - start, 3),
            }
        open_layers = [*open_layers[:shared], *((name, now) for name in path[shared:])]
        if call is not None:
            yield {
                "name": call.title,
                "cat": call.row["anchor"],
                "ph": "X",
                **where,
                "ts": round(now, 3),
                "dur": round(call.us, 3),
                "args": _arguments(call),
            }
            yield from _losses(call, where, now)
            now += call.us


def _losses(call: TimedCall, where: dict[str, int], start: float) -> Iterator[dict[str, Any]]:
    """Yield an event for each loss that was found in a call; its length is the loss's share of the call."""
    found, end = call.explained or {"losses": []}, start + call.us
    for loss in found["losses"]:
        length = min(loss["lost_us"] / found["time_us"] * call.us, end - start)
        yield {
            "name": loss["cause"],
            "cat": "loss",
            "ph": "X",
            **where,
            "ts": round(start, 3),
            "dur": round(length, 3),
            "args": {name: loss[name] for name in ("lost_us", "low_us", "high_us", "basis", "because")},
        }
        start += length


def _path(call: TimedCall) -> list[str]:
    """Return the path of the layer that contains the call's heavy op, split into its parts."""
    layer = call.layers[0] if call.layers else ""
    return [part for part in layer.split("/" if "/" in layer else ".") if part]


def _arguments(call: TimedCall) -> dict[str, Any]:
    row = call.row
    return {
        "layers": list(call.layers),
        "output": ["x".join(map(str, one["shape"])) for one in row["outputs"]],
        "flops": row["flops"],
        "bytes": row["bytes_read"] + row["bytes_written"],
        "schedule": row["template"],
        "operator_key": row["operator_key"],
    }


FORMAT = ChromeTrace()
