"""ncnn as a runtime that models are compared with; pnnx converts the models."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.comparison.peers.peer import Peer, PeerSession

if TYPE_CHECKING:
    import numpy as np

_TYPES = {"float32": "f32", "int64": "i64", "int32": "i32"}
_LOWER_PRECISION = ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage")


class _NcnnSession(PeerSession):
    def __init__(self, net: Any, inputs: Sequence[np.ndarray]) -> None:
        import ncnn

        self.threads = net.opt.num_threads
        self._net = net
        # Whole numbers are read as 32 bits.
        arrays = [array.astype("int32") if array.dtype.kind == "i" else array for array in inputs]
        self._mats = [(name, ncnn.Mat(array[0]).clone()) for name, array in zip(net.input_names(), arrays, strict=True)]
        self._made: list[Any] = []

    def run(self) -> None:
        with self._net.create_extractor() as extractor:
            for name, mat in self._mats:
                extractor.input(name, mat)
            self._made = []
            for name in self._net.output_names():
                code, mat = extractor.extract(name)
                if code:
                    raise RuntimeError(f"ncnn cannot compute {name}: code {code}")
                self._made.append(mat)

    def outputs(self) -> list[np.ndarray]:
        return [mat.numpy()[None].copy() for mat in self._made]


class NcnnPeer(Peer):
    """ncnn without 16-bit storage. Its tensors have no batch dimension."""

    packages = ("ncnn", "pnnx")
    forms = ("torchscript", "onnx")
    has_profiler = False

    def load(
        self, file: Path, folder: Path, inputs: Sequence[np.ndarray], threads: int, *, profiled: bool
    ) -> PeerSession:
        """Load the model that pnnx converted to ncnn; see `Peer.load`."""
        import ncnn

        if any(array.ndim == 0 or array.shape[0] != 1 for array in inputs):
            raise ValueError("ncnn takes a batch of one only")
        parameters, weights = _converted(file, folder, inputs)
        net = ncnn.Net()
        net.opt.num_threads = threads
        for option in _LOWER_PRECISION:
            setattr(net.opt, option, False)
        if net.load_param(str(parameters)) or net.load_model(str(weights)):
            raise ValueError("ncnn does not read what pnnx made of the model")
        return _NcnnSession(net, inputs)


def _converted(file: Path, folder: Path, inputs: Sequence[np.ndarray]) -> tuple[Path, Path]:
    """Return the files to which pnnx converts a model; those of an earlier call are used again.

    Raises:
        ValueError: pnnx writes no files, or ncnn lacks an operator, which the message names.
    """
    import pnnx

    made = folder / "model.ncnn.param", folder / "model.ncnn.bin"
    if not made[0].exists():
        link = folder / f"model{file.suffix}"  # pnnx writes beside what it reads, which may be the user's
        link.unlink(missing_ok=True)
        link.symlink_to(file)
        shapes = ",".join(f"[{','.join(map(str, array.shape))}]{_TYPES[str(array.dtype)]}" for array in inputs)
        done = subprocess.run(
            [pnnx.EXEC_PATH, str(link), f"inputshape={shapes}", "fp16=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode or not made[0].exists():
            lines = [line for line in done.stdout.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
            raise ValueError(f"pnnx does not convert it: {lines[-1]}")
    kinds = {line.split()[0] for line in made[0].read_text().splitlines()[2:] if line.split()}
    if unknown := sorted(kind for kind in kinds if "." in kind or "::" in kind):
        raise ValueError(f"ncnn has no {', '.join(unknown[:3])}")
    return made


PEER = NcnnPeer()
