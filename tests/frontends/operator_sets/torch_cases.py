"""Cases of torch's operators: the samples of torch's own tests, of floats where an operator has such."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

from .case import Case, NoSuchCaseError

_SAMPLES = 4  # of an operator
LARGEST = 20_000  # elements
RANDOM = (
    "bernoulli",
    "multinomial",
    "empty",
    "new_empty",
    "normal",
    "uniform",
    "dropout",
    "rand",
    "geometric",
    "cauchy",
)
TIES = ("sort", "argsort", "topk", "msort")
"""Equal values: which of them comes first is said by neither."""


def cases() -> Iterator[Case]:
    """All of them. Samples are made when they are asked for, which takes as long as all the rest."""
    for operator in operators():
        for place in range(_SAMPLES):
            yield _case(operator, place)


def operators() -> list[Any]:
    """Those with numbers that can be compared."""
    from op_profiler.frontends.importers import torch as torch_importer

    torch_importer.load_torch()
    from torch.testing._internal.common_methods_invocations import op_db

    kept = [one for one in op_db if not any(word in one.name for word in (*RANDOM, *TIES)) and kind_of(one) is not None]
    return sorted(kept, key=lambda one: f"{one.name} {one.variant_test_name}")


def kind_of(operator: Any) -> Any:
    """The type of its samples; None where it takes neither floats nor integers nor flags."""
    import torch

    kinds = operator.supported_dtypes("cpu")
    return next((kind for kind in (torch.float32, torch.int64, torch.bool) if kind in kinds), None)


def samples(operator: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Modules that call an operator, each with the tensors that it takes; no two of the same shapes and numbers."""
    import torch

    seen = set()
    for sample in operator.sample_inputs("cpu", kind_of(operator), requires_grad=False):
        parts, tree = torch.utils._pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        told = str([tuple(part.shape) if isinstance(part, torch.Tensor) else part for part in parts])
        fits = tensors and all(0 < one.numel() <= LARGEST and not one.is_complex() for one in tensors)
        if not fits or told in seen:
            continue
        seen.add(told)
        yield module(operator.op, parts, tree), tensors


def module(call: Any, parts: list[Any], tree: Any) -> Any:
    """A module of one call.

    Args:
        parts: what is given, of which tensors are the inputs of the module.
        tree: arguments and options that the parts belong to.
    """
    import torch

    class Module(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            left = iter(tensors)
            given = [next(left) if isinstance(part, torch.Tensor) else part for part in parts]
            inputs, options = torch.utils._pytree.tree_unflatten(given, tree)
            return call(*inputs, **options)

    return Module().eval()


def _case(operator: Any, place: int) -> Case:
    variant = f"{operator.variant_test_name} " if operator.variant_test_name else ""

    @functools.cache
    def made() -> tuple[Any, list[Any]]:
        import torch

        torch.manual_seed(place)
        found = next(itertools.islice(samples(operator), place, None), None)
        if found is None:
            raise NoSuchCaseError("torch has no such sample")
        return found

    return Case(
        framework="torch",
        operator=f"aten::{operator.aten_name}",
        what=f"{operator.name} {variant}sample {place}",
        load=lambda: _load(*made()),
        expected=lambda: _expected(*made()),
    )


def _load(made: Any, tensors: list[Any]) -> tuple[Any, dict[str, Any]]:
    from op_profiler.frontends.importers import torch as torch_importer

    names = [f"x{place}" for place in range(len(tensors))]
    lowered = torch_importer.lower(
        made, [one.clone() for one in tensors], name="m", source="file", input_names=names, batch_size=1
    )
    return lowered, {name: one.numpy() for name, one in zip(names, tensors, strict=True)}


def _expected(made: Any, tensors: list[Any]) -> list[Any]:
    import torch

    with torch.no_grad():
        found = torch.utils._pytree.tree_leaves(made(*(one.clone() for one in tensors)))
    return [one.numpy() if isinstance(one, torch.Tensor) else one for one in found]
