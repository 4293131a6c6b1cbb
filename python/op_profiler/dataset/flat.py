"""Flat tables: one row per measurement, with operator, schedule, settings, device and model; and one row per operator
of a co-run.
"""

from __future__ import annotations

import functools
import re
from array import array
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
    Join,
    Select,
    Table,
    Text,
    and_,
    case,
    cast,
    exc,
    false,
    func,
    literal_column,
    select,
    type_coerce,
)
from sqlalchemy import Column as SchemaColumn
from sqlalchemy.sql import visitors

from op_profiler.dataset.database import OpenDatabase
from op_profiler.dataset.schema import (
    Json,
    SamplesType,
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
from op_profiler.errors import UnknownNameError, UsageError, check_known
from op_profiler.frontends.sample import AROUND_SAMPLED

_PIECE = 5000  # rows
_MOST_SHARED = 50_000  # rows of one table that are held
_WORTH_SHARING = 3  # columns of one table; fewer are read with each row

Kind = Literal["text", "integer", "real", "boolean", "json", "samples"]
_KINDS: dict[type[Any], Kind] = {
    SamplesType: "samples",
    Json: "json",
    Text: "text",
    Integer: "integer",
    BigInteger: "integer",
    Double: "real",
    Boolean: "boolean",
}


class Column(NamedTuple):
    """One column of a flat table.

    Attributes:
        type: ``json``: a nested value, written as JSON text by formats without nested values; ``samples``: a list of
            lists of floats.
        source: SQL expression of the column's values.
        since: version of the tables that introduced the column; files of older versions lack it.
    """

    name: str
    type: Kind
    description: str
    source: ColumnElement[Any]
    since: int = 1


class FlatTable(NamedTuple):
    """One of the flat tables.

    Attributes:
        source: join of the tables of `schema` that contain the columns.
        order: names of the columns by which the rows are ordered.
    """

    columns: tuple[Column, ...]
    source: FromClause
    order: tuple[str, ...]


def shown(*sources: Table | SchemaColumn[Any]) -> list[Column]:
    """Return the flat columns for columns of `schema`; a table stands for all its columns that have a description."""
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
_build = case((models.c.key == models.c.base_key, "default"), (models.c.base_key.is_not(None), "tuned"))
_around = and_(models.c.source == "sample", operators.c.op_names.in_(AROUND_SAMPLED))
_around_sampled = func.coalesce(_around, false())

_joined = (
    _key,
    _operator_key,
    _name,
    *_operator,
    Column("arithmetic_intensity", "real", "FLOPs per byte moved", _intensity),
    *shown(schedules, settings, devices, models, model_operators),
    Column("model_build", "text", "default, or tuned: with schedule records; empty: not known", _build, since=6),
    Column("scaffolding", "boolean", "added around the sampled operators of a batch", _around_sampled, since=6),
    Column("whole_model_us", "real", "median of that whole model, microseconds", _timing.median_us),
    Column(
        "timing_details",
        "json",
        "how that was timed; gauge_us, exchange_us: reference kernels next to it; denormal: share of such numbers "
        "written, by operator",
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
"""Name, type and meaning of every column, in order; writers, readers and documentation are derived from this list."""


def _joined_by(rows: Table, *keys: str) -> FromClause:
    """Return the outer join of a table with the tables to which its foreign keys `keys` refer."""
    joined: FromClause = rows
    for key in keys:
        (reference,) = rows.c[key].foreign_keys
        joined = joined.outerjoin(reference.column.table, reference.column == reference.parent)
    return joined


def _same(table: Table, *keys: str) -> ColumnElement[bool]:
    return and_(*(table.c[key] == measurements.c[key] for key in keys))


# Every measurement has an operator, a schedule, settings and a device. Their joins are outer ones, since a database
# leaves those out where nobody asks for the columns.
MEASUREMENTS = FlatTable(
    COLUMNS,
    _joined_by(measurements, "operator_key", "schedule_key", "settings_key", "device_key", "model_key")
    .outerjoin(model_operators, _same(model_operators, "model_key", "operator_key"))
    .outerjoin(model_timings, _same(model_timings, "model_key", "settings_key", "device_key")),
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
        Column("slowdown", "real", "median in the group over median in isolation", _slowdown),
        *shown(coruns.c.load_before, coruns.c.load_after, coruns.c.foreign_load, _member.error, coruns.c.measured_at),
    ),
    _joined_by(corun_members, "operator_key", "schedule_key", "settings_key", "model_key", "corun_key").outerjoin(
        devices, devices.c.key == coruns.c.device_key
    ),
    ("measured_at", "corun_key", "position"),
)

TABLES = {"measurements": MEASUREMENTS, "coruns": CORUNS}

_SHARED = (operators, schedules, settings, devices, models, model_timings)


def flat_table(name: str) -> FlatTable:
    """Return the flat table with this name in `TABLES`.

    Raises:
        UnknownNameError: there is no table with this name.
    """
    check_known("table", name, TABLES)
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
    """Parse a condition in SQL and rebuild it from an allow-list.

    Allowed are columns of the table, text and numbers, comparisons, arithmetic and a few functions. Subqueries, second
    statements, comments and quoted names are rejected.

    Raises:
        UsageError: the condition contains anything else; the message lists the columns.
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
    dataset: OpenDatabase,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    table: FlatTable = MEASUREMENTS,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a flat table as dicts by column name, the oldest row first.

    In columns of type ``json``, infinite numbers and NaN become text ("Infinity", "NaN"). Nested values are shared
    between rows, so do not change them.

    Args:
        where: condition in SQL over the columns; see `parse_where`.
        columns: names of the requested columns; None for all.
        table: one of `TABLES`: measurements, or operators that ran side by side.

    Raises:
        UsageError: the condition is invalid.
        DatasetError: the database cannot be read.
    """
    by_name = {column.name: column for column in table.columns}
    wanted = [by_name[name] for name in (by_name if columns is None else columns)]
    names = [column.name for column in wanted]
    with dataset.read() as connection:
        for piece in streamed(connection, table, wanted, where=where):
            for values in zip(*map(_decoded, wanted, piece)):
                yield dict(zip(names, values))


class Values(NamedTuple):
    """The values of one column in a chunk of rows.

    Attributes:
        distinct: distinct values; nested values are the stored JSON text.
        places: index in `distinct` of each row's value; None: `distinct` contains one value per row.
    """

    distinct: Sequence[Any]
    places: array[int] | None = None


def streamed(
    connection: Connection, table: FlatTable, wanted: Sequence[Column], *, where: str | None
) -> Iterator[list[Values]]:
    """Yield the values of some columns in chunks of rows, so that memory does not grow with the dataset.

    Values that many rows share (operators, devices, models, ...) are read once and joined in this process. They are the
    largest part of a flat row, and a join in the database, which copies them into every row, dominates the time.

    Returns:
        For each chunk, the values of the columns in the order of `wanted`.

    Raises:
        UsageError: the condition is invalid.
    """
    shared = [
        one for one in (_SharedRows(other, table, wanted) for other in _SHARED) if len(one.columns) >= _WORTH_SHARING
    ]
    elsewhere = {column.name for one in shared for column in one.columns}
    read = [*(column for column in wanted if column.name not in elsewhere), *(one.key for one in shared)]
    query = _query(table, where, read).execution_options(stream_results=True, yield_per=_PIECE)
    if connection.dialect.name == "postgresql":  # it would plan for the first rows, and take much longer for all
        connection.exec_driver_sql("SET LOCAL cursor_tuple_fraction = 1.0")
    try:
        for rows in connection.execute(query).partitions():
            values = dict(zip((column.name for column in read), map(Values, zip(*rows))))
            for one in shared:
                values |= one.values(connection, values[one.key.name].distinct)
            yield [values[column.name] for column in wanted]
    except (exc.ProgrammingError, exc.DataError, exc.OperationalError) as error:
        if where is None or "disk" in str(error.orig):
            raise
        raise UsageError(f"--where {where!r}: {str(error.orig).splitlines()[0]}. {_help(table)}") from error


class _SharedRows:
    """Cache of the rows of one table to which many rows of a flat table refer.

    Attributes:
        key: column of the flat table's rows that contains the key of this table.
        columns: requested columns whose values come from this table alone.
    """

    def __init__(self, table: Table, flat: FlatTable, wanted: Sequence[Column]) -> None:
        (self._identity,) = table.primary_key.columns
        self.key = Column(f"{table.name} key", "text", "", _reference(flat, self._identity))
        self.columns = [column for column in wanted if _tables_of(column) == {table}]
        self._rows: dict[str | None, Sequence[Any]] = {}

    def values(self, connection: Connection, keys: Sequence[str | None]) -> dict[str, Values]:
        """Return the values of each column in the rows with these keys, by column name; None for a key that is None."""
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        missing = places.keys() - self._rows.keys() - {None}
        if len(self._rows) + len(missing) > _MOST_SHARED:
            self._rows, missing = {}, places.keys() - {None}
        if missing:
            query = select(self._identity, *map(raw, self.columns)).where(self._identity.in_(sorted(missing)))
            self._rows |= {key: values for key, *values in connection.execute(query).all()}
        unknown, of_rows = [None] * len(self.columns), array("q", (places[key] for key in keys))
        found = zip(*(self._rows.get(key, unknown) for key in places))
        return {column.name: Values(values, of_rows) for column, values in zip(self.columns, found)}


def _tables_of(column: Column) -> set[Any]:
    return {part.table for part in visitors.iterate(column.source) if isinstance(part, SchemaColumn)}


def _reference(flat: FlatTable, key: SchemaColumn[Any]) -> ColumnElement[Any]:
    """Return the column of the flat table's first table that refers to `key`, which needs no join; otherwise `key`."""
    rows = flat.source
    while isinstance(rows, Join):
        rows = rows.left
    held = [reference.parent for reference in rows.foreign_keys if reference.column is key]
    return held[0] if held else key


def _query(table: FlatTable, where: str | None, wanted: Sequence[Column]) -> Select[Any]:
    """Return a query on a subquery that contains the flat table, so that conditions can use its columns only."""
    inside = {column.name: column for column in (*table.columns, *wanted)}.values()
    flat = select(*(raw(column).label(column.name) for column in inside)).select_from(table.source).subquery("flat")
    query = select(*(flat.c[column.name] for column in wanted)).order_by(*(flat.c[name] for name in table.order))
    return query if where is None else query.where(literal_column(f"({parse_where(where, table)})"))


def raw(column: Column) -> ColumnElement[Any]:
    """Return the SQL expression of a column's stored values; nested values remain JSON text."""
    return type_coerce(column.source, Text) if isinstance(column.source.type, Json) else column.source


def _decoded(column: Column, values: Values) -> Sequence[Any]:
    distinct = values.distinct
    if column.type in ("json", "samples"):
        parse = _nested if column.type == "json" else _parsed
        distinct = [None if text is None else parse(text) for text in distinct]
    return distinct if values.places is None else [distinct[place] for place in values.places]


def _parsed(text: str) -> Any:
    return parse_json(text, parse_constant=str)


nested = functools.lru_cache(maxsize=10_000)
"""Cache for parsers of nested values: many rows share few distinct values, and parsing them again would dominate the
time."""
_nested = nested(_parsed)
