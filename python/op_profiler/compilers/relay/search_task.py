"""A task of AutoTVM with the space of its template."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.compilers.relay.gpu_tiles import fits, launches_checked, window_of
from op_profiler.compilers.relay.knobs import factors_of, knob_value, knob_values
from op_profiler.compilers.relay.processor_defaults import config_of
from op_profiler.compilers.relay.templates import register_templates
from op_profiler.compilers.tvm_build import load_tvm, replaced
from op_profiler.compilers.tvm_errors import kind_and_last_line
from op_profiler.schedules.schedule import Schedule
from op_profiler.tuning.task import BuiltPoint, Config, InvalidPointError, Task

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.schedules.factors import Factors
    from op_profiler.tuning.candidate import TaskSpec


class AutoTvmTask(Task):
    """A task of AutoTVM; its points are AutoTVM's configuration indices.

    Attributes:
        autotvm: the `autotvm.task.Task` with the same space.
    """

    def __init__(self, spec: TaskSpec, target: Target) -> None:
        register_templates()
        self.spec = spec
        self.autotvm = load_tvm().autotvm.task.create(spec.template, spec.arguments, target)
        self._target = target
        self._on_gpu = str(target.kind.name) == "cuda"
        self._window = window_of(self.autotvm.args)
        self._space = self.autotvm.config_space
        self.knobs = {
            str(name): [knob_value(e) for e in known.entities] for name, known in self._space.space_map.items()
        }

    def is_valid(self, point: int) -> bool:
        """Return whether a point satisfies AutoTVM's constraints and, on a GPU, the GPU's limits (`gpu_tiles.fits`)."""
        return bool(self._space.is_index_valid(point)) and (not self._on_gpu or self._fits(point))

    def point(self, knobs: Mapping[str, Any], *, nearest: bool = False) -> int | None:
        """See `Task.point`; the outermost part of a split may be given as -1 or as a number."""
        return super().point({name: self._as_listed(name, value) for name, value in knobs.items()}, nearest=nearest)

    def _as_listed(self, name: str, value: Any) -> Any:
        """Return a value as the space lists it: with -1 for the outermost part of a split."""
        if isinstance(value, list) and name in self.knobs and value not in self.knobs[name]:
            return [-1, *value[1:]]
        return value

    def _fits(self, point: int) -> bool:
        splits = {}
        for name, knob in self._space.get(point)._entity_map.items():
            if hasattr(knob, "size"):
                inner = [int(size) for size in knob.size[1:]]  # the outermost part may be told as -1
                splits[str(name)] = [int(self._space.space_map[name].product) // prod(inner), *inner]
        return fits(splits, np.dtype(self.autotvm.args[0][2]).itemsize, self._window)

    def factors(self, knobs: Mapping[str, Any]) -> Factors:
        """Read the factors from the nest of op_profiler's template, or from the knob names of a template of TVM."""
        return factors_of(self._space, knobs)

    def default(self) -> Schedule:
        """Return the rule's schedule; if the rule has none, the fallback configuration that the template filled in."""
        config = self._filled_in()
        knobs = knob_values(config)
        return Schedule(self.spec.template, knobs, "trial", factors_of(config, knobs))

    def config(self, point: int | None) -> Config:
        """Return AutoTVM's own JSON of the configuration; index -1 for the default."""
        if point is not None:
            return dict(self._space.get(point).to_json_dict())
        ConfigEntity = load_tvm().autotvm.task.space.ConfigEntity
        config = self._filled_in()
        return dict(ConfigEntity(-1, None, dict(config._entity_map), list(config._constraints)).to_json_dict())

    def build(self, point: int | None) -> BuiltPoint:
        """Instantiate and compile the template; InvalidPointError has the template's error."""
        with self._target, _in_tuning():
            try:
                config = self._fallback() if point is None else self._space.get(point)
                schedule, tensors = self.autotvm.instantiate(config)
            except MemoryError:
                raise
            except Exception as error:  # whatever a template raises
                raise InvalidPointError(kind_and_last_line(error)) from error
            if not getattr(config, "valid", lambda: True)():
                raise InvalidPointError(f"invalid schedule: {config.errors}")
            with launches_checked(self._target) if self._on_gpu else nullcontext():
                function = load_tvm().build(schedule, tensors, self._target)
        return BuiltPoint(function, tuple((tuple(int(d) for d in t.shape), str(t.dtype)) for t in tensors))

    def _filled_in(self) -> Any:
        """Return the configuration of the default as the template fills it in."""
        config = self._fallback()
        with self._target:
            self.autotvm.instantiate(config)
        return config

    def _fallback(self) -> Any:
        FallbackConfigEntity = load_tvm().autotvm.task.space.FallbackConfigEntity
        return config_of(self._target, self.autotvm.workload) or FallbackConfigEntity()


def _in_tuning() -> AbstractContextManager[None]:
    """Make TVM's templates expect packed inputs instead of packing them."""
    return replaced(load_tvm().autotvm.GLOBAL_SCOPE, "in_tuning", True)
