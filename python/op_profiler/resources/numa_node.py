"""The resource ``numa_node``: the node that memory is bound to."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from pathlib import Path

from op_profiler.resources.resource import SYSFS, Resource, ResourceError

_DEFAULT, _BIND = 0, 2  # linux/mempolicy.h
_MOST_NODES = 1024
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)
_Mask = ctypes.c_ulong * (_MOST_NODES // _WORD_BITS)


class NumaNode(Resource):
    """The node that memory is bound to: the memory policy of this process, which its child processes inherit
    (set_mempolicy(2))."""

    name = "numa_node"

    def __init__(self, root: Path = SYSFS) -> None:
        super().__init__(root)
        self._nodes = root / "devices/system/node"

    def range(self) -> list[int]:
        """Return the numbers of the nodes."""
        found = sorted(int(path.name.removeprefix("node")) for path in self._nodes.glob("node[0-9]*"))
        if not found:
            raise ResourceError(f"there is no {self._nodes}/node*: this kernel reports no NUMA nodes")
        return found

    def read(self) -> int | None:
        """Return the node that memory is bound to; None if memory comes from the node of the core that requests it."""
        mode, nodes = _policy()
        if mode == _DEFAULT:
            return None
        if mode != _BIND or len(nodes) != 1:
            raise ResourceError(f"the memory policy of this process (mode {mode}, nodes {nodes}) is no single node")
        return nodes[0]

    def check_settable(self) -> None:
        """Raise ResourceError if the machine has only one NUMA node, or if libnuma is missing."""
        if len(self.range()) < 2:
            raise ResourceError("all memory is at one node")
        _policy()

    @contextlib.contextmanager
    def applied(self, value: int) -> Iterator[None]:
        """Bind memory of this thread, and of processes that it starts, to the node."""
        self.check_settable()
        mode, nodes = _policy()
        _set_policy(_BIND, [value])
        try:
            yield
        finally:
            _set_policy(mode, nodes)


@functools.cache
def _libnuma() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libnuma.so.1", use_errno=True)
    except OSError:
        raise ResourceError("libnuma is not installed; install it with: apt install libnuma1") from None


def _policy() -> tuple[int, list[int]]:
    """Return mode and nodes of this thread's memory policy."""
    mode, mask = ctypes.c_int(), _Mask()
    if _libnuma().get_mempolicy(ctypes.byref(mode), mask, ctypes.c_ulong(_MOST_NODES), None, 0):
        raise ResourceError(f"the memory policy cannot be read: {os.strerror(ctypes.get_errno())}")
    return mode.value, [node for node in range(_MOST_NODES) if mask[node // _WORD_BITS] >> node % _WORD_BITS & 1]


def _set_policy(mode: int, nodes: list[int]) -> None:
    mask = _Mask()
    for node in nodes:
        mask[node // _WORD_BITS] |= 1 << node % _WORD_BITS
    if _libnuma().set_mempolicy(mode, mask, ctypes.c_ulong(_MOST_NODES + 1)):
        raise ResourceError(f"memory cannot be bound to nodes {nodes}: {os.strerror(ctypes.get_errno())}")
