"""Decides which of two rows of one measurement is stored, and stores and reads failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, case, false, or_, select

from op_profiler.dataset import convert, keys, schema
from op_profiler.dataset.row import Failure
from op_profiler.dataset.statements import insert, labelled
from op_profiler.measure.measurement import Settings
from op_profiler.operators.titles import label_of

_CHECK_POINT, _FAILED, _BARE, _NOISY = 1, 2, 3, 4


def rank(columns: Any) -> ColumnElement[int]:
    """Return an SQL expression for the quality of a row; a greater number is better.

    In ascending order: a failure caused by the machine (a retry may succeed), a checkpoint, a failure caused by the
    operator, a time without its rounds (of a whole model, from a flat table), a time that was disturbed or did not
    converge, and an undisturbed, converged time.
    """
    failed = columns.error.is_not(None)
    return case(
        (and_(failed, columns.error_cause == "machine"), 0),
        (columns.complete.is_(false()), _CHECK_POINT),
        (failed, _FAILED),
        (columns.rounds == 0, _BARE),
        (or_(columns.foreign_load, columns.settled.is_(false()), columns.disturbed_by.is_not(None)), _NOISY),
        else_=_NOISY + 1,
    )


def upsert_better(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    replace: bool = False,
    newest: bool = False,
) -> set[str]:
    """Insert rows of measurements or model timings; an existing row is replaced unless it is better.

    The row with the higher `rank` is kept. Of two rows of equal rank, the newer one is kept; a checkpoint is replaced
    only by a checkpoint that has at least as many rounds.

    Args:
        replace: a complete time with rounds replaces every existing row, even if it was measured under background load.
            A failure never replaces a row in this way.
        newest: the rows were measured just now, so they count as newer than existing rows, whatever the clocks of
            other machines show.

    Returns:
        Keys of the rows that were written.
    """
    if not rows:
        return set()
    statement = or_better(insert(connection, table), table, list(rows[0]), replace=replace, newest=newest)
    statement = statement.returning(table.c.key)
    return {key for batch in _without_repetition(rows) for (key,) in connection.execute(statement, batch)}


def or_better(
    statement: Any, table: Table, columns: Sequence[str], *, replace: bool = False, newest: bool = False
) -> Any:
    """Return an INSERT statement that replaces existing rows by the rule of `upsert_better`.

    Args:
        columns: columns of the inserted rows, including ``key``.
        replace, newest: as in `upsert_better`.
    """
    new, old = statement.excluded, table.c
    alike = and_(rank(new) == rank(old), case((rank(new) == _CHECK_POINT, new.rounds >= old.rounds), else_=True))
    better = or_(rank(new) > rank(old), alike if newest else and_(alike, new.measured_at > old.measured_at))
    if replace:
        better = or_(better, rank(new) >= _NOISY)
    changes = {name: new[name] for name in columns if name != "key"}
    return statement.on_conflict_do_update(index_elements=["key"], set_=changes, where=better)


def _without_repetition(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Split rows into parts without repeated keys, in order; PostgreSQL rejects a statement with a key twice."""
    parts: list[list[Mapping[str, Any]]] = [[]]
    seen: set[str] = set()
    for row in rows:
        if row["key"] in seen:
            parts.append([])
            seen = set()
        parts[-1].append(row)
        seen.add(row["key"])
    return parts


def keep_failures(connection: Connection, rows: Iterable[Mapping[str, Any]], *, newest: bool = False) -> None:
    """Store the failures among rows of measurements or model timings, whether or not these rows are stored.

    If a failure with the same message is stored already, its time is replaced by the newer time.

    Args:
        rows: rows with the columns of `schema.measurements` or `schema.model_timings`, and ``machine_state``.
        newest: as in `upsert_better`.
    """
    failures = [
        {
            "key": keys.failure_key(row["key"], row["error"]),
            "measured_key": row["key"],
            **{name: row.get(name) for name in ("operator_key", "schedule_key", "machine_state", "run_id")},
            **{name: row[name] for name in ("settings_key", "device_key", "model_key", "error", "error_cause")},
            "failed_at": row["measured_at"],
        }
        for row in rows
        if row["complete"] and row["error"] is not None
    ]
    if failures:
        connection.execute(or_newer(insert(connection, schema.failures), newest=newest), failures)


def or_newer(statement: Any, *, newest: bool = False) -> Any:
    """Return an INSERT statement for failures; for a failure that is stored already, the newer time is kept."""
    table = schema.failures
    newer = None if newest else statement.excluded.failed_at > table.c.failed_at
    values = {name: statement.excluded[name] for name in ("failed_at", "run_id", "machine_state", "settings_key")}
    return statement.on_conflict_do_update(index_elements=[table.c.key], set_=values, where=newer)


def select_failures(model_key: str | None) -> Select[Any]:
    """Return the query for the rows that `failure` reads, one per failure, the newest failure first.

    Args:
        model_key: only failures in this model; None: all failures.
    """
    table, measured, timings = schema.failures, schema.measurements, schema.model_timings
    of_model = schema.model_operators
    timed_at = case(
        (and_(measured.c.complete, measured.c.error.is_(None)), measured.c.measured_at),
        (and_(timings.c.complete, timings.c.error.is_(None)), timings.c.measured_at),
    )
    query = (
        select(table, schema.operators.c.name.label("operator_name"), timed_at.label("timed_at"))
        .add_columns(schema.operators.c.op_names, schema.operators.c.outputs, of_model.c.layers)
        .add_columns(*labelled(schema.settings))
        .join(schema.settings, schema.settings.c.key == table.c.settings_key)
        .outerjoin(schema.operators, schema.operators.c.key == table.c.operator_key)
        .outerjoin(
            of_model,
            and_(of_model.c.model_key == table.c.model_key, of_model.c.operator_key == table.c.operator_key),
        )
        .outerjoin(measured, measured.c.key == table.c.measured_key)
        .outerjoin(timings, timings.c.key == table.c.measured_key)
        .order_by(table.c.failed_at.desc(), table.c.key)
    )
    return query if model_key is None else query.where(table.c.model_key == model_key)


def failure(row: Mapping[str, Any]) -> Failure:
    """Create a `Failure` from a row of `select_failures`."""
    names = ("operator_name", "device_key", "error", "machine_state", "failed_at", "run_id", "timed_at")
    outputs = row["outputs"] or [{"shape": ()}]
    label = label_of(row["op_names"], outputs[0]["shape"], row["layers"] or ()) if row["op_names"] else None
    return Failure(
        **{name: row[name] for name in names},
        operator_label=label,
        model_key=row["model_key"] or "",
        cause=row["error_cause"],
        settings=convert.build(Settings, row, "settings_"),
    )
