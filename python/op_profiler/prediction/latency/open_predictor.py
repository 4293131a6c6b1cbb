"""Selection of a predictor: from a file, fitted to a dataset, or included with the package."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.addresses import without_password
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.errors import DatasetError, UsageError
from op_profiler.prediction.latency import PREDICTORS, predictor_files
from op_profiler.prediction.latency.devices import cpu_elsewhere, cpu_of, devices_in, is_here
from op_profiler.prediction.latency.examples import load_examples
from op_profiler.prediction.latency.fit import fingerprint, fit
from op_profiler.prediction.latency.loops import loops_of
from op_profiler.prediction.latency.query import unknown_loops
from op_profiler.prediction.latency.vectors import vector_ratio
from op_profiler.schedules.records import slug
from op_profiler.shipped import ShippedProcessor, nearest_processor, shipped_gpus, shipped_processors
from op_profiler.targets.llvm import identity

if TYPE_CHECKING:
    from op_profiler.prediction.latency.devices import DeviceName
    from op_profiler.prediction.latency.examples import Examples
    from op_profiler.prediction.latency.operator_predictor import OperatorPredictor

_NO_DATASET = "there is no dataset to fit a predictor to; give one with --db (op-profiler sample creates one)"


def open_predictor(
    predictor: str = "default",
    *,
    db: str | None = None,
    device: str | None = None,
    compiler: str = DEFAULT_COMPILER,
    on_gpu: bool = False,
    noisy: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> OperatorPredictor:
    """Return the predictor that a user requested.

    A predictor that is fitted to a dataset is stored in the cache folder by the dataset's fingerprint, so it is fitted
    once.

    Args:
        predictor: one of `PREDICTORS`, or the path of a file that `predictor_files.save` wrote.
        db: dataset to fit to; None for included data.
        device: start of a device's key or part of its processor's name. None for the only device of the dataset, or
            this machine; with included data, for this processor or the one with the most similar name
            (`shipped_processor`).
        compiler: compiler whose kernels were measured.
        on_gpu: whether to predict for a GPU if neither a dataset nor a device is given.
        noisy: whether disturbed times of the dataset are used.
        note: called with a text before each step that takes long.

    Raises:
        UnknownNameError: `predictor` is neither a choice nor a file.
        DatasetError: the file or the dataset cannot be used, or it has several devices and `device` is None.
    """
    if predictor not in PREDICTORS:
        check_choice(predictor)
        stored = predictor_files.load(Path(predictor))
        if stored.device.compiler != compiler:
            raise DatasetError(f"{predictor} holds times of --compiler {stored.device.compiler}, not of {compiler}")
        if device is not None and not _is(stored.device, device):
            there = f"{stored.device.processor} ({stored.device.target})"
            raise DatasetError(f"{predictor} holds times of {there}, not of {device!r}; leave out --device")
        return stored
    if db is None and predictor == "default" and compiler == DEFAULT_COMPILER:
        ships = shipped_processor(device, on_gpu=on_gpu)
        try:
            if ships.predictor is not None:
                return predictor_files.load(ships.predictor)
        except DatasetError as error:
            note(str(error))
    examples = examples_for(db=db, device=device, compiler=compiler, on_gpu=on_gpu, noisy=noisy, note=note)
    return _fitted(examples, predictor, note)


def check_choice(predictor: str) -> None:
    """Check that `predictor` is one of `PREDICTORS` or a file.

    Raises:
        UnknownNameError: `predictor` is neither; the message lists the choices.
    """
    if not Path(predictor).is_file():
        PREDICTORS.check(predictor, "Or give the path of a stored one.")


def shipped_processor(device: str | None = None, *, on_gpu: bool = False) -> ShippedProcessor:
    """Return the included data to predict from: that of the requested device, of this processor, or of the processor
    with the most similar name.

    Args:
        device: start of a device's key or part of its processor's name.
        on_gpu: without `device`, return the data of the GPU; if there are several, `device` is required.

    Raises:
        DatasetError: no data is included, or none for the requested device; the message lists the devices.
    """
    if device is None and not on_gpu:
        nearest = nearest_processor(slug(identity.processor_name()))
        if nearest is None:
            raise DatasetError(_NO_DATASET)
        return nearest
    ships = shipped_gpus() if device is None else [*shipped_processors(), *shipped_gpus()]
    if not ships:
        raise DatasetError(_NO_DATASET)
    devices = [_device_of(one) for one in ships]
    return ships[devices.index(_chosen(devices, device))]


def device_for(target: str | None) -> str | None:
    """Return the key of the device with included data for the ``-mcpu`` of a target, if that is not this machine's
    processor.

    None if there is no such device, or if there are several.
    """
    cpu = cpu_elsewhere(target)
    found = [] if cpu is None else [one for one in map(_device_of, shipped_processors()) if cpu_of(one.target) == cpu]
    return found[0].key if len(found) == 1 else None


def known_devices(db: str | None) -> list[DeviceName]:
    """Return the devices that `open_predictor` can predict for: those of a dataset, or those with included data.

    Raises:
        DatasetError: the dataset cannot be read.
    """
    return (
        devices_in(db=db) if db is not None else [_device_of(one) for one in (*shipped_processors(), *shipped_gpus())]
    )


def _device_of(ships: ShippedProcessor) -> DeviceName:
    """Return the device of included data, from the predictor if it is readable: reading the dataset is slower."""
    if ships.predictor is not None:
        try:
            return predictor_files.device_in(ships.predictor)
        except DatasetError:
            if ships.operators is None:
                raise
    (device,) = devices_in(file=ships.operators)
    return device


def examples_for(
    *,
    db: str | None,
    device: str | None,
    compiler: str = DEFAULT_COMPILER,
    on_gpu: bool = False,
    noisy: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> Examples:
    """Return the measurements of one device in a dataset, or in included data.

    Args:
        on_gpu: as for `shipped_processor`.
        noisy: whether disturbed times of the dataset are used.
        compiler: compiler whose kernels were measured; the times of another compiler belong to another device.

    Raises:
        DatasetError: there are no measurements, or there are several devices and `device` is None.
    """
    file = shipped_processor(device, on_gpu=on_gpu).operators if db is None else None
    if db is None and file is None:
        raise DatasetError(_NO_DATASET)
    there = devices_in(db=db, file=file, noisy=noisy)
    if not there:
        raise _nothing_to_learn(db, load_examples(db=db, file=file).left_out)
    devices = [one for one in there if one.compiler == compiler]
    if not devices:
        raise DatasetError(
            f"there are no times of --compiler {compiler} in {_place(db)}: collect some "
            f"(op_performance_collector.py --compiler {compiler} --modelname ... --threads 1,2), and give it "
            "with --db"
        )
    chosen = _chosen(devices, device)
    examples = load_examples(db=db, file=file, device=chosen.key, noisy=noisy, note=note)
    if not len(examples):
        raise _nothing_to_learn(db, examples.left_out)
    return with_loops(examples.of_device(chosen.key), chosen.target, note)


def shipped_examples(note: Callable[[str], None] = lambda text: None) -> list[Examples]:
    """Return the included measurements of each processor that has the vector length of the first included processor."""
    found = [
        examples_for(db=None, device=one.folder.name, note=note)
        for one in shipped_processors()
        if one.operators is not None
    ]
    return [one for one in found if vector_ratio(one.only_device, found[0].only_device) == 1.0]


def digest_of_what_ships() -> str:
    """Return a digest (16 hex digits) of the included measurements and loops of processors; an empty string if the
    package includes none."""
    files = [file for one in shipped_processors() for file in (one.operators, one.loops) if file is not None]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16] if files else ""


def _nothing_to_learn(db: str | None, left_out: Mapping[str, int]) -> DatasetError:
    reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    return DatasetError(
        f"there is no usable time in {_place(db)}{f' ({reasons})' if reasons else ''}: failures, tuned schedules, "
        "sweeps and disturbed times are not used. Collect while nothing else uses the machine; --remeasure noisy "
        "measures disturbed times again, and predict --include-noisy uses them"
    )


def _place(db: str | None) -> str:
    return "the data included with the package" if db is None else without_password(db)


def with_loops(examples: Examples, target: str, note: Callable[[str], None] = lambda text: None) -> Examples:
    """Return a copy of the measurements with the loops of their operators on a target.

    Args:
        note: called with a text before each step that takes long.
    """
    used = np.unique(examples.operator)
    of_used = loops_of([examples.operators[at] for at in used], target, note)
    loops = unknown_loops(len(examples.operators), of_used.shape[1]).copy()
    loops[used] = of_used
    return dataclasses.replace(examples, loops=loops)


def _chosen(devices: list[DeviceName], wanted: str | None) -> DeviceName:
    found = [d for d in devices if wanted is None or _is(d, wanted)]
    if len(found) > 1:
        found = [d for d in found if is_here(d)] or found
    if len(found) == 1:
        return found[0]
    there = "; ".join(f"{d.key} ({d.processor}, {d.target})" for d in found or devices)
    if found:
        raise UsageError(f"{len(found)} devices fit; choose one with --device: {there}")
    raise DatasetError(f"no device fits {wanted!r}; choose one with --device: {there}")


def _is(device: DeviceName, wanted: str) -> bool:
    return device.key.startswith(wanted) or slug(wanted) in slug(f"{device.processor} {device.target}")


def _fitted(examples: Examples, choice: str, note: Callable[[str], None]) -> OperatorPredictor:
    def fitted() -> OperatorPredictor:
        note(f"fitting the predictor {choice} to {len(examples):,} measurements; this is done once")
        return fit(examples, choice=choice)

    return predictor_files.kept(f"{choice}-{fingerprint(examples)}-{digest_of_loops(examples)}", fitted, note)


def digest_of_loops(examples: Examples) -> str:
    """Return a digest (8 hex digits) of the known loops, which differ between compilers."""
    loops = b"" if examples.loops is None else examples.loops.tobytes()
    return hashlib.sha256(loops).hexdigest()[:8]
