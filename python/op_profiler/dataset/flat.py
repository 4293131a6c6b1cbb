"""The dataset as flat tables: one row a measurement, with its operator, schedule, settings, device and model; and one
row an operator that ran beside others."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Double,
    FromClause,
    Integer,
    Row,
    Select,
    Table,
    Text,
    and_,
    cast,
    exc,
    func,
    literal_column,
    select,
    type_coerce,
)
from sqlalchemy import Column as SchemaColumn

from op_profiler.dataset.schema import (
    Json,
    Samples,
    corun_members,
    coruns,
    devices,
    measurements,
    model_operators,
    model_timings,
    models,
    operators,
    parse_json,
    schedules,
    settings,
)
from op_profiler.dataset.store import Dataset
from op_profiler.errors import UnknownNameError, UsageError

_PIECE = 2000  # rows

nested = functools.lru_cache(maxsize=10_000)
"""Of what parses nested values: few distinct ones stand in many rows, and parsing them anew takes longer than all the
rest."""

Kind = Literal["text", "integer", "real", "boolean", "json", "samples"]
_KINDS: dict[type[Any], Kind] = {
    Samples: "samples",
    Json: "json",
    Text: "text",
    Integer: "integer",
    BigInteger: "integer",
    Double: "real",
    Boolean: "boolean",
}


class Column(NamedTuple):
    """One column of the flat table.

    Attributes:
        type: ``json`` is a nested value, as JSON text where a format has none; ``samples`` a list of lists of reals.
        source: where its values come from.
        since: the version of the tables that brought it; files from before do not have it.
    """

    name: str
    type: Kind
    description: str
    source: ColumnElement[Any]
    since: int = 1


class FlatTable(NamedTuple):
    """One of the flat tables.

    Attributes:
        source: the tables of `schema` that its columns are from.
        order: names of the columns that its rows are ordered by.
    """

    columns: tuple[Column, ...]
    source: FromClause
    order: tuple[str, ...]


def shown(*sources: Table | SchemaColumn[Any]) -> list[Column]:
    """Columns of `schema` as the flat tables have them; of a table all that have a meaning there."""
    columns = [c for source in sources for c in (source.columns if isinstance(source, Table) else [source])]
    return [Column(c.info["flat"], _KINDS[type(c.type)], c.doc, c, c.info["since"]) for c in columns if c.doc]


_name = Column(
    "operator_name",
    "text",
    "the compiler's name of the kernel",
    func.coalesce(model_operators.c.name, operators.c.name),
)
_moved = cast(operators.c.bytes_read + operators.c.bytes_written, Double)
_operator_key, *_operator = shown(operators)
_key, *_times = shown(measurements)
_intensity = func.coalesce(operators.c.flops / func.nullif(_moved, 0.0), 0.0)
_timing = model_timings.c

_joined = (
    _key,
    _operator_key,
    _name,
    *_operator,
    Column("arithmetic_intensity", "real", "FLOPs per byte moved", _intensity),
    *shown(schedules, settings, devices, models, model_operators),
    Column("whole_model_us", "real", "median of that whole model, microseconds", _timing.median_us),
    Column(
        "timing_details",
        "json",
        "how that was timed; gauge_us, exchange_us: fixed kernels beside it; denormal: share of such numbers written, "
        "by operator",
        _timing.details,
        since=5,
    ),
    *shown(_timing.project_revision, _timing.user_revision),
    *_times,
)

# These from the table of measurements: conditions on them then need no join, and find its indices.
_own_keys = ("operator_key", "schedule_key", "device_key", "model_key")

COLUMNS: tuple[Column, ...] = tuple(
    c._replace(source=measurements.c[c.name]) if c.name in _own_keys else c for c in _joined
)
"""Name, type and meaning of every column, in order; writers, readers and documentation are made from this."""

# Every measurement has an operator, a schedule, settings and a device. Their joins are outer ones, since a database
# leaves those out where nobody asks for the columns.
MEASUREMENTS = FlatTable(
    COLUMNS,
    measurements.outerjoin(operators, operators.c.key == measurements.c.operator_key)
    .outerjoin(schedules, schedules.c.key == measurements.c.schedule_key)
    .outerjoin(settings, settings.c.key == measurements.c.settings_key)
    .outerjoin(devices, devices.c.key == measurements.c.device_key)
    .outerjoin(models, models.c.key == measurements.c.model_key)
    .outerjoin(
        model_operators,
        and_(
            model_operators.c.model_key == measurements.c.model_key,
            model_operators.c.operator_key == measurements.c.operator_key,
        ),
    )
    .outerjoin(
        model_timings,
        and_(
            model_timings.c.model_key == measurements.c.model_key,
            model_timings.c.settings_key == measurements.c.settings_key,
            model_timings.c.device_key == measurements.c.device_key,
        ),
    ),
    ("measured_at", "measurement_key"),
)

_slowdown = corun_members.c.together_median_us / corun_members.c.alone_median_us
_member = corun_members.c

CORUNS = FlatTable(
    (
        *shown(coruns.c.key, _member.position),
        _name._replace(source=operators.c.name),
        *shown(operators, schedules, settings, devices, models),
        *shown(_member.alone_samples_us, _member.alone_median_us),
        *shown(_member.together_samples_us, _member.together_median_us),
        Column("slowdown", "real", "median in the group over median alone", _slowdown),
        *shown(coruns.c.load_before, coruns.c.load_after, coruns.c.foreign_load, _member.error, coruns.c.measured_at),
    ),
    corun_members.join(coruns, coruns.c.key == corun_members.c.corun_key)
    .join(operators, operators.c.key == corun_members.c.operator_key)
    .join(schedules, schedules.c.key == corun_members.c.schedule_key)
    .join(settings, settings.c.key == corun_members.c.settings_key)
    .join(devices, devices.c.key == coruns.c.device_key)
    .outerjoin(models, models.c.key == corun_members.c.model_key),
    ("measured_at", "corun_key", "position"),
)

TABLES = {"measurements": MEASUREMENTS, "coruns": CORUNS}


def flat_table(name: str) -> FlatTable:
    """One of `TABLES`.

    Raises:
        UnknownNameError: none of this name.
    """
    if name not in TABLES:
        raise UnknownNameError("table", name, TABLES)
    return TABLES[name]


_WORDS = {
    *("and", "or", "not", "in", "like", "between", "is", "null", "true", "false", "escape"),
    *("case", "when", "then", "else", "end", "abs", "round", "lower", "upper", "length", "coalesce"),
}
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\b)|(?P<name>[A-Za-z_]\w*)
    |(?P<sign><=|>=|<>|!=|==|[=<>+\-*/%(),]))""",
    re.VERBOSE | re.ASCII,  # other digits and blanks are names to SQLite
)


def parse_where(text: str, table: FlatTable = MEASUREMENTS) -> str:
    """A condition in SQL, taken apart and put together again from what is allowed in it.

    Only columns of the table, text and numbers, comparisons, arithmetic and a few functions are: no subquery, no second
    statement, no comment, no quoted name.

    Raises:
        UsageError: there is something else; names the columns.
    """
    tokens = []
    position, text = 0, text.strip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise UsageError(f"--where {text!r}: cannot read {text[position:][:20]!r}. {_help(table)}")
        position = found.end()
        tokens.append(_checked(found, text, table))
    if not tokens:
        raise UsageError(f"--where is empty. {_help(table)}")
    if not _balanced(tokens):
        raise UsageError(f"--where {text!r}: the parentheses do not match. {_help(table)}")
    return " ".join(tokens)


def _checked(found: re.Match[str], text: str, table: FlatTable) -> str:
    token = found[found.lastgroup or 0]
    if found.lastgroup == "name" and token.lower() not in _WORDS:
        names = [column.name for column in table.columns]
        if token.lower() not in names:
            raise UnknownNameError(f"column in --where {text!r}", token, names, _help(table))
        return token.lower()
    return "=" if token == "==" else token


def _balanced(tokens: list[str]) -> bool:
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth < 0:
            return False
    return depth == 0


def _help(table: FlatTable) -> str:
    return (
        "Write a condition such as: anchor = 'nn.conv2d' and threads = 2. "
        f"Text stands in single quotes; the columns are: {', '.join(column.name for column in table.columns)}"
    )


def flat_rows(
    dataset: Dataset,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    table: FlatTable = MEASUREMENTS,
) -> Iterator[dict[str, Any]]:
    """The rows of a flat table, each a dict with the names of its columns, oldest first.

    Numbers that JSON does not know come as text in columns of type ``json`` ("Infinity", "NaN"). Rows share nested
    values, which are for reading only.

    Args:
        where: condition in SQL over the columns; see `parse_where`.
        columns: names of those that are wanted; None for all.
        table: one of `TABLES`: every measurement, or every operator that ran beside others.

    Raises:
        UsageError: the condition cannot be used.
        DatasetError: the database cannot be read.
    """
    wanted = _wanted(table, columns)
    with dataset.read() as connection:
        for piece in streamed(connection, table, wanted, where=where):
            for row in piece:
                yield {column.name: _decoded(column, value) for column, value in zip(wanted, row)}


def _wanted(table: FlatTable, columns: Sequence[str] | None) -> tuple[Column, ...]:
    by_name = {column.name: column for column in table.columns}
    return table.columns if columns is None else tuple(by_name[name] for name in columns)


def streamed(
    connection: Connection, table: FlatTable, wanted: Sequence[Column], *, where: str | None, rows: int = _PIECE
) -> Iterator[Sequence[Row[Any]]]:
    """Rows with the values of some columns, in pieces: the memory that this takes does not grow with the dataset.

    Nested values are the JSON text that is stored.

    Args:
        wanted: columns of the table, or others whose source is among its tables.
        rows: of a piece.

    Raises:
        UsageError: the condition cannot be used.
    """
    query = _query(table, where, wanted).execution_options(stream_results=True, yield_per=rows)
    if connection.dialect.name == "postgresql":  # it would plan for the first rows, and take much longer for all
        connection.exec_driver_sql("SET LOCAL cursor_tuple_fraction = 1.0")
    try:
        yield from connection.execute(query).partitions()
    except (exc.ProgrammingError, exc.DataError, exc.OperationalError) as error:
        if where is None or "disk" in str(error.orig):
            raise
        raise UsageError(f"--where {where!r}: {str(error.orig).splitlines()[0]}. {_help(table)}") from error


def _query(table: FlatTable, where: str | None, wanted: Sequence[Column]) -> Select[Any]:
    """A subquery, so that conditions see its columns and nothing else."""
    inside = {column.name: column for column in (*table.columns, *wanted)}.values()
    flat = select(*(raw(column).label(column.name) for column in inside)).select_from(table.source).subquery("flat")
    query = select(*(flat.c[column.name] for column in wanted)).order_by(*(flat.c[name] for name in table.order))
    return query if where is None else query.where(literal_column(f"({parse_where(where, table)})"))


def raw(column: Column) -> ColumnElement[Any]:
    """What is stored: of nested values the JSON text."""
    return type_coerce(column.source, Text) if isinstance(column.source.type, Json) else column.source


def _decoded(column: Column, value: Any) -> Any:
    if value is None or column.type not in ("json", "samples"):
        return value
    return parse_json(value, parse_constant=str) if column.type == "samples" else _nested(value)


@nested
def _nested(text: str) -> Any:
    return parse_json(text, parse_constant=str)
