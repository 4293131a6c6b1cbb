#!/usr/bin/env python3
"""Create the included data of a processor: its folder in results/, with a dataset, the features of its operators'
loops, and the predictor that is fitted to both.

    python collector/ship_processor.py DB [DB ...]       datasets of one processor: files, Parquet too, or addresses
    python collector/ship_processor.py --again           loops and predictors of all included data, for other features
    python collector/ship_processor.py --refit           predictors of all included data, for another way to fit
    python collector/ship_processor.py --networks        lowered models of the included GPUs; needs the TVM with CUDA

The command takes about ten minutes for ten thousand operators. Loops are stored in the cache folder, so the same
command resumes after an interruption, and after an addition of data it reads only new loops. Nothing is measured. The
folder replaces an older one only when it is complete: after an interruption, all three files are unchanged.

Several machines of one hardware model (equal `host_fingerprint`; for GPUs the name) are one device here; the rows still
identify the machine. The reference kernels show how much slower one machine is than another
(`op_profiler.prediction.latency.steady_times`). GPUs have their folders in results/cuda/. Then:

    python benchmarks/shipped_dataset.py                 what is in it, for its data card in results/README.md
    python benchmarks/held_out_models.py                 how far off such predictors are
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from op_profiler.prediction.latency.examples import Examples

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

DATASET, LOOPS, PREDICTOR = "operators.parquet", "operator_loops.npz", "predictor.zip"
NETWORKS = "networks.zip"
MOST_CHANGED = 0.1
"""Share of the measured operators that a lowered model may lack, since it was measured by an older commit."""


def note(text: str) -> None:
    """Tell at once what is done, also to a file."""
    print(text, flush=True)


def ship(sources: list[str], wanted: str | None, results: Path) -> None:
    """Make the folder of the processor that some datasets are of.

    Args:
        wanted: key or part of the processor's name, where the datasets hold several.
        results: where the folder is made.
    """
    from op_profiler.compilers import DEFAULT_COMPILER
    from op_profiler.dataset.formats.combined import combine
    from op_profiler.prediction.latency.devices import devices_in
    from op_profiler.schedules.records import slug
    from op_profiler.targets.target import kind_of

    files = {one: one if one.endswith(".parquet") else f"sqlite:///{Path(one).resolve()}" for one in sources}
    addresses = [one if "://" in one else files[one] for one in sources]
    with tempfile.TemporaryDirectory() as scratch:
        merged = f"sqlite:///{scratch}/merged.db"
        note(f"merging {len(addresses)} datasets")
        combine(addresses, merged)
        devices = [one for one in devices_in(db=merged) if one.compiler == DEFAULT_COMPILER]
        devices = [one for one in devices if wanted is None or wanted.lower() in f"{one.key} {one.processor}".lower()]
        kinds = kinds_of_machines(merged)
        if len({kinds[one.key] for one in devices}) != 1:
            there = "; ".join(f"{one.key} ({one.processor}, {one.target})" for one in devices) or "none"
            sys.exit(f"the datasets have to be of machines of one kind, or --device names one; there are: {there}")
        note(f"machines: {', '.join(one.key for one in devices)}")
        folder = results / "cuda" if kind_of(devices[0].target).on_gpu else results
        folder.mkdir(exist_ok=True)
        with whole(folder / slug(devices[0].processor)) as made:
            write_dataset(merged, [one.key for one in devices], made)
            write_loops_and_predictor(made)


def ship_again(folder: Path) -> None:
    """Make loops and predictor of a folder anew."""
    with whole(folder) as made:
        shutil.copy2(folder / DATASET, made)
        write_loops_and_predictor(made)


def refit(folder: Path) -> None:
    """Make the predictor of a folder anew, with the loops that are there."""
    from op_profiler.prediction.latency.examples import load_examples
    from op_profiler.prediction.latency.open_predictor import with_loops

    examples = load_examples(file=folder / DATASET)
    with whole(folder) as made:
        for name in (DATASET, LOOPS):
            shutil.copy2(folder / name, made)
        write_predictor(with_loops(examples, examples.devices[0].target, note), made)


def ship_networks(folder: Path) -> None:
    """Lower the models that a GPU's data was measured with, for machines without the TVM that lowers for it."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.dataset.formats.parquet import parquet_rows
    from op_profiler.errors import OpProfilerError
    from op_profiler.files import atomic_file
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.prediction.latency.devices import target_line
    from op_profiler.prediction.latency.lowered_models import LoweringProcess, write_included

    of_model = ("model_source", "model_name", "batch_size")
    measured: dict[BuildRequest, set[str]] = {}
    for row in parquet_rows(folder / DATASET, (*of_model, "precision", "target", "operator_key")):
        if row["model_source"] == "sample":
            continue
        source, name, batch_size = (row[column] for column in of_model)
        model = ModelRequest(source=source, name=name, batch_size=batch_size)
        target, precision = target_line(row["target"]), row["precision"]
        asked = BuildRequest(model=model, target=target, precision=precision, schedules="none", threads=(0,))
        measured.setdefault(asked, set()).add(row["operator_key"])
    found = {}
    with LoweringProcess() as process:
        for request, keys in measured.items():
            what = f"{request.model.name}, batch {request.model.batch_size}, {request.precision}"
            try:
                lowered = process.lower(request)
            except OpProfilerError as error:
                note(f"{what} is left out: {error}")
                continue
            changed, calls = len(keys - {operator.key for operator in lowered.operators}), len(lowered.operators)
            note(f"{what}: {calls} calls; {changed} of {len(keys)} measured operators are not in it")
            if changed > MOST_CHANGED * len(keys):
                note(f"{what} is left out: it has to be measured again")
                continue
            found[request] = lowered
    with atomic_file(folder / NETWORKS) as made:
        write_included(found, made)
    note(f"{folder / NETWORKS}: {(folder / NETWORKS).stat().st_size / 2**10:.0f} KiB")


@contextlib.contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A folder to fill, which then takes the place of another: its three files always belong together. What else is
    there, as trials of a GPU's searches, stays."""
    from op_profiler.files import atomic_folder, explained

    with explained(str(folder)), atomic_folder(folder, replace=True) as made:
        for file in folder.glob("*"):
            if file.name not in (DATASET, LOOPS, PREDICTOR):
                shutil.copy2(file, made)
        yield made
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 2**20:.1f} MiB" for path in sorted(folder.iterdir()))
    note(f"{folder}: {sizes}")


def kinds_of_machines(merged: str) -> dict[str, tuple[str, str]]:
    """By the key of each device what its times can be compared by: two of a kind may be two machines. The time of a
    GPU's kernel holds nothing of its host."""
    from sqlalchemy import select

    from op_profiler.dataset import Dataset, schema
    from op_profiler.targets.target import kind_of

    column = schema.devices.c
    with Dataset.open(merged, read_only=True) as dataset:
        rows = dataset.rows(select(column.key, column.host_fingerprint, column.target, column.processor))
        return {
            row["key"]: (row["processor" if kind_of(row["target"]).on_gpu else "host_fingerprint"], row["target"])
            for row in rows
        }


def write_dataset(merged: str, device_keys: list[str], folder: Path) -> None:
    """Write one Parquet file with the included data of a processor, without the times of single rounds."""
    from sqlalchemy import text

    from op_profiler.dataset import Dataset
    from op_profiler.dataset.formats.exporting import export_table
    from op_profiler.dataset.formats.shared import SHIPPED_ROWS

    keys = ", ".join(f"'{key}'" for key in device_keys)
    with Dataset.open(merged) as dataset:
        with dataset.transaction(), dataset.read() as connection:
            connection.execute(text("UPDATE measurements SET samples_us = '[]'"))  # four fifths of the file
        done = export_table(
            dataset, folder / DATASET, format="parquet", where=f"device_key in ({keys}) and {SHIPPED_ROWS}"
        )
    note(f"{done.rows} rows")


def write_loops_and_predictor(folder: Path) -> None:
    """Beside the Parquet file of a folder: what is fitted to it."""
    import numpy as np

    from op_profiler.prediction.latency.examples import load_examples
    from op_profiler.prediction.latency.loops import loops_of, write_loops

    examples = load_examples(file=folder / DATASET)
    (device,) = examples.devices
    told = loops_of(examples.operators, device.target, note)
    if np.isfinite(told).any():
        write_loops(folder / LOOPS, examples.operators, told, device.target)
    write_predictor(dataclasses.replace(examples, loops=told), folder)


def write_predictor(examples: Examples, folder: Path) -> None:
    """Fit a predictor to measurements with their loops, and to those of other processors that it lacks."""
    from op_profiler.prediction.latency import predictor_files
    from op_profiler.prediction.latency.fit import examples_of_other_processors, fit
    from op_profiler.prediction.latency.open_predictor import shipped_examples
    from op_profiler.targets.target import kind_of

    on_gpu = kind_of(examples.devices[0].target).on_gpu
    others = [] if on_gpu else examples_of_other_processors(examples, shipped_examples(note))
    note(f"fitting a predictor to {len(examples):,} measurements; {len(others)} other processors teach what it lacks")
    predictor_files.save(fit(examples, others=others), folder / PREDICTOR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("db", nargs="*", help="datasets of one processor")
    parser.add_argument("--device", help="key or part of the processor's name, where the datasets hold several")
    parser.add_argument("--again", action="store_true", help="loops and predictors of all included data")
    parser.add_argument("--refit", action="store_true", help="predictors of all included data, with the stored loops")
    parser.add_argument("--networks", action="store_true", help="lowered models of the included GPUs")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the processors' folders")
    arguments = parser.parse_args()
    if bool(arguments.db) + arguments.again + arguments.refit + arguments.networks != 1:
        parser.error("give datasets, --again, --refit or --networks")
    from op_profiler.errors import OpProfilerError

    try:
        if arguments.db:
            ship(arguments.db, arguments.device, arguments.results)
            return
        if arguments.networks:
            for dataset in sorted(arguments.results.glob(f"cuda/[!.]*/{DATASET}")):
                ship_networks(dataset.parent)
            return
        for pattern in (f"[!.]*/{DATASET}", f"cuda/[!.]*/{DATASET}"):
            for dataset in sorted(arguments.results.glob(pattern)):
                (refit if arguments.refit else ship_again)(dataset.parent)
    except OpProfilerError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
