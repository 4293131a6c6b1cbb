"""The dataset as one flat table: one row a measurement, with its operator, schedule, settings, device and model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Double, Select, Text, and_, cast, exc, func, literal_column, select, type_coerce

from op_profiler.dataset.schema import (
    Json,
    devices,
    measurements,
    model_operators,
    model_timings,
    models,
    operators,
    schedules,
    settings,
)
from op_profiler.dataset.store import Dataset
from op_profiler.errors import UnknownNameError, UsageError

Kind = Literal["text", "integer", "real", "boolean", "json", "samples"]


class Column(NamedTuple):
    """One column of the flat table.

    Attributes:
        type: ``json`` is a nested value, as JSON text where a format has none; ``samples`` a list of lists of reals.
        source: where its values come from.
    """

    name: str
    type: Kind
    description: str
    source: ColumnElement[Any]


_name = func.coalesce(model_operators.c.name, operators.c.name)
_moved = cast(operators.c.bytes_read + operators.c.bytes_written, Double)
_intensity = func.coalesce(operators.c.flops / func.nullif(_moved, 0.0), 0.0)

COLUMNS: tuple[Column, ...] = (
    Column("measurement_key", "text", "identity of the measurement: 32 hex digits", measurements.c.key),
    Column("operator_key", "text", "workload key: 16 hex digits over the operator's structure", operators.c.key),
    Column("operator_name", "text", "the compiler's name of the kernel", _name),
    Column("anchor", "text", "the heavy op inside, e.g. nn.conv2d", operators.c.anchor),
    Column("op_names", "json", "all fused ops, in execution order", operators.c.op_names),
    Column("inputs", "json", "activations read: list of {shape, dtype}", operators.c.inputs),
    Column("params", "json", "constants read: list of {shape, dtype}", operators.c.params),
    Column("outputs", "json", "tensors written: list of {shape, dtype}", operators.c.outputs),
    Column("attrs", "json", "attributes of each op, in the order of op_names", operators.c.attrs),
    Column("layouts", "json", "data, kernel and output layout of the anchor", operators.c.layouts),
    Column("structure", "text", "edges between the ops", operators.c.structure),
    Column("flops", "integer", "operations of one call; a multiply-add counts two", operators.c.flops),
    Column("bytes_read", "integer", "bytes of all inputs and constants", operators.c.bytes_read),
    Column("bytes_written", "integer", "bytes of all outputs", operators.c.bytes_written),
    Column("arithmetic_intensity", "real", "FLOPs per byte moved", _intensity),
    Column("schedule_key", "text", "16 hex digits over template, knobs and origin", schedules.c.key),
    Column("template", "text", "name of the schedule's template", schedules.c.template),
    Column("knobs", "json", "knob name to value", schedules.c.knobs),
    Column("origin", "text", "default, tuned, trial or vendor", schedules.c.origin),
    Column("tile", "json", "spatial axis to the size of its innermost tile", schedules.c.factor_tile),
    Column("split", "json", "reduction axis to the inner part of its split", schedules.c.factor_split),
    Column("fuse", "json", "outer loops that are fused", schedules.c.factor_fuse),
    Column("reorder", "json", "loops, outermost first; a bar before the reduction's", schedules.c.factor_reorder),
    Column("compute_at", "json", "where the stage that feeds the main one is computed", schedules.c.factor_compute_at),
    Column("vectorize", "json", "lanes of the vectorized loop", schedules.c.factor_vectorize),
    Column("unroll", "json", "what is unrolled", schedules.c.factor_unroll),
    Column("parallel", "json", "axes of the parallel loop", schedules.c.factor_parallel),
    Column("threads", "integer", "threads asked for; 0: the runtime's choice", settings.c.threads),
    Column("threads_effective", "integer", "threads that the runtime reported", settings.c.threads_effective),
    Column("core_set", "json", "cores asked for; empty: the runtime's choice", settings.c.core_set),
    Column("core_set_effective", "json", "cores that the workers could run on", settings.c.core_set_effective),
    Column("cache", "text", "state of the caches: model, hot or cold", settings.c.cache),
    Column("cache_mechanism", "text", "how that state was brought about", settings.c.cache_mechanism),
    Column("parallel_type", "text", "sequential, stream or full", settings.c.parallel_type),
    Column("streams", "integer", "device streams", settings.c.streams),
    Column("precision", "text", "dtype of the arithmetic asked for", settings.c.precision),
    Column("executor", "text", "graph, vm, or kernel: called alone", settings.c.executor),
    Column("device_key", "text", "16 hex digits over what decides a kernel's time", devices.c.key),
    Column("core_type", "text", "common (processor), SM (GPU) or IP (FPGA)", devices.c.core_type),
    Column("device_kind", "text", "kind of target: llvm, cuda, ...", devices.c.kind),
    Column("target", "text", "full TVM target string", devices.c.target),
    Column("processor", "text", "name of the processor", devices.c.processor),
    Column("cores", "integer", "usable cores", devices.c.cores),
    Column("clock_mhz", "real", "clock when the device was last described, MHz", devices.c.clock_mhz),
    Column("l1_bytes", "integer", "data cache of one core, bytes", devices.c.l1_bytes),
    Column("l2_bytes", "integer", "second-level cache, bytes", devices.c.l2_bytes),
    Column("l3_bytes", "integer", "third-level cache, bytes", devices.c.l3_bytes),
    Column("memory_bytes", "integer", "memory of the device, bytes", devices.c.memory_bytes),
    Column("driver", "text", "driver version", devices.c.driver),
    Column("tvm_version", "text", "version of TVM", devices.c.tvm_version),
    Column("llvm_version", "text", "version of LLVM", devices.c.llvm_version),
    Column("host_fingerprint", "text", "equal on machines whose times can be compared", devices.c.host_fingerprint),
    Column("device_properties", "json", "further properties of the device", devices.c.properties),
    Column("model_key", "text", "the model in which it ran; empty: outside a model", models.c.key),
    Column("model_name", "text", "name of that model", models.c.name),
    Column("model_source", "text", "local, transformers, remoteonnx, simple, tflite or file", models.c.source),
    Column("batch_size", "integer", "batch size of that model", models.c.batch_size),
    Column("occurrences", "integer", "how often that model calls the operator", model_operators.c.occurrences),
    Column("positions", "json", "where in that model's call order, from 0", model_operators.c.positions),
    Column("launches", "json", "of a GPU: grid and block of each launch", model_operators.c.launches),
    Column("whole_model_us", "real", "median of that whole model, microseconds", model_timings.c.median_us),
    Column("timing_details", "json", "how that was timed; gauge_us: fixed kernels beside it", model_timings.c.details),
    Column("samples_us", "samples", "raw, microseconds; row: round, column: occurrence", measurements.c.samples_us),
    Column("rounds", "integer", "rows of samples_us", measurements.c.rounds),
    Column("min_us", "real", "least mean over the occurrences of a round, microseconds", measurements.c.min_us),
    Column("median_us", "real", "median over the rounds, microseconds", measurements.c.median_us),
    Column("mean_us", "real", "mean over the rounds, microseconds", measurements.c.mean_us),
    Column("std_us", "real", "standard deviation over the rounds, microseconds", measurements.c.std_us),
    Column("ci_low_us", "real", "95 % interval of the median, lower end, microseconds", measurements.c.ci_low_us),
    Column("ci_high_us", "real", "95 % interval of the median, upper end, microseconds", measurements.c.ci_high_us),
    Column("load_before", "real", "share of all cores used by others before, 0 to 1", measurements.c.load_before),
    Column("load_after", "real", "share of all cores used by others after, 0 to 1", measurements.c.load_after),
    Column("foreign_load", "boolean", "taken under foreign load although repeated", measurements.c.foreign_load),
    Column("energy_mj", "real", "energy of one call, millijoules", measurements.c.energy_mj),
    Column("error", "text", "why there is no time", measurements.c.error),
    Column("complete", "boolean", "false: a check point of a run that did not finish", measurements.c.complete),
    Column("measured_at", "text", "when it was stored, UTC, ISO 8601", measurements.c.measured_at),
)
"""Name, type and meaning of every column, in order; schema, writers and documentation are made from this."""

_WORDS = {
    *("and", "or", "not", "in", "like", "between", "is", "null", "true", "false", "escape"),
    *("case", "when", "then", "else", "end", "abs", "round", "lower", "upper", "length", "coalesce"),
}
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\b)|(?P<name>[A-Za-z_]\w*)
    |(?P<sign><=|>=|<>|!=|==|[=<>+\-*/%(),]))""",
    re.VERBOSE,
)


def parse_where(text: str) -> str:
    """A condition in SQL, taken apart and put together again from what is allowed in it.

    Only columns of `COLUMNS`, text and numbers, comparisons, arithmetic and a few functions are: no subquery, no second
    statement, no comment, no quoted name.

    Raises:
        UsageError: there is something else; names the columns.
    """
    tokens = []
    position, text = 0, text.strip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise UsageError(f"--where {text!r}: cannot read {text[position:][:20]!r}. {_HELP}")
        position = found.end()
        tokens.append(_checked(found, text))
    if not tokens:
        raise UsageError(f"--where is empty. {_HELP}")
    if not _balanced(tokens):
        raise UsageError(f"--where {text!r}: the parentheses do not match. {_HELP}")
    return " ".join(tokens)


def _checked(found: re.Match[str], text: str) -> str:
    token = found[found.lastgroup or 0]
    if found.lastgroup == "name" and token.lower() not in _WORDS:
        if token.lower() not in _BY_NAME:
            raise UnknownNameError(f"column in --where {text!r}", token, _BY_NAME, _HELP)
        return token.lower()
    return "=" if token == "==" else token


def _balanced(tokens: list[str]) -> bool:
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth < 0:
            return False
    return depth == 0


_BY_NAME = {column.name: column for column in COLUMNS}
_HELP = (
    "Write a condition such as: anchor = 'nn.conv2d' and threads = 2. "
    f"Text stands in single quotes; the columns are: {', '.join(_BY_NAME)}"
)


def flat_rows(
    dataset: Dataset, *, where: str | None = None, columns: Sequence[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Every measurement with all that belongs to it, as a dict with the names of `COLUMNS`, oldest first.

    Numbers that JSON does not know come as text in columns of type ``json`` ("Infinity", "NaN").

    Args:
        where: condition in SQL over the columns; see `parse_where`.
        columns: names of those that are wanted; None for all.

    Raises:
        UsageError: the condition cannot be used.
        DatasetError: the database cannot be read.
    """
    wanted = COLUMNS if columns is None else tuple(_BY_NAME[name] for name in columns)
    query = _query(where, wanted)
    with dataset.read() as connection:
        try:
            rows = connection.execute(query.execution_options(stream_results=True, yield_per=500)).mappings()
            for row in rows:
                yield {column.name: _decoded(column, row[column.name]) for column in wanted}
        except (exc.ProgrammingError, exc.DataError, exc.OperationalError) as error:
            if where is None or "disk" in str(error.orig):
                raise
            raise UsageError(f"--where {where!r}: {str(error.orig).splitlines()[0]}. {_HELP}") from error


def _query(where: str | None, wanted: Sequence[Column]) -> Select[Any]:
    """One row a measurement; a subquery, so that conditions see its columns and nothing else."""
    origin = measurements.c
    link, timing = model_operators.c, model_timings.c
    flat = (
        select(*(_raw(column).label(column.name) for column in COLUMNS))
        .select_from(measurements)
        .join(operators, operators.c.key == origin.operator_key)
        .join(schedules, schedules.c.key == origin.schedule_key)
        .join(settings, settings.c.key == origin.settings_key)
        .join(devices, devices.c.key == origin.device_key)
        .outerjoin(models, models.c.key == origin.model_key)
        .outerjoin(model_operators, and_(link.model_key == origin.model_key, link.operator_key == origin.operator_key))
        .outerjoin(
            model_timings,
            and_(
                timing.model_key == origin.model_key,
                timing.settings_key == origin.settings_key,
                timing.device_key == origin.device_key,
            ),
        )
        .subquery("flat")
    )
    query = select(*(flat.c[column.name] for column in wanted)).order_by(flat.c.measured_at, flat.c.measurement_key)
    return query if where is None else query.where(literal_column(f"({parse_where(where)})"))


def _raw(column: Column) -> ColumnElement[Any]:
    return type_coerce(column.source, Text) if isinstance(column.source.type, Json) else column.source


def _decoded(column: Column, value: Any) -> Any:
    if value is None or column.type not in ("json", "samples"):
        return value
    return json.loads(value, parse_constant=str)
