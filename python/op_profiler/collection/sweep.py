"""Sweeps (``--sweep``): creates one request for each combination of resource values."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from op_profiler.collection.request import CollectRequest
from op_profiler.errors import UsageError
from op_profiler.resources import resource_to_sweep


def parse_sweeps(words: Sequence[str]) -> list[dict[str, Any]]:
    """Parse the values of ``--sweep``, and return every combination of resource values.

    Args:
        words: resources in the form ``NAME=VALUE,VALUE,...``. Without words, the result is one empty combination.

    Raises:
        UsageError: a word has another form, a resource occurs twice or cannot be swept, or a value is out of range.
    """
    values: dict[str, list[Any]] = {}
    for word in words:
        name, sign, text = word.partition("=")
        name = name.strip()
        if not sign or not text.strip():
            raise UsageError(f"--sweep takes NAME=VALUE,VALUE such as core_set=0,1,0-1; not {word!r}")
        if name in values:
            raise UsageError(f"--sweep {name} is there twice; give all its values at once")
        resource = resource_to_sweep(name)
        values[name] = list(dict.fromkeys(resource.parse(one.strip()) for one in text.split(",")))
    return [dict(zip(values, combination)) for combination in itertools.product(*values.values())]


def swept(request: CollectRequest, combinations: Sequence[dict[str, Any]]) -> list[CollectRequest]:
    """Return a copy of the request for every combination of resource values.

    Thread counts above the size of a combination's core set are removed.

    Raises:
        UsageError: no thread count is left for a combination, or the request names no thread counts.
    """
    requests = []
    counts = request.build.threads
    if not counts and not any(combinations):
        return [request]  # the worker that it goes to knows how many cores it has
    if not counts:
        raise UsageError("--sweep on a cluster needs --threads, since machines have different cores")
    for values in combinations:
        most = len(values.get("core_set", ())) or max(counts)
        threads = tuple(count for count in counts if count <= most)
        if not threads:
            raise UsageError(f"--sweep core_set: --threads {min(counts)} needs a set of as many cores, not of {most}")
        measuring = dataclasses.replace(request.measuring, resources=values)
        requests.append(dataclasses.replace(request.of(threads=threads), measuring=measuring))
    return requests
