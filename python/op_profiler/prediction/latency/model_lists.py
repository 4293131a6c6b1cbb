"""Models of a command: by name, pattern of files, list in a file, or list in a Python module."""

from __future__ import annotations

import dataclasses
import glob
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from op_profiler.child_processes import Child, carry_out, failure_of
from op_profiler.errors import ModelError, UsageError
from op_profiler.frontends import source_and_name
from op_profiler.frontends.frontend import ModelRequest, inputs_of
from op_profiler.operators.kinds.plain import point_of
from op_profiler.operators.kinds.point import Point

EVERY = "[*]"
"""Suffix of ``package.module:name`` that selects every model of the list ``name``."""
_KEYS = ("model", "label", "batch_size", "sequence_length", "input_shapes")


@dataclasses.dataclass(frozen=True)
class ListedModel:
    """One model of a list of models that the user gave.

    Attributes:
        label: name of the model in the list.
        request: the model, unless the list describes its layers.
        layers: the described layers, which need no lowering; empty for a model to lower.
    """

    label: str
    request: ModelRequest
    layers: tuple[Point, ...] = ()


def models_of(words: Sequence[str], request: ModelRequest) -> list[ListedModel]:
    """Return the models that the words of a command name, without duplicates.

    Args:
        words: each a model; a pattern of files, such as ``nets/*.onnx``; ``package.module:name[*]`` for every model of
            the list ``name`` of a module, or of the list that the function ``name`` returns; or ``@FILE`` with one of
            these per line. A line may be JSON: ``{"model": NAME}``, with ``label``, ``batch_size``, ``sequence_length``
            and ``input_shapes`` of that model; or ``{"name": NAME, "layers": [...]}``, with layers as for `point_of`.
        request: options that apply to each model.

    Raises:
        UsageError: there is no such list or file, a line is JSON of another form, or no model is left.
        ModelError: the list of a module cannot be read.
    """
    found = [one for word in words for where, line in _lines(word) for one in _models(where, line, request)]
    if not found:
        raise UsageError(f"there is no model in {', '.join(words) or 'the command'}; name one, such as resnet-18")
    return list(dict.fromkeys(found))


def _lines(word: str) -> list[tuple[str, str]]:
    """Return the lines that a word stands for, each with its place in a file."""
    if not word.startswith("@"):
        return [("", word)]
    try:
        lines = Path(word[1:]).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UsageError(f"cannot read the list of models {word[1:]}: {error.strerror}") from error
    numbered = ((f"{word[1:]}, line {number}: ", line.strip()) for number, line in enumerate(lines, start=1))
    return [(where, line) for where, line in numbered if line and not line.startswith("#")]


def _models(where: str, line: str, request: ModelRequest) -> Iterator[ListedModel]:
    if line.startswith("{"):
        yield _of_json(where, line, request)
        return
    if line.endswith(EVERY) and not Path(line).exists():
        name = line.removesuffix(EVERY)
        names = [f"{name}[{place}]" for place in range(_count(name))]
    elif any(sign in line for sign in "*?") and not Path(line).exists():
        names = sorted(glob.glob(line, recursive=True))
        if not names:
            raise UsageError(f"no file matches {line}")
    else:
        names = [line]
    for name in names:
        source, plain = source_and_name(name, request.source)
        yield ListedModel(name, dataclasses.replace(request, source=source, name=plain))


def _of_json(where: str, line: str, request: ModelRequest) -> ListedModel:
    """Return the model of a line of JSON."""
    try:
        fields = json.loads(line)
        if "layers" in fields:
            return _of_layers(where, fields, request)
        model, label = fields.pop("model"), fields.pop("label", None)
        shapes = fields.pop("input_shapes", None)
        if not set(fields) <= set(_KEYS) or not all(type(number) is int for number in fields.values()):
            raise ValueError
        if shapes is not None:
            fields |= inputs_of((), {name: tuple(map(int, shape)) for name, shape in shapes.items()})
        source, plain = source_and_name(model, request.source)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise UsageError(
            f'{where}{line[:200]} is no line of a list of models; give {{"model": "resnet-18"}}, and any of '
            f'{", ".join(_KEYS[1:])}; or {{"name": NAME, "layers": [...]}}'
        ) from error
    return ListedModel(str(label or model), dataclasses.replace(request, source=source, name=plain, **fields))


def _of_layers(where: str, fields: dict[str, object], request: ModelRequest) -> ListedModel:
    """Return the model whose layers a line describes."""
    name, layers, further = fields.get("name"), fields.get("layers"), fields.keys() - {"name", "layers"}
    if further or not isinstance(name, str) or not isinstance(layers, list) or not layers:
        wrong = f"; {', '.join(sorted(further))} is unknown" if further else ""
        raise UsageError(f'{where}give "name", a text, and "layers", a list of objects{wrong}')
    points = []
    for number, layer in enumerate(layers, start=1):
        try:
            points.append(point_of(layer if isinstance(layer, dict) else {}))
        except UsageError as error:
            raise UsageError(f"{where}layer {number}: {error}") from error
    return ListedModel(name, request, tuple(points))


def _count(name: str) -> int:
    """Return the number of models in a list of a module, which is imported in a separate process."""
    with Child(__name__, name) as child:
        event = next(child.events(), None)
    if event is None:
        raise ModelError(f"{name}: the process that imports it died")
    if "error" in event:
        raise failure_of(event)
    return int(event["count"])


def main() -> int:
    """Run the process that imports a module."""
    return carry_out(str, _send_count)


def _send_count(name: str, send: object) -> None:
    from op_profiler.frontends.file import source_of
    from op_profiler.frontends.importers.torch_functions import listed

    assert callable(send)
    source_of(name)
    send(count=len(listed(name)))
