"""Quarantined requests: workers died of them in an earlier command, and they are not carried out again by default."""

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
    """The dataset's record of a request of which workers died, on any machine.

    It is identified by the content of its model. A model that must be lowered to be identified is not recorded.
    """

    def __init__(self, dataset: Dataset, request: CollectRequest) -> None:
        self._dataset, self._request = dataset, request
        self._kept = find_quarantined(dataset)

    @functools.cached_property
    def _content(self) -> str | None:
        """Fingerprint of the model; None if it cannot be computed here, which the collection then reports."""
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
        """Return the reason why the request is not carried out; None if it is."""
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
        """Return whether a command without a cluster has measured all of the request on this machine."""
        machine = self._request.machine()
        if machine is None or self._content is None:
            return False
        found = lookup.find(self._dataset, self._request, self._request.base_key(self._content, machine), run_id=None)
        return found is not None and found.answered >= set(self._request.build.threads)

    def begin(self, deaths: int, progress: Progress) -> None:
        """Record that so many workers died of the request, before this worker tries it and may die too."""
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
        """Remove the record, because the request was carried out without a crash."""
        if self._kept and self._key in self._kept:
            release(self._dataset, self._key)
