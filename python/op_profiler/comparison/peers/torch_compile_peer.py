"""PyTorch with torch.compile as a runtime that models are compared with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from op_profiler.c_compiler import check_cpp_compiler
from op_profiler.comparison.peers.peer import Peer, PeerSession
from op_profiler.comparison.peers.torch_peer import TorchSession

if TYPE_CHECKING:
    import numpy as np


class TorchCompilePeer(Peer):
    """PyTorch with torch.compile: the program of torch.export, compiled with default options (Inductor), in inference
    mode."""

    packages = ("torch",)
    extra = "models"
    forms = ("pt2",)
    has_profiler = False

    def check(self) -> None:
        """Check that there is a C++ compiler; see `Peer.check`."""
        check_cpp_compiler("--against torch.compile")

    def load(
        self, file: Path, folder: Path, inputs: Sequence[np.ndarray], threads: int, *, profiled: bool
    ) -> PeerSession:
        """Load and compile the program; see `Peer.load`."""
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / str(threads))  # its code has the number of threads in it
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes that stay
        import torch

        torch.set_num_threads(threads)
        session = TorchSession(torch.compile(torch.export.load(file).module()), inputs, None)
        session.run()
        return session


PEER = TorchCompilePeer()
