"""Shared calibrations: files of ``op-profiler calibrate --share`` that other users check and merge.

`SHARED` declares the columns of these files, all of which are in the flat table, and the allowed values; writer and
reader use it. Text comes from the compiler or from the system's description of the processor. Identifiers of the
machine and of models are replaced with hashes that depend on the user's own salt (`_salt`): nobody can verify a guess,
and the same machine has the same hash in the user's next file. A file has no metadata, because pyarrow's type metadata
can name Python classes.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import parquet

from op_profiler.cache import data_folder
from op_profiler.dataset import keys
from op_profiler.dataset.flat import COLUMNS, flat_rows
from op_profiler.dataset.formats.flat_table import FlatRow, device_of_row, row_of
from op_profiler.dataset.formats.parquet import schema_of
from op_profiler.errors import DatasetError
from op_profiler.files import atomic_file, explained, locked, whole_file
from op_profiler.frontends.sample import CACHED, name_of_batch, stays_cached

if TYPE_CHECKING:
    from op_profiler.dataset.store import Dataset

Rule = Callable[[Any], bool]
"""A function that returns whether a value is allowed in a cell."""

SHIPPED_ROWS = (
    "origin in ('default', 'rule') and complete and error is null and model_key is not null"
    " and not (model_source = 'sample' and anchor in ('broadcast_to', 'copy', 'strided_slice'))"
)
"""SQL condition on the flat table that excludes failures, tuned schedules and operators that surround sampled ones."""
_CALIBRATIONS = "model_source = 'sample' and model_name like 'calibrate%-apart-%'"
MOST_BYTES, _MOST_UNPACKED_BYTES = 32 << 20, 256 << 20
MOST_ROWS = 50_000
_MOST_CHARACTERS = 1 << 16
"""Largest number of characters in a cell."""
_DEEPEST = 6
_BATCH = 256
_CLASSES = b"ARROW:schema"
"""Metadata that pyarrow reads when it opens a file. It may name Python classes."""
_REFUSALS = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
_PLAIN = re.compile(r"[ -~]*")
_OF_PLACES = re.compile(r"[/\\~$`]")
"""Matches characters that paths and addresses contain; a cell must not contain them."""
_PROPERTIES = ("family_model_stepping", "logical_cores", "physical_cores", "peaks", "compute_capability", "sm_count")
_DETAILS = (
    *("gauge_us", "gauge_bytes", "exchange_us", "exchange_near_us", "compute_usual_us", "call_overhead_us", "denormal"),
    *("launch_gap_us", "launch_gap_method", "kernel_uncertainty_us"),
)


def _text(pattern: str) -> Rule:
    compiled = re.compile(pattern, re.ASCII)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def _number(least: float, most: float) -> Rule:
    return lambda value: isinstance(value, int | float) and least <= value <= most


def _nested(*names: str) -> Rule:
    """Return the rule for JSON values without paths; with `names`, the value must be an object with only these keys."""
    return lambda value: _is_plain(value) and (not names or (isinstance(value, dict) and value.keys() <= set(names)))


def _each(rule: Rule) -> Rule:
    return lambda value: isinstance(value, list) and all(map(rule, value))


def _or_none(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _is_plain(value: object, depth: int = 0) -> bool:
    if isinstance(value, str):
        return _PLAIN.fullmatch(value) is not None and _OF_PLACES.search(value) is None
    if isinstance(value, dict):
        return depth < _DEEPEST and all(_is_plain(part, depth + 1) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return depth < _DEEPEST and all(_is_plain(part, depth + 1) for part in value)
    return value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


_DIGITS, _WORD, _NAME = _text("[0-9a-f]{16}"), _text(r"[\w.:+-]{1,200}"), _text(r"[\w .,:;()@+=/&#-]{1,200}")
_COUNT, _BYTES, _US = _number(1, 1 << 16), _number(0, 1 << 60), _number(1e-6, 1e9)
_OTHER_US = _number(-1e9, 1e9)
_CORES = _each(_number(0, 1 << 16))


def _is_tensor(value: Any) -> bool:
    named = isinstance(value, dict) and value.keys() == {"shape", "dtype"}
    return named and _each(_number(-1, 1 << 40))(value["shape"]) and _WORD(value["dtype"])


def _is_past_day(value: Any) -> bool:
    try:
        moment = datetime.datetime.fromisoformat(value)
        return value.endswith("T00:00:00+00:00") and moment <= datetime.datetime.now(datetime.timezone.utc)
    except (TypeError, ValueError):
        return False


SHARED: dict[str, Rule] = {
    "operator_key": _DIGITS,
    "operator_name": _text(r"\w{1,2000}"),
    "anchor": _WORD,
    "op_names": _each(_WORD),
    **dict.fromkeys(("inputs", "params", "outputs"), _each(_is_tensor)),
    "attrs": _each(lambda value: isinstance(value, dict) and _is_plain(value)),
    "layouts": lambda value: isinstance(value, dict) and _is_plain(value),
    "structure": _is_plain,
    **dict.fromkeys(("flops", "bytes_read", "bytes_written"), _BYTES),
    "schedule_key": _DIGITS,
    "template": _WORD,
    "knobs": _nested(),
    **dict.fromkeys(("tile", "split", "fuse", "reorder", "compute_at", "vectorize", "unroll", "parallel"), _nested()),
    "threads": _number(0, 1 << 16),
    "threads_effective": _or_none(_COUNT),
    **dict.fromkeys(("core_set", "core_set_effective"), _CORES),
    "cache": _text("model"),
    "cache_mechanism": _text(r"[\w ,-]{1,40}"),
    "parallel_type": _text("sequential"),
    "streams": _COUNT,
    "precision": _text("float32|float16|int8"),
    "executor": _text("graph"),
    "device_key": _DIGITS,
    "core_type": _text("common|SM|IP"),
    "device_kind": _text(r"\w{1,20}"),
    "target": _is_plain,
    "processor": _NAME,
    "cores": _or_none(_COUNT),
    **dict.fromkeys(("l1_bytes", "l2_bytes", "l3_bytes", "memory_bytes"), _or_none(_BYTES)),
    "driver": _or_none(_text(r"[\d.]{1,40}")),
    "compiler": _text(r"\w{1,20}"),
    "tvm_version": _WORD,
    "llvm_version": _or_none(_WORD),
    "host_fingerprint": _DIGITS,
    "machine_id": _DIGITS,
    "device_properties": _nested(*_PROPERTIES),
    "model_key": _DIGITS,
    "model_name": _text(rf"calibrate({CACHED})?-apart-[0-9a-f]{{12}}"),
    "occurrences": _or_none(_COUNT),
    "launches": _nested(),
    "whole_model_us": _or_none(_US),
    "timing_details": _or_none(_nested(*_DETAILS)),
    "project_revision": _or_none(_WORD),
    "call_overhead_us": _or_none(_OTHER_US),
    "median_us": _US,
    **dict.fromkeys(("ci_low_us", "ci_high_us", "steady_us", "steady_low_us", "steady_high_us"), _or_none(_OTHER_US)),
    **dict.fromkeys(("again_low_us", "again_high_us"), _or_none(_OTHER_US)),
    "foreign_load": lambda value: isinstance(value, bool),
    "disturbed_by": _or_none(_text(r"[a-z ;]{1,200}")),
    "settled": lambda value: value is None or isinstance(value, bool),
    "measured_at": _is_past_day,
}
"""The columns of a shared file in order, each with its allowed values."""
_IMPLIED = {"origin": "default", "complete": True, "model_source": "sample", "batch_size": 1, "samples_us": []}
"""Columns of the flat table that a shared file lacks and whose values are the same in all its rows."""
SHARED_COLUMNS = tuple({column.name: column for column in COLUMNS}[name] for name in SHARED)


_SCHEMA = schema_of(SHARED_COLUMNS).remove_metadata()


def shared_rows(dataset: Dataset, device_key: str) -> list[FlatRow]:
    """Return the rows of a device's calibrations as they would be shared, with the columns of `SHARED`.

    Raises:
        DatasetError: the dataset has no usable calibration of this device, or a value is not allowed in a shared file.
        OpProfilerError: the salt of this user cannot be stored.
    """
    salt, where = _salt(), f"device_key = '{device_key}' and {_CALIBRATIONS} and {SHIPPED_ROWS}"
    wanted = [column.name for column in COLUMNS if column.name != "samples_us"]
    rows = [_without_names(row, salt) for row in flat_rows(dataset, where=where, columns=wanted)]
    if not rows:
        raise DatasetError("the dataset has no usable calibration of this device to share; run op-profiler calibrate")
    for row in rows:
        try:
            _identity(row)
        except _REFUSALS as error:
            raise DatasetError(f"this calibration cannot be shared: {error}") from error
    return rows


def _salt() -> bytes:
    """Return this user's salt: random bytes that are created once and stored in the data folder."""
    path = data_folder() / "share_salt"
    with explained(str(path)), locked(path.with_suffix(".lock")):
        if not path.exists():
            with atomic_file(path) as partial:
                partial.touch(mode=0o600)
                partial.write_bytes(secrets.token_bytes(32))
        return path.read_bytes()


def _without_names(row: FlatRow, salt: bytes) -> FlatRow:
    """Return the shared columns of a flat row, with hashes in place of the identifiers of machine and models.

    A board has a key that the user chose at the tracker. The key is part of the board's fingerprint, and the name of
    the processor if the board does not report one; both are therefore replaced.
    """

    def digits(*words: object) -> str:
        return hashlib.sha256(salt + "\n".join(map(str, words)).encode()).hexdigest()[:16]

    properties, details = row["device_properties"] or {}, row["timing_details"]
    cached = CACHED if stays_cached(row["model_name"]) else ""
    found = row | {
        "machine_id": digits(row["host_fingerprint"], row["machine_id"]),
        "device_properties": {name: one for name, one in properties.items() if name in _PROPERTIES},
        "timing_details": details and {name: one for name, one in details.items() if name in _DETAILS},
        "model_key": digits(row["device_key"], row["model_key"]),
        "model_name": name_of_batch(f"calibrate{cached}", digits(row["model_name"])[:12]),
        "measured_at": f"{row['measured_at'][:10]}T00:00:00+00:00",
    }
    if "key" in properties:
        if row["processor"] == properties["key"]:
            found["processor"] = properties.get("board") or row["device_kind"]
        kind = [found[name] for name in ("processor", "target", "cores", "l1_bytes", "l2_bytes", "l3_bytes")]
        found["host_fingerprint"] = hashlib.sha256(json.dumps(kind).encode()).hexdigest()[:16]
    found["device_key"] = device_of_row(found).key
    return {name: found[name] for name in SHARED}


def write_shared(rows: Sequence[FlatRow], path: Path) -> None:
    """Write rows of `shared_rows` as one file.

    Raises:
        OpProfilerError: the file cannot be written.
    """
    nested = {column.name for column in SHARED_COLUMNS if column.type == "json"}
    plain = [
        {name: json.dumps(one) if name in nested and one is not None else one for name, one in row.items()}
        for row in rows
    ]
    with whole_file(path) as partial:
        table = pyarrow.Table.from_pylist(plain, _SCHEMA)
        parquet.write_table(table, partial, compression="zstd", store_schema=False)


def read_shared(path: Path, content: bytes) -> Iterator[FlatRow]:
    """Check the rows of a shared file, and yield them as rows of the flat table.

    Args:
        path: path of the file, for error messages.
        content: content of the file.

    Raises:
        DatasetError: it is not a shared file, is too large, or has a row that is not allowed; the message contains the
            row number and the reason.
    """
    seen: set[str] = set()
    for number, cells in enumerate(_cells(path, content), 1):
        try:
            row = _values(cells)
            identity = _identity(row)
            if identity in seen:
                raise ValueError("it repeats another row")
        except _REFUSALS as error:
            raise DatasetError(f"row {number} of {path}: {error}") from error
        seen.add(identity)
        yield _filled(row)


def _cells(path: Path, content: bytes) -> Iterator[FlatRow]:
    try:
        if _CLASSES in content:
            raise ValueError("it has metadata of pyarrow")
        with parquet.ParquetFile(pyarrow.BufferReader(content)) as file:
            _check_file(file)
            for batch in file.iter_batches(_BATCH, use_threads=False):
                yield from batch.to_pylist()
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise DatasetError(f"{path} is no file of 'op-profiler calibrate --share': {error}") from error


def _check_file(file: parquet.ParquetFile) -> None:
    """Check metadata, columns and size of a file before its content is unpacked; raises ValueError."""
    about = file.metadata
    groups = [about.row_group(place) for place in range(about.num_row_groups)]
    if about.metadata:
        raise ValueError(f"it has metadata next to its columns, {str(next(iter(about.metadata)))[:40]}")
    if not file.schema_arrow.remove_metadata().equals(_SCHEMA):
        others = sorted(set(file.schema_arrow.names).symmetric_difference(SHARED))[:6]
        raise ValueError(f"it has other columns: {', '.join(others) or 'another order, or other types'}")
    if about.num_rows > MOST_ROWS:
        raise ValueError(f"it holds {about.num_rows} rows, and {MOST_ROWS} is the most")
    if (size := sum(group.total_byte_size for group in groups)) > _MOST_UNPACKED_BYTES:
        raise ValueError(f"it unpacks to {size >> 20} MiB, and {_MOST_UNPACKED_BYTES >> 20} is the most")


def _values(cells: FlatRow) -> FlatRow:
    """Return the values of a row's cells, with JSON text parsed; raises ValueError."""
    row = dict(cells)
    for column in SHARED_COLUMNS:
        text = row[column.name]
        if isinstance(text, str) and len(text) > _MOST_CHARACTERS:
            raise ValueError(f"{column.name} has {len(text)} characters, and {_MOST_CHARACTERS} is the most")
        if column.type == "json" and text is not None:
            row[column.name] = json.loads(text)
    return row


def _identity(row: FlatRow) -> str:
    """Check a row, and return the key of its measurement.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, RecursionError: a cell has a value that is not allowed, or the
            cells do not give the keys in the row.
    """
    for name, accepts in SHARED.items():
        if not accepts(row[name]):
            raise ValueError(f"{name} holds {str(row[name])[:80]!r}")
    _, one = row_of(_filled(row))
    return keys.measurement_key(one.operator_key, one.schedule.key, one.device.key, one.settings, one.model_key)


def _filled(row: FlatRow) -> FlatRow:
    """Return a flat row with all columns from a row with the shared columns; unknown values are None."""
    return {column.name: None for column in COLUMNS} | _IMPLIED | row
