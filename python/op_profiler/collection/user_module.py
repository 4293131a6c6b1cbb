"""Times a compiled function of the user on a board and stores it as an operator; for example, a function on an FPGA."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.dataset import Dataset, Row
from op_profiler.errors import BoardLostError, UsageError
from op_profiler.measure.measurement import Measurement, Settings
from op_profiler.measure.statistics import summarize
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.schedules.schedule import Schedule
from op_profiler.targets.machine import Place
from op_profiler.targets.remote.board import Board
from op_profiler.targets.target import resolve_target, use_build_for

_SAMPLES = 11
_MINIMUM_MS = 5
_LARGEST_BYTES = 1 << 30

Tensors = Sequence[tuple[tuple[int, ...], str]]


def measure_module(
    path: Path, entry: str, target: str, compiler: str, place: Place, tensors: Tensors, db: str
) -> dict[str, Any]:
    """Time a function of a module on a board with random tensors, and store the result; the core type is ``IP``.

    Args:
        path: a module that TVM's runtime can load (.so) or link (.o, .tar) on the board.
        entry: name of the function in the module.
        target: target of the board.
        compiler: compiler whose runtime runs on the board.
        place: where the board is reached.
        tensors: shape and dtype of every argument, the output last.
        db: address of the dataset.

    Returns:
        JSON-serializable values: operator, operator_key, address, processor, core_type, median_us and error.

    Raises:
        UsageError: the file does not exist or is too large.
        MeasureError: the board does not answer.
    """
    if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
        raise UsageError(f"--module {path}: no such file, or larger than {_LARGEST_BYTES >> 30} GiB")
    use_build_for(target, compiler=compiler)
    board = Board(target, resolve_target(target), place)
    device = dataclasses.replace(board.device, core_type="IP")
    operator = _operator(path, entry, tensors)
    measurement = _time(board, path, entry, tensors)
    settings = Settings(threads=0, cache="hot", cache_mechanism="repeat", executor="kernel")
    with Dataset.open(db) as dataset:
        dataset.add_anchor(operator)
        schedule = Schedule("module", {"file": path.name, "entry": entry}, "vendor")
        dataset.record(
            Row(operator_key=operator.key, schedule=schedule, settings=settings, device=device, measurement=measurement)
        )
    board.close()
    return {
        "operator": entry,
        "operator_key": operator.key,
        "address": board.address,
        "processor": device.processor,
        "core_type": device.core_type,
        "median_us": measurement.median_us,
        "error": measurement.error,
    }


def _operator(path: Path, entry: str, tensors: Tensors) -> Operator:
    """Return the operator of a function, with a hash of the module's content; its FLOPs are unknown and therefore 0."""
    specs = [TensorSpec(shape, dtype) for shape, dtype in tensors]
    sizes = [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in tensors]
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return Operator(
        name=entry,
        anchor="module",
        op_names=("module",),
        inputs=tuple(specs[:-1]),
        params=(),
        outputs=(specs[-1],),
        attrs=({"entry": entry, "sha256": content},),
        layouts={},
        structure="",
        flops=0,
        bytes_read=sum(sizes[:-1]),
        bytes_written=sizes[-1],
    )


def _time(board: Board, path: Path, entry: str, tensors: Tensors) -> Measurement:
    rng = np.random.default_rng(0)
    try:
        with board.guard(f"running {entry}"):
            board.connection.session.upload(str(path))
            library = board.connection.session.load_module(path.name)
            values = [(rng.random(shape) * 10).astype(dtype) for shape, dtype in tensors]
            arrays = [compiler_in_use().array_on(array, board.runtime) for array in values]
            evaluator = library.time_evaluator(
                entry, board.runtime, number=1, repeat=_SAMPLES, min_repeat_ms=_MINIMUM_MS
            )
            samples = np.asarray(evaluator(*arrays).results) * 1e6
    except BoardLostError as error:
        return Measurement(error=str(error))
    except (RuntimeError, AttributeError, ValueError) as error:
        return Measurement(error=last_line(error))
    return summarize(samples[:, None])
