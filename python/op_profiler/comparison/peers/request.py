"""`PeersRequest`: a comparison with other runtimes, checked before anything heavy is loaded."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Annotated

from op_profiler.building.request import BuildRequest
from op_profiler.comparison.peers import PEERS
from op_profiler.comparison.request import SecondsOption, check_seconds
from op_profiler.errors import MissingPackageError, UsageError
from op_profiler.frontends import FRONTENDS, source_and_name
from op_profiler.option_values import or_nothing, parse_names
from op_profiler.options import MODEL, Option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeersRequest:
    """A model, and the runtimes that it is compared with.

    Attributes:
        build: the model, its thread counts, and the schedule records of the build ``tuned`` (`OURS`).
        seconds: time limit of measuring at one thread count, seconds.
    """

    build: BuildRequest
    against: Annotated[
        tuple[str, ...],
        Option(
            "Compare a model, named in place of BEFORE, with other runtimes: {peers}. Separate several by commas.",
            MODEL,
            parse=or_nothing(parse_names),
            shown="",
        ),
    ] = ()
    seconds: SecondsOption = 60.0

    def check(self) -> None:
        """Check the options and that the runtimes are installed.

        Raises:
            UsageError: an option is out of range, or there is no such runtime.
            MissingPackageError: a runtime is not installed.
            MeasureError: something else that a runtime needs is missing.
            ModelError: there is no such model.
        """
        check_seconds(self.seconds)
        if not self.against:
            raise UsageError(f"--against is empty; give some of {', '.join(PEERS)}")
        for name in self.against:
            PEERS.check(name)
            peer = PEERS.get(name)
            for package in peer.packages:
                if importlib.util.find_spec(package) is None:
                    raise MissingPackageError(package, f"--against {name}", peer.extra)
            peer.check()
        if not self.build.on_host or self.build.precision != "float32" or self.build.executor != "default":
            raise UsageError("--against compares float32 on this machine's processor, in the graph executor")
        self.build.check()
        FRONTENDS.get(self.build.model.source).check(self.build.model)

    def of(self, model: str) -> PeersRequest:
        """Return the same request for another model, given by name."""
        source, name = source_and_name(model, self.build.model.source)
        build = dataclasses.replace(self.build, model=dataclasses.replace(self.build.model, source=source, name=name))
        return dataclasses.replace(self, build=build)
