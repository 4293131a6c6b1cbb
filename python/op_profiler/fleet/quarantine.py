"""Quarantined requests: several workers died of them in an earlier command, so they are not repeated by default."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from op_profiler.collection import lookup
from op_profiler.collection.supervisor import describe_machine
from op_profiler.dataset.keys import quarantine_key
from op_profiler.dataset.quarantined_models import find_quarantined, quarantine, release
from op_profiler.errors import OpProfilerError
from op_profiler.frontends import FRONTENDS

if TYPE_CHECKING:
    from op_profiler.collection.progress import Progress
    from op_profiler.collection.request import CollectRequest
    from op_profiler.dataset import Dataset


class Quarantine:
    """Reads, stores and removes the dataset's entry that quarantines one request on all machines.

    The request is identified by the content of its model. If only lowering can identify the model, nothing is stored.
    """

    def __init__(self, dataset: Dataset, request: CollectRequest) -> None:
        self._dataset, self._request = dataset, request
        self._kept = find_quarantined(dataset)

    @functools.cached_property
    def _content(self) -> str | None:
        """Fingerprint of the model; None if it cannot be computed without lowering, or if the model cannot be read."""
        model = self._request.build.model
        try:
            return FRONTENDS.get(model.source).fingerprint(model)
        except (OpProfilerError, OSError):
            return None

    @functools.cached_property
    def _key(self) -> str | None:
        return (
            None if self._content is None else quarantine_key(self._request.build.base_key(self._content, machine=""))
        )

    def reason(self) -> str | None:
        """Return why the request must not be carried out; None if it may be carried out."""
        if not self._kept or self._request.measuring.remeasure in ("failed", "all"):
            return None
        quarantined = self._kept.get(self._key or "")
        if quarantined is None or self._is_stored():
            return None
        return (
            f"quarantined: {quarantined.error} on {quarantined.failed_at[:10]}; --remeasure failed tries it again, and "
            "so does the same command without --cluster"
        )

    def _is_stored(self) -> bool:
        """Return whether the dataset has all results of the request on this machine, as a plain command stores them."""
        machine = self._request.machine()
        if machine is None or self._content is None:
            return False
        found = lookup.find(self._dataset, self._request, self._request.base_key(self._content, machine), run_id=None)
        return found is not None and found.answered >= set(self._request.build.threads)

    def begin(self, deaths: int, progress: Progress) -> None:
        """Store the request as quarantined, before this worker tries it and may die too.

        Args:
            deaths: number of workers that died of the request.
        """
        if self._key is None:
            return
        build = self._request.build
        try:
            device = describe_machine(self._request, progress)
            settings = self._request.settings(build.threads[0])
            quarantine(self._dataset, self._key, f"{build.model.title} took {deaths} workers down", settings, device)
        except OpProfilerError as error:
            progress.problem(
                f"the next command will not take into account that {build.model.title} took workers down: {error}"
            )
        self._kept = find_quarantined(self._dataset)

    def end(self) -> None:
        """Release the request from quarantine, after it was carried out without a crash."""
        if self._kept and self._key in self._kept:
            release(self._dataset, self._key)
