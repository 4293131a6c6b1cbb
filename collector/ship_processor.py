#!/usr/bin/env python3
"""Make what ships of a processor: its folder in results/, with a dataset, what the loops of its operators do, and the
predictor that is fitted to both.

    python collector/ship_processor.py DB [DB ...]       datasets of one processor, files or addresses
    python collector/ship_processor.py --again           loops and predictors of all that ships, for other features

An hour or so for ten thousand operators. Loops are kept in the cache folder, so the same command goes on where it was
interrupted, and with more data it reads those that are new. Nothing is measured. Then:

    python benchmarks/shipped_dataset.py                 what is in it, for its data card in results/README.md
    python benchmarks/held_out_models.py                 how far off such predictors are
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

LOOPS = "operator_loops.npz"
_WHERE = (
    "device_key = '{key}' and origin = 'default' and complete and error is null and model_key is not null"
    " and not (model_source = 'sample' and anchor in ('broadcast_to', 'strided_slice'))"
)
"""Rows that ship: no failures, nothing tuned, nothing of what only stands around sampled operators."""


def note(text: str) -> None:
    """Tell at once what is done, also to a file."""
    print(text, flush=True)


def write_dataset(sources: list[str], wanted: str | None, results: Path) -> Path:
    """One Parquet file of all datasets, without the times of single rounds; the folder that it is in.

    Args:
        wanted: key or part of the processor's name, where the datasets hold several.
        results: where the folder is made.
    """
    from sqlalchemy import text

    from op_profiler.compilers import DEFAULT_COMPILER
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.formats.combined import combine
    from op_profiler.dataset.formats.exporting import export_table
    from op_profiler.predict.latency.devices import devices_in
    from op_profiler.schedules.records import slug

    addresses = [one if "://" in one else f"sqlite:///{Path(one).resolve()}" for one in sources]
    with tempfile.TemporaryDirectory() as scratch:
        merged = f"sqlite:///{scratch}/merged.db"
        note(f"merging {len(addresses)} datasets")
        combine(addresses, merged)
        devices = [one for one in devices_in(db=merged) if one.compiler == DEFAULT_COMPILER]
        devices = [one for one in devices if wanted is None or wanted.lower() in f"{one.key} {one.processor}".lower()]
        if len(devices) != 1:
            there = "; ".join(f"{one.key} ({one.processor}, {one.target})" for one in devices) or "none"
            sys.exit(f"the datasets have to be of one device, or --device names one; there are: {there}")
        folder = results / slug(devices[0].processor)
        folder.mkdir(parents=True, exist_ok=True)
        with Dataset.open(merged) as dataset:
            with dataset.transaction(), dataset.read() as connection:
                connection.execute(text("UPDATE measurements SET samples_us = '[]'"))  # four fifths of the file
            where = _WHERE.format(key=devices[0].key)
            done = export_table(dataset, folder / "operators.parquet", format="parquet", where=where)
    note(f"{done.rows} rows in {folder / 'operators.parquet'}")
    return folder


def write_loops_and_predictor(folder: Path) -> None:
    """Beside the Parquet file of a folder: what is fitted to it."""
    from op_profiler.files import whole_file
    from op_profiler.predict.latency import predictor_files
    from op_profiler.predict.latency.examples import load_examples
    from op_profiler.predict.latency.fit import fit
    from op_profiler.predict.latency.loops import loops_of, write_loops

    examples = load_examples(file=folder / "operators.parquet")
    (device,) = examples.devices
    loops = folder / LOOPS
    told = loops_of(examples.operators, device.target, note)
    with whole_file(loops) as path:
        write_loops(path, examples.operators, told, device.target)
    note(f"fitting a predictor to {len(examples):,} measurements")
    predictor_files.save(fit(dataclasses.replace(examples, loops=told)), folder / "predictor.zip")
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 2**20:.1f} MiB" for path in sorted(folder.iterdir()))
    note(f"{folder.name}: {sizes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("db", nargs="*", help="datasets of one processor")
    parser.add_argument("--device", help="key or part of the processor's name, where the datasets hold several")
    parser.add_argument("--again", action="store_true", help="loops and predictors of all that ships")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the processors' folders")
    arguments = parser.parse_args()
    if arguments.again == bool(arguments.db):
        parser.error("give datasets, or --again")
    from op_profiler.errors import OpProfilerError

    try:
        made = [] if arguments.again else [write_dataset(arguments.db, arguments.device, arguments.results)]
        folders = made or sorted(path.parent for path in arguments.results.glob("*/operators.parquet"))
        for folder in folders:  # all before the first is read: one target's loops are looked up in every folder
            (folder / LOOPS).unlink(missing_ok=True)
        for folder in folders:
            write_loops_and_predictor(folder)
    except OpProfilerError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
