"""The schedule records that a build may use, one for each computation."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from op_profiler.schedules.record_files import foreign_records, read_records
from op_profiler.schedules.records import Conditions, Record, choose

_RULED = "rule 4: "
"""Prefix of `ruled`: the version of the rule's choice of algorithms and schedules."""
_OF_ANY_VERSION = re.compile(r"rule \d+: (.*)", re.DOTALL)
"""`ruled` in this version or an earlier one; datasets contain results of both."""


def ruled(computation: str) -> str:
    """Return a text that stands for a computation whose schedule the project's rule may choose; see `digest`.

    The text contains the version number of the rule, so digests differ between versions of the rule.
    """
    return f"{_RULED}{computation}"


@dataclasses.dataclass(frozen=True)
class UsableRecords:
    """The schedule records that a build may use: one for each computation, read when the object is created.

    Attributes:
        chosen: record of each computation, by `Record.computation`.
        wanted: conditions under which the built model will run.
        file: source of the records; None if they come from no file.
        skipped: number of lines of the file that are not records.
        named: folder that the user named, so a note is given if none of its records is used; None for the default
            folder.
        by_rule: whether the compiler uses the project's rule for computations without a record.
    """

    chosen: Mapping[str, Record]
    wanted: Conditions
    file: Path | None = None
    skipped: int = 0
    named: str | None = None
    by_rule: bool = False

    @classmethod
    def of_file(
        cls, file: Path | None, wanted: Conditions, named: str | None = None, *, by_rule: bool = False
    ) -> UsableRecords:
        """Return, for each computation in a file or folder, the record with the conditions most similar to `wanted`.

        Args:
            file: the file or folder; there are no records if it is None or does not exist.
            named, by_rule: see the attributes.
        """
        records, skipped = read_records(file) if file is not None and file.exists() else ([], 0)
        return cls(choose(records, wanted), wanted, file, skipped, named, by_rule)

    @classmethod
    def only(cls, record: Record) -> UsableRecords:
        """Return usable records that contain only `record`, whatever its conditions."""
        return cls({record.computation: record}, record.conditions or Conditions(1))

    @classmethod
    def only_rule(cls) -> UsableRecords:
        """Return usable records without any record, so that the project's rule chooses all schedules."""
        return cls({}, Conditions(1), by_rule=True)

    def digest(self, asked: Iterable[str]) -> str:
        """Return a digest (16 hex digits) of the schedules of computations; an empty string if all computations have
        the compiler's own schedules.

        A cached build is valid as long as this digest is the same, whatever else changes in the file of records.

        Args:
            asked: computations for which a build looked up records, and results of `ruled`.
        """
        found = [(computation, self.chosen[computation]) for computation in sorted(set(asked) & self.chosen.keys())]
        mine: list[list[Any]] = [[computation, record.task, record.config] for computation, record in found]
        if self.by_rule:
            ruled_now = {ruled(one[1]) for one in map(_OF_ANY_VERSION.fullmatch, asked) if one}
            mine += [[one] for one in sorted(ruled_now - {ruled(computation) for computation, _ in found})]
        return hashlib.sha256(json.dumps(mine, sort_keys=True).encode()).hexdigest()[:16] if mine else ""

    def notes(self, asked: Iterable[str]) -> tuple[str, ...]:
        """Return notes for the user on the records that a build used, and on their conditions.

        Args:
            asked: as for `digest`.
        """
        used = [self.chosen[computation] for computation in set(asked) & self.chosen.keys()]
        notes = []
        if used:
            notes.append(f"compiled with schedule records: {len(used)} of {self.file}")
        for other in sorted({r.conditions for r in used if r.conditions not in (None, self.wanted)}, key=str):
            count = sum(record.conditions == other for record in used)
            notes.append(f"{count} of them are of other conditions ({other}), the nearest to these ({self.wanted})")
        if unknown := sum(record.conditions is None for record in used):
            notes.append(f"{unknown} of them are of unknown conditions: nothing better is there")
        if not used and self.named is not None and self.file is not None and Path(self.named).is_dir():
            notes.append(self._why_none(self.file))
        elif self.skipped:
            notes.append(f"{self.skipped} lines of {self.file} are no schedule records")
        return tuple(notes)

    def _why_none(self, file: Path) -> str:
        """Return why no record of the folder that a user named is used."""
        if not file.exists():
            return f"--schedules {self.named} has no effect: records of this target and processor would be in {file}"
        if not self.chosen:
            kind = foreign_records(file) if file.is_file() else None
            return f"--schedules {self.named} has no effect: {file} {kind or 'has no schedule records that worked'}"
        return (
            f"--schedules {self.named} has no effect: none of the {len(self.chosen)} records of {file} is of this model"
        )
