"""Default schedules on GPUs, where a template of TVM's looks for its own in logs of others (TopHub).

Without such a log TVM gives a block a single thread: mobilenet took 23 ms on an H100. Logs of other GPUs are not at hand
everywhere and change, so here a rule chooses: a block has up to 256 threads over the innermost axes first, a thread up to
four outputs, and the sums go through shared memory eight terms at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_LEVELS = 4  # block, virtual thread, thread, inner: of an axis that is bound to blocks and threads
_ROW_THREADS, _PLANE_THREADS, _BLOCK_THREADS = 16, 64, 256
_OUTPUTS = 4
_TERMS = 8


def choose(config: Any, log: Sequence[Any]) -> None:
    """In place of ``FallbackConfigEntity.fallback_with_reference_log``: tiles of every axis that a template splits.

    Args:
        config: ``autotvm.task.space.FallbackConfigEntity`` of a template that has defined its knobs.
        log: not used.
    """
    import tvm
    from tvm.autotvm.task.space import SplitSpace

    target = tvm.target.Target.current(allow_none=True)
    if target is None or str(target.kind.name) != "cuda":
        return
    splits = {str(name): space for name, space in config.space_map.items() if isinstance(space, SplitSpace)}
    tiled = [name for name, space in splits.items() if space.num_output == _LEVELS]
    threads = 1
    for place, name in enumerate(reversed(tiled)):
        most = (_ROW_THREADS, _PLANE_THREADS)[place] if place < 2 and len(tiled) > 2 else _BLOCK_THREADS
        inner = _OUTPUTS if place == len(tiled) - 1 or place == 2 else 1
        config.fallback_split(name, [-1, 1, max(most // threads, 1), inner])
        threads *= int(config[name].size[2])
    for name in splits.keys() - set(tiled):
        config.fallback_split(name, [-1] + [1] * (splits[name].num_output - 2) + [_TERMS])
