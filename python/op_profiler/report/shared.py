"""Output of ``op-profiler`` about shared calibrations: the rows to share, and adopted files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.report.tables import numbers, print_line, screen, show_table, texts

if TYPE_CHECKING:
    from op_profiler.dataset.formats.adopting import AdoptionResult


def about(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a JSON-serializable summary of the rows of `op_profiler.dataset.formats.shared.shared_rows`."""
    from op_profiler.dataset.formats.shared import SHARED_COLUMNS

    return {
        "rows": len(rows),
        "operators": len({row["operator_key"] for row in rows}),
        "device": {name: rows[0][name] for name in ("device_key", "processor", "target", "cores", "tvm_version")},
        "columns": {column.name: column.description for column in SHARED_COLUMNS},
        "example": rows[0],
    }


def show_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what would be shared: the device, the number of rows, and each column with its value in the first row."""
    found = about(rows)
    device, console = found["device"], screen()
    print_line(console, f"device: {device['processor']}, {device['cores']} cores ({device['target']})")
    example = {name: one if isinstance(one, str) else json.dumps(one) for name, one in rows[0].items()}
    cells = [[name, example[name], meaning] for name, meaning in found["columns"].items()]
    title = f"{found['rows']} rows of {found['operators']} operators, {len(cells)} columns; the first row"
    show_table(console, title, [*texts("column", "example"), *texts("meaning", rank=1)], cells)
    print_line(
        console, "machine_id, device_key, model_key and model_name come from a salted hash; nobody can verify a guess"
    )


def show_adopted(adopted: AdoptionResult) -> None:
    """Print the adopted files, examples of suspicious rows, and the processors of the adopted rows."""
    console = screen()
    rows = [
        [str(one.file), one.sha256[:16], str(one.rows), str(one.repeated), str(sum(one.suspicious.values()))]
        for one in adopted.files
    ]
    headings = [*texts("file"), *numbers("run_id", rank=1), *numbers("rows", "repeated", "suspicious")]
    show_table(console, f"shared files: {len(rows)}, all in order", headings, rows)
    for one in adopted.files:
        for text in one.examples:
            print_line(console, f"{one.file}: {text}")
    kinds = [
        [one.processor, one.target, one.host_fingerprint, *map(str, (one.machines, one.operators, one.measurements))]
        for one in adopted.processors
    ]
    headings = [
        *texts("processor", "target"),
        *numbers("host_fingerprint", rank=1),
        *numbers("machines", "operators", "measurements"),
    ]
    show_table(console, f"processors: {len(kinds)}", headings, kinds)
