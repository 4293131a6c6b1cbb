"""ONNX Runtime as a runtime that models are compared with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.comparison.peers.peer import Peer, PeerSession

if TYPE_CHECKING:
    import numpy as np

_END_OF_EVENTS = "_kernel_time"
_BLOCKED = "_nchwc"
"""Suffix of the name of a node on blocks of channels; the name begins with the name of the node's output."""


class _OnnxRuntimeSession(PeerSession):
    def __init__(self, session: Any, inputs: Sequence[np.ndarray], file: Path) -> None:
        self._session = session
        self._file = file
        self.threads = session.get_session_options().intra_op_num_threads
        self._binding = session.io_binding()  # without it, each run would copy the inputs
        for one, array in zip(session.get_inputs(), inputs, strict=True):
            self._binding.bind_cpu_input(one.name, array)
        for one in session.get_outputs():
            self._binding.bind_output(one.name)

    def run(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[np.ndarray]:
        return list(self._binding.copy_outputs_to_cpu())

    def layer_times(self) -> list[tuple[str, float]]:
        import onnx

        graph = onnx.load(str(self._file), load_external_data=False).graph
        nodes = {output: node for node in graph.node for output in node.output}
        events = json.loads(Path(self._session.end_profiling()).read_text())
        return [
            (_name_of(event["name"].removesuffix(_END_OF_EVENTS), event["args"]["op_name"], nodes), float(event["dur"]))
            for event in events
            if event.get("cat") == "Node" and event["name"].endswith(_END_OF_EVENTS)
        ]


def _name_of(event: str, op: str, nodes: Mapping[str, Any]) -> str:
    """Return the name of the graph's node to which an event of the profiler belongs.

    The event of a convolution on blocks is named after the output of the convolution; if the kernel also computes an
    activation, after the output of the activation. The graph is then followed back to the node with the op of the
    event.

    Args:
        event: name of the event.
        op: op of the event, such as ``Conv``.
        nodes: nodes by the names of their outputs.
    """
    node = nodes.get(event.removesuffix(_BLOCKED)) if event.endswith(_BLOCKED) else None
    found = node
    while found is not None and found.op_type != op:
        found = nodes.get(next(iter(found.input), ""))
    found = found or node
    return event if found is None else str(found.name)


class OnnxRuntimePeer(Peer):
    """ONNX Runtime, which runs one operator at a time on all threads, as by default."""

    packages = ("onnxruntime",)
    forms = ("onnx",)

    def load(
        self, file: Path, folder: Path, inputs: Sequence[np.ndarray], threads: int, *, profiled: bool
    ) -> PeerSession:
        """Open a session of ONNX Runtime on the processor; see `Peer.load`."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.enable_profiling = profiled
        options.profile_file_prefix = str(folder / "onnxruntime")
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        return _OnnxRuntimeSession(session, inputs, file)


PEER = OnnxRuntimePeer()
