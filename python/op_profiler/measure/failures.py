"""Causes of failures: the machine and its setup, or the operator."""

from __future__ import annotations

import os
import re
from typing import Any, Literal

from op_profiler.cores import available_cores

Cause = Literal["machine", "operator"]

TWICE = "twice: "
"""Prefix of the failure of an operator that ended the session of its machine twice."""

_OF_THE_MACHINE = re.compile(
    r"""asked\ for\ \d+\ threads                            # a pool that was made for fewer, or a limit on processes
    | out\ of\ memory | cannot\ allocate | bad_alloc | MemoryError | failed\ to\ allocate
    | SIGKILL | SIGTERM | SIGINT | SIGHUP                # from outside: the system is short of memory, or somebody
    | no\ space\ left | disk\ (is\ full|quota) | quota\ exceeded | input/output\ error | too\ many\ open\ files
    | resource\ temporarily\ unavailable | the\ host\ is\ too\ busy
    | timed\ out | no\ answer\ after | does\ not\ answer
    | connection\ (refused|reset|closed) | broken\ pipe | ^lost: | ^memory:
    """,
    re.IGNORECASE | re.VERBOSE,
)


def machine_state() -> dict[str, Any]:
    """Return the present state of this machine, stored with a failure: plain JSON values."""
    import psutil

    return {
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "memory_available_bytes": psutil.virtual_memory().available,
        "usable_cores": len(available_cores()),  # not only those that TVM's pool has bound this thread to
        "tvm_num_threads": os.environ.get("TVM_NUM_THREADS"),
    }


def cause_of(error: str) -> Cause:
    """Return ``machine`` if another try may succeed: threads that were not obtained, memory, disk, time limits, a board
    that disappeared, a process that was killed. Return ``operator`` if a retry would fail too: the operator does not
    compile, crashes, or is wrong.

    The cause is derived from the text of the error, because TVM and crashed processes provide nothing else.
    """
    return "machine" if _OF_THE_MACHINE.search(error) and not error.startswith(TWICE) else "operator"
