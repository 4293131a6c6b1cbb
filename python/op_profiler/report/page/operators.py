"""Operators of a model on a page: times, loops and factors."""

from __future__ import annotations

import ast
import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.analysis.turnaround import find_knee
from op_profiler.dataset import queries
from op_profiler.measure.counters import EVENT_NAMES, GPU_SHARE_NAMES
from op_profiler.operators.titles import title_of
from op_profiler.report.page.document import (
    Alone,
    ExplanationPart,
    LoopPart,
    OperatorPart,
    SchedulePart,
    Time,
    TurnaroundPart,
)
from op_profiler.report.page.explanations import explained_of

if TYPE_CHECKING:
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.row import StoredMeasurement
    from op_profiler.measure.measurement import Cache, Measurement
    from op_profiler.operators.operator import Operator, TensorSpec
    from op_profiler.schedules.factors import Factors
    from op_profiler.schedules.schedule import Schedule

_MOST_ROUNDS = 200
_STATES: tuple[Cache, ...] = ("hot", "cold")


_KINDS = {"range": "serial", "grid": "serial", "serial": "serial", "unroll": "unrolled", "thread_binding": "bound"}
_MOST_CHARACTERS = 300


def operators_of(
    dataset: Dataset,
    model_key: str,
    operators: Sequence[tuple[Operator, tuple[int, ...]]],
    measured: Mapping[int, Mapping[str, StoredMeasurement]],
    device_key: str | None,
) -> list[OperatorPart]:
    """Return the page's data of each operator, in the order of their first calls.

    Args:
        operators: distinct operators, each with the positions of its calls.
        measured: measurements in the model, by thread count and workload key.
        device_key: key of the device whose measurements in isolation are shown; None if the device is unknown.
    """
    code, lines = (_known(dataset, model_key, column) for column in ("code", "source_lines"))
    layers = dataset.layers_of(model_key)
    explained = explained_of(dataset, model_key)
    alone: dict[str, list[Alone]] = {}
    for threads in measured:
        for state in _STATES:
            rows = dataset.measurements_of(model_key, threads=threads, cache=state)
            for key, row in rows.items():
                if row.device_key == device_key and row.measurement.median_us is not None:
                    alone.setdefault(key, []).append(_alone(row))
    return [
        _part(
            operator,
            positions,
            {n: rows[operator.key] for n, rows in measured.items() if operator.key in rows},
            alone.get(operator.key, []),
            code.get(operator.key),
            [list(names) for names in layers.get(operator.key, ())],
            list(dict.fromkeys(line for call in lines.get(operator.key, ()) for line in call)),
            explained.get(operator.key),
        )
        for operator, positions in operators
    ]


def _known(dataset: Dataset, model_key: str, column: str) -> dict[str, Any]:
    """Return a column of a model's operators by workload key, where it is known."""
    return {row["operator_key"]: row[column] for row in dataset.rows(queries.known(model_key, column))}


def _part(
    operator: Operator,
    positions: tuple[int, ...],
    rows: Mapping[int, StoredMeasurement],
    alone: list[Alone],
    code: str | None,
    layers: list[list[str]],
    source_lines: list[str],
    explained: ExplanationPart | None,
) -> OperatorPart:
    schedule = next((row.schedule for row in rows.values()), None)
    return operator_part(
        operator,
        positions,
        schedule=_schedule_part(schedule) if schedule is not None and schedule.template != "unknown" else None,
        loops=loops_of(code) if code is not None else [],
        code=code,
        layers=layers,
        source_lines=source_lines or (explained.found.source_lines if explained is not None else []),
        times={str(n): time_part(row.measurement, row.measured_at) for n, row in rows.items()},
        alone=alone,
        turnaround=_turnaround(rows),
        explained=explained,
    )


def operator_part(operator: Operator, positions: tuple[int, ...], **known: Any) -> OperatorPart:
    """Return the page's data of one operator; `known`: values of further fields of `OperatorPart`."""
    return OperatorPart(
        key=operator.key,
        name=short_name(operator.name),
        title=title_of(operator.op_names),
        anchor=operator.anchor,
        ops=list(operator.op_names),
        attrs=list(operator.attrs),
        layouts=operator.layouts,
        inputs=list(map(tensor_text, operator.inputs)),
        params=list(map(tensor_text, operator.params)),
        outputs=list(map(tensor_text, operator.outputs)),
        flops=operator.flops,
        bytes=operator.bytes_read + operator.bytes_written,
        calls=list(positions),
        **known,
    )


def short_name(name: str) -> str:
    """Return a kernel's name without the prefixes ``tvmgen_default_`` and ``fused_``, which TVM adds."""
    return name.removeprefix("tvmgen_default_").removeprefix("fused_")


def tensor_text(tensor: TensorSpec) -> str:
    """Return a tensor as ``float32 1 x 64 x 56 x 56``; a question mark is a size known only at run time."""
    return f"{tensor.dtype} " + (" x ".join("?" if d < 0 else str(d) for d in tensor.shape) or "scalar")


def _schedule_part(schedule: Schedule) -> SchedulePart:
    return SchedulePart(
        template=schedule.template,
        origin=schedule.origin,
        knobs=schedule.knobs,
        factors=factors_part(schedule.factors),
    )


def factors_part(factors: Factors) -> dict[str, Any]:
    """Return the fields of `factors` that are not None, by name."""
    return {name: value for name, value in dataclasses.asdict(factors).items() if value is not None}


def time_part(measurement: Measurement, measured_at: str) -> Time:
    """Return the page's data of a measurement, with the times of at most `_MOST_ROUNDS` of its rounds."""
    rounds = [statistics.fmean(row) for row in measurement.samples_us]
    counted = {name: getattr(measurement, name) for name in (*EVENT_NAMES, *GPU_SHARE_NAMES)}
    return Time(
        median_us=measurement.median_us,
        low_us=measurement.ci_low_us,
        high_us=measurement.ci_high_us,
        again_low_us=measurement.again_low_us,
        again_high_us=measurement.again_high_us,
        rounds_us=[round(us, 3) for us in _thinned(rounds)],
        settled=measurement.settled,
        foreign_load=measurement.foreign_load,
        disturbed_by=measurement.disturbed_by,
        quiet_share=measurement.quiet_share,
        discarded_share=measurement.discarded_share,
        counted={name: count for name, count in counted.items() if count is not None},
        not_counted=measurement.counters_missing or {},
        energy_mj=measurement.energy_mj,
        error=measurement.error,
        measured_at=measured_at,
    )


def _thinned(values: list[float]) -> Iterator[float]:
    step = -(-len(values) // _MOST_ROUNDS)
    return iter(values[:: max(step, 1)])


def _alone(row: StoredMeasurement) -> Alone:
    assert row.measurement.median_us is not None
    return Alone(
        what=f"{row.settings.cache} caches",
        origin=row.schedule.origin,
        cache=row.settings.cache,
        threads=row.settings.threads,
        of_anchor=False,
        median_us=row.measurement.median_us,
        low_us=row.measurement.ci_low_us,
        high_us=row.measurement.ci_high_us,
        disturbed=bool(row.measurement.foreign_load or row.measurement.disturbed_by),
    )


def _turnaround(rows: Mapping[int, StoredMeasurement]) -> TurnaroundPart | None:
    """Return the thread count beyond which more threads do not help; None if only one count was timed."""
    timed = {n: row.measurement for n, row in sorted(rows.items()) if row.measurement.median_us is not None}
    if len(timed) < 2:
        return None
    nan = float("nan")
    knee = find_knee(
        list(timed),
        [m.median_us or nan for m in timed.values()],
        low=[m.ci_low_us if m.ci_low_us is not None else nan for m in timed.values()],
        high=[m.ci_high_us if m.ci_high_us is not None else nan for m in timed.values()],
    )
    return TurnaroundPart(threads=int(knee.value) if knee.value is not None else None, reason=knee.reason)


def loops_of(code: str) -> list[LoopPart]:
    """Return the loops of a kernel in the order of its code; empty if the code cannot be parsed.

    Args:
        code: TVMScript, which is a subset of Python's grammar.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found: list[LoopPart] = []
    lines = code.splitlines()
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        _visit(function.body, 0, found, lines)
    return found


def _visit(body: list[ast.stmt], depth: int, found: list[LoopPart], lines: list[str]) -> None:
    for statement in body:
        if isinstance(statement, ast.For) and isinstance(statement.iter, ast.Call):
            inner = _loops(statement, depth, lines)
            if inner and not _holds_loop(statement.body):
                inner[-1].body = _stored(statement.body, lines)
            found += inner
            _visit(statement.body, depth + len(inner), found, lines)
        else:
            for name in ("body", "orelse"):
                _visit(getattr(statement, name, []), depth, found, lines)


def _holds_loop(body: list[ast.stmt]) -> bool:
    return any(isinstance(one, ast.For) or _holds_loop(getattr(one, "body", [])) for one in body)


def _text(node: ast.expr | ast.stmt, lines: list[str]) -> str:
    """Return the source text of a node, which is ten times as fast as generating it."""
    if node.end_lineno != node.lineno:
        return ast.unparse(node)
    return lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()


def _loops(statement: ast.For, depth: int, lines: list[str]) -> list[LoopPart]:
    """Return one loop, or the loops of a ``T.grid``."""
    call = statement.iter
    assert isinstance(call, ast.Call)
    kind = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    names = statement.target.elts if isinstance(statement.target, ast.Tuple) else [statement.target]
    extents = call.args if kind == "grid" else [call.args[-1]] if call.args else []
    return [
        LoopPart(depth=depth + i, name=_text(name, lines), extent=_text(extent, lines), kind=_KINDS.get(kind, kind))
        for i, (name, extent) in enumerate(zip(names, extents))
    ]


def _stored(body: list[ast.stmt], lines: list[str]) -> str:
    """Return the source text of the last store in the body of the innermost loop, shortened; empty without a store."""
    stores = [one for one in body if isinstance(one, ast.Assign | ast.AugAssign)]
    text = _text(stores[-1], lines) if stores else ""
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
