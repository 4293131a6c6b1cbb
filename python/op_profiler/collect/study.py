"""What every study of a model's operators is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from op_profiler.collect.request import CollectRequest, TuneRequest
from op_profiler.measure._base import Device

if TYPE_CHECKING:
    from op_profiler.dataset import Dataset
    from op_profiler.frontends._base import RelayModel


@dataclasses.dataclass
class Study:
    """Work on a model whose outcome is a result for the report, beside what it stores.

    Attributes:
        tune: which operators; of a search, also how.
        target: `tvm.target.Target`.
        announce: told what is being done, as `Worker.announce`.
    """

    request: CollectRequest
    tune: TuneRequest
    dataset: Dataset
    device: Device
    target: Any
    announce: Callable[..., None]

    @property
    def threads(self) -> int:
        """That operators alone run with: the most that were asked for."""
        return max(self.request.threads)

    def run(self, model: RelayModel) -> list[dict[str, Any]]:
        """Do it; plain values, one entry an anchor or a thread count."""
        raise NotImplementedError
