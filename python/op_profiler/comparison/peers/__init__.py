"""Runtimes of other projects that a model is compared with: one file for each runtime, which runs in a separate
process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.registry import Entry, Registry

if TYPE_CHECKING:
    from op_profiler.comparison.peers.peer import Peer

_HERE = "op_profiler.comparison.peers"

PEERS: Registry[Peer] = Registry(
    "peers",
    "runtime",
    f"{_HERE}.peer:Peer",
    {
        "onnxruntime": Entry(f"{_HERE}.onnxruntime_peer:PEER", "ONNX Runtime, its processor kernels (MLAS)"),
        "torch": Entry(f"{_HERE}.torch_peer:PEER", "PyTorch, the traced module (TorchScript)"),
        "torch.compile": Entry(
            f"{_HERE}.torch_compile_peer:PEER",
            "PyTorch, torch.compile; needs a C++ compiler; no times of layers",
        ),
        "ncnn": Entry(f"{_HERE}.ncnn_peer:PEER", "ncnn, converted by pnnx; it has no times of layers"),
        "openvino": Entry(f"{_HERE}.openvino_peer:PEER", "OpenVINO, its plugin for processors"),
    },
)
