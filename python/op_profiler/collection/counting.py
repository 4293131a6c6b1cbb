"""Reads performance counters of a model's calls, after its rounds, or later for stored measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from op_profiler.collection.gpu_counting import count_on_gpu
from op_profiler.measure.counters import Counted, counts_of_calls, mean_of

if TYPE_CHECKING:
    from op_profiler.building.recipe import Recipe
    from op_profiler.collection.request import CollectRequest
    from op_profiler.targets.machine import Machine, TimedModel

_WALKS = 5

Count = Callable[[Sequence[int]], Counted]
"""A function that reads the counters of a loaded model at the given thread counts."""


def count(machine: Machine, model: TimedModel, keys: Sequence[str], threads: Sequence[int]) -> Counted:
    """Count the events of the whole model and of each kernel, in separate runs that are not timed.

    Args:
        keys: workload key of each kernel of the model, in order.

    Returns:
        Fields of `Measurement` about counters, by thread count and workload key; None is the key of the whole model.
    """
    calls = [partial(model.repeat_kernel, kernel, 1) for kernel in range(len(keys))]
    found: Counted = {}
    for n in threads:
        machine.threads.use(n)
        model.run_model()
        whole, *each = counts_of_calls([model.run_model, *calls], _WALKS)
        found[n, None] = whole.fields()
        for key in dict.fromkeys(keys):
            found[n, key] = mean_of([counts for counts, other in zip(each, keys) if other == key]).fields()
    return found


def counting(
    request: CollectRequest,
    machine: Machine,
    model: TimedModel,
    keys: Sequence[str],
    *,
    recipe: Recipe | None = None,
    launches: Sequence[int] = (),
    announce: Callable[..., None] = lambda **event: None,
) -> Count | None:
    """Return a function that reads the counters of a loaded model; None if no counters are requested.

    Args:
        keys: workload key of each kernel of the model, in order.
        recipe: how to build the model again in the process that ncu watches on a GPU; None if it cannot be built again.
        launches: number of launches of each kernel of the model on a GPU.
        announce: called before the counters are read, because ncu takes long.
    """
    if not request.measuring.counters:
        return None
    on_gpu = partial(count_on_gpu, recipe, keys, launches)
    how: Count = on_gpu if request.build.kind.on_gpu else partial(count, machine, model, keys)

    def announced(threads: Sequence[int]) -> Counted:
        announce(stage="counting")
        return how(threads)

    return announced
