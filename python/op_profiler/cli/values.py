"""Readers of option values that more than one command takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from op_profiler.errors import UsageError
from op_profiler.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

    from op_profiler.fleet.needs import Needs
    from op_profiler.frontends.frontend import Frontend, ModelRequest
    from op_profiler.targets.machine import Place

_TRUE = {"true", "yes", "1"}
_FALSE = {"false", "no", "0"}
_MOST_DIGITS = 9  # of a size: more is no tensor and no machine


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the user gave a parameter of the command, be it the default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def parse_bool(option: str, text: str) -> bool:
    """true/false/yes/no/1/0 in any case, and nothing else.

    Raises:
        UsageError: anything else.
    """
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise UsageError(f"{option} takes true or false (also yes, no, 1, 0), not {text!r}")


def parse_counts(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers of 1 and up separated by commas or blanks, each once, in rising order.

    Raises:
        UsageError: there is none, or something else.
    """
    words = [word for word in re.split(r"[,\s]+", text.strip()) if word]
    if not words or not all(re.fullmatch(rf"-?\d{{1,{_MOST_DIGITS}}}", word, re.ASCII) for word in words):
        raise UsageError(f"{option} takes numbers separated by commas, such as 1,2,4; not {text!r}")
    counts = sorted({int(word) for word in words})
    if counts[0] < 1:
        raise UsageError(f"{option} {counts[0]} is out of range; give 1 or more")
    return tuple(counts)


def thread_counts(text: str | None, target: str, place: Place | None) -> tuple[int, ...]:
    """Those of ``--threads``; where it is left out, those that a machine is usually measured at."""
    from op_profiler.targets.target import kind_of

    return parse_counts("--threads", text) if text is not None else kind_of(target).default_thread_counts(place)


def parse_shapes(option: str, text: str) -> tuple[tuple[int, ...], ...]:
    """Shapes separated by semicolons, sizes by commas, blanks or x; brackets may stand around them.

    ``1,3,224,224``, ``[1, 3, 224, 224]``, ``1x3x224x224`` and ``1,128;1,128`` (two inputs) are all understood.

    Raises:
        UsageError: a size that is not a number of 1 and up.
    """
    shapes = []
    for part in text.split(";"):
        words = [word for word in re.split(r"[,\sx]+", part.strip().strip("[]()").strip()) if word]
        if not words or not all(re.fullmatch(rf"0*[1-9]\d{{0,{_MOST_DIGITS - 1}}}", w, re.ASCII) for w in words):
            raise UsageError(f"{option} takes sizes such as 1,3,224,224 (a semicolon between inputs); not {text!r}")
        shapes.append(tuple(int(word) for word in words))
    return tuple(shapes)


def parse_duration(option: str, text: str) -> float:
    """Seconds of 90s, 10m or 2h; a number alone is seconds.

    Raises:
        UsageError: anything else.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smh]?)", text.strip().lower(), re.ASCII)
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"{option} takes a time such as 90s, 10m or 2h; not {text!r}")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def parse_percent(option: str, text: str) -> float:
    """A share of 5% or 0.05.

    Raises:
        UsageError: anything else, more than 1000 %, or more than 1 without a sign, which may be meant as percent.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(%?)", text.strip(), re.ASCII)
    share = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= share <= (10 if found and found[2] else 1):
        raise UsageError(
            f"{option} takes 5% or 0.05, and what is above 1 with a percent sign, up to 1000%; not {text!r}"
        )
    return share


def parse_names(option: str, text: str) -> tuple[str, ...]:
    """Names separated by commas.

    Raises:
        UsageError: there is none.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UsageError(f"{option} {text!r} names nothing; give names separated by commas, or leave it out")
    return names


def parse_needs(text: str | None, *, each: bool, cluster: str | None) -> Needs:
    """What a machine of a cluster has to have.

    Raises:
        UsageError: there is no cluster to ask it of, or `text` cannot be asked for.
    """
    from op_profiler.fleet.needs import parse_needs as parse

    for option, given in (("--each", each), ("--needs", text is not None)):
        if given and not cluster:
            raise UsageError(f"{option} is for several machines; add --cluster")
    return parse(parse_names("--needs", text)) if text is not None else {}


def parse_targets(text: str) -> tuple[str, ...]:
    """Targets separated by commas; a comma inside the options of one (``-mattr=+avx,+fma``) separates nothing."""
    kinds = "|".join(map(re.escape, TARGETS))
    return tuple(re.split(rf"\s*,\s*(?=(?:{kinds})(?:[\s,]|$))", text.strip()))


def parse_tensors(option: str, text: str) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Shapes as in `parse_shapes`, each with a dtype behind a colon where it is not float32: ``1,64;1,64:int8``."""
    tensors = []
    for part in text.split(";"):
        sizes, _, dtype = part.partition(":")
        (shape,) = parse_shapes(option, sizes)
        tensors.append((shape, dtype.strip() or "float32"))
    return tuple(tensors)


def lengths_of(models: Sequence[tuple[Frontend, str]], length: int | None) -> list[int | None]:
    """The sequence length for each of several models; None for those that have no sequence.

    Raises:
        UsageError: none of them has one.
    """
    lengths = [length if frontend.takes_sequence_length(name) else None for frontend, name in models]
    if length is not None and not any(lengths):
        names = ", ".join(name for _, name in models[:3]) + (", ..." if len(models) > 3 else "")
        raise UsageError(f"--sequence-length {length}: {names} has no sequence; leave it out")
    return lengths


def parse_steps(prefill: str | None, decode: str | None, past: str | None) -> list[tuple[int, int]]:
    """Steps of a decoder: tokens that each takes, and those that its cache holds in front of them; prefills first.

    Raises:
        UsageError: a number is none or below 1, or one of --decode and --past is left out.
    """
    if (decode is None) != (past is None):
        raise UsageError("--decode and --past go together: the tokens of a step, and those in front of it in the cache")
    sizes = [
        parse_counts(option, text) if text is not None else []
        for option, text in (("--prefill", prefill), ("--decode", decode), ("--past", past))
    ]
    prefills, decodes, pasts = sizes
    return [(tokens, 0) for tokens in prefills] + [(tokens, held) for tokens in decodes for held in pasts]


def parse_place(host: str | None, port: int | None, key: str | None, usual_key: str) -> Place | None:
    """A machine behind RPC; None where neither host nor port is given.

    Args:
        key: what --device-key says; `usual_key`: where it says nothing.

    Raises:
        UsageError: only one of them is given, the port is none, or a key without them.
    """
    if host is None and port is None:
        if key is not None:
            raise UsageError("--device-key names a machine of an RPC tracker: give its --host and --port too")
        return None
    if not (host or "").strip() or port is None:
        raise UsageError("--host and --port go together: those of an RPC tracker, or of an RPC server itself")
    if not 0 < port < 65536:
        raise UsageError(f"--port {port} is out of range; give 1 to 65535")
    from op_profiler.targets.machine import Place

    return Place(host=str(host).strip(), port=port, key=usual_key if key is None else key)


def parse_models(
    models: Sequence[str], default: str, batch_size: int, sequence_length: int | None, importer: str
) -> tuple[ModelRequest, ...]:
    """What to load for each of several models, which all have the same batch size; for names see `source_and_name`.

    Raises:
        UsageError: a length is given, and none of them has a sequence.
    """
    from op_profiler.frontends import FRONTENDS, source_and_name
    from op_profiler.frontends.frontend import ModelRequest

    named = [source_and_name(model, default) for model in models]
    lengths = lengths_of([(FRONTENDS.get(source), name) for source, name in named], sequence_length)
    return tuple(
        ModelRequest(source=source, name=name, batch_size=batch_size, sequence_length=length, importer=importer)
        for (source, name), length in zip(named, lengths, strict=True)
    )


def usual_key(targets: Sequence[str]) -> str:
    """The tracker's key of the first board among targets; empty where there is none."""
    from op_profiler.targets.target import kind_of

    return next((kind.name for kind in map(kind_of, targets) if kind.is_board), "")
