"""Loops of operators: from included data, from the cache folder, or read by the compiler once for each operator."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import op_profiler
from op_profiler.building.requested_target import compiled_for
from op_profiler.cache import cache_folder
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.errors import OpProfilerError
from op_profiler.measure.measurement import Precision
from op_profiler.operators.operator import Operator
from op_profiler.option_values import several
from op_profiler.prediction.latency.launched import NAMES as LAUNCHED
from op_profiler.prediction.latency.launched import launch_features
from op_profiler.prediction.latency.scheduled import OperatorByRule
from op_profiler.prediction.latency.traffic import NAMES, traffic_features
from op_profiler.shipped import shipped_gpus, shipped_processors
from op_profiler.targets.llvm import identity
from op_profiler.targets.target import kind_of, resolve_target, tvm_identity, use_build_for

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import Occurrence
    from op_profiler.compilers.loop_nest import Kernel
    from op_profiler.compilers.tvm_types import Target

_DESCRIPTION = 13
"""Version of the description of loops; if it changes, cached loops are read again by the compiler."""
_NOTED_FROM, _NOTED_EACH = 40, 200
"""Operators whose lowering takes seconds, and ten seconds or so."""


def loops_of(operators: Sequence[Operator], target: str, note: Callable[[str], None] = lambda text: None) -> np.ndarray:
    """Return properties of the loops of operators on a target, one row per operator, with the columns of `columns_of`.

    The loops are those of the rule's schedule for an `OperatorByRule`, and those of the compiler's own schedule for
    other operators.

    Args:
        note: called with a text before each step that takes long.

    Returns:
        Shape (operators, columns), float32; NaN if no compiler can read the loops.
    """
    found = np.full((len(operators), len(columns_of(target))), np.nan, dtype=np.float32)
    known = _shipped(target) if compiler_in_use().name == DEFAULT_COMPILER else {}
    missing = []
    for at, operator in enumerate(operators):
        if operator.key in known:
            found[at] = known[operator.key]
        else:
            missing.append(at)
    if missing:
        found[missing] = _cached_or_read([operators[at] for at in missing], target, note)
    return found


def columns_of(target: str) -> tuple[str, ...]:
    """Return the names of the columns of loops: of a GPU's launches, or of a processor's instructions and traffic."""
    return LAUNCHED if kind_of(target).on_gpu else NAMES


@functools.lru_cache(maxsize=4)
def _shipped(target: str) -> Mapping[str, np.ndarray]:
    """Return the included loops for a target, by workload key; empty if the package includes none for the target.

    All included loops are those of Relay.
    """
    known: dict[str, np.ndarray] = {}
    for processor in (*shipped_processors(), *shipped_gpus()):
        if processor.loops is None:
            continue
        with np.load(processor.loops, allow_pickle=False) as file:
            if str(file["target"]) == target and _as_now(file, target):
                known |= zip(file["keys"].tolist(), file["loops"])
    return known


def _as_now(file: Mapping[str, np.ndarray], target: str) -> bool:
    """Return whether included loops have the columns and the description of this version."""
    alike = file["names"].tolist() == list(columns_of(target))
    return alike and "description" in file and int(file["description"]) == _DESCRIPTION


def write_loops(path: Path, operators: Sequence[Operator], loops: np.ndarray, target: str) -> None:
    """Write the result of `loops_of` in the form of included data, including operators without known loops."""
    keys = np.array([operator.key for operator in operators])
    with path.open("wb") as file:  # numpy would add a suffix to a path
        np.savez_compressed(
            file,
            target=np.array(target),
            names=np.array(columns_of(target)),
            description=np.array(_DESCRIPTION),
            keys=keys,
            loops=loops,
        )


def _cached_or_read(operators: Sequence[Operator], target: str, note: Callable[[str], None]) -> np.ndarray:
    """Return loops from the cache folder; the compiler reads missing ones, which are then cached unless the disk is
    full."""
    found = np.full((len(operators), len(columns_of(target))), np.nan, dtype=np.float32)
    with contextlib.ExitStack() as stack:
        kept: sqlite3.Connection | None = None
        with contextlib.suppress(OSError, sqlite3.Error):
            kept = stack.enter_context(_opened())
        try:
            about = identity_of_loops(target)
        except OpProfilerError:
            return found  # this kind of target is not available here
        unknown = []
        for at, operator in enumerate(operators):
            row = _read(kept, about, operator.key, found.shape[1])
            if row is None:
                unknown.append(at)
            else:
                found[at] = row
        if compiler_in_use().only_calls_tell_loops:
            if unknown and not kind_of(target).on_gpu:
                note(
                    f"the loops of {several(len(unknown), 'operator')} are unknown here: only the collector stores them"
                )
            return found
        if unknown and kind_of(target).on_gpu:
            try:
                use_build_for(target, compiler=compiler_in_use().name)
            except OpProfilerError as error:
                note(f"no loops are known here of {several(len(unknown), 'operator')}: {error}")
                return found
        if len(unknown) >= _NOTED_FROM:
            note(f"reading the loops of {len(unknown)} operators; this is done once")
        for number, at in enumerate(unknown):
            if number and number % _NOTED_EACH == 0:
                note(f"read the loops of {number} of {len(unknown)} operators")
            found[at] = _read_by_compiler(operators[at], target)
            _write(kept, about, operators[at].key, found[at])
    return found


def keep_loops(occurrences: Sequence[Occurrence], target: str) -> None:
    """Cache the loops of a lowered model's operators for `loops_of`, if the compiler reads loops only from the calls of
    a model (`Compiler.only_calls_tell_loops`).

    Kernels of another pipeline than the default one are not cached, nor are loops that are already in the cache. If the
    disk is full, nothing is cached.

    Args:
        occurrences: calls of the model.
        target: target that `loops_of` will be called with.
    """
    compiler = compiler_in_use()
    if not compiler.only_calls_tell_loops or kind_of(target).on_gpu:
        return
    resolved, about = resolve_target(target), identity_of_loops(target)
    with contextlib.suppress(OSError, sqlite3.Error), _opened() as kept:
        for one in {one.operator.key: one for one in occurrences if one.pipeline == DEFAULT_PIPELINE}.values():
            found = _read(kept, about, one.operator.key, len(columns_of(target)))
            if found is None or np.isnan(found).any():
                row = _described(lambda one=one: compiler.read_call(one, resolved), target)  # type: ignore[misc]
                _write(kept, about, one.operator.key, row)


def _described(read: Callable[[], Kernel], target: str) -> np.ndarray:
    try:
        kernel = read()
    except (OpProfilerError, ImportError):  # predictors also work without loops
        return np.full(len(columns_of(target)), np.nan, dtype=np.float32)
    return launch_features(kernel) if kernel.launches else traffic_features(kernel)


def _read_by_compiler(operator: Operator, target: str) -> np.ndarray:
    tensors = (*operator.inputs, *operator.params, *operator.outputs)
    precision: Precision = "int8" if any(tensor.dtype in ("int8", "uint8") for tensor in tensors) else "float32"
    # For a target that this LLVM does not support, `_resolved` raises, and loops are unknown.
    by_rule = isinstance(operator, OperatorByRule)
    return _described(
        lambda: compiler_in_use().read_kernel(operator, _resolved(target, precision), by_rule=by_rule), target
    )


@functools.lru_cache(maxsize=4)
def _resolved(target: str, precision: Precision) -> Target:
    return compiled_for(kind_of(target), precision, resolve_target(target))


@contextlib.contextmanager
def _opened() -> Iterator[sqlite3.Connection]:
    path = cache_folder() / "loops" / "loops.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS loops (about TEXT, operator TEXT, row BLOB, PRIMARY KEY (about, operator))"
        )
        yield connection


def identity_of_loops(target: str) -> str:
    """Return a digest (16 hex digits) of everything that determines the loops of operators and their description.

    Raises:
        OpProfilerError: this kind of target is not available.
    """
    tvm = tvm_identity(target, compiler_in_use().name)
    parts = (op_profiler.__version__, str(_DESCRIPTION), *columns_of(target), target, tvm, identity.processor_name())
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def _read(kept: sqlite3.Connection | None, about: str, key: str, columns: int) -> np.ndarray | None:
    if kept is None:
        return None
    with contextlib.suppress(sqlite3.Error):
        row = kept.execute("SELECT row FROM loops WHERE about = ? AND operator = ?", (about, key)).fetchone()
        if row is not None and len(row[0]) == 4 * columns:
            return np.frombuffer(row[0], dtype=np.float32)
    return None


def _write(kept: sqlite3.Connection | None, about: str, key: str, row: np.ndarray) -> None:
    if kept is not None:
        with contextlib.suppress(sqlite3.Error):
            kept.execute("INSERT OR REPLACE INTO loops VALUES (?, ?, ?)", (about, key, row.tobytes()))
