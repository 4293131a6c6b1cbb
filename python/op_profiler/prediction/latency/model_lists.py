"""Which models a command names: by name, pattern of files, list in a file, or list in a Python module."""

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

EVERY = "[*]"
"""Suffix of ``package.module:name`` that stands for every entry of a list."""
_KEYS = ("model", "label", "batch_size", "sequence_length", "input_shapes")


@dataclasses.dataclass(frozen=True)
class ListedModel:
    """A model of a list, and its name there."""

    label: str
    request: ModelRequest


def models_of(words: Sequence[str], request: ModelRequest) -> list[ListedModel]:
    """Return the models that words name, each once.

    Args:
        words: each a model; a pattern of files, such as ``nets/*.onnx``; ``package.module:name[*]``, a list there or a
            function that returns one; or ``@FILE`` with one of these a line. A line may be JSON: ``{"model": NAME}``,
            with ``label``, ``batch_size``, ``sequence_length`` and ``input_shapes`` of that model.
        request: options that apply to each model.

    Raises:
        UsageError: there is no such list or file, a line is no such JSON, or no model is left.
        ModelError: the list of a module cannot be read.
    """
    found = [one for word in words for line in _lines(word) for one in _models(line, request)]
    if not found:
        raise UsageError(f"there is no model in {', '.join(words) or 'the command'}; name one, such as resnet-18")
    return list(dict.fromkeys(found))


def _lines(word: str) -> list[str]:
    if not word.startswith("@"):
        return [word]
    try:
        lines = Path(word[1:]).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UsageError(f"cannot read the list of models {word[1:]}: {error.strerror}") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _models(line: str, request: ModelRequest) -> Iterator[ListedModel]:
    if line.startswith("{"):
        yield _described(line, request)
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


def _described(line: str, request: ModelRequest) -> ListedModel:
    """Return the model of a line of JSON."""
    try:
        fields = json.loads(line)
        model, label = fields.pop("model"), fields.pop("label", None)
        shapes = fields.pop("input_shapes", None)
        if not set(fields) <= set(_KEYS) or not all(type(number) is int for number in fields.values()):
            raise ValueError
        if shapes is not None:
            fields |= inputs_of((), {name: tuple(map(int, shape)) for name, shape in shapes.items()})
        source, plain = source_and_name(model, request.source)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise UsageError(
            f'{line[:200]} is no line of a list of models; give {{"model": "resnet-18"}}, and any of '
            f"{', '.join(_KEYS[1:])}"
        ) from error
    return ListedModel(str(label or model), dataclasses.replace(request, source=source, name=plain, **fields))


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
