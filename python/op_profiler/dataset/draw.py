"""`GroupDraw`: selects a random subset of whole groups of rows from a stream, up to a limit of rows."""

from __future__ import annotations

import hashlib
import heapq

_KEPT_OF_MOST = 0.8  # so that rows are rarely let go of, and many at a time


class GroupDraw:
    """A random selection of whole groups of rows.

    Rows of one group (the settings of an operator, the operators of a model) are selected together, so that they can
    still be compared. The position of a group is a hash of its name; if there are more than `most` rows, the groups
    with the last positions are discarded. Every group is therefore equally likely to remain, and the same rows give the
    same selection in any order. If there are at most `most` rows, all are selected.

    >>> draw = GroupDraw(most=10)
    >>> kept = []
    >>> for number in range(100):
    ...     group = str(number % 20)
    ...     if draw.takes(group):
    ...         kept.append(group)
    ...     gone = draw.dropped()
    ...     kept = [one for one in kept if one not in gone]
    >>> gone = draw.rest()
    >>> kept = [one for one in kept if one not in gone]
    >>> len(kept), draw.left_out, len(set(kept))
    (5, 95, 1)

    Attributes:
        most: largest number of selected rows; if there are more rows, at most four fifths of `most` are selected.
        left_out: number of rows that are not selected so far.
    """

    def __init__(self, most: int) -> None:
        self.most, self.left_out = most, 0
        self._kept = 0
        self._end = 1 << 64  # places from here on are not kept
        self._rows: dict[str, int] = {}
        self._last: list[tuple[int, str]] = []  # the groups, that with the last place first

    def wants(self, group: str) -> bool:
        """Return whether a row of this group may still be selected; False is final."""
        return group in self._rows or _place(group) < self._end

    def takes(self, group: str) -> bool:
        """Count one more row of a group, and return whether it is selected.

        Rows beyond the limit are rejected if they belong to the only remaining group.
        """
        known = group in self._rows
        if (known and len(self._rows) == 1 and self._kept >= self.most) or (not known and _place(group) >= self._end):
            self.left_out += 1
            return False
        if not known:
            self._rows[group] = 0
            heapq.heappush(self._last, (-_place(group), group))
        self._rows[group] += 1
        self._kept += 1
        return True

    def dropped(self) -> set[str]:
        """Return the groups whose rows the caller has to discard; call it after each row for which `takes` was true."""
        return self._cut() if self._kept > self.most else set()

    def rest(self) -> set[str]:
        """Return the groups whose rows the caller has to discard at the end; call it after the last row."""
        return self._cut() if self.left_out else set()

    def _cut(self) -> set[str]:
        gone: set[str] = set()
        while self._kept > _KEPT_OF_MOST * self.most and len(self._rows) > 1:
            place, group = heapq.heappop(self._last)
            self._end = -place
            rows = self._rows.pop(group)
            self._kept -= rows
            self.left_out += rows
            gone.add(group)
        return gone


def _place(group: str) -> int:
    return int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "big")
