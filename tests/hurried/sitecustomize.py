"""Python reads this at its start, where this folder is on its path; see `hurry.py` and `nursery.stand_in`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_WORKER = "op_profiler.collection.worker"
_STARTED = (_WORKER, "op_profiler.parallel.corun.child", "multiprocessing.spawn", "tvm.exec.")
_words = " ".join(sys.orig_argv)

if any(name in _words for name in _STARTED):
    sys.path.append(str(Path(__file__).parents[1]))
    if "OP_PROFILER_TESTS_STAND_INS" in os.environ:
        from nursery import stand_in

        stand_in()
    if _WORKER in _words:
        from hurry import measure_in_a_hurry

        measure_in_a_hurry()
    sys.path.pop()
