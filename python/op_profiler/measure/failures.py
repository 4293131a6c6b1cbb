"""Determines the cause of a failure: the machine and its setup, or the operator."""

from __future__ import annotations

import os
import re
from typing import Any, Literal

from op_profiler.cores import available_cores

Cause = Literal["machine", "operator"]

TWICE = "twice: "
"""Prefix of the error of an operator during which the connection to the board was lost twice."""

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
    """Return the present state of this machine as JSON-serializable values, to be stored with a failure."""
    import psutil

    return {
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "memory_available_bytes": psutil.virtual_memory().available,
        "usable_cores": len(available_cores()),  # not only those that TVM's pool has bound this thread to
        "tvm_num_threads": os.environ.get("TVM_NUM_THREADS"),
    }


def cause_of(error: str) -> Cause:
    """Return the cause of a failure, derived from its message, because TVM and crashed processes provide nothing else.

    ``machine``: a retry may succeed (missing threads, memory or disk space, a time limit, a lost board, a killed
    process). ``operator``: a retry would fail too (the operator does not compile, crashes, or computes wrong values).
    """
    return "machine" if _OF_THE_MACHINE.search(error) and not error.startswith(TWICE) else "operator"
