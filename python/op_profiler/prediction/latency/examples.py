"""`Examples`: the usable measurements of a dataset as arrays, to which predictors are fitted."""

from __future__ import annotations

import array
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from op_profiler.dataset.draw import GroupDraw
from op_profiler.errors import DatasetError
from op_profiler.frontends.sample import AROUND_SAMPLED, bytes_written_before, stays_cached
from op_profiler.measure.steadiness import FIRST_MEMORY_BYTES, PROBE_NAMES
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency.devices import OF_DEVICE, DeviceName, device_of, rows_of_file
from op_profiler.prediction.latency.scheduled import PREDICTED, OperatorByRule, key_of_row, operator_of
from op_profiler.prediction.latency.usable import COLUMNS as COLUMNS_OF_RULES
from op_profiler.prediction.latency.usable import DENORMAL, call_us, reason_against, with_disturbed

_OWN = (
    *("operator_key", "operator_name", "anchor", "op_names", "inputs", "params", "outputs", "attrs", "layouts"),
    *("structure", "flops", "bytes_read", "bytes_written", "threads", "core_set", "precision", "occurrences"),
    *("launches", "whole_model_us", "ci_low_us", "ci_high_us", "steady_us"),
)
COLUMNS = tuple(dict.fromkeys((*_OWN, *OF_DEVICE, *COLUMNS_OF_RULES)))
"""Columns of the flat table that `examples_of` reads."""
MOST_ROWS = 50_000
"""Limit for networks and, separately, for batches of sampled operators; a fit uses about two kilobytes per row."""
REMEASURED = "measured again with a known distance of the cores"
NOT_DRAWN = f"beyond {MOST_ROWS:,}: whole models are drawn by chance, the same ones each time"
_MAY_MISS = ("ci_low_us", "ci_high_us", "whole_model_us", "steady_us")
_NUMBERS = 13
"""Number of columns of a row before the times of the reference kernels; see `_KeptExamples.add`."""
_HAS_CORE_DISTANCE = _NUMBERS - 2
"""The column that states whether the distance of the cores is known (`op_profiler.measure.host_state`)."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Examples:
    """Measurements of operators in models; each array has one entry per measurement unless stated otherwise.

    Attributes:
        operators: the distinct operators.
        launches: number of kernels that each of `operators` launches on a GPU; 0 if unknown.
        operator: index into `operators`.
        threads: requested thread count.
        latency_us: median over the rounds, without the call overhead.
        half_width: half of the 95 % interval of the median, relative to the median.
        steady_us: time in the quietest tenth of the rounds (`Measurement.steady_us`); NaN if unknown.
        device: index into `devices`.
        model: index into `models`: the model or the batch of sampled operators in which the operator ran.
        occurrences: number of calls of the operator in that model.
        models: names of the models; `sampled`: whether each is a batch of sampled operators.
        traffic_bytes: bytes that all calls of that model read and write, and that therefore pass through the caches
            between two calls; includes the calls of rows that are not used.
        working_set_bytes: bytes that the model would read and write if it called each operator once.
        reference_us: times of the reference kernels during the measurement, shape (entries, reference kernels); NaN if
            unknown.
        reference_bytes: size of the data of the reference kernel for memory; compare only times of equal sizes.
        whole_model_us: median of the whole model at that thread count; NaN if unknown.
        left_out: number of rows that are not used, by reason.
        loops: properties of the loops of `operators` (`op_profiler.prediction.latency.loops.loops_of`); None if they
            were not read.
    """

    operators: list[Operator]
    launches: np.ndarray
    operator: np.ndarray
    threads: np.ndarray
    latency_us: np.ndarray
    half_width: np.ndarray
    steady_us: np.ndarray
    device: np.ndarray
    devices: list[DeviceName]
    model: np.ndarray
    occurrences: np.ndarray
    models: list[str]
    sampled: np.ndarray
    traffic_bytes: np.ndarray
    working_set_bytes: np.ndarray
    reference_us: np.ndarray
    reference_bytes: np.ndarray
    whole_model_us: np.ndarray
    left_out: dict[str, int]
    loops: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.latency_us)

    def where(self, mask: np.ndarray) -> Examples:
        """Return the entries that a mask selects; operators, devices and models are not changed."""
        names = ["operator", "threads", "latency_us", "half_width", "steady_us", "device", "model", "occurrences"]
        names += ["traffic_bytes", "working_set_bytes", "reference_us", "reference_bytes", "whole_model_us"]
        return dataclasses.replace(self, **{name: getattr(self, name)[mask] for name in names})

    @property
    def only_device(self) -> DeviceName:
        """The device of the entries, if all are of one device."""
        return self.devices[int(self.device[0])]

    @property
    def run(self) -> np.ndarray:
        """A number for each entry, equal for entries of the same model and thread count."""
        _, number = np.unique(np.stack([self.model, self.threads]), axis=1, return_inverse=True)
        return np.asarray(number.ravel())

    @functools.cached_property
    def workload(self) -> np.ndarray:
        """A number for each entry, equal for entries of the same operator, whatever their schedules."""
        _, number = np.unique([operator.workload for operator in self.operators], return_inverse=True)
        return np.asarray(number.ravel()[self.operator])

    @functools.cached_property
    def by_rule(self) -> np.ndarray:
        """Mask of the `models` in which the rule (``--schedules rule``) chose the schedule of at least one operator."""
        ruled = np.array([isinstance(operator, OperatorByRule) for operator in self.operators], dtype=bool)
        found = np.zeros(len(self.models), dtype=bool)
        found[self.model[ruled[self.operator]]] = True
        return found

    def network_runs(self) -> Iterator[np.ndarray]:
        """Yield the indices of each network's entries at each thread count, if the time of the whole model is known."""
        for model in np.flatnonzero(~self.sampled):
            for threads in np.unique(self.threads):
                mine = np.flatnonzero((self.model == model) & (self.threads == threads))
                if len(mine) and np.isfinite(self.whole_model_us[mine][0]):
                    yield mine

    def of_device(self, key: str) -> Examples:
        """Return the entries of one device.

        Raises:
            DatasetError: no measurement is of this device; the message lists the devices.
        """
        for index, device in enumerate(self.devices):
            if device.key == key:
                return self.where(self.device == index)
        there = "; ".join(f"{d.key} ({d.processor}, {d.target})" for d in self.devices) or "none"
        raise DatasetError(f"the dataset has no measurements of device {key}; there are: {there}")


def load_examples(
    *,
    db: str | None = None,
    file: Path | None = None,
    device: str | None = None,
    noisy: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> Examples:
    """Return the usable measurements of a dataset, of a Parquet file of ``op-profiler export``, or of both.

    Args:
        device: key of the device whose rows are used; None for all devices, which share `MOST_ROWS`.
        noisy: whether disturbed times are used.
        note: called with a text if disturbed times are used, or if only a part of the rows is used.

    Raises:
        DatasetError: the dataset or the file cannot be read.
    """
    from op_profiler.dataset import Dataset, flat_rows

    def rows() -> Iterator[Mapping[str, Any]]:
        if file is not None:
            yield from (row for row in rows_of_file(file, COLUMNS) if device in (None, row["device_key"]))
        if db is not None:
            origins = " or ".join(f"origin = '{origin}'" for origin in PREDICTED)
            where = f"({origins})" if device is None else f"({origins}) and device_key = '{device}'"
            with Dataset.open(db, create=False, read_only=True) as dataset:
                yield from flat_rows(dataset, columns=COLUMNS, where=where)

    found = examples_of(with_disturbed(rows(), note) if noisy else rows())
    if unused := found.left_out.get(NOT_DRAWN):
        note(f"{len(found):,} measurements are used, and {unused:,} are not ({NOT_DRAWN})")
    return found


def examples_of(rows: Iterable[Mapping[str, Any]]) -> Examples:
    """Return the usable measurements among rows of the flat table.

    Failures, checkpoints, rows under background load or with unequal cores, and tuned schedules are not used, nor are
    operators outside of models, because the caches are in another state there than in a network. Of sweeps, only rows
    with the default settings of the machine are used, and one core set for each model and thread count. If there are
    more than `MOST_ROWS` rows, a random subset of the models is used. If a model computes with denormal numbers in one
    run, its rows of all runs are excluded, because earlier versions did not record denormal numbers.
    """
    left_out: dict[str, int] = {}
    denormal: set[str] = set()
    kept = _KeptExamples()
    for row in rows:
        reason = reason_against(row)
        if row["origin"] in PREDICTED and row["model_key"]:
            kept.count_traffic(row)
        if reason is None:
            kept.add(row)
        else:
            left_out[reason] = left_out.get(reason, 0) + 1
        if reason == DENORMAL:
            denormal.add(row["model_name"])
    kept.end()
    if gone := kept.forget(kept.keys_of(denormal)):
        left_out[DENORMAL] += gone
    if kept.not_drawn:
        left_out[NOT_DRAWN] = kept.not_drawn
    return kept.examples(left_out)


class _KeptExamples:
    """Used rows, each stored as a few numbers, because millions of rows with their texts would not fit into memory."""

    def __init__(self) -> None:
        self._draws = {sampled: GroupDraw(MOST_ROWS) for sampled in (False, True)}
        self._numbers = array.array("d")
        self._operators: dict[tuple[str, bool], Operator] = {}
        self._launches: dict[tuple[str, bool], int] = {}
        self._devices: dict[str, DeviceName] = {}
        self._models: dict[str, tuple[str, bool]] = {}
        self._moved: dict[str, dict[tuple[str, bool], tuple[int, int]]] = {}
        self._places = [dict[Any, int]() for _ in ("operator", "device", "model", "cores")]

    @property
    def not_drawn(self) -> int:
        """Number of rows beyond `MOST_ROWS`."""
        return sum(draw.left_out for draw in self._draws.values())

    def count_traffic(self, row: Mapping[str, Any]) -> None:
        """Count the bytes that an operator moves in a model, and its calls; also if its time is not used."""
        model, key = row["model_key"], key_of_row(row)
        if key in self._moved.get(model, ()) or not self._draws[row["model_source"] == "sample"].wants(model):
            return
        if row["model_source"] == "sample" and row["op_names"] in AROUND_SAMPLED:
            return  # counted with the sampled operator: included data has no rows of ops around it
        operator = self._operators.get(key) or operator_of(row)
        moved = operator.bytes_read + operator.bytes_written
        if row["model_source"] == "sample":
            moved += bytes_written_before(operator, row["model_name"])
        self._moved.setdefault(model, {})[key] = (moved, row["occurrences"] or 1)

    def add(self, row: Mapping[str, Any]) -> None:
        """Store a row, unless its model is not in the random subset."""
        draw = self._draws[row["model_source"] == "sample"]
        if not draw.takes(row["model_key"]):
            return
        operator = key_of_row(row)
        if operator not in self._operators:
            self._operators[operator] = operator_of(row)
            self._launches[operator] = len(row["launches"] or ())
        if row["device_key"] not in self._devices:
            self._devices[row["device_key"]] = device_of(row)
        if row["model_key"] not in self._models:
            self._models[row["model_key"]] = (row["model_name"], row["model_source"] == "sample")
        keys = (operator, row["device_key"], row["model_key"], tuple(row["core_set"] or ()))
        self._numbers.extend(places.setdefault(key, len(places)) for places, key in zip(self._places, keys))
        self._numbers.extend((row["threads"], row["occurrences"] or 1, row["median_us"] - call_us(row)))
        self._numbers.extend(np.nan if row[name] is None else row[name] for name in _MAY_MISS)
        self._numbers.append("exchange_us" in (row["timing_details"] or {}))
        self._numbers.append(_reference_bytes(row))
        self._numbers.extend(_reference_us(row))
        if gone := draw.dropped():
            self.forget(gone)

    def end(self) -> None:
        """Finish the random subset of the models; no row may be added afterwards."""
        for draw in self._draws.values():
            self.forget(draw.rest())

    def _table(self) -> np.ndarray:
        return np.frombuffer(self._numbers).reshape(-1, _NUMBERS + len(PROBE_NAMES))

    def keys_of(self, names: Set[str]) -> set[str]:
        """Return the keys of all models with one of these names; a model with other weights has another key."""
        return {key for key, (name, _) in self._models.items() if name in names}

    def forget(self, models: Set[str]) -> int:
        """Remove models, and operators, devices and core sets that occur in no other model; renumber the rest.

        Returns:
            Number of removed rows.
        """
        for key in models:
            self._moved.pop(key, None)
        lost = [self._places[2][key] for key in models if key in self._places[2]]
        if not lost:
            return 0
        numbers = self._table()
        rows = len(numbers)
        numbers = numbers[~np.isin(numbers[:, 2], lost)]
        for column, places in enumerate(self._places):
            keys = list(places)
            left, numbers[:, column] = np.unique(numbers[:, column], return_inverse=True)
            self._places[column] = {keys[int(place)]: number for number, place in enumerate(left)}
        self._operators = {key: self._operators[key] for key in self._places[0]}
        self._devices = {key: self._devices[key] for key in self._places[1]}
        self._models = {key: self._models[key] for key in self._places[2]}
        self._numbers = array.array("d", numbers.tobytes())
        return rows - len(numbers)

    def examples(self, left_out: dict[str, int]) -> Examples:
        """Return the rows of one core set per model and thread count, without rows that were measured again with known
        core distances."""
        numbers = self._table()
        for reason, chosen in (("on other cores", self._on_one_core_set), (REMEASURED, self._with_core_distance)):
            mine = chosen(numbers)
            if not mine.all():
                left_out[reason] = int((~mine).sum())
                numbers = numbers[mine]
        launched = [(operator, self._launches[key]) for key, operator in self._operators.items()]
        operator, operators = _renumbered(numbers[:, 0], launched)
        device, devices = _renumbered(numbers[:, 1], list(self._devices.values()))
        model, models = _renumbered(numbers[:, 2], [(key, *about) for key, about in self._models.items()])
        occurrences, latency, low, high, whole, quiet = (numbers[:, n].copy() for n in range(5, _HAS_CORE_DISTANCE))
        moved = [self._moved[key].values() for key, _, _ in models]
        traffic = np.array([sum(size * calls for size, calls in one) for one in moved], dtype=np.float64)
        working_set = np.array([sum(size for size, _ in one) for one in moved], dtype=np.float64)
        return Examples(
            operators=[one for one, _ in operators],
            launches=np.array([launches for _, launches in operators], dtype=np.int64),
            operator=operator,
            threads=numbers[:, 4].astype(np.int64),
            latency_us=latency,
            half_width=(high - low) / 2 / np.maximum(latency, 1e-9),
            steady_us=quiet,
            device=device,
            devices=devices,
            model=model,
            occurrences=occurrences.astype(np.int64),
            models=[name for _, name, _ in models],
            sampled=np.array([sampled for _, _, sampled in models], dtype=bool),
            traffic_bytes=traffic[model],
            working_set_bytes=working_set[model],
            reference_us=numbers[:, _NUMBERS:].copy(),
            reference_bytes=numbers[:, _NUMBERS - 1].astype(np.int64),
            whole_model_us=whole,
            left_out=left_out,
        )

    def _with_core_distance(self, numbers: np.ndarray) -> np.ndarray:
        """Return the mask of the rows to use among repeated measurements, shape (rows,).

        If an operator was measured several times in one model or in several batches, only rows with a known distance of
        the cores are used, if there are any: at two threads the times of other rows may be 1.5 times too long.
        """
        places: dict[Any, int] = {}
        called = [stays_cached(name) if sampled else name for name, sampled in self._models.values()]
        of_model = np.array([places.setdefault(one, len(places)) for one in called], dtype=np.intp)
        operator, device, model, _, threads = numbers[:, :5].astype(np.intp).T
        _, group = np.unique(np.stack([operator, device, of_model[model], threads]), axis=1, return_inverse=True)
        group, has_distance = group.ravel(), numbers[:, _HAS_CORE_DISTANCE] > 0
        return np.asarray(has_distance | (np.bincount(group, has_distance) == 0)[group])

    def _on_one_core_set(self, numbers: np.ndarray) -> np.ndarray:
        """Return the mask of the rows of one core set for each model and thread count, shape (rows,).

        If a model was measured on several core sets of one size, the set that most models were measured on is used.
        """
        rows = numbers[:, :5].astype(np.intp)
        runs, run = np.unique(rows[:, [1, 4, 2, 3]], axis=0, return_inverse=True)  # device, threads, model, cores
        sets, counted = np.unique(runs[:, [0, 1, 3]], axis=0, return_counts=True)
        models = dict(zip(map(tuple, sets.tolist()), counted.tolist()))
        cores = list(self._places[3])
        chosen: dict[tuple[int, int, int], tuple[int, tuple[int, ...], int]] = {}
        for device, threads, model, mine in runs.tolist():
            rank = (-models[device, threads, mine], cores[mine], mine)
            chosen[device, threads, model] = min(chosen.get((device, threads, model), rank), rank)
        kept = np.array([chosen[device, threads, model][2] == mine for device, threads, model, mine in runs.tolist()])
        return np.asarray(kept[run.reshape(-1)], dtype=bool) if len(kept) else np.zeros(0, dtype=bool)


def _renumbered(places: np.ndarray, items: Sequence[T]) -> tuple[np.ndarray, list[T]]:
    """Return the index of each place among the distinct places, by first use, and the items at the distinct places."""
    distinct, first, inverse = np.unique(places.astype(np.intp), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return rank[inverse.reshape(-1)], [items[n] for n in distinct[order]]


def _reference_us(row: Mapping[str, Any]) -> list[float]:
    found = (row["timing_details"] or {}).get("gauge_us") or {}
    return [float(found.get(name, np.nan)) for name in PROBE_NAMES]


def _reference_bytes(row: Mapping[str, Any]) -> int:
    found = (row["timing_details"] or {}).get("gauge_bytes") or {}
    return int(found.get("memory", FIRST_MEMORY_BYTES))
