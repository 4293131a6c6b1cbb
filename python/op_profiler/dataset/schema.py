"""Declares the tables of a dataset on SQLite and PostgreSQL, with all their columns.

A column with a `doc` is also in the flat tables (`flat`), and thus in every export, in ``--where`` and in the
documentation. `migrations` adds new columns to datasets of older versions.

Nested values are JSON in text columns, because PostgreSQL's own JSON type rejects infinities, which attributes of
``clip`` and pooling contain. Names of columns contain their units.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    types,
)

from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.errors import DatasetError

VERSION = 7
"""Version of the tables in this module; every change to them increases it."""

metadata = MetaData()


def parse_json(text: str, **options: Any) -> Any:
    """Parse the JSON text of a column; `options` are those of ``json.loads``.

    Raises:
        DatasetError: the text is not JSON, so the dataset is damaged.
    """
    try:
        return json.loads(text, **options)
    except (ValueError, TypeError, RecursionError) as error:
        raise DatasetError(
            f"the dataset is damaged: it holds {str(text)[:40]!r} where JSON should be ({error}). Restore a copy"
        ) from error


class Json(types.TypeDecorator[Any]):
    """Column type that stores a JSON-serializable value as JSON text; tuples are read back as lists."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Return a value as JSON text without spaces; None for None, which is stored as NULL."""
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Return the value of JSON text; None for NULL; raises DatasetError as `parse_json` does."""
        return None if value is None else parse_json(value)


class SamplesType(Json):
    """Column type for samples: JSON text with one list of times per round."""

    cache_ok = True


def _column(name: str, kind: Any, doc: str = "", *, flat: str = "", since: int = 1, **options: Any) -> Column[Any]:
    """Return a column of a table.

    Args:
        kind: SQL type of the column, or the foreign key that it contains.
        doc: description of the column in the flat tables; empty if the flat tables lack the column.
        flat: name of the column in the flat tables, if it differs.
        since: version of the tables that added the column; in rows of older versions it is NULL or has a default.
        options: options of ``sqlalchemy.Column``.
    """
    return Column(name, kind, doc=doc or None, info={"flat": flat or name, "since": since}, **options)


schema_version = Table(
    "op_profiler_schema",
    metadata,
    _column("version", Integer, primary_key=True),
    _column("since", Text, nullable=False),
)

devices = Table(
    "devices",
    metadata,
    _column("key", Text, "16 hex digits over what decides a kernel's time", flat="device_key", primary_key=True),
    _column(
        "core_type", Text, "common (processor), SM (GPU) or IP (FPGA)", since=3, nullable=False, server_default="common"
    ),
    _column("kind", Text, "kind of target: llvm, cuda, ...", flat="device_kind", nullable=False),
    _column("target", Text, "full TVM target string", nullable=False),
    _column("processor", Text, "name of the processor", nullable=False),
    _column("cores", Integer, "usable cores"),
    _column("clock_mhz", Double, "clock when the device was last described, MHz"),
    _column("l1_bytes", BigInteger, "data cache of one core, bytes"),
    _column("l2_bytes", BigInteger, "second-level cache, bytes"),
    _column("l3_bytes", BigInteger, "third-level cache, bytes"),
    _column("memory_bytes", BigInteger, "memory of the device, bytes"),
    _column("driver", Text, "driver version"),
    _column(
        "compiler",
        Text,
        "relay or another that made the code",
        since=6,
        nullable=False,
        server_default=DEFAULT_COMPILER,
    ),
    _column("tvm_version", Text, "version of TVM", nullable=False),
    _column("llvm_version", Text, "version of LLVM"),
    _column("host_fingerprint", Text, "equal on machines whose times can be compared", nullable=False),
    _column("machine_id", Text, "which of equal machines; of a GPU its UUID; empty: not known", since=5),
    _column("properties", Json, "further properties of the device", flat="device_properties", nullable=False),
)

models = Table(
    "models",
    metadata,
    _column("key", Text, "the model in which it ran; empty: outside a model", flat="model_key", primary_key=True),
    _column("name", Text, "name of that model", flat="model_name", nullable=False),
    _column("source", Text, "where the model is from, as --modelsource names it", flat="model_source", nullable=False),
    _column("batch_size", Integer, "batch size of that model", nullable=False),
    _column("precision", Text, nullable=False),
    _column("executor", Text, nullable=False),
    _column("target", Text, nullable=False),
    _column("notes", Json, nullable=False),
    _column("device_key", ForeignKey("devices.key")),
    _column("base_key", Text, since=5),  # what is known of it without building it; NULL: written by an older version
    _column("asked", Json, since=5, nullable=False, server_default="[]"),  # `Model.asked`
    _column("label", Text, "name of the run (--label)", flat="run_label", since=6, nullable=False, server_default=""),
    _column("recipe", Json, since=6),  # how to build it again: `building.recipe.Recipe`; NULL: not known
    _column("reads", Json, since=6),  # for each call the calls whose outputs it reads; NULL: not known
    _column(
        "outputs_agree",
        Boolean,
        "whether the imported model computes what its own framework computes; empty: not compared",
        since=6,
    ),
    _column(
        "outputs_error",
        Double,
        "largest error of its outputs, relative to their size; of whole numbers the share that differs",
        since=6,
    ),
    _column("outputs_reference", Text, "the framework that they were compared with, or why they were not", since=6),
    _column("extracted", Boolean, nullable=False),
    _column("added_at", Text, nullable=False),
)

operators = Table(
    "operators",
    metadata,
    _column(
        "key", Text, "workload key: 16 hex digits over the operator's structure", flat="operator_key", primary_key=True
    ),
    _column("name", Text, nullable=False),
    _column("anchor", Text, "the heavy op inside, e.g. nn.conv2d", nullable=False),
    _column("op_names", Json, "all fused ops, in execution order", nullable=False),
    _column("inputs", Json, "activations read: list of {shape, dtype}", nullable=False),
    _column("params", Json, "constants read: list of {shape, dtype}", nullable=False),
    _column("outputs", Json, "tensors written: list of {shape, dtype}", nullable=False),
    _column("attrs", Json, "attributes of each op, in the order of op_names", nullable=False),
    _column("layouts", Json, "data, kernel and output layout of the anchor", nullable=False),
    _column("structure", Text, "edges between the ops", nullable=False),
    _column("flops", BigInteger, "operations of one call; a multiply-add counts two", nullable=False),
    _column("bytes_read", BigInteger, "bytes of all inputs and constants, as far as they are read", nullable=False),
    _column("bytes_written", BigInteger, "bytes of all outputs", nullable=False),
)

model_operators = Table(
    "model_operators",
    metadata,
    _column("model_key", ForeignKey("models.key"), primary_key=True),
    _column("operator_key", ForeignKey("operators.key"), primary_key=True),
    _column("name", Text, nullable=False),  # the kernel's name in this model: the same operator is named anew in each
    _column("occurrences", Integer, "how often that model calls the operator", nullable=False),
    _column("positions", Json, "where in that model's call order, from 0", nullable=False),
    _column("schedule_key", Text, since=2),  # what the build of this model gave it; NULL: not known
    _column("launches", Json, "of a GPU: grid and block of each launch", since=3),  # NULL: not known, or no GPU
    _column("code", Text, since=6),  # of the kernel, for people to read (TVMScript); NULL: not known
    _column("layers", Json, "for each of `positions`, the model's layers in that call, the anchor's first", since=6),
    _column(
        "fx_nodes",
        Json,
        "for each of `positions`, the nodes of the torch.export program in that call, the anchor's first",
        since=7,
    ),
    _column("source_lines", Json, "for each of `positions`, the lines of torch code that make that call", since=7),
    Index("model_operators_of_operator", "operator_key"),
)

schedules = Table(
    "schedules",
    metadata,
    _column("key", Text, "16 hex digits over template, knobs and origin", flat="schedule_key", primary_key=True),
    _column("template", Text, "name of the schedule's template", nullable=False),
    _column("knobs", Json, "knob name to value", nullable=False),
    _column(
        "origin", Text, "default (the compiler's own), rule (this project's), tuned, trial or vendor", nullable=False
    ),
    # The fields of `Factors`.
    _column("factor_tile", Json, "spatial axis to the size of its innermost tile", flat="tile", since=2),
    _column("factor_split", Json, "reduction axis to the inner part of its split", flat="split", since=2),
    _column("factor_fuse", Json, "outer loops that are fused", flat="fuse", since=2),
    _column("factor_reorder", Json, "loops, outermost first; a bar before the reduction's", flat="reorder", since=2),
    _column(
        "factor_compute_at", Json, "where the stage that feeds the main one is computed", flat="compute_at", since=2
    ),
    _column("factor_vectorize", Json, "lanes of the vectorized loop", flat="vectorize", since=2),
    _column("factor_unroll", Json, "what is unrolled", flat="unroll", since=2),
    _column("factor_parallel", Json, "axes of the parallel loop", flat="parallel", since=2),
)

settings = Table(
    "settings",
    metadata,
    _column("key", Text, primary_key=True),
    _column("threads", Integer, "threads requested; 0: the runtime's choice", nullable=False),
    _column("threads_effective", Integer, "threads that the runtime reported"),
    _column("core_set", Json, "cores requested; empty: the runtime's choice", nullable=False),
    _column("core_set_effective", Json, "cores that the workers could run on", nullable=False),
    _column("governor", Text, "frequency governor requested; empty: as it is", since=4),
    _column("governor_effective", Text, "frequency governor read back", since=4),
    _column("cache_ways", Integer, "ways of the last cache requested; empty: as it is", since=4),
    _column("cache_ways_effective", Integer, "ways of the last cache read back", since=4),
    _column("numa_node", Integer, "memory node requested; empty: as it is", since=4),
    _column("numa_node_effective", Integer, "memory node read back; empty: not bound", since=4),
    _column("sm_share_percent", Integer, "share of SMs requested; empty: as it is", since=4),
    _column("sm_share_percent_effective", Integer, "share of SMs read back", since=4),
    _column("gpu_clock_mhz", Integer, "clock of the SMs requested, MHz; empty: as it is", since=4),
    _column("gpu_clock_mhz_effective", Integer, "clock of the SMs read back, MHz", since=4),
    _column("cache", Text, "state of the caches: model, hot or cold", nullable=False),
    _column("cache_mechanism", Text, "how that state was brought about", nullable=False),
    _column("parallel_type", Text, "sequential, stream or full", nullable=False),
    _column("streams", Integer, "device streams", nullable=False),
    _column("precision", Text, "dtype of the arithmetic requested", nullable=False),
    _column("executor", Text, "graph, vm, or kernel: called in isolation", nullable=False),
)

_COUNTED = (
    ("cycles", "processor cycles of one call, all threads together; empty: not counted"),
    ("instructions", "instructions of one call, all threads together"),
    ("branch_misses", "branches of one call that were predicted wrongly"),
    ("l1_misses", "reads of one call that missed the first-level data cache"),
    ("l2_misses", "accesses of one call that missed the second-level cache"),
    ("llc_misses", "reads of one call that missed the last-level cache"),
    ("page_faults", "page faults of one call"),
    ("context_switches", "context switches of one call"),
    ("dram_percent", "of a GPU's peak memory throughput, percent, from cold caches; empty: not counted"),
    ("sm_percent", "of the peak throughput of a GPU's SMs, percent, from cold caches"),
    ("occupancy_percent", "active warps of those that a GPU's SMs hold at most, percent, from cold caches"),
    ("tensor_cores_percent", "of the cycles of a GPU's tensor cores, percent, from cold caches"),
)


def _foreign_columns() -> list[Column[Any]]:
    return [
        _column("load_before", Double, "share of the cores in use, or of the GPU, that others used before, 0 to 1"),
        _column("load_after", Double, "share of the cores in use, or of the GPU, that others used after, 0 to 1"),
        _column("foreign_load", Boolean, "taken under background load although repeated", nullable=False),
    ]


def _counted_columns() -> list[Column[Any]]:
    description = "counters requested by --counters, and why they are empty"
    return [
        *(_column(name, Double, doc, since=6) for name, doc in _COUNTED),
        _column("counters_missing", Json, description, since=6),  # NULL: nobody asked
    ]


def _time_columns(table: str) -> list[Column[Any] | CheckConstraint]:
    """Return the columns for the fields of `Measurement`, with constraints: a row has either a time or an error."""
    return [
        _column("samples_us", SamplesType, "of kept rounds, microseconds; row: round, column: call", nullable=False),
        _column("call_overhead_us", Double, "taken off each sample, microseconds", since=5),  # NULL: nothing was
        _column("rounds", Integer, "rows of samples_us", nullable=False),
        _column("min_us", Double, "least mean over the occurrences of a round, microseconds"),
        _column("median_us", Double, "median over the quiet rounds, microseconds"),
        _column("mean_us", Double, "mean over the rounds, microseconds"),
        _column("std_us", Double, "standard deviation over the rounds, microseconds"),
        _column("ci_low_us", Double, "95 % interval of the median, lower end, microseconds"),
        _column("ci_high_us", Double, "95 % interval of the median, upper end, microseconds"),
        _column("steady_us", Double, "microseconds at the machine's reference state", since=5),
        _column("steady_low_us", Double, "95 % between-run interval of steady_us, lower end, microseconds", since=5),
        _column("steady_high_us", Double, "95 % between-run interval of steady_us, upper end, microseconds", since=5),
        _column("again_low_us", Double, "95 % between-run interval of median_us, lower end, microseconds", since=5),
        _column("again_high_us", Double, "95 % between-run interval of median_us, upper end, microseconds", since=5),
        *_foreign_columns(),
        _column("disturbed_by", Text, "what else disturbed it although repeated (unsteady, ...)", since=6),
        _column("quiet_share", Double, "share of the rounds that are quiet, 0 to 1; median_us is of them", since=6),
        _column("discarded_rounds", Integer, "rounds of the run that were disturbed, discarded and repeated", since=6),
        _column("discarded_share", Double, "share of them in all rounds of the run, 0 to 1", since=6),
        _column("energy_mj", Double, "energy of one call, millijoules"),
        _column("energy_cache", Text, "state of the caches that the energy was taken in", since=5),  # NULL: no energy
        *_counted_columns(),
        _column("error", Text, "why there is no time"),
        _column("error_cause", Text, "machine (trying again may help) or operator", since=5),  # `Cause`; NULL: no error
        _column("settled", Boolean, "its interval is as narrow as the rounds aim at: 1 % to each side", since=5),
        _column("complete", Boolean, "false: a check point of a run that did not finish", nullable=False),
        _column("measured_at", Text, "when it was stored, UTC, ISO 8601", nullable=False),
        _column("run_id", Text, "of the run that measured it, 16 hex digits; empty: not known", since=6),
        CheckConstraint("NOT complete OR (error IS NULL) <> (median_us IS NULL)", name=f"{table}_time_or_error"),
        CheckConstraint(
            "error IS NULL OR (median_us IS NULL AND min_us IS NULL AND mean_us IS NULL AND rounds = 0)",
            name=f"{table}_no_time_beside_error",
        ),
        CheckConstraint("min_us IS NULL OR min_us >= 0", name=f"{table}_times_are_not_negative"),
    ]


explanations = Table(
    "explanations",
    metadata,
    _column("model_key", ForeignKey("models.key"), primary_key=True),
    _column("operator_key", ForeignKey("operators.key"), primary_key=True),
    _column("found", Json, nullable=False),  # `analysis.explain.explanation.OperatorExplanation`
    _column("explained_at", Text, nullable=False),
)
"""The latest results of ``op-profiler explain`` for a model's operators."""

measurements = Table(
    "measurements",
    metadata,
    # `keys.measurement_key`: what was asked for, never what was read back
    _column("key", Text, "identity of the measurement: 32 hex digits", flat="measurement_key", primary_key=True),
    _column("operator_key", ForeignKey("operators.key"), nullable=False),
    _column("schedule_key", ForeignKey("schedules.key"), nullable=False),
    _column("settings_key", ForeignKey("settings.key"), nullable=False),
    _column("device_key", ForeignKey("devices.key"), nullable=False),
    _column("model_key", ForeignKey("models.key")),  # NULL: measured outside a model
    *_time_columns("measurements"),
    Index("measurements_of_operator", "operator_key", "model_key"),
    # The first of them finds a model's rows; with the others the dataset is summed up without reading its rows.
    Index("measurements_counted", "model_key", "device_key", "complete", "error_cause", "foreign_load", "settled"),
)

model_timings = Table(
    "model_timings",
    metadata,
    _column("key", Text, primary_key=True),  # `keys.timing_key`
    _column("model_key", ForeignKey("models.key"), nullable=False),
    _column("settings_key", ForeignKey("settings.key"), nullable=False),
    _column("device_key", ForeignKey("devices.key"), nullable=False),
    _column("before_us", Double),
    _column("after_us", Double),
    _column("sum_of_operators_us", Double),
    _column("unmeasured", Json, nullable=False),
    _column("coverage", Double, since=5),  # share of the time whose operators had to settle; NULL: not known
    _column("project_revision", Text, "of op_profiler: git's, else its version", since=6),
    _column("user_revision", Text, "git's of the folder that the command ran in; empty: none", since=6),
    _column("details", Json, nullable=False),
    *_time_columns("model_timings"),
    # All three, since every row of the flat table asks for the timing of its model.
    Index("model_timings_of_run", "model_key", "device_key", "settings_key"),
)

failures = Table(
    "failures",
    metadata,
    _column("key", Text, primary_key=True),  # `keys.failure_key`
    _column("measured_key", Text, nullable=False),  # what the time has, or would have, in one of the tables with times
    _column("operator_key", ForeignKey("operators.key")),  # NULL: the whole model
    _column("schedule_key", ForeignKey("schedules.key")),  # NULL: the whole model
    _column("settings_key", ForeignKey("settings.key"), nullable=False),
    _column("device_key", ForeignKey("devices.key"), nullable=False),
    _column("model_key", ForeignKey("models.key")),  # NULL: outside a model; without an operator either: `quarantine`
    _column("error", Text, nullable=False),
    _column("error_cause", Text, nullable=False),
    _column("machine_state", Json),  # NULL: not known
    _column("failed_at", Text, nullable=False),  # the last time
    _column("run_id", Text, since=6),  # of that time; NULL: not known
    Index("failures_of_measured", "measured_key"),
    Index("failures_of_model", "model_key"),
)
"""All failures, also of operators that have an earlier or later time; a repeated failure updates ``failed_at`` etc."""

coruns = Table(
    "coruns",
    metadata,
    _column(  # `keys.corun_key`
        "key", Text, "identity of the group that ran side by side: 32 hex digits", flat="corun_key", primary_key=True
    ),
    _column("device_key", ForeignKey("devices.key"), nullable=False),
    *_foreign_columns(),
    _column("measured_at", Text, "when it was stored, UTC, ISO 8601", nullable=False),
)

corun_members = Table(
    "corun_members",
    metadata,
    _column("corun_key", ForeignKey("coruns.key"), primary_key=True),
    _column("position", Integer, "number of the member in its group, from 0", primary_key=True),
    _column("operator_key", ForeignKey("operators.key"), nullable=False),
    _column("schedule_key", ForeignKey("schedules.key"), nullable=False),
    _column("settings_key", ForeignKey("settings.key"), nullable=False),
    _column("model_key", ForeignKey("models.key")),  # NULL: outside a model
    _column("alone_samples_us", Json, "in isolation: raw, microseconds a call", nullable=False),
    _column("alone_median_us", Double, "in isolation: median, microseconds"),
    _column("together_samples_us", Json, "in the group: raw, microseconds", nullable=False),
    _column("together_median_us", Double, "in the group: median, microseconds"),
    _column("error", Text, "why there is no time in the group"),
    CheckConstraint("(error IS NULL) <> (together_median_us IS NULL)", name="corun_members_time_or_error"),
    CheckConstraint("error IS NOT NULL OR alone_median_us IS NOT NULL", name="corun_members_are_compared"),
    CheckConstraint("alone_median_us > 0 AND together_median_us > 0", name="corun_members_times_are_positive"),
    Index("corun_members_of_operator", "operator_key"),
)
