"""Assigns the shapes that a user gave to the inputs of a model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from op_profiler.errors import ModelError, UsageError
from op_profiler.frontends.frontend import ModelRequest

INPUT = "data"
"""Name of the only input of models whose library gives it no name that users know."""


def shapes_by_name(request: ModelRequest, known: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a request by input; shapes without a name are assigned to the inputs in the model's order.

    Raises:
        UsageError: there are more shapes than inputs, the numbers of names and shapes differ, a name is not an input or
            is given twice, or a size is below 1.
    """
    names, shapes = request.input_names, request.input_shapes
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"{request.name} has no input {unknown[0]!r}; its inputs are {', '.join(known) or 'none'}")
    if len(set(names)) < len(names):
        raise UsageError(f"--inputname {','.join(names)} names an input twice")
    if names and shapes and len(names) != len(shapes):
        raise UsageError(f"--inputname names {len(names)} inputs, --inputshape has {len(shapes)} shapes; give one each")
    if len(shapes) > len(known):
        raise UsageError(f"{request.name} has {len(known)} inputs ({', '.join(known)}), not {len(shapes)}")
    for shape in shapes:
        if any(size < 1 for size in shape):
            raise UsageError(f"--inputshape {shape} has a size below 1")
    return dict(zip(names or known, shapes, strict=False))


def free_sizes(shapes: Mapping[str, Sequence[int | None]]) -> str:
    """Return a sentence that names the inputs with free dimensions and the option that gives their sizes."""
    free = {name: dims for name, dims in shapes.items() if None in dims}
    dimensions = ", ".join(
        f"{name!r} ({', '.join('?' if size is None else str(size) for size in dims)})" for name, dims in free.items()
    )
    given = ";".join(f"{name}:{','.join(str(size or 'SIZE') for size in dims)}" for name, dims in free.items())
    return f"it has inputs with free dimensions: {dimensions}; give their sizes with --inputshape '{given}'"


@contextlib.contextmanager
def free_sizes_explained(name: str, shapes: Mapping[str, Sequence[int | None]]) -> Iterator[None]:
    """Name the inputs with free dimensions in the error of a model that an importer rejects because of them.

    Args:
        name: name of the model.
        shapes: shapes of its inputs.
    """
    try:
        yield
    except ModelError as error:
        clear = "--inputshape" in str(error) or "has no converter" in str(error)
        if clear or all(None not in dims for dims in shapes.values()):
            raise
        raise ModelError(f"{name} does not lower: {free_sizes(shapes)}") from error


def batch_of(request: ModelRequest, shape: Sequence[int] | None, own: int = 1) -> int:
    """Return the batch size: the first size of `shape`, which the user gave; if `shape` is None, the requested batch
    size, or `own` (the model's batch size) if 1 is requested.

    Raises:
        UsageError: --batchsize is given and differs from the first size of `shape`.
    """
    if shape is None:
        return request.batch_size if request.batch_size > 1 else own
    if request.batch_size not in (1, shape[0] if shape else 1):
        raise UsageError(f"--inputshape {tuple(shape)} has batch {shape[0]}, but --batchsize is {request.batch_size}")
    return shape[0] if shape else 1
