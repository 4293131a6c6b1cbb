"""Where the calls of a compiled model come from in the user's model.

An importer writes the location of each call as one text. Compilers carry such texts through their passes without
reading them, and the texts of a kernel name the locations of all ops in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from op_profiler.operators.layers import CallLayers

CallLocations = Sequence[Sequence[str]]
"""For each call of an operator in a model, in the order of its positions, the texts of the locations of its ops: that
of the anchor first, the others in the order of execution; empty if they are unknown."""

_SEPARATOR = "\t"


class Location(NamedTuple):
    """The location of a call; fields that are unknown are empty.

    Attributes:
        layer: layer of the user's model, see `op_profiler.operators.layers`.
        fx_node: name of the node in the graph of the user's torch.export program.
        source_line: line of the user's torch code that makes the call, such as ``net.py:12``.
    """

    layer: str = ""
    fx_node: str = ""
    source_line: str = ""

    @property
    def text(self) -> str:
        """The location as one text; the layer itself if nothing else is known.

        >>> Location("encoder.fc").text
        'encoder.fc'
        """
        return _SEPARATOR.join(self).rstrip(_SEPARATOR)


LOCATION_COLUMNS = ("layers", "fx_nodes", "source_lines")
"""Columns of a dataset with the fields of `Location`, in their order."""


def values(locations: Iterable[str], field: str) -> tuple[str, ...]:
    """Return the known values that a field of `Location` has in the given texts, each once, in order of appearance.

    >>> values([Location("fc", "linear").text, Location("fc", "relu").text], "layer")
    ('fc',)
    """
    fields = (Location(*text.split(_SEPARATOR, 2)) for text in locations)
    return tuple(dict.fromkeys(filter(None, (getattr(one, field) for one in fields))))


def columns_of(calls: CallLocations) -> dict[str, CallLayers | None]:
    """Return the values of `LOCATION_COLUMNS` for an operator in a model.

    Returns:
        For each column, the values of each call; None if they are unknown for all calls.
    """
    columns = ([values(call, field) for call in calls] for field in Location._fields)
    return {name: known if any(known) else None for name, known in zip(LOCATION_COLUMNS, columns, strict=True)}
