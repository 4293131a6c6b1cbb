"""The caches of the cores in use, and data that cannot stay in them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import psutil

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.sum_of_products import SumOfProducts
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import PackedFunction
from op_profiler.measure.load import parse_core_list

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_OF_ALL_MEMORY, _OF_FREE_MEMORY = 32, 2
_SOME_FLOAT = 0.75  # pages that nobody wrote to are all one page


def caches_in_use_bytes(cores: Iterable[int], *, sysfs: Path = Path("/sys")) -> int:
    """What the data caches of these cores hold together, shared ones once; 0 where the kernel does not say.

    A virtual machine may be told the caches of its whole host, for every core anew.

    Args:
        cores: by their numbers.
        sysfs: where the kernel's files are.
    """
    sizes: dict[tuple[str, frozenset[int]], int] = {}
    for core in cores:
        for cache in (sysfs / f"devices/system/cpu/cpu{core}/cache").glob("index*"):
            if _text(cache / "type") == "Instruction":
                continue
            size = _text(cache / "size")
            shared = frozenset({core, *parse_core_list(_text(cache / "shared_cpu_list"))})
            if size:
                sizes[_text(cache / "level"), shared] = int(size.rstrip("KMG")) * _UNITS.get(size[-1], 1)
    return sum(sizes.values())


def beyond_caches_bytes(wanted_bytes: int, *, memory: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """So much, or what may be taken of the memory: a 32nd of all (so that it is the same in every
    run), and half of what is free.

    Args:
        memory: file with the limit of this process's control group.
    """
    installed = psutil.virtual_memory()
    limit = _text(memory)
    total = min(installed.total, int(limit)) if limit.isdecimal() else installed.total
    return min(wanted_bytes, total // _OF_ALL_MEMORY, installed.available // _OF_FREE_MEMORY)


class Pieces:
    """Sums over data that lies in no cache: it goes through many pieces in turn, so that each was pushed out since.

    A call takes as long as reading one piece, however large the caches are.

    Args:
        sums: of one tensor, which is a piece.
        function: that computes them, as `Compiler.build_sums` gives it.
        total_bytes: of all pieces, at least; two pieces at least.
    """

    def __init__(self, sums: SumOfProducts, function: PackedFunction, total_bytes: int) -> None:
        piece, output = sums.shapes
        self.piece_bytes = 4 * math.prod(piece)
        count = max(-(-total_bytes // self.piece_bytes), 2)
        self.total_bytes = count * self.piece_bytes
        compiler, device = compiler_in_use(), load_tvm().cpu()
        values = np.full(piece, _SOME_FLOAT, dtype="float32")
        result = compiler.array_on(np.zeros(output, dtype="float32"), device)
        self._kernels = [
            compiler.bound_kernel(sums.name, "", function, [compiler.array_on(values, device), result])
            for _ in range(count)
        ]
        self._next = itertools.cycle(self._kernels)

    def run(self) -> bool:
        """As `BoundKernel.run`, on the next piece."""
        return next(self._next).run()


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
