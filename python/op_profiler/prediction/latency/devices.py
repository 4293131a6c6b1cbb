"""`DeviceName`: the devices of measurements, with the names that users know."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.tvm_build import host_cpu
from op_profiler.prediction.latency import usable
from op_profiler.schedules.records import slug
from op_profiler.targets.target import kind_of

OF_DEVICE = (
    *("device_key", "device_kind", "processor", "cores", "target", "compiler", "device_properties", "l2_bytes"),
    *("l3_bytes", "memory_bytes"),
)
"""Columns of the flat table that `device_of` reads."""
_OF_KIND = ("host_fingerprint", "device_key", "processor", "target", "compiler")
_COLUMNS = (*OF_DEVICE, *usable.COLUMNS)


@dataclasses.dataclass(frozen=True)
class DeviceName:
    """A device in a dataset, with the names that users know.

    Attributes:
        processor: name of the processor, with family and model if known, as returned by
            `op_profiler.targets.llvm.identity.processor_name`, because several generations may have the same name.
        peaks: plain values, as in `op_profiler.targets.llvm.peaks.Peaks`; None if the peaks were not measured.
        memory_bytes, cache_bytes: size of the device's memory, and of its last-level cache; None if unknown.
        compiler: name of the compiler that generated the code.
    """

    key: str
    kind: str
    processor: str
    cores: int | None
    target: str
    peaks: dict[str, list[float]] | None = None
    memory_bytes: int | None = None
    cache_bytes: int | None = None
    compiler: str = DEFAULT_COMPILER


def is_here(device: DeviceName) -> bool:
    """Return whether a device has this machine's processor model, even if the device's name lacks family and model."""
    kind = kind_of(device.target)
    if not kind.on_host:
        return False
    here, there = slug(kind.processor_name()), slug(device.processor)
    return here == there or here.startswith(f"{there}-")


def cpu_elsewhere(target: str | None) -> str | None:
    """Return the processor in a target's ``-mcpu`` if it is not this machine's; None otherwise."""
    if target is None or not kind_of(target).on_host:
        return None
    cpu = cpu_of(target)
    return None if cpu == host_cpu() else cpu


def cpu_of(target: str) -> str | None:
    """Return the processor in a target's ``-mcpu``; None without one."""
    named = re.search(r"-mcpu=(\S+)", target)
    return None if named is None else named[1]


def measure_with(compiler: str, options: str = "") -> str:
    """Return the command that measures operators of a compiler, with the text `options` at its end.

    The command is ``sample`` for the default compiler, otherwise ``collect``, because only operators of the default
    compiler can be sampled.
    """
    if compiler == DEFAULT_COMPILER:
        return f"op-profiler sample --count 500{options}"
    return f"op-profiler collect --compiler {compiler} --modelname ...{options}"


def devices_in(*, db: str | None = None, file: Path | None = None, noisy: bool = False) -> list[DeviceName]:
    """Return the devices with usable times in a dataset, a Parquet file, or both.

    Args:
        noisy: whether disturbed times of the dataset are usable.

    Raises:
        DatasetError: the dataset or the file cannot be read.
    """
    found = list(_of_dataset(db, noisy=noisy)) if db is not None else []
    if file is not None:
        known = {device.key for device in found}
        left = _kinds_in(file)
        for row in rows_of_file(file, _COLUMNS):
            if _kind(row) in left and usable.reason_against(row) is None:
                left.discard(_kind(row))
                if row["device_key"] not in known:
                    known.add(row["device_key"])
                    found.append(device_of(row))
            if not left:
                break  # every device of the file was found
    return found


def rows_of_file(file: Path, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a Parquet file that the package includes.

    The rows of all machines of one kind (`host_fingerprint`) get the device of the first of these machines; the
    reference kernels show how much slower the other machines are.

    Args:
        columns: columns to read, including those that `device_of` needs.
    """
    from op_profiler.dataset.formats.parquet import parquet_rows

    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in parquet_rows(file, (*columns, "host_fingerprint")):
        kind = _kind(row)
        if kind not in first:
            first[kind] = {name: row.get(name) for name in OF_DEVICE}
        yield {**row, **first[kind]}


def _kinds_in(file: Path) -> set[tuple[Any, ...]]:
    from op_profiler.dataset.formats.parquet import parquet_rows

    return {_kind(row) for row in parquet_rows(file, _OF_KIND)}


def _kind(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what all machines of one device have in common; for a GPU without the host, which does not affect
    kernel times."""
    machine = row["processor"] if kind_of(row["target"]).on_gpu else row.get("host_fingerprint") or row["device_key"]
    return machine, row["target"], row.get("compiler")


def _of_dataset(db: str, *, noisy: bool) -> Iterable[DeviceName]:
    from sqlalchemy import select

    from op_profiler.dataset import Dataset, schema

    table, keys = schema.devices, usable.keys_of_devices(noisy=noisy)
    names = {column.name: column.info["flat"] for column in table.c}
    with Dataset.open(db, create=False, read_only=True) as dataset:
        for row in dataset.rows(select(table).where(table.c.key.in_(keys)).order_by(table.c.key)):
            yield device_of({names[name]: value for name, value in row.items()})


def target_line(target: str) -> str:
    """Return a target in the form that users write; newer versions of TVM write it as JSON."""
    if not target.startswith("{"):
        return target
    fields = json.loads(target)
    options = [f"-{name}={fields[name]}" for name in ("mtriple", "mcpu", "mfloat-abi", "arch") if fields.get(name)]
    features = [f"-mattr={','.join(fields['mattr'])}"] if fields.get("mattr") else []
    return " ".join([fields["kind"], *options, *features])


def full_name(processor: str, properties: Mapping[str, Any]) -> str:
    """Return a processor's name, with family and model if its properties have them (`DeviceName.processor`)."""
    family, model, *_ = properties.get("family_model_stepping") or (None, None)
    return processor if family is None else f"{processor} family {family} model {model}"


def device_of(row: Mapping[str, Any]) -> DeviceName:
    """Return the device of a row of the flat table."""
    properties = row["device_properties"] or {}
    return DeviceName(
        key=row["device_key"],
        kind=row["device_kind"],
        processor=full_name(row["processor"], properties),
        cores=row["cores"],
        target=target_line(row["target"]),
        peaks=properties.get("peaks"),
        memory_bytes=row["memory_bytes"],
        cache_bytes=row["l3_bytes"] or row["l2_bytes"],
        compiler=row.get("compiler") or DEFAULT_COMPILER,
    )
