"""How a model was built, stored with its measurements, so that the same kernels can be built again later.

The cached build comes first: it remains whatever becomes of the model's files and of this package. If it is gone, the
model is built again from its source, provided that the source has the same content.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from op_profiler.building.build import build_model
from op_profiler.building.build_cache import read_kept
from op_profiler.building.input_arrays import read_arrays
from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_inputs import random_inputs
from op_profiler.building.requested_model import load_model
from op_profiler.compilers.imported_model import InputSpec
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import DatasetError, ModelError
from op_profiler.schedules import record_files, records

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.compiled_model import BuiltModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines the kernels of a built model.

    Attributes:
        request: the build request, without the path of the schedule records, whose content may change.
        content: fingerprint of the model (`ImportedModel.content`).
        inputs: name, shape, dtype and range of each input as it was run (`InputSpec`).
        schedules: records that the build used, as lines.
        kept: path of the build in the cache; empty if it is not stored.
    """

    request: BuildRequest
    content: str
    inputs: tuple[dict[str, Any], ...]
    schedules: tuple[str, ...] = ()
    kept: str = ""

    @classmethod
    def of(cls, request: BuildRequest, content: str, inputs: Sequence[InputSpec], built: BuiltModel) -> Recipe:
        """Return the recipe of a new build."""
        version = str(load_tvm().__version__)
        chosen = request.usable_records().chosen
        used = [chosen[computation].to_json(version) for computation in sorted(built.asked & chosen.keys())]
        return cls(
            request=dataclasses.replace(request, schedules=records.NONE),
            content=content,
            inputs=tuple(dataclasses.asdict(spec) for spec in inputs),
            schedules=tuple(used),
            kept=built.kept,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as plain JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Recipe:
        """Return the recipe from the values of `to_json`.

        Raises:
            DatasetError: the values were stored by another version, or are damaged.
        """
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise DatasetError(f"how a model was built cannot be read ({error}); collect it again") from error

    def build(self, announce: Callable[[str], None]) -> BuiltModel:
        """Build the same kernels again.

        Args:
            announce: called before each step that takes long.

        Raises:
            ModelError: neither the cached build nor a model with the same content exists any more.
        """
        found = read_kept(self.kept) if self.kept else None
        return found if found is not None else self._built_again(announce)

    def input_arrays(self) -> dict[str, np.ndarray]:
        """Return the inputs of the measured run: the user's arrays, or the same random arrays."""
        specs = [InputSpec(**(spec | {"shape": tuple(spec["shape"])})) for spec in self.inputs]
        if self.request.input_data is None:
            return random_inputs(specs)
        arrays = read_arrays(Path(self.request.input_data))
        return {spec.name: arrays[spec.name].astype(spec.dtype) for spec in specs}

    def _built_again(self, announce: Callable[[str], None]) -> BuiltModel:
        name = f"{self.request.model.source}:{self.request.model.title}"
        announce(f"lowering {name}")
        model, _, target = load_model(self.request)
        if model.content != self.content:
            raise ModelError(
                f"{name} is not what it was when it was collected, and the build of then is no longer in the cache "
                "folder; collect it again from the older files (op-profiler cache shows what is kept)"
            )
        announce(f"compiling {name}")
        with tempfile.TemporaryDirectory(prefix="op_profiler-") as folder:
            request = dataclasses.replace(self.request, schedules=folder)
            file = request.record_file()
            assert file is not None  # only `records.NONE` has none
            for record in map(records.parse_line, self.schedules):
                if record is not None:
                    record_files.keep(file, record)
            return build_model(request, model, target)
