"""What a failure comes from: the machine and how it is set up, or the operator itself."""

from __future__ import annotations

import re
from typing import Literal

Cause = Literal["machine", "operator"]

_OF_THE_MACHINE = re.compile(
    r"""asked\ for\ \d+\ threads                            # TVM_NUM_THREADS, or a limit on processes
    | out\ of\ memory | cannot\ allocate | bad_alloc | MemoryError | failed\ to\ allocate
    | SIGKILL | SIGTERM | SIGINT | SIGHUP                # from outside: the system is short of memory, or somebody
    | no\ space\ left | disk\ (is\ full|quota) | quota\ exceeded | input/output\ error | too\ many\ open\ files
    | resource\ temporarily\ unavailable
    | timed\ out | no\ answer\ after | does\ not\ answer
    | connection\ (refused|reset|closed) | broken\ pipe | ^lost: | ^memory:
    """,
    re.IGNORECASE | re.VERBOSE,
)


def cause_of(error: str) -> Cause:
    """``machine`` where trying again may help: threads that were not obtained, memory, disk, time limits, a board that
    went away, a process that was killed. ``operator`` where it fails again: it does not compile, crashes, is wrong.

    Told by the text, since this is all that TVM and a process that died leave.
    """
    return "machine" if _OF_THE_MACHINE.search(error) else "operator"
