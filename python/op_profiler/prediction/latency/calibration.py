"""Calibrations by ``op-profiler calibrate``: which dataset has the times of this machine, for each target.

A file in the user's data folder stores the URL of the dataset for each target on this machine. The dataset is read
again whenever a predictor is opened, so measurements that are added to it later are used too.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.cache import data_folder
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.errors import DatasetError, OpProfilerError
from op_profiler.files import explained, locked, whole_file
from op_profiler.option_values import several
from op_profiler.prediction.latency import predictor_files
from op_profiler.prediction.latency.adapt import adapted
from op_profiler.prediction.latency.base import FEWEST_WITH_LOOPS
from op_profiler.prediction.latency.correction import MOST_LEARNED
from op_profiler.prediction.latency.devices import cpu_elsewhere, cpu_of, is_here
from op_profiler.prediction.latency.examples import load_examples
from op_profiler.prediction.latency.fit import fingerprint, fit
from op_profiler.prediction.latency.open_predictor import (
    digest_of_loops,
    digest_of_what_ships,
    shipped_examples,
    with_loops,
)
from op_profiler.prediction.latency.steady_times import at_reference_state
from op_profiler.schedules.records import slug
from op_profiler.shipped import shipped_processors
from op_profiler.targets.target import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from op_profiler.prediction.latency.devices import DeviceName
    from op_profiler.prediction.latency.examples import Examples
    from op_profiler.prediction.latency.operator_predictor import OperatorPredictor

_PROCESSOR = "llvm"
FEWEST = 20
"""With fewer measured operators, the predictions for a machine are not changed."""


def note_calibration(target: str, db: str, device: str) -> Path:
    """Store the dataset and the device for predictions for a target on this machine; return the path of the file.

    Args:
        db: SQLAlchemy URL; the path of a file must be absolute.
        device: key of the device.

    Raises:
        OpProfilerError: the file cannot be written.
    """
    path, here = _path(), _here(target)
    with explained(str(path)), locked(path.with_suffix(".lock")):  # other targets may be calibrated at once
        notes = _notes() | {here: {"db": db, "device": device}}
        with whole_file(path) as partial:
            partial.touch(mode=0o600)  # the URL may contain a password
            partial.write_text(json.dumps(notes, indent=1) + "\n", encoding="utf-8")
    return path


def calibrated(
    source: Callable[[], OperatorPredictor], target: str | None, note: Callable[[str], None] = lambda text: None
) -> OperatorPredictor | None:
    """Return the predictor of this machine, from its measurements and the included data.

    On a processor without included data, if the loops of enough measurements are known, a predictor is fitted to the
    measurements and to the included data of other processors (`others` of `op_profiler.prediction.latency.fit.fit`).
    Otherwise the predictor that `source` returns is adapted to the measurements. If that predictor is for the same
    processor, its look-up table is still used for operators that were not measured on this machine.

    Args:
        source: returns the predictor that is used without a calibration.
        target: None for this processor.
        note: called with a text about what was measured, or why a calibration cannot be used.

    Returns:
        None if this machine has no calibration for the target, or if the calibration cannot be used.
    """
    found = _notes().get(_here(target or _PROCESSOR))
    if found is None:
        return None

    try:
        device = str(found["device"])
        examples = at_reference_state(load_examples(db=str(found["db"]), device=device, note=note).of_device(device))
        measured = operators_in(examples)
        if measured < FEWEST:
            count = several(measured, "operator")
            raise DatasetError(f"it contains {count} of this machine; at least {FEWEST} are needed")
        examples = with_loops(examples, examples.only_device.target, note)
        predictor = _learned(source, examples, note)
    except (OpProfilerError, KeyError, TypeError) as error:
        note(f"the calibration of this machine cannot be used ({error}); to repeat it: op-profiler calibrate")
        return None
    return predictor


def _learned(
    source: Callable[[], OperatorPredictor], examples: Examples, note: Callable[[str], None]
) -> OperatorPredictor:
    """Return the predictor that is fitted together with included data, or adapted from `source`; from the cache if
    possible."""
    here, measured = f"{fingerprint(examples)}-{digest_of_loops(examples)}", operators_in(examples)
    looped = 0 if examples.loops is None else int(np.isfinite(examples.loops).all(axis=1)[examples.operator].sum())
    device = examples.only_device
    strange = slug(device.processor) not in {one.folder.name for one in shipped_processors()}
    strange = strange and kind_of(device.target).on_host
    if looped >= FEWEST_WITH_LOOPS and strange and (ships := digest_of_what_ships()):

        def fitted() -> OperatorPredictor:
            note(f"fitting a predictor to {len(examples):,} measurements and the included data; this is done once")
            return fit(examples, others=shipped_examples(note))

        found = predictor_files.kept(f"calibrated-{ships}-{here}", fitted, note)
        note(f"fitted to {measured} operators measured on this machine, and to the included data of other processors")
        return found
    known = source()

    def made() -> OperatorPredictor:
        note(f"adapting a predictor to {len(examples):,} measurements; this is done once")
        found = adapted(known, examples)
        if slug(known.device.processor) != slug(device.processor):
            return found
        # Operators that a machine of the same kind measured stay in the look-up table, as without a calibration.
        return dataclasses.replace(found, measured=found.measured.before(known.measured))

    found = predictor_files.kept(f"adapted-{predictor_files.digest(known)}-{here}", made, note)
    drawn = f", by {MOST_LEARNED:,} of {len(examples):,} times" if len(examples) > MOST_LEARNED else ""
    note(f"adapted to {measured} operators that were measured on this machine{drawn}")
    return found


def operators_in(examples: Examples) -> int:
    """Return the number of distinct operators in measurements."""
    return len(set(examples.operator.tolist()))


def of_this_machine(device: DeviceName) -> bool:
    """Return whether a device is this machine's processor or GPU, judged by the name of the device."""
    kind = kind_of(device.target)
    return slug(kind.processor_name()) == slug(device.processor) if kind.on_gpu else is_here(device)


def is_of_other_device(device: DeviceName, user_source: str | None, target: str | None = None) -> bool:
    """Return whether `device` is another device than the one whose times the user wants; see `device_sentence`."""
    if user_source is not None:
        return False
    wanted = kind_of(target or _PROCESSOR)
    if not wanted.on_host and not wanted.on_gpu:
        return True
    if (elsewhere := cpu_elsewhere(target)) and (cpu := cpu_of(device.target)):
        return cpu != elsewhere
    return wanted.on_gpu != kind_of(device.target).on_gpu or not of_this_machine(device)


def device_sentence(device: DeviceName, user_source: str | None, target: str | None = None) -> str:
    """Return one sentence about the device of predicted times, and how to get times of the user's machine.

    Args:
        user_source: dataset, predictor or calibration that the user named; the user then wants the times of its device.
        target: target of the wanted times; None for this processor.
    """
    there = f"{device.processor} ({device.target})"
    if device.compiler != DEFAULT_COMPILER:
        there += f", kernels of the compiler {device.compiler}"
    if not is_of_other_device(device, user_source, target):
        return f"times of {there}"
    wanted, option = "this machine", ""
    if target is not None and not kind_of(target).on_host:
        wanted = "this machine's GPU" if kind_of(target).on_gpu else target
        option = f" --target {shlex.quote(target)}"
    if cpu_elsewhere(target):
        return f"times of {there}, NOT of {target}; for those, collect on such a machine and use --db"
    return f"times of {there}, NOT of {wanted}; for those, measure for three minutes: op-profiler calibrate{option}"


def _here(target: str) -> str:
    """Return the key of a calibration: the target, and for this processor also the machine, as data folders may be
    shared."""
    kind = kind_of(target)
    return f"{target} on {kind.machine_identity()}" if kind.on_host else target


def _path() -> Path:
    return data_folder() / "calibrations.json"


def _notes() -> dict[str, Any]:
    """Return the stored calibrations; empty if the file is missing or damaged."""
    try:
        found = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
