"""Base class of formats for viewers that show runs of models; these formats can be exported, not imported."""

from __future__ import annotations

import abc
import collections
import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from op_profiler import json_text
from op_profiler.dataset.formats.format import Exported, Format
from op_profiler.errors import UsageError
from op_profiler.files import whole_file
from op_profiler.operators.titles import title_of
from op_profiler.option_values import threads_text

if TYPE_CHECKING:
    from op_profiler.dataset.store import Dataset

_SAME = ("model_key", "device_key", "threads", "cache", "core_set")
_COLUMNS = (
    *_SAME,
    *("model_name", "batch_size", "precision", "run_label", "processor", "operator_key", "op_names", "anchor"),
    *("template", "outputs", "flops", "bytes_read", "bytes_written", "positions", "layers", "fx_nodes", "samples_us"),
    *("median_us", "error", "measured_at"),
)


@dataclasses.dataclass(frozen=True)
class TimedCall:
    """One call of an operator in a run of a model.

    Attributes:
        title: title of the operator, from its op names.
        layers: layers of the user's model in this call, the heavy op's layer first; empty if unknown.
        fx_nodes: nodes of the user's torch.export program in this call, the heavy op's node first; empty if unknown.
        us: median of this call over the rounds in microseconds; the operator's median if no rounds are stored.
        row: row of the operator in the flat table.
        explained: fields of the operator's latest `OperatorExplanation`; None if it has none at this thread count.
    """

    title: str
    layers: Sequence[str]
    fx_nodes: Sequence[str]
    us: float
    row: dict[str, Any]
    explained: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class ModelRun:
    """A run of a model at one thread count on one device, with its calls in execution order."""

    title: str
    calls: Sequence[TimedCall]


class ModelFormat(Format):
    """Base class of formats that write runs of models as JSON; a subclass implements `content`."""

    reads = False
    takes_device = False

    @abc.abstractmethod
    def content(self, runs: Sequence[ModelRun]) -> Any:
        """Return the JSON-serializable content of the file; raise UsageError if it cannot contain all these runs."""

    def read_into(self, dataset: Dataset, path: Path, **_: Any) -> NoReturn:
        """Raise UsageError, because formats for viewers cannot be imported."""
        raise UsageError(f"{path}: files of this format are for viewers; import reads csv, jsonl and parquet")

    def write_from(
        self, dataset: Dataset, path: Path, *, where: str | None = None, table: str = "measurements"
    ) -> Exported:
        """Write the runs of the selected rows; rows without a time, or outside a model, are counted as left out."""
        from op_profiler.dataset.flat import flat_rows

        left_out: collections.Counter[str] = collections.Counter()
        found: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
        older = 0
        for row in flat_rows(dataset, where=where, columns=_COLUMNS):
            if not row["positions"]:
                left_out["no model calls it"] += 1
            elif row["median_us"] is None:
                left_out["a failure, for which the format has no words"] += 1
            else:
                run = found.setdefault(tuple(json.dumps(row[name]) for name in _SAME), {})
                before = run.setdefault(row["operator_key"], row)
                older += before is not row
                run[row["operator_key"]] = max(before, row, key=lambda one: str(one["measured_at"]))
        if older:
            left_out["another one of its operator in the same run is newer"] = older
        runs = [_run(list(rows.values()), dataset) for rows in found.values()]
        text = json_text.dumps(self.content(runs), indent=1)
        with whole_file(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
        return Exported(sum(map(len, found.values())), dict(left_out))


def _run(rows: Sequence[dict[str, Any]], dataset: Dataset) -> ModelRun:
    from op_profiler.dataset.explanations import explanations_of

    first = rows[0]
    of_model = {key: one for key, (_, one) in explanations_of(dataset, first["model_key"]).items()}
    explained = {key: one for key, one in of_model.items() if one["threads"] == first["threads"]}
    words = [first["model_name"], f"batch {first['batch_size']}", first["precision"], first["run_label"]]
    words += [
        threads_text(first["threads"]) if first["threads"] else "",
        first["cache"],
        first["processor"],
    ]
    calls = {
        position: _call(row, at, explained.get(row["operator_key"]))
        for row in rows
        for at, position in enumerate(row["positions"])
    }
    return ModelRun(", ".join(filter(None, words)), [calls[position] for position in sorted(calls)])


def _call(row: dict[str, Any], at: int, explained: dict[str, Any] | None) -> TimedCall:
    samples = [one[at] for one in row["samples_us"] or () if at < len(one)]
    known = {name: (row[name] or ())[at : at + 1] for name in ("layers", "fx_nodes")}
    return TimedCall(
        title=title_of(row["op_names"]),
        us=statistics.median(samples) if samples else row["median_us"],
        row=row,
        explained=explained,
        **{name: calls[0] if calls else () for name, calls in known.items()},
    )
