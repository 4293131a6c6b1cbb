"""What a model is given to run on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_inputs import static_inputs
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.errors import ModelError
from op_profiler.frontends.frontend import ModelRequest


def static(**given: Any) -> list[tuple[int | None, ...]]:
    """The shapes of a model's inputs for a request."""
    model = ImportedModel(
        "two", "file", cast("Any", None), {}, (InputSpec("a", (None, 1)), InputSpec("b", (None, None))), 1
    )
    wanted = ModelRequest(source="file", name="two", **given)
    return [one.shape for one in static_inputs(model, BuildRequest(model=wanted, executor="vm"))]


def test_sizes_go_to_the_input_that_they_are_given_for() -> None:
    assert static(input_shapes=((2, 1), (2, 3))) == [(2, 1), (2, 3)]
    assert static(input_names=("b", "a"), input_shapes=((2, 3), (2, 1))) == [(2, 1), (2, 3)]


@pytest.mark.parametrize(
    "given",
    [
        {"input_names": ("b",), "input_shapes": ((1, 16),)},
        {"input_shapes": ((8, 8), (2, 3))},
        {"input_shapes": ((8,), (2, 3))},
        {},
    ],
    ids=["of another input", "against a fixed size", "too few", "none"],
)
def test_an_input_without_sizes_is_told(given: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"two cannot be measured: it has inputs with free dimensions: 'a' \(\?, 1\)"):
        static(**given)
