"""Values that several commands derive from their options."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.errors import UsageError
from op_profiler.frontends import FRONTENDS, source_and_name
from op_profiler.option_values import parse_counts

if TYPE_CHECKING:
    import typer

    from op_profiler.collection.request import CollectRequest
    from op_profiler.fleet.cluster_request import ClusterRequest
    from op_profiler.frontends.frontend import Frontend, ModelRequest


def is_given(context: typer.Context, name: str) -> bool:
    """Return whether the user gave a parameter of the command, even with its default value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def for_machines(context: typer.Context, request: CollectRequest, machines: ClusterRequest) -> CollectRequest:
    """Return the request to send to a cluster; without a cluster, the unchanged request.

    If no thread counts are given, each machine of the cluster uses its own default thread counts.
    """
    return request.of(threads=()) if machines.cluster and not is_given(context, "threads") else request


def lengths_of(models: Sequence[tuple[Frontend, str]], length: int | None) -> list[int | None]:
    """Return the sequence length for each of several models; None for models without sequences.

    Raises:
        UsageError: a length is given, and none of the models has a sequence.
    """
    lengths = [length if frontend.takes_sequence_length(name) else None for frontend, name in models]
    if length is not None and not any(lengths):
        names = ", ".join(name for _, name in models[:3]) + (", ..." if len(models) > 3 else "")
        raise UsageError(f"--sequence-length {length}: {names} has no sequence; leave it out")
    return lengths


def parse_steps(prefill: str | None, decode: str | None, past: str | None) -> list[tuple[int, int]]:
    """Return the steps of a decoder, prefills first: pairs of the numbers of new tokens and of tokens in the KV cache.

    Raises:
        UsageError: a text is not a list of positive numbers, or only one of --decode and --past is given.
    """
    if (decode is None) != (past is None):
        raise UsageError("--decode and --past go together: the tokens of a step, and those in front of it in the cache")
    sizes = [
        parse_counts(option, text) if text is not None else []
        for option, text in (("--prefill", prefill), ("--decode", decode), ("--past", past))
    ]
    prefills, decodes, pasts = sizes
    return [(tokens, 0) for tokens in prefills] + [(tokens, held) for tokens in decodes for held in pasts]


def models_of(names: Sequence[str], model: ModelRequest) -> tuple[ModelRequest, ...]:
    """Return several models with the same options, given by names (`source_and_name`).

    Raises:
        UsageError: a length is given in `model`, and none of the models has a sequence.
    """
    named = [source_and_name(name, model.source) for name in names]
    lengths = lengths_of([(FRONTENDS.get(source), name) for source, name in named], model.sequence_length)
    return tuple(
        dataclasses.replace(model, source=source, name=name, sequence_length=length)
        for (source, name), length in zip(named, lengths, strict=True)
    )


def list_devices(device: str | None, db: str | None, kernels: str = "tvm") -> bool:
    """If ``--device`` is 'list', print the devices that predictors support and return True; otherwise return False.

    Args:
        kernels: ``tvm``, or ``vendor`` for the GPUs of the predictor of NVIDIA's kernels.

    Raises:
        DatasetError: the dataset cannot be read.
    """
    if device != "list":
        return False
    from op_profiler.prediction.latency import open_predictor, vendor
    from op_profiler.report.prediction import show_devices

    show_devices(vendor.vendor_devices() if kernels == "vendor" else open_predictor.known_devices(db))
    return True
