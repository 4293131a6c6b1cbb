"""Co-runs in the dataset: operators that ran side by side, stored and read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Connection, Select, delete, select

from op_profiler.dataset import convert, keys, schema
from op_profiler.dataset.quality import keep_failures
from op_profiler.dataset.row import Corun, CorunMember
from op_profiler.dataset.statements import labelled, upsert
from op_profiler.errors import DatasetError
from op_profiler.measure.failures import cause_of
from op_profiler.measure.measurement import Settings
from op_profiler.schedules.schedule import Schedule

_OF_THE_GROUP = ("device_key", "load_before", "load_after", "foreign_load", "measured_at")


def store(connection: Connection, corun: Corun) -> bool:
    """Store a group of operators that ran side by side; it replaces a worse or older group with the same key.

    The device of the group must be stored already. The key is `keys.corun_key`.

    Returns:
        Whether the group was stored; False if the dataset has a group that is at least as good and as new.

    Raises:
        DatasetError: the group has no members.
    """
    if not corun.members:
        raise DatasetError("a group that ran side by side was refused: it has no members")
    key = keys.corun_key(corun.device_key, corun.members)
    group = {"key": key} | {name: getattr(corun, name) for name in _OF_THE_GROUP}
    members = [_columns(m) | {"corun_key": key, "position": at} for at, m in enumerate(corun.members)]
    upsert(connection, schema.schedules, convert.distinct(m.schedule for m in corun.members))
    upsert(connection, schema.settings, convert.distinct(m.settings for m in corun.members))
    keep_failures(connection, [_failure(member, group) for member in members])
    same = select_members(None).where(schema.coruns.c.key == key)
    there = cast("Sequence[Mapping[str, Any]]", connection.execute(same).mappings().all())
    if any(_quality(corun) <= _quality(one) for one in of(there)):
        return False
    table = schema.corun_members
    upsert(connection, schema.coruns, [group], replace=_OF_THE_GROUP)
    connection.execute(delete(table).where(table.c.corun_key == key))
    connection.execute(table.insert(), members)
    return True


def _failure(member: convert.Columns, group: convert.Columns) -> convert.Columns:
    """Return the columns that `keep_failures` needs, for a member that may have failed."""
    cause = None if member["error"] is None else cause_of(member["error"])
    shared = {name: group[name] for name in ("key", "device_key", "measured_at")}
    return member | shared | {"complete": True, "error_cause": cause}


def _quality(corun: Corun) -> tuple[bool, bool, str]:
    """Return the sort key of a group: groups with failures are lowest, then groups with background load, then older."""
    return all(m.error is None for m in corun.members), not corun.foreign_load, corun.measured_at


def _columns(member: CorunMember) -> convert.Columns:
    return {
        **{name: getattr(member, name) for name in ("operator_key", "alone_samples_us", "together_samples_us")},
        **{name: getattr(member, name) for name in ("alone_median_us", "together_median_us")},
        "schedule_key": member.schedule.key,
        "settings_key": member.settings.key,
        "model_key": member.model_key or None,
        "error": None if member.error is None else convert.storable(member.error),
    }


def select_members(device_key: str | None) -> Select[Any]:
    """Return the query for the rows that `of` reads: one row per member, with columns of its group, settings, schedule.

    The rows are ordered by the time of the group, then by the position of the member.

    Args:
        device_key: only groups of this device; None: all groups.
    """
    group, table = schema.coruns, schema.corun_members
    query = (
        select(table, *(group.c[name] for name in _OF_THE_GROUP))
        .add_columns(*labelled(schema.settings), *labelled(schema.schedules))
        .select_from(table)
        .join(group, group.c.key == table.c.corun_key)
        .join(schema.settings, schema.settings.c.key == table.c.settings_key)
        .join(schema.schedules, schema.schedules.c.key == table.c.schedule_key)
        .order_by(group.c.measured_at, group.c.key, table.c.position)
    )
    return query if device_key is None else query.where(group.c.device_key == device_key)


def of(rows: Iterable[Mapping[str, Any]]) -> Iterator[Corun]:
    """Yield the co-run groups that the result rows of `select_members` describe."""
    for _, group in itertools.groupby(rows, key=lambda row: row["corun_key"]):
        members = list(group)
        fields = {name: members[0][name] for name in _OF_THE_GROUP}
        yield Corun(members=tuple(map(_member, members)), **fields)


def _member(row: Mapping[str, Any]) -> CorunMember:
    return CorunMember(
        operator_key=row["operator_key"],
        schedule=convert.build(Schedule, row, "schedules_"),
        settings=convert.build(Settings, row, "settings_"),
        model_key=row["model_key"] or "",
        alone_samples_us=tuple(row["alone_samples_us"]),
        together_samples_us=tuple(row["together_samples_us"]),
        error=row["error"],
    )
