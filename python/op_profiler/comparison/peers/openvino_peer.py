"""OpenVINO as a runtime that models are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.comparison.peers.peer import Peer, PeerSession

if TYPE_CHECKING:
    import numpy as np


class _OpenVinoSession(PeerSession):
    def __init__(self, compiled: Any, inputs: Sequence[np.ndarray], profiled: bool) -> None:
        from openvino import Tensor

        self.threads = int(compiled.get_property("INFERENCE_NUM_THREADS"))
        self._profiled = profiled
        self._times: list[tuple[str, float]] = []
        self._request = compiled.create_infer_request()
        self._outputs = len(compiled.outputs)
        for place, array in enumerate(inputs):
            self._request.set_input_tensor(place, Tensor(array, shared_memory=True))

    def run(self) -> None:
        self._request.infer()
        if self._profiled:
            self._times += [
                (one.node_name, one.real_time.total_seconds() * 1e6)
                for one in self._request.profiling_info
                if one.real_time
            ]

    def outputs(self) -> list[np.ndarray]:
        return [self._request.get_output_tensor(place).data.copy() for place in range(self._outputs)]

    def layer_times(self) -> list[tuple[str, float]]:
        return self._times


class OpenVinoPeer(Peer):
    """OpenVINO with one stream, which uses all threads."""

    packages = ("openvino",)
    forms = ("onnx", "tflite")

    def load(
        self, file: Path, folder: Path, inputs: Sequence[np.ndarray], threads: int, *, profiled: bool
    ) -> PeerSession:
        """Compile the ONNX or TFLite file for the processor; see `Peer.load`."""
        import openvino

        options = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",  # a processor with AMX would compute in bfloat16
            "PERF_COUNT": profiled,
        }
        core = openvino.Core()
        model = core.read_model(file)
        model.reshape({place: list(array.shape) for place, array in enumerate(inputs)})
        return _OpenVinoSession(core.compile_model(model, "CPU", options), inputs, profiled)


PEER = OpenVinoPeer()
