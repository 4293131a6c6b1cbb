"""The dataset as flat tables: one row a measurement, with its operator, schedule, settings, device and model; and one
row an operator that ran beside others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Double,
    FromClause,
    Select,
    Text,
    and_,
    cast,
    exc,
    func,
    literal_column,
    select,
    type_coerce,
)

from op_profiler.dataset.schema import (
    Json,
    corun_members,
    coruns,
    devices,
    measurements,
    model_operators,
    model_timings,
    models,
    operators,
    parse_json,
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


class FlatTable(NamedTuple):
    """One of the flat tables.

    Attributes:
        source: the tables of `schema` that its columns are from.
        order: names of the columns that its rows are ordered by.
    """

    columns: tuple[Column, ...]
    source: FromClause
    order: tuple[str, ...]


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
    Column("governor", "text", "frequency governor asked for; empty: as it is", settings.c.governor),
    Column("governor_effective", "text", "frequency governor read back", settings.c.governor_effective),
    Column("cache_ways", "integer", "ways of the last cache asked for; empty: as it is", settings.c.cache_ways),
    Column("cache_ways_effective", "integer", "ways of the last cache read back", settings.c.cache_ways_effective),
    Column("numa_node", "integer", "memory node asked for; empty: as it is", settings.c.numa_node),
    Column("numa_node_effective", "integer", "memory node read back; empty: not bound", settings.c.numa_node_effective),
    Column("sm_share_percent", "integer", "share of SMs asked for; empty: as it is", settings.c.sm_share_percent),
    Column("sm_share_percent_effective", "integer", "share of SMs read back", settings.c.sm_share_percent_effective),
    Column("gpu_clock_mhz", "integer", "clock of the SMs asked for, MHz; empty: as it is", settings.c.gpu_clock_mhz),
    Column("gpu_clock_mhz_effective", "integer", "clock of the SMs read back, MHz", settings.c.gpu_clock_mhz_effective),
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
    Column("machine_id", "text", "which of equal machines; of a GPU its UUID; empty: not known", devices.c.machine_id),
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
    Column("samples_us", "samples", "every one, microseconds; row: round, column: call", measurements.c.samples_us),
    Column("call_overhead_us", "real", "taken off each sample, microseconds", measurements.c.call_overhead_us),
    Column("rounds", "integer", "rows of samples_us", measurements.c.rounds),
    Column("min_us", "real", "least mean over the occurrences of a round, microseconds", measurements.c.min_us),
    Column("median_us", "real", "median over the rounds, microseconds", measurements.c.median_us),
    Column("mean_us", "real", "mean over the rounds, microseconds", measurements.c.mean_us),
    Column("std_us", "real", "standard deviation over the rounds, microseconds", measurements.c.std_us),
    Column("ci_low_us", "real", "95 % interval of the median, lower end, microseconds", measurements.c.ci_low_us),
    Column("ci_high_us", "real", "95 % interval of the median, upper end, microseconds", measurements.c.ci_high_us),
    Column(
        "load_before",
        "real",
        "share of the cores in use, or of the GPU, that others used before, 0 to 1",
        measurements.c.load_before,
    ),
    Column(
        "load_after",
        "real",
        "share of the cores in use, or of the GPU, that others used after, 0 to 1",
        measurements.c.load_after,
    ),
    Column("foreign_load", "boolean", "taken under foreign load although repeated", measurements.c.foreign_load),
    Column("energy_mj", "real", "energy of one call, millijoules", measurements.c.energy_mj),
    Column("energy_cache", "text", "state of the caches that the energy was taken in", measurements.c.energy_cache),
    Column("error", "text", "why there is no time", measurements.c.error),
    Column("error_cause", "text", "machine (trying again may help) or operator", measurements.c.error_cause),
    Column("settled", "boolean", "the intervals that the rounds waited for became narrow", measurements.c.settled),
    Column("complete", "boolean", "false: a check point of a run that did not finish", measurements.c.complete),
    Column("measured_at", "text", "when it was stored, UTC, ISO 8601", measurements.c.measured_at),
)
"""Name, type and meaning of every column, in order; schema, writers and documentation are made from this."""

MEASUREMENTS = FlatTable(
    COLUMNS,
    measurements.join(operators, operators.c.key == measurements.c.operator_key)
    .join(schedules, schedules.c.key == measurements.c.schedule_key)
    .join(settings, settings.c.key == measurements.c.settings_key)
    .join(devices, devices.c.key == measurements.c.device_key)
    .outerjoin(models, models.c.key == measurements.c.model_key)
    .outerjoin(
        model_operators,
        and_(
            model_operators.c.model_key == measurements.c.model_key,
            model_operators.c.operator_key == measurements.c.operator_key,
        ),
    )
    .outerjoin(
        model_timings,
        and_(
            model_timings.c.model_key == measurements.c.model_key,
            model_timings.c.settings_key == measurements.c.settings_key,
            model_timings.c.device_key == measurements.c.device_key,
        ),
    ),
    ("measured_at", "measurement_key"),
)

_SHARED = (operators, schedules, settings, devices, models)
_slowdown = corun_members.c.together_median_us / corun_members.c.alone_median_us

CORUNS = FlatTable(
    (
        Column("corun_key", "text", "identity of the group that ran side by side: 32 hex digits", coruns.c.key),
        Column("position", "integer", "number of the member in its group, from 0", corun_members.c.position),
        Column("operator_name", "text", "the compiler's name of the kernel", operators.c.name),
        *(column for column in COLUMNS if getattr(column.source, "table", None) in _SHARED),
        Column("alone_samples_us", "json", "alone: raw, microseconds a call", corun_members.c.alone_samples_us),
        Column("alone_median_us", "real", "alone: median, microseconds", corun_members.c.alone_median_us),
        Column("together_samples_us", "json", "in the group: raw, microseconds", corun_members.c.together_samples_us),
        Column("together_median_us", "real", "in the group: median, microseconds", corun_members.c.together_median_us),
        Column("slowdown", "real", "median in the group over median alone", _slowdown),
        Column(
            "load_before",
            "real",
            "share of the cores in use, or of the GPU, that others used before, 0 to 1",
            coruns.c.load_before,
        ),
        Column(
            "load_after",
            "real",
            "share of the cores in use, or of the GPU, that others used after, 0 to 1",
            coruns.c.load_after,
        ),
        Column("foreign_load", "boolean", "taken under foreign load although repeated", coruns.c.foreign_load),
        Column("error", "text", "why there is no time in the group", corun_members.c.error),
        Column("measured_at", "text", "when it was stored, UTC, ISO 8601", coruns.c.measured_at),
    ),
    corun_members.join(coruns, coruns.c.key == corun_members.c.corun_key)
    .join(operators, operators.c.key == corun_members.c.operator_key)
    .join(schedules, schedules.c.key == corun_members.c.schedule_key)
    .join(settings, settings.c.key == corun_members.c.settings_key)
    .join(devices, devices.c.key == coruns.c.device_key)
    .outerjoin(models, models.c.key == corun_members.c.model_key),
    ("measured_at", "corun_key", "position"),
)

TABLES = {"measurements": MEASUREMENTS, "coruns": CORUNS}


def flat_table(name: str) -> FlatTable:
    """One of `TABLES`.

    Raises:
        UnknownNameError: none of this name.
    """
    if name not in TABLES:
        raise UnknownNameError("table", name, TABLES)
    return TABLES[name]


_WORDS = {
    *("and", "or", "not", "in", "like", "between", "is", "null", "true", "false", "escape"),
    *("case", "when", "then", "else", "end", "abs", "round", "lower", "upper", "length", "coalesce"),
}
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\b)|(?P<name>[A-Za-z_]\w*)
    |(?P<sign><=|>=|<>|!=|==|[=<>+\-*/%(),]))""",
    re.VERBOSE,
)


def parse_where(text: str, table: FlatTable = MEASUREMENTS) -> str:
    """A condition in SQL, taken apart and put together again from what is allowed in it.

    Only columns of the table, text and numbers, comparisons, arithmetic and a few functions are: no subquery, no second
    statement, no comment, no quoted name.

    Raises:
        UsageError: there is something else; names the columns.
    """
    tokens = []
    position, text = 0, text.strip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise UsageError(f"--where {text!r}: cannot read {text[position:][:20]!r}. {_help(table)}")
        position = found.end()
        tokens.append(_checked(found, text, table))
    if not tokens:
        raise UsageError(f"--where is empty. {_help(table)}")
    if not _balanced(tokens):
        raise UsageError(f"--where {text!r}: the parentheses do not match. {_help(table)}")
    return " ".join(tokens)


def _checked(found: re.Match[str], text: str, table: FlatTable) -> str:
    token = found[found.lastgroup or 0]
    if found.lastgroup == "name" and token.lower() not in _WORDS:
        names = [column.name for column in table.columns]
        if token.lower() not in names:
            raise UnknownNameError(f"column in --where {text!r}", token, names, _help(table))
        return token.lower()
    return "=" if token == "==" else token


def _balanced(tokens: list[str]) -> bool:
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth < 0:
            return False
    return depth == 0


def _help(table: FlatTable) -> str:
    return (
        "Write a condition such as: anchor = 'nn.conv2d' and threads = 2. "
        f"Text stands in single quotes; the columns are: {', '.join(column.name for column in table.columns)}"
    )


def flat_rows(
    dataset: Dataset,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    table: FlatTable = MEASUREMENTS,
) -> Iterator[dict[str, Any]]:
    """The rows of a flat table, each a dict with the names of its columns, oldest first.

    Numbers that JSON does not know come as text in columns of type ``json`` ("Infinity", "NaN").

    Args:
        where: condition in SQL over the columns; see `parse_where`.
        columns: names of those that are wanted; None for all.
        table: one of `TABLES`: every measurement, or every operator that ran beside others.

    Raises:
        UsageError: the condition cannot be used.
        DatasetError: the database cannot be read.
    """
    by_name = {column.name: column for column in table.columns}
    wanted = table.columns if columns is None else tuple(by_name[name] for name in columns)
    query = _query(table, where, wanted)
    with dataset.read() as connection:
        try:
            rows = connection.execute(query.execution_options(stream_results=True, yield_per=500)).mappings()
            for row in rows:
                yield {column.name: _decoded(column, row[column.name]) for column in wanted}
        except (exc.ProgrammingError, exc.DataError, exc.OperationalError) as error:
            if where is None or "disk" in str(error.orig):
                raise
            raise UsageError(f"--where {where!r}: {str(error.orig).splitlines()[0]}. {_help(table)}") from error


def _query(table: FlatTable, where: str | None, wanted: Sequence[Column]) -> Select[Any]:
    """A subquery, so that conditions see its columns and nothing else."""
    columns = (_raw(column).label(column.name) for column in table.columns)
    flat = select(*columns).select_from(table.source).subquery("flat")
    query = select(*(flat.c[column.name] for column in wanted)).order_by(*(flat.c[name] for name in table.order))
    return query if where is None else query.where(literal_column(f"({parse_where(where, table)})"))


def _raw(column: Column) -> ColumnElement[Any]:
    return type_coerce(column.source, Text) if isinstance(column.source.type, Json) else column.source


def _decoded(column: Column, value: Any) -> Any:
    if value is None or column.type not in ("json", "samples"):
        return value
    return parse_json(value, parse_constant=str)
