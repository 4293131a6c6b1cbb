"""Numbers of results in the sentences of a page: the source of the page has placeholders, Jinja expressions.

    {{ additivity.headline }}                                       the result in a sentence
    {{ additivity.models.span("op_profiler_ratio") }}               0.983 to 1.019
    {{ gpu_streams.plans.where(model="randwire-0").one("plan_us") }}    1,016.1

A result has the name of its benchmark, a table the name that it has in the result (`benchmarks/results/NAME.json`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jinja2

_Found = TypeVar("_Found", bound=list[Any])


class Rows(list[Mapping[str, Any]]):
    """Rows of a table of a result."""

    def where(self, **members: object) -> Rows:
        """The rows with these members; a list gives several values to choose from.

        Raises:
            LookupError: no row has them.
        """
        wanted = {name: value if isinstance(value, list) else [value] for name, value in members.items()}
        return _some(Rows(row for row in self if all(row[name] in values for name, values in wanted.items())), members)

    def of(self, column: str) -> list[Any]:
        """The different values of a column, in the order of the rows; without those that are missing.

        Raises:
            LookupError: there is none.
        """
        return _some(list(dict.fromkeys(row[column] for row in self if row[column] is not None)), column)

    def one(self, column: str) -> Any:
        """The value of a column that all rows share.

        Raises:
            LookupError: rows differ.
        """
        value, *others = self.of(column)
        if others:
            raise LookupError(f"one value of {column} was asked for; there are {[value, *others]}")
        return value

    def span(self, column: str) -> str:
        """``3 to 5``: the least and the largest value of a column; one number where they are equal."""
        found = self.of(column)
        return " to ".join(dict.fromkeys((number(min(found)), number(max(found)))))


def number(value: Any) -> str:
    """Text of a value; numbers with separators of thousands."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:,}" if is_number else str(value)


def sentence(text: str) -> str:
    """Text with a capital letter in front and a full stop behind."""
    return f"{text[0].upper()}{text[1:]}."


def with_numbers(text: str, results: Iterable[Path]) -> str:
    """A page, from its source and the files of results.

    Raises:
        jinja2.UndefinedError, LookupError: no result has what a placeholder names.
    """
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        finalize=number,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.from_string(text).render({path.stem: _members(path) for path in results})


def _members(path: Path) -> dict[str, Any]:
    """What placeholders can name of a result."""
    result = json.loads(path.read_text(encoding="utf-8"))
    return {"headline": sentence(result["headline"])} | {name: Rows(rows) for name, rows in result["tables"].items()}


def _some(found: _Found, wanted: object) -> _Found:
    if not found:
        raise LookupError(f"no row has {wanted}")
    return found
