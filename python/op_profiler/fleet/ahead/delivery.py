"""What passes between a worker that builds and one that measures."""

from __future__ import annotations

import hashlib

import msgspec

from op_profiler.building.parcel import Parcel
from op_profiler.errors import OpProfilerError

NAME = "op_profiler_build"
"""Of Dask's handler in a worker that builds."""
ORDER = "build of "
"""Keys of orders begin with it."""


class Promise(msgspec.Struct, frozen=True):
    """Who builds for a task.

    Attributes:
        host, address: of the worker.
        key: by which it knows the order.
        count: of builds; None where that is not known before.
    """

    host: str
    address: str
    key: str
    count: int | None


class SampledBatch(msgspec.Struct, frozen=True):
    """A batch of sampled operators, which a model is made from.

    Attributes:
        name: as `frontends.sample` knows it.
        file: its content.
        digest: SHA-256 of that.
    """

    name: str
    file: bytes
    digest: str

    @classmethod
    def of(cls, name: str) -> SampledBatch:
        """One that this machine keeps."""
        from op_profiler.frontends.sample import batch_path

        file = batch_path(name).read_bytes()
        return cls(name, file, hashlib.sha256(file).hexdigest())

    def keep(self) -> None:
        """Put it among those of this machine; one that is there stays.

        Raises:
            OpProfilerError: it is not as it was sent.
        """
        from op_profiler.files import atomic_file
        from op_profiler.frontends.sample import batch_path

        path = batch_path(self.name)
        if hashlib.sha256(self.file).hexdigest() != self.digest:
            raise OpProfilerError("the digest of its operators is not that of what was sent")
        if not path.exists():
            with atomic_file(path) as partial:
                partial.write_bytes(self.file)


class Delivery(msgspec.Struct, frozen=True):
    """What became of a build.

    Attributes:
        is_there: whether there is something to take.
        parcel: the build.
        batch: that it is of.
        reason: why there is none; empty where none is needed, or somebody measures on the machine that was to build it.
        messages: notes and problems on the way.
        last: nothing comes after it.
    """

    is_there: bool = False
    parcel: Parcel | None = None
    batch: SampledBatch | None = None
    reason: str = ""
    messages: tuple[str, ...] = ()
    last: bool = False
