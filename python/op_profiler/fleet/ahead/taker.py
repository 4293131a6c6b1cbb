"""A worker that measures what another one has built."""

from __future__ import annotations

import asyncio
import concurrent.futures

import msgspec

from op_profiler.building.parcel import unpack
from op_profiler.errors import OpProfilerError
from op_profiler.fleet.ahead.delivery import NAME, Delivery, Promise
from op_profiler.fleet.ahead.maker import why
from op_profiler.fleet.events import Announcing
from op_profiler.measure.turns import compiling

_PATIENCE_SECONDS = 300.0  # then it is built here


class Arrivals:
    """The builds that another worker makes for a task.

    Args:
        encoded: a `Promise`; None where nobody builds for it.
        name: of the task.
        progress: told what the other one told, and why there is no build of it.
    """

    def __init__(self, encoded: bytes | None, name: str, progress: Announcing) -> None:
        self._promise = None if encoded is None else msgspec.msgpack.decode(encoded, type=Promise)
        self._name, self._progress = name, progress
        self._taken: set[int] = set()

    def take_all(self) -> None:
        """Take each of those that are known before."""
        for number in range((self._promise.count or 0) if self._promise is not None else 0):
            self.take(number)

    def take(self, number: int) -> None:
        """Put a build into the cache of this machine, while nobody measures on it; wait for one that has begun.

        Args:
            number: of the build, from 0.
        """
        if self._promise is None or number in self._taken:
            return
        self._taken.add(number)
        try:
            self._take(self._promise, number)
        except Exception as error:  # whatever it is, this machine can build
            host = self._promise.host
            self._progress.problem(
                f"the build of {self._name} from {host} is refused: {why(error)}; it is built where it is measured"
            )
            self._promise = None

    def _take(self, promise: Promise, number: int) -> None:
        self._progress.step(f"{self._name}: waiting for its build on {promise.host}", 0.0)
        told = _asked(promise, number, packed=False)
        for message in told.messages:
            self._progress.problem(f"building on {promise.host}: {message}")
        if told.reason:
            reason = f"{self._name} could not be built on {promise.host} ({told.reason})"
            self._progress.problem(f"{reason}; it is built where it is measured")
        if told.is_there:
            with compiling(lambda text: self._progress.step(f"{self._name}: {text}", 0.0)):
                delivery = _asked(promise, number, packed=True)
                if delivery.batch is not None:
                    delivery.batch.keep()
                if delivery.parcel is not None:
                    unpack(delivery.parcel)
        if told.last:
            self._promise = None


def _asked(promise: Promise, number: int, *, packed: bool) -> Delivery:
    """The answer of the worker that builds; a thread of a worker's waits for the worker's own.

    Raises:
        OpProfilerError: none came for `_PATIENCE_SECONDS`.
    """
    from distributed import get_worker

    worker = get_worker()

    async def ask() -> bytes:
        answer: bytes = await getattr(worker.rpc(promise.address), NAME)(key=promise.key, number=number, packed=packed)
        return answer

    answer = asyncio.run_coroutine_threadsafe(ask(), worker.loop.asyncio_loop)
    try:
        return msgspec.msgpack.decode(answer.result(_PATIENCE_SECONDS), type=Delivery)
    except concurrent.futures.TimeoutError:
        raise OpProfilerError("it did not come in time") from None
    finally:
        answer.cancel()
