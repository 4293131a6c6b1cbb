"""`ClusterRequest`: the options that select machines of a cluster, checked before a scheduler is contacted."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from op_profiler.errors import UsageError
from op_profiler.fleet.needs import Needs, parse_needs
from op_profiler.options import DEVICE, Option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterRequest:
    """Options that select the machines of a cluster which measure instead of this machine."""

    cluster: Annotated[
        str | None,
        Option(
            "Measure on a cluster: tcp://HOST:PORT is a running 'op-profiler scheduler', local:N starts N workers on "
            "this machine, slurm:FILE and kubernetes:FILE start the jobs or pods that the file describes.",
            DEVICE,
        ),
    ] = None
    each: Annotated[
        bool,
        Option(
            "With --cluster: measure on every distinct device (--each), or on one free device of the target's kind "
            "(--any).",
            DEVICE,
            flags=("--each/--any",),
        ),
    ] = False
    needs: Annotated[
        Needs | None,
        Option(
            "With --cluster: requirements for the machine, separated by commas: processor features, words in the "
            "processor's name, or memory, such as avx512f,EPYC,60GiB.",
            DEVICE,
            parse=parse_needs,
        ),
    ] = None

    def __post_init__(self) -> None:
        """Reject options for several machines without a cluster; raises UsageError."""
        for option, given in (("--each", self.each), ("--needs", self.needs is not None)):
            if given and not self.cluster:
                raise UsageError(f"{option} is for several machines; add --cluster")
