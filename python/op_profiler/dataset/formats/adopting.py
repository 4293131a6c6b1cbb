"""`adopt`: checks calibration files that users shared, and merges them into one dataset or Parquet file."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import func, select

from op_profiler.addresses import without_password
from op_profiler.dataset import schema
from op_profiler.dataset.formats.combined import combine
from op_profiler.dataset.formats.flat_table import store_flat
from op_profiler.dataset.formats.shared import MOST_BYTES, read_shared
from op_profiler.dataset.store import Dataset
from op_profiler.errors import DatasetError


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdoptedFile:
    """A checked shared file.

    Attributes:
        sha256: hash of the file's content. Its first 16 hex digits become the ``run_id`` of the rows.
        label: ``run_label`` of the rows: the file's name and the first 16 hex digits of `sha256`.
        rows: number of valid rows in the file.
        repeated: number of these rows that add nothing, because an earlier file contains the same measurement, at least
            as good and as new.
        suspicious: number of suspicious rows, by the kind of `op_profiler.dataset.checks.Finding`; they are kept.
        examples: descriptions of the first suspicious rows.
    """

    file: Path
    sha256: str
    label: str
    rows: int
    repeated: int
    suspicious: dict[str, int]
    examples: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdoptedProcessor:
    """Numbers of distinct machines, operators and measurements of one hardware model in all files together.

    Attributes:
        host_fingerprint: fingerprint of the hardware model.
    """

    processor: str
    target: str
    host_fingerprint: str
    machines: int
    operators: int
    measurements: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdoptionResult:
    """Result of `adopt`.

    Attributes:
        into: the destination, without a password; None if the files were only checked.
        new: number of measurements that `into` lacked or had in worse quality; None if the files were only checked.
    """

    files: tuple[AdoptedFile, ...]
    processors: tuple[AdoptedProcessor, ...]
    into: str | None
    new: int | None


def adopt(
    files: Sequence[Path], into: str | None, announce: Callable[[str], None] = lambda step: None
) -> AdoptionResult:
    """Check shared files and add their rows to a Parquet file or a dataset. If one file is rejected, write nothing.

    Args:
        into: destination as for `op_profiler.dataset.formats.combined.combine`; None to check only.
        announce: called before each slow step.

    Raises:
        DatasetError: a file cannot be read or has contents that are not allowed, or `into` cannot be written.
        UsageError: `into` is not a valid destination.
    """
    with tempfile.TemporaryDirectory(prefix="op_profiler-adopt-") as folder:
        url = f"sqlite:///{folder}/shared.db"
        with Dataset.open(url) as dataset:
            checked = []
            for file in files:
                announce(f"checking {file}")
                checked.append(_checked(dataset, file))
            processors = tuple(_processors(dataset))
        new = None if into is None else combine([url], into, announce=announce).written["measurements"]
    place = None if into is None else without_password(into)
    return AdoptionResult(files=tuple(checked), processors=processors, into=place, new=new)


def _checked(dataset: Dataset, file: Path) -> AdoptedFile:
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise DatasetError(f"cannot read {file}: {error.strerror or error}") from error
    if len(content) > MOST_BYTES:
        raise DatasetError(f"{file} is larger than {MOST_BYTES >> 20} MiB, the most that a shared file may have")
    sha256 = hashlib.sha256(content).hexdigest()
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", file.stem)[:40]
    provenance = {"run_id": sha256[:16], "run_label": f"{name}-{sha256[:16]}"}
    done = store_flat(
        dataset, ((number, row | provenance) for number, row in enumerate(read_shared(file, content), 1)), None
    )
    return AdoptedFile(
        file=file,
        sha256=sha256,
        label=provenance["run_label"],
        rows=done.rows + done.known,
        repeated=done.known,
        suspicious=done.suspicious,
        examples=done.examples,
    )


def _processors(dataset: Dataset) -> list[AdoptedProcessor]:
    device, row = schema.devices.c, schema.measurements.c
    kind = (device.processor, device.target, device.host_fingerprint)
    counts = (
        func.count(device.key.distinct()).label("machines"),
        func.count(row.operator_key.distinct()).label("operators"),
        func.count().label("measurements"),
    )
    query = select(*kind, *counts).join(schema.measurements, row.device_key == device.key).group_by(*kind)
    return [AdoptedProcessor(**found) for found in dataset.rows(query.order_by(*kind))]
