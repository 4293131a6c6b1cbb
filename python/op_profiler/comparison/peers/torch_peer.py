"""PyTorch without torch.compile as a runtime that models are compared with."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.comparison.peers.peer import Peer, PeerSession

if TYPE_CHECKING:
    import numpy as np

_MODULE = re.compile(r"([^.(]+)\([^)]*\)::forward\.")


class TorchSession(PeerSession):
    """A torch module that runs in inference mode.

    Args:
        module: the module.
        inputs: input arrays in the order of the module's arguments.
        trace: file to which torch's profiler writes; None: no profiler.
    """

    def __init__(self, module: Any, inputs: Sequence[np.ndarray], trace: Path | None) -> None:
        import torch

        self.threads = torch.get_num_threads()
        self._module = module
        self._trace = trace
        self._inputs = [torch.from_numpy(array) for array in inputs]
        self._made: Any = None
        self._profiler: Any = None

    def run(self) -> None:
        """See `PeerSession.run`."""
        import torch

        if self._trace is not None and self._profiler is None:
            self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_modules=True)
            self._profiler.start()
        with torch.inference_mode():
            self._made = self._module(*self._inputs)

    def outputs(self) -> list[np.ndarray]:
        """See `PeerSession.outputs`."""
        made = self._made if isinstance(self._made, tuple) else (self._made,)
        return [tensor.numpy() for tensor in made]

    def layer_times(self) -> list[tuple[str, float]]:
        """See `PeerSession.layer_times`."""
        if self._trace is None or self._profiler is None:
            return []
        self._profiler.stop()
        self._profiler.export_chrome_trace(str(self._trace))
        return outermost(json.loads(self._trace.read_text())["traceEvents"])


def outermost(events: Sequence[dict[str, Any]]) -> list[tuple[str, float]]:
    """Return the operator calls that no other operator makes, each as a path (modules, then operator) and microseconds.

    Args:
        events: events of a trace in Chrome's format.
    """
    times, until = [], 0.0
    for event in sorted((e for e in events if e.get("cat") == "cpu_op"), key=lambda e: e["ts"]):
        if "forward" in event["name"] or event["ts"] < until:
            continue  # the whole module, or what an operator calls
        until = event["ts"] + event["dur"]
        modules = _MODULE.findall(event["args"].get("Module Hierarchy", ""))[1:]  # the first is the whole
        times.append(("/".join(["", *modules, event["name"]]), float(event["dur"])))
    return times


class TorchPeer(Peer):
    """PyTorch with the traced module (TorchScript), in inference mode."""

    packages = ("torch",)
    extra = "models"
    forms = ("torchscript",)

    def load(
        self, file: Path, folder: Path, inputs: Sequence[np.ndarray], threads: int, *, profiled: bool
    ) -> PeerSession:
        """Load the TorchScript file; see `Peer.load`."""
        import torch

        torch.set_num_threads(threads)
        return TorchSession(torch.jit.load(str(file)).eval(), inputs, folder / "torch.json" if profiled else None)


PEER = TorchPeer()
