"""The schedule records that a build may use, one for each computation."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from op_profiler.schedules.record_files import foreign_records, read_records
from op_profiler.schedules.records import Conditions, Record, choose

_RULED = "rule 2: "
"""Prefix, with the rule's number, of the entry for a computation that the rule may have a schedule for."""


def ruled(computation: str) -> str:
    """Return the entry for a computation, or for other code, that the rule may decide."""
    return f"{_RULED}{computation}"


@dataclasses.dataclass(frozen=True)
class UsableRecords:
    """One record for each computation, as they are when this is made.

    Attributes:
        chosen: by computation.
        wanted: the conditions that the build is for.
        file: that they are from; None where they are of no file.
        skipped: lines of the file that are no records.
        named: the folder that a user named for it, whose records are expected to fit; None for the usual one.
        by_rule: the compiler chooses by the project's rule where there is no record.
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
        """Those of a file or a folder whose conditions are the nearest; none where it is not there.

        Args:
            named, by_rule: see the attributes.
        """
        records, skipped = read_records(file) if file is not None and file.exists() else ([], 0)
        return cls(choose(records, wanted), wanted, file, skipped, named, by_rule)

    @classmethod
    def only(cls, record: Record) -> UsableRecords:
        """This one, whatever its conditions."""
        return cls({record.computation: record}, record.conditions or Conditions(1))

    @classmethod
    def only_rule(cls) -> UsableRecords:
        """No record: the rule alone, for any conditions."""
        return cls({}, Conditions(1), by_rule=True)

    def digest(self, asked: Iterable[str]) -> str:
        """16 hex digits of the schedules that computations are given; empty where all have the compiler's own.

        A build is what it was for as long as this stays, whatever else the file says.

        Args:
            asked: computations that a build asked for.
        """
        found = [(computation, self.chosen[computation]) for computation in sorted(set(asked) & self.chosen.keys())]
        mine: list[list[Any]] = [[computation, record.task, record.config] for computation, record in found]
        mine += [
            [one] for one in sorted(set(asked) - {ruled(computation) for computation, _ in found}) if self._rules(one)
        ]
        return hashlib.sha256(json.dumps(mine, sort_keys=True).encode()).hexdigest()[:16] if mine else ""

    def _rules(self, asked: str) -> bool:
        return self.by_rule and asked.startswith(_RULED)

    def notes(self, asked: Iterable[str]) -> tuple[str, ...]:
        """What a user should know of the records that a build took, and of their conditions.

        Args:
            asked: computations that it asked for.
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
        """Why no record of the folder that a user named is used."""
        if not file.exists():
            return f"--schedules {self.named} has no effect: records of this target and processor would be in {file}"
        if not self.chosen:
            kind = foreign_records(file) if file.is_file() else None
            return f"--schedules {self.named} has no effect: {file} {kind or 'has no schedule records that worked'}"
        return (
            f"--schedules {self.named} has no effect: none of the {len(self.chosen)} records of {file} is of this model"
        )
