"""`FactorTable`: measurements with the factors that may determine their latency, one row each."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from op_profiler.dataset import Dataset, flat_rows
from op_profiler.dataset.draw import GroupDraw
from op_profiler.errors import DatasetError, OpProfilerError, UnknownNameError, check_known, needing
from op_profiler.measure.disturbance import disturbance_of
from op_profiler.measure.measurement import RESOURCE_FIELDS
from op_profiler.operators.operator import axis_sizes

if TYPE_CHECKING:
    import pandas

SETTINGS = ("threads", "cache", "precision", "executor", "parallel_type", "streams", *RESOURCE_FIELDS)
"""Settings that are kept fixed while another factor is analyzed."""

PLACE = ("device_key", "model_key")
"""Where a measurement ran: the device, and the model (empty outside a model)."""

_DISTURBED = "disturbed"

MOST_ROWS = 50_000
"""Largest number of measurements; if there are more, those of a random subset of the operators are used."""

_KEYS = ("operator_key", "operator_name", "anchor", "schedule_key", "origin", *PLACE, *SETTINGS)
_COLUMNS = (
    *(*_KEYS, "threads_effective", "op_names", "inputs", "params", "outputs", "attrs", "layouts", "structure"),
    *("flops", "bytes_read", "bytes_written", "arithmetic_intensity", "template", "tile", "split", "fuse", "reorder"),
    *("compute_at", "vectorize", "unroll", "parallel", "median_us", "ci_low_us", "ci_high_us", "rounds", "std_us"),
    *("error", "complete", "foreign_load", "disturbed_by"),
)


@dataclasses.dataclass(frozen=True)
class Factor:
    """A property of an operator, a schedule or a setting that may determine the latency.

    Attributes:
        level: ``operator``: the property differs only between operators; ``schedule``: between schedules of one
            operator; ``setting``: between measurements of one schedule.
        kind: ``number``: the values are ordered; ``category``: they are not, so there is no linear relation.
        unit: unit of a number; empty for a category.
    """

    name: str
    level: Literal["operator", "schedule", "setting"]
    kind: Literal["number", "category"]
    unit: str = ""


_FIXED = (
    Factor("input_size", "operator", "number", "elements of all activations read"),
    Factor("batch", "operator", "number", "leading dimension of the first activation"),
    Factor("input_channels", "operator", "number", "channels read"),
    Factor("output_channels", "operator", "number", "channels written"),
    Factor("kernel", "operator", "number", "elements of the window"),
    Factor("stride", "operator", "number", "elements"),
    Factor("past", "operator", "number", "tokens in a decoder's cache"),
    Factor("flops", "operator", "number", "operations a call"),
    Factor("bytes", "operator", "number", "bytes read and written a call"),
    Factor("arithmetic_intensity", "operator", "number", "FLOPs per byte"),
    Factor("template", "schedule", "category"),
    Factor("tile", "schedule", "number", "elements of the innermost tile, all spatial axes"),
    Factor("split", "schedule", "number", "elements of the inner part, all reduction axes"),
    Factor("fuse", "schedule", "number", "outer loops fused"),
    Factor("reorder", "schedule", "category"),
    Factor("compute_at", "schedule", "category"),
    Factor("vectorize", "schedule", "number", "lanes"),
    Factor("unroll", "schedule", "category"),
    Factor("parallel", "schedule", "category"),
    Factor("threads", "setting", "number", "threads"),
    Factor("cache", "setting", "category"),
    Factor("precision", "setting", "category"),
)
_AXES = {"tile": "elements of the tile along", "split": "inner elements of the split of"}


@dataclasses.dataclass(frozen=True)
class FactorTable:
    """Usable measurements with their factors.

    Attributes:
        frame: one row per measurement: its keys, ``latency_us`` (median), its 95 % interval ``low_us``, ``high_us``
            (NaN if unknown), ``work`` (FLOPs, or bytes for operators without FLOPs), `SETTINGS`, and a column per
            factor (NaN or None if a schedule does not have the factor).
        factors: factors by name; besides the fixed factors, a ``tile.<axis>`` and a ``split.<axis>`` for every axis.
        left_out: number of rows that were not used, by reason.
        not_drawn: number of usable rows that were left out because there are more than `MOST_ROWS`. Of each operator,
            either all rows or none are in the frame; a single operator has only its first rows in the frame.
    """

    frame: pandas.DataFrame
    factors: dict[str, Factor]
    left_out: dict[str, int]
    not_drawn: int = 0

    @property
    def drawn(self) -> str:
        """A note for the user if the frame is a sample of the usable measurements; otherwise empty."""
        if not self.not_drawn:
            return ""
        return (
            f"These are {self.frame['operator_key'].nunique():,} operators that were drawn by chance, the same ones "
            f"each time: {self.not_drawn:,} usable measurements are not in this."
        )

    def choose(self, names: Sequence[str]) -> list[Factor]:
        """Return the factors with these names, in their order.

        Raises:
            UnknownNameError: a name is not one of `factors`; the message gives the most similar name.
        """
        for name in names:
            check_known("factor", name, self.factors, f"There are: {', '.join(self.factors)}")
        return [self.factors[name] for name in names]

    def of_anchor(self, anchor: str) -> FactorTable:
        """Return the measurements of the operators of one anchor.

        Args:
            anchor: the compiler's name of the op, or its plain name such as ``nn.conv2d`` (`plain_anchor`).

        Raises:
            UnknownNameError: no operator has this anchor; the message names the most similar one.
        """
        found = [name for name in self.frame["anchor"].unique() if anchor in (name, plain_anchor(name))]
        if not found:
            raise UnknownNameError("anchor", anchor, sorted(self.frame["anchor"].unique()))
        return dataclasses.replace(self, frame=self.frame[self.frame["anchor"].isin(found)])


def plain_anchor(name: str) -> str:
    """Return an op's name without the parts that a change of its layout adds: ``nn.conv2d`` for
    ``nn.contrib_conv2d_NCHWc``."""
    return re.sub(r"contrib_|_NCHWc|_pack$", "", name)


def load_rows(
    db: str | None, file: Path | None, *, optional_db: bool = False, warn: Callable[[str], None] = lambda text: None
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows for `factor_table`, from a dataset, a Parquet file of ``op-profiler export``, or both.

    Args:
        db: SQLAlchemy URL of the dataset; None: no dataset.
        file: the Parquet file; None: no file.
        optional_db: whether to skip a dataset that cannot be opened; `warn` is then called with the reason.

    Raises:
        DatasetError: the file, or a dataset that is not optional, cannot be read.
    """
    from op_profiler.dataset.formats.parquet import parquet_rows

    if db is not None:
        try:
            dataset = Dataset.open(db, create=False, read_only=True)
        except OpProfilerError as error:
            if not optional_db:
                raise
            warn(str(error))
        else:
            with dataset:
                yield from flat_rows(dataset, columns=_COLUMNS)
    if file is not None:
        yield from parquet_rows(file, _COLUMNS)


def factor_table(rows: Iterable[Mapping[str, Any]], *, noisy: bool = False) -> FactorTable:
    """Return the usable measurements among rows of the flat table (`op_profiler.dataset.COLUMNS`).

    Args:
        noisy: whether to use disturbed times too.

    Raises:
        DatasetError: no measurement is usable.
        MissingPackageError: pandas is not installed.
    """
    with needing("pandas", "the analysis", extra="predict"):
        import pandas
    columns, draw, left_out = _Columns(), GroupDraw(MOST_ROWS), Counter[str]()
    for row in rows:
        reason = _reason_against(row, noisy=noisy)
        if reason is not None:
            left_out[reason] += 1
        elif draw.takes(row["operator_key"]):
            columns.add(_record(row))
            if gone := draw.dropped():
                columns.forget(gone)
    if gone := draw.rest():
        columns.forget(gone)
    if not columns.values:
        others = "; --include-noisy takes those that were disturbed, too" if left_out[_DISTURBED] else ""
        raise DatasetError(
            f"no usable measurement ({reasons_text(left_out) or 'there is none'}); measure some with op-profiler "
            f"collect, or name another dataset with --db or --file{others}"
        )
    frame = pandas.DataFrame(columns.values)
    axes = sorted(name for name in frame.columns if name.partition(".")[0] in _AXES and "." in name)
    factors = {factor.name: factor for factor in _FIXED}
    for name in axes:
        kind, _, axis = name.partition(".")
        factors[name] = Factor(name, "schedule", "number", f"{_AXES[kind]} {axis}")
    numbers = [name for name, factor in factors.items() if factor.kind == "number"]
    frame[numbers] = frame[numbers].astype("float64")
    return FactorTable(frame, factors, dict(left_out), draw.left_out)


class _Columns:
    """Records as columns; dicts with separate texts would need ten times as much memory.

    Attributes:
        values: by name, one value per record; None if a record has no value of the name.
    """

    def __init__(self) -> None:
        self.values: dict[str, list[Any]] = {}
        self._texts: dict[str, str] = {}
        self._count = 0

    def add(self, record: Mapping[str, Any]) -> None:
        for name in record:
            if name not in self.values:
                self.values[name] = [None] * self._count
        for name, column in self.values.items():
            value = record.get(name)
            column.append(self._texts.setdefault(value, value) if isinstance(value, str) else value)
        self._count += 1

    def forget(self, operators: Collection[str]) -> None:
        """Remove the records of operators."""
        left = [key not in operators for key in self.values["operator_key"]]
        self.values = {name: list(itertools.compress(column, left)) for name, column in self.values.items()}
        self._texts, self._count = {}, sum(left)


def reasons_text(left_out: Mapping[str, int]) -> str:
    """Return the numbers of rows by reason as text, the most frequent reason first."""
    return ", ".join(f"{count} {reason}" for reason, count in Counter(left_out).most_common())


def _reason_against(row: Mapping[str, Any], *, noisy: bool) -> str | None:
    """Return why a row is not used; None if it is used."""
    latency = row["median_us"]
    if row["error"] is not None or latency is None or not math.isfinite(latency) or latency <= 0:
        return "failed"
    if not row["complete"]:
        return "not complete"
    if row["origin"] == "vendor":
        return "of a vendor's kernel"
    return _DISTURBED if not noisy and disturbance_of(row["foreign_load"], row["disturbed_by"]) else None


def _record(row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = _interval(row)
    record = {name: "" if row.get(name) is None else row[name] for name in _KEYS}  # older files lack resources
    record["threads"] = row["threads"] or row["threads_effective"]
    record |= {"latency_us": row["median_us"], "low_us": low, "high_us": high}
    moved = (row["bytes_read"] or 0) + (row["bytes_written"] or 0)
    record["work"] = float(row["flops"] or moved or math.nan)
    record |= {"bytes": moved or None, "flops": row["flops"] or None}
    return record | _shapes(row) | _schedule(row)


def _interval(row: Mapping[str, Any]) -> tuple[float, float]:
    """Return the 95 % interval in microseconds: the stored interval, otherwise that of Student's t for two rounds or
    more, otherwise NaN."""
    if row["ci_low_us"] is not None and row["ci_high_us"] is not None:
        return float(row["ci_low_us"]), float(row["ci_high_us"])
    rounds, spread = row["rounds"] or 0, row["std_us"]
    if rounds < 2 or spread is None:
        return math.nan, math.nan
    from scipy.special import stdtrit

    half = float(stdtrit(rounds - 1, 0.975)) * spread / math.sqrt(rounds)
    return row["median_us"] - half, row["median_us"] + half


def _shapes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the factors of the operator, and keys of its families: operators that differ only in batch or extents."""
    inputs, outputs, layouts = row["inputs"] or [], row["outputs"] or [], row["layouts"] or {}
    shapes = [[int(d) for d in tensor["shape"]] for tensor in inputs]
    first = shapes[0] if shapes else []
    output = list(outputs[0]["shape"]) if outputs else []
    data = str(layouts.get("data_layout") or layouts.get("data") or "")
    out = str(layouts.get("out_layout") or layouts.get("out") or data)
    fixed = [row[name] for name in ("anchor", "op_names", "params", "attrs", "layouts", "structure")]
    types = [(tensor["dtype"], len(tensor["shape"])) for tensor in inputs]
    product = "dense" in str(row["anchor"]) or "matmul" in str(row["anchor"])
    past, shared = _without_past(row["attrs"] or [])
    strides, kernel = _attribute(row, "strides"), _attribute(row, "kernel_size")
    return {
        "input_size": sum(math.prod(shape) for shape in shapes) or None,
        "batch": first[0] if first else None,
        "input_channels": first[-1] if product and first else axis_sizes(first, data).get("C"),
        "output_channels": output[-1] if product and output else axis_sizes(output, out).get("C"),
        "kernel": math.prod(kernel) if kernel else None,
        "stride": strides[0] if strides else None,
        "past": past,
        "arithmetic_intensity": row["arithmetic_intensity"] or None,
        "family.batch": json.dumps([fixed, types, [shape[1:] for shape in shapes]]),
        "family.input_size": json.dumps([fixed, types, [shape[:1] for shape in shapes]]),
        "family.past": json.dumps([row["anchor"], row["op_names"], shared, types, shapes[:1]]),
    }


def _without_past(attrs: Sequence[Mapping[str, Any]]) -> tuple[int | None, list[dict[str, Any]]]:
    """Return the number of tokens in a decoder's cache that an operator reads, and its attributes without that
    number."""
    past = next((int(one["past"]) for one in attrs if one.get("past") is not None), None)
    return past, [{name: value for name, value in one.items() if name != "past"} for one in attrs]


def _attribute(row: Mapping[str, Any], name: str) -> list[int] | None:
    for attrs in row["attrs"] or []:
        value = attrs.get(name)
        if isinstance(value, (list, tuple)) and value:
            return [int(v) for v in value]
    return None


def _schedule(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: row[name] for name in ("template", "fuse", "reorder", "compute_at", "vectorize", "unroll")}
    values["parallel"] = row["parallel"]
    for name in _AXES:
        sizes = {axis: size for axis, size in (row[name] or {}).items() if size is not None}
        values |= {f"{name}.{axis}": size for axis, size in sizes.items()}
        values[name] = math.prod(sizes.values()) if sizes else None
    return values
