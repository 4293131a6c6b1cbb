"""Operators with the samples of torch's own tests: they compute what torch computes, or are refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import ModelError

from ..installed import needs
from .lowered import lower

pytestmark = [needs("torch"), needs("expecttest"), pytest.mark.slow]

PARTS = 20
SAMPLES = 4  # of an operator
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


def samples(torch: Any, operator: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Modules that call an operator, each with the tensors that it takes; no two of the same shapes and numbers."""
    seen = set()
    for sample in operator.sample_inputs("cpu", torch.float32, requires_grad=False):
        parts, tree = torch.utils._pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        told = str([tuple(part.shape) if isinstance(part, torch.Tensor) else part for part in parts])
        fits = tensors and all(0 < one.numel() <= LARGEST and not one.is_complex() for one in tensors)
        if not fits or told in seen:
            continue
        seen.add(told)
        yield module(torch, operator.op, parts, tree), tensors


def module(torch: Any, call: Any, parts: list[Any], tree: Any) -> Any:
    class Module(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            left = iter(tensors)
            given = [next(left) if isinstance(part, torch.Tensor) else part for part in parts]
            inputs, options = torch.utils._pytree.tree_unflatten(given, tree)
            return call(*inputs, **options)

    return Module().eval()


def difference(torch: Any, run: Any, made: Any, tensors: list[Any]) -> str | None:
    """What is wrong with what comes of a module; empty where nothing is, None where nothing can be said."""
    try:
        with torch.no_grad():
            expected = torch.utils._pytree.tree_leaves(made(*(one.clone() for one in tensors)))
        lowered = lower(made, *(one.clone() for one in tensors))
        names = [spec.name for spec in lowered.inputs]
        outputs = run(
            lowered, {n: one.numpy() for n, one in ((f"x{i}", t) for i, t in enumerate(tensors)) if n in names}
        )
    except ModelError:
        return None
    except Exception:  # torch does not run it, or TVM does not build it
        return None
    expected = [one.numpy() for one in expected if isinstance(one, torch.Tensor) and not one.is_complex()]
    if [(one.shape, one.dtype.kind) for one in outputs] != [(one.shape, one.dtype.kind) for one in expected]:
        return f"{[one.shape for one in outputs]} for {[one.shape for one in expected]}"
    same = all(np.allclose(*pair, rtol=2e-3, atol=2e-4, equal_nan=True) for pair in zip(outputs, expected, strict=True))
    return "" if same else "other numbers"


@pytest.mark.parametrize("part", range(PARTS))
def test_all_that_lowers_is_right(torch: Any, run: Any, part: int) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    wrong, right = [], 0
    for operator in itertools.islice(sorted(op_db, key=lambda one: str(one.name)), part, None, PARTS):
        if any(word in operator.name for word in (*RANDOM, *TIES)) or torch.float32 not in operator.supported_dtypes(
            "cpu"
        ):
            continue
        for made, tensors in itertools.islice(samples(torch, operator), SAMPLES):
            found = difference(torch, run, made, tensors)
            right += found == ""
            if found:
                wrong.append(f"{operator.name} of {[tuple(one.shape) for one in tensors]}: {found}")
    assert not wrong, "\n".join(wrong)
    assert right > math.sqrt(len(op_db)) / 2
