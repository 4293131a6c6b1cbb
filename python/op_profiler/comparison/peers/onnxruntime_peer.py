"""ONNX Runtime."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.comparison.peers.peer import Peer, Session

if TYPE_CHECKING:
    import numpy as np

_ENDS_OF_EVENTS = "_kernel_time"


class _Session(Session):
    def __init__(self, make: Any, inputs: Sequence[np.ndarray]) -> None:
        self._make = make
        self._inputs = inputs
        self._open()

    def _open(self) -> None:
        self._session = self._make()
        self.threads = self._session.get_session_options().intra_op_num_threads
        self._binding = self._session.io_binding()  # without it, each run would copy the inputs
        for one, array in zip(self._session.get_inputs(), self._inputs, strict=True):
            self._binding.bind_cpu_input(one.name, array)
        for one in self._session.get_outputs():
            self._binding.bind_output(one.name)

    def run(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[np.ndarray]:
        return list(self._binding.copy_outputs_to_cpu())

    def layer_times(self) -> list[tuple[str, float]]:
        file = Path(self._session.end_profiling())
        events = json.loads(file.read_text())
        file.unlink()
        self._open()  # a session profiles once
        return [
            (event["name"].removesuffix(_ENDS_OF_EVENTS), float(event["dur"]))
            for event in events
            if event.get("cat") == "Node" and event["name"].endswith(_ENDS_OF_EVENTS)
        ]


class OnnxRuntimePeer(Peer):
    """All threads are those inside an operator; operators run one after the other, as by default."""

    packages = ("onnxruntime",)
    forms = ("onnx",)

    def load(self, file: Path, folder: Path, inputs: Sequence[np.ndarray], threads: int, *, profiled: bool) -> Session:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.enable_profiling = profiled
        options.profile_file_prefix = str(folder / "onnxruntime")
        return _Session(
            lambda: onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]), inputs
        )


PEER = OnnxRuntimePeer()
