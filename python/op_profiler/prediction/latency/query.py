"""`Query`: the operators to predict, as arrays."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from op_profiler.operators.cost import HEAVY
from op_profiler.operators.describe import calls_power
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency.features import KINDS, NAMES, matrix, work_of
from op_profiler.prediction.latency.roofline import Work
from op_profiler.prediction.latency.scheduled import OperatorByRule
from op_profiler.prediction.latency.traffic import NAMES as LOOP_NAMES

SETTING_NAMES = ("threads", "traffic", "working_set", "between_calls", "network", "calls", "by_rule")
"""Settings in `Query.columns`, after the columns of the operator: thread count; bytes that all calls of the model move;
bytes if each operator of the model were called once; bytes between two calls of this operator; whether the model is a
network (1) or a batch of sampled operators (0); log2 of the number of calls; whether the rule chose the schedule. Bytes
are rounded to powers of two: exact numbers would identify a model, and trees would memorize the model's error."""
_ARRAYS = ("keys", "features", "loops", "work", "threads", "traffic_bytes", "working_set_bytes", "network", "calls")
_KEPT = 1 << 16
_USUAL_DTYPE = "float32"
_BY_RULE = "schedule by rule"
_DIGITS = re.compile(r"\d+")
K = TypeVar("K", bound=Hashable)


@dataclasses.dataclass(frozen=True)
class Query:
    """Operators with their settings, one entry per operator in each array.

    Attributes:
        keys: workload keys as numbers, uint64.
        features: shape (entries, len(NAMES)), float32; see `op_profiler.prediction.latency.features`.
        loops: shape (entries, columns), float32: `NAMES` of `op_profiler.prediction.latency.traffic` for a processor,
            and of `op_profiler.prediction.latency.launched` for a GPU. NaN if unknown.
        work: operations, bytes read and written, and transcendental functions, shape (entries, 3).
        threads: thread count.
        traffic_bytes: bytes that all calls of the operator's model read and write, which determine how cold the caches
            are.
        working_set_bytes: bytes that the model would read and write if it called each of its operators once: an upper
            limit of what stays in a cache.
        network: whether the model is a network, not a batch of sampled operators.
        calls: number of calls of the operator in the model; the weights of a recurrent cell stay in the cache.
        vocabulary: index of the operator's set of op names in `op_sets`.
        op_sets: distinct sets of op names with the dtypes of their tensors.
        form: index of the operator's anchor, with its attributes, in `forms`.
        forms: distinct anchors, each with words for its attributes: for a text, the text without digits; for integers,
            the power of two of the largest one. Floating-point attributes do not change loops and are omitted.
    """

    keys: np.ndarray
    features: np.ndarray
    loops: np.ndarray
    work: np.ndarray
    threads: np.ndarray
    traffic_bytes: np.ndarray
    working_set_bytes: np.ndarray
    network: np.ndarray
    calls: np.ndarray
    vocabulary: np.ndarray
    op_sets: tuple[frozenset[str], ...]
    form: np.ndarray
    forms: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(
        cls,
        operators: Sequence[Operator],
        *,
        threads: int | np.ndarray = 1,
        traffic_bytes: float | np.ndarray = 0.0,
        working_set_bytes: float | None = None,
        calls: int | np.ndarray = 1,
        loops: np.ndarray | None = None,
    ) -> Query:
        """Return a query for operators.

        Args:
            threads, traffic_bytes, calls: see the attributes; one value for all operators, or one for each.
            working_set_bytes: None if it equals `traffic_bytes`, as in a model that calls each operator once.
            loops: result of `op_profiler.prediction.latency.loops.loops_of`; None if unknown.
        """
        count = len(operators)
        sets: dict[frozenset[str], int] = {}
        vocabulary = [sets.setdefault(_words(operator), len(sets)) for operator in operators]
        forms: dict[tuple[str, ...], int] = {}
        form = [forms.setdefault(_form(operator), len(forms)) for operator in operators]
        traffic = np.broadcast_to(np.asarray(traffic_bytes, dtype=np.float64), (count,))
        return cls(
            keys=np.fromiter((int(o.key, 16) for o in operators), dtype=np.uint64, count=count),
            features=matrix(operators),
            loops=unknown_loops(count) if loops is None else loops,
            work=np.array([_work(operator) for operator in operators], dtype=np.float64).reshape(count, 3),
            threads=np.broadcast_to(np.asarray(threads, dtype=np.int64), (count,)),
            traffic_bytes=traffic,
            working_set_bytes=traffic if working_set_bytes is None else np.full(count, float(working_set_bytes)),
            network=np.ones(count, dtype=bool),
            calls=np.broadcast_to(np.asarray(calls, dtype=np.int64), (count,)),
            vocabulary=np.array(vocabulary, dtype=np.intp),
            op_sets=tuple(sets),
            form=np.array(form, dtype=np.intp),
            forms=tuple(forms),
        )

    @classmethod
    def joined(cls, queries: Sequence[Query]) -> Query:
        """Return the entries of one or more queries, one query after the other."""
        if len(queries) == 1:
            return queries[0]
        queries = _with_loops_alike(queries)
        arrays = {name: np.concatenate([getattr(query, name) for query in queries]) for name in _ARRAYS}
        vocabulary, op_sets = _joined([(query.vocabulary, query.op_sets) for query in queries])
        form, forms = _joined([(query.form, query.forms) for query in queries])
        return cls(**arrays, vocabulary=vocabulary, op_sets=op_sets, form=form, forms=forms)

    def take(self, indices: np.ndarray) -> Query:
        """Return the entries that indices or a mask select."""
        if indices.dtype == bool and indices.all():
            return self
        names = (*_ARRAYS, "vocabulary", "form")
        return dataclasses.replace(self, **{name: getattr(self, name)[indices] for name in names})

    def at(self, threads: int) -> Query:
        """Return the same operators at another thread count."""
        return dataclasses.replace(self, threads=np.full(len(self), threads))

    @property
    def has_loops(self) -> np.ndarray:
        """Mask of the entries whose loops are known."""
        return np.asarray(np.isfinite(self.loops).all(axis=1))

    def without_loops(self) -> Query:
        """Return the same operators without their loops."""
        return dataclasses.replace(self, loops=np.full_like(self.loops, np.nan))

    def sampled(self) -> Query:
        """Return the same operators with the settings of a batch of sampled operators, in which each is called once."""
        return dataclasses.replace(
            self,
            working_set_bytes=self.traffic_bytes,
            network=np.zeros(len(self), dtype=bool),
            calls=np.ones(len(self), dtype=np.int64),
        )

    @functools.cached_property
    def columns(self) -> np.ndarray:
        """Columns of operators and settings without loops, shape (entries, len(NAMES) + len(SETTING_NAMES)),
        float32."""
        amounts = self.traffic_bytes, self.working_set_bytes, self.between_bytes, self.calls
        *moved, calls = (np.log2(np.maximum(amount, 1.0)) for amount in amounts)
        settings = np.stack([self.threads, *np.round(moved), self.network, calls, self.by_rule], axis=1)
        return np.concatenate([self.features, settings.astype(np.float32)], axis=1)

    @property
    def by_rule(self) -> np.ndarray:
        """Mask of the operators whose schedules the rule chose."""
        return np.array([_BY_RULE in words for words in self.op_sets], dtype=bool)[self.vocabulary]

    @property
    def between_bytes(self) -> np.ndarray:
        """Bytes that the model reads and writes between two calls of each entry."""
        return self.traffic_bytes / self.calls

    @property
    def amounts(self) -> Work:
        """The attribute `work` with a name for each of its columns."""
        return Work(*self.work.T)

    @property
    def kinds(self) -> np.ndarray:
        """Index into `op_profiler.prediction.latency.features.KINDS` of each entry."""
        return np.argmax(self.features[:, : len(KINDS)], axis=1)

    def column(self, name: str) -> np.ndarray:
        """Return the column of `features` with this name, one of `NAMES`."""
        values: np.ndarray = self.features[:, NAMES.index(name)]
        return values


def unknown_loops(count: int, columns: int = len(LOOP_NAMES)) -> np.ndarray:
    """Return `Query.loops` for operators with unknown loops; the array uses no memory and must not be modified."""
    return np.broadcast_to(np.float32(np.nan), (count, columns))


def _joined(parts: Sequence[tuple[np.ndarray, tuple[K, ...]]]) -> tuple[np.ndarray, tuple[K, ...]]:
    """Merge tuples of distinct items; return indices into the tuple of all distinct items, and this tuple."""
    all_: dict[K, int] = {}
    places = [np.array([all_.setdefault(one, len(all_)) for one in distinct], dtype=np.intp) for _, distinct in parts]
    return np.concatenate([place[index] for place, (index, _) in zip(places, parts)]), tuple(all_)


def _with_loops_alike(queries: Sequence[Query]) -> Sequence[Query]:
    """Return the queries with equally many loop columns: as many as a query with known loops has.

    The loops of queries with another number of columns become unknown.
    """
    if len({query.loops.shape[1] for query in queries}) == 1:
        return queries
    first = queries[0].loops.shape[1]  # used if no query has known loops
    columns = next((query.loops.shape[1] for query in queries if query.has_loops.any()), first)
    return [
        query
        if query.loops.shape[1] == columns
        else dataclasses.replace(query, loops=unknown_loops(len(query), columns))
        for query in queries
    ]


_work = functools.lru_cache(maxsize=_KEPT)(work_of)


@functools.lru_cache(maxsize=_KEPT)
def _words(operator: Operator) -> frozenset[str]:
    """Return the words that measured operators must cover before a predictor can estimate an operator.

    These are its ops, the dtypes of its tensors, the heavy op together with its dtype, whether a shape is dynamic,
    whether a power is a function call, and whether the rule chose its schedule. A measured int8 cast does not cover an
    int8 convolution, and a measured square does not cover a cube.
    """
    dtypes = {f"dtype {t.dtype}" for t in (*operator.inputs, *operator.params, *operator.outputs)}
    dynamic = any(d < 0 for t in (*operator.inputs, *operator.params, *operator.outputs) for d in t.shape)
    first = operator.inputs[0].dtype if operator.inputs else _USUAL_DTYPE
    words = {*operator.op_names, *dtypes}
    if operator.anchor in HEAVY and first != _USUAL_DTYPE:
        words.add(f"{operator.anchor} of {first}")
    if dynamic:
        words.add("dynamic shape")
    if any(map(calls_power, operator.structure.split(";"))):
        words.add("power by a function")
    if isinstance(operator, OperatorByRule):
        words.add(_BY_RULE)
    return frozenset(words)


@functools.lru_cache(maxsize=_KEPT)
def _form(operator: Operator) -> tuple[str, ...]:
    names = operator.op_names
    attrs = operator.attrs[names.index(operator.anchor)] if operator.anchor in names else {}
    words = ((name, _attribute(value)) for name, value in attrs.items())
    return operator.anchor, *(f"{operator.anchor} {name} {word}" for name, word in words if word is not None)


def _attribute(value: Any) -> str | None:
    """Return the value of an attribute as a word; None if it carries no information."""
    if isinstance(value, str):
        return _DIGITS.sub("", value)
    numbers = np.ravel(value) if np.size(value) else np.zeros(0)
    return str(int(np.abs(numbers).max()).bit_length()) if numbers.size and numbers.dtype.kind in "iub" else None
