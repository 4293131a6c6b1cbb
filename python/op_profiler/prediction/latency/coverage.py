"""`Coverage`: the ops, attributes, dtypes and sizes that a predictor was trained on."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from op_profiler.operators.cost import HEAVY
from op_profiler.prediction.latency.features import NAMES
from op_profiler.prediction.latency.kernel_model import COSTS, NO_COST
from op_profiler.prediction.latency.query import Query

_SIZES = [NAMES.index(name) for name in ("flops", "input_bytes", "weight_bytes", "output_bytes")]
_ENOUGH, _ENOUGH_OF = 10, 100
"""A word is rare if fewer operators have it than the smaller of ten and one in a hundred of the measured operators. On
family 6 model 207, in two of seven groups of held-out families, the mean error was 1.8 times that of other operators
for operators with a rarer op, 1.4 times for sizes outside of those of their anchor, and 1.5 times for attributes that
were never measured."""


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Numbers of measured operators by word.

    The words of an operator are its ops, its dtypes, and the attributes of its anchor (`Query.op_sets`, `Query.forms`).

    Attributes:
        own: number of distinct operators that were measured on the device itself, by word.
        taught: number of distinct operators that regressions were trained on, of this device and of others, by word.
        sizes: least and largest logarithm of FLOPs and of bytes of inputs, weights and outputs, shape (2, 4), by
            anchor.
        least: a word is rare if its number in `own` is smaller than this one.
        mainly: number of distinct own operators by the cost that takes half of their time (`KernelModel.main_costs`);
            empty on GPUs, and if too few loops are known.
        networks: number of distinct own operators of networks, by word; empty if no network was measured.
    """

    own: dict[str, int]
    taught: dict[str, int]
    sizes: dict[str, list[list[float]]]
    least: int
    mainly: dict[str, int] = dataclasses.field(default_factory=dict)
    networks: dict[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, own: Query, others: Sequence[Query] = (), main_costs: np.ndarray | None = None) -> Coverage:
        """Count the measurements of a device, and those of other devices that regressions are trained on.

        Args:
            main_costs: result of `KernelModel.main_costs`, one per entry of `own`; None if unknown.
        """
        mine = operators_with(own)
        taught = sum((operators_with(one) for one in others), mine)
        distinct = len(np.unique(own.keys))
        least = min(max(distinct // _ENOUGH_OF, 1), _ENOUGH)
        pairs = set() if main_costs is None else set(zip(main_costs.tolist(), own.keys.tolist()))
        mainly = Counter(COSTS[cost] for cost, _ in pairs if cost != NO_COST)
        networks = dict(operators_with(own.take(own.network)))
        return cls(dict(mine), dict(taught), _sizes((own, *others)), least, dict(mainly), networks)

    def has_dtypes(self, query: Query) -> np.ndarray:
        """Return the mask of entries whose dtypes were measured on the device."""
        known = [all(word in self.own for word in words if not _is_op(word)) for words in query.op_sets]
        return np.array(known, dtype=bool)[query.vocabulary]

    def learned(self, query: Query) -> np.ndarray:
        """Return the mask of entries that regressions can estimate.

        For a heavy op, several measured operators are needed. The work of other ops is described by the loops. If the
        loops are unknown and there is no heavy op, one measured operator is needed for each op, and for each text among
        the attributes of the anchor, such as the mode of a resize.
        """
        heavy = [[op for op in words if op.partition(" of ")[0] in HEAVY] for words in query.op_sets]
        enough = np.array([all(self.taught.get(op, 0) >= self.least for op in ops) for ops in heavy], dtype=bool)
        seen = [bool(ops) or ops_in(words) <= self.taught.keys() for ops, words in zip(heavy, query.op_sets)]
        modes = [anchor in HEAVY or _texts(words) <= self.taught.keys() for anchor, *words in query.forms]
        described = np.array(seen, dtype=bool)[query.vocabulary] & np.array(modes, dtype=bool)[query.form]
        return np.asarray(enough[query.vocabulary] & (described | query.has_loops))

    def outside(self, query: Query) -> np.ndarray:
        """Return the mask of entries unlike the measured operators.

        Entries in the mask have a rare anchor, attribute or dtype, an op that was never measured, or sizes outside of
        the range of the measured operators with the same anchor.
        """
        ops = np.array([self._has_new(words) for words in query.op_sets], dtype=bool)
        forms = np.array([self._has_rare(words) for words in query.forms], dtype=bool)
        unknown = np.full((2, len(_SIZES)), np.nan)
        limits = np.array([self.sizes.get(anchor, unknown) for anchor, *_ in query.forms])[query.form]
        sizes = query.features[:, _SIZES]
        inside = (limits[:, 0] <= sizes) & (sizes <= limits[:, 1])
        return np.asarray(ops[query.vocabulary] | forms[query.form] | ~inside.all(axis=1))

    def in_no_network(self, query: Query) -> np.ndarray:
        """Return the mask of entries with an op or a dtype that is rare in measured networks.

        No entry is in the mask if no network was measured.
        """
        odd = [any(self.networks.get(word, 0) < self.least for word in words) for words in query.op_sets]
        return np.asarray(np.array(odd, dtype=bool)[query.vocabulary] & bool(self.networks))

    def is_new_work(self, main_costs: np.ndarray) -> np.ndarray:
        """Return the mask of kernels that spend most of their time on work that is rare among the device's measured
        kernels.

        Args:
            main_costs: result of `KernelModel.main_costs`.
        """
        few = [bool(self.mainly) and self.mainly.get(cost, 0) < self.least for cost in COSTS]
        return np.asarray(np.array([*few, False])[main_costs])

    def _has_new(self, words: Iterable[str]) -> bool:
        """Return whether a word was never measured; for ops other than the anchor, one measured operator is enough."""
        return self._has_rare(word for word in words if " " in word) or any(word not in self.taught for word in words)

    def _has_rare(self, words: Iterable[str]) -> bool:
        return any(self.own.get(word, 0) < self.least for word in words)


def operators_with(query: Query) -> Counter[str]:
    """Count the distinct operators of a query with each word, see `Coverage`."""
    _, first = np.unique(query.keys, return_index=True)
    found: Counter[str] = Counter()
    attributes = [words for _, *words in query.forms]
    for sets, index in ((query.op_sets, query.vocabulary), (attributes, query.form)):
        for words, count in zip(sets, np.bincount(index[first], minlength=len(sets))):
            found.update(dict.fromkeys(words, int(count)))
    return +found  # `+` drops words that no entry has any more


def _is_op(word: str) -> bool:
    return not word.startswith(("dtype ", "dynamic"))


def _texts(words: Iterable[str]) -> set[str]:
    """Return the words that describe attributes whose value is a text."""
    return {word for word in words if not word.rpartition(" ")[2].isdigit()}


def ops_in(words: Iterable[str]) -> set[str]:
    """Return the names of ops in `words`, without the words for dtypes and dynamic shapes."""
    return {word for word in words if _is_op(word)}


def _sizes(queries: Iterable[Query]) -> dict[str, list[list[float]]]:
    found: dict[str, list[np.ndarray]] = {}
    for query in queries:
        anchors, index = np.unique([anchor for anchor, *_ in query.forms], return_inverse=True)
        of_entry = index[query.form]
        for at, anchor in enumerate(anchors):
            mine = query.features[of_entry == at][:, _SIZES]
            if len(mine):
                found.setdefault(str(anchor), []).extend((mine.min(axis=0), mine.max(axis=0)))
    return {anchor: [np.min(all_, axis=0).tolist(), np.max(all_, axis=0).tolist()] for anchor, all_ in found.items()}
