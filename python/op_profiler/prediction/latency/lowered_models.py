"""Lowered models for predictors: a model is lowered once, then read from the cache folder without importing TVM."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_model import load_model
from op_profiler.cache import cache_folder, code_digest
from op_profiler.child_processes import Child, carry_out
from op_profiler.compilers.compiler import compiler_in_use, use_compiler
from op_profiler.compilers.imported_model import Agreement
from op_profiler.dataset.convert import build
from op_profiler.errors import EXIT_MODEL, ModelError, OpProfilerError
from op_profiler.files import atomic_file
from op_profiler.frontends import FRONTENDS
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency.loops import identity_of_loops, keep_loops
from op_profiler.prediction.latency.network import Network
from op_profiler.targets.target import tvm_identity

_GOES_THROUGH = ("compilers", "frontends", "operators")
"""Parts of this package by which a model becomes a network."""
_LARGEST_BYTES = 1 << 26


@dataclasses.dataclass(frozen=True)
class LoweredModel:
    """A model as operators from the compiler.

    Attributes:
        name: name of the model.
        operators: operators of all calls, in order.
        input_dtypes: data types by the name of the input.
        agreement: agreement of the outputs with those of the model's own framework.
    """

    name: str
    operators: tuple[Operator, ...]
    input_dtypes: dict[str, str]
    agreement: Agreement = Agreement()

    def network(self) -> Network:
        """Return the network for predictions."""
        return Network.of(self.name, self.operators)


def lowered_model(request: BuildRequest, note: Callable[[str], None] = lambda text: None) -> LoweredModel:
    """Return the model of a request, fused for its target, without schedule records.

    Args:
        note: called with a text before the model is lowered.

    Raises:
        ModelError: the model cannot be lowered, or it has no operators.
    """
    content = FRONTENDS.get(request.model.source).fingerprint(request.model)
    if content is None:  # nothing tells beforehand whether it is the model that was lowered earlier
        note(f"lowering {request.model.name}")
        return _lowered_apart(request)
    path = cache_folder() / "networks" / f"{_identity(request, content)}.json"
    found = _read(path)
    asked = request.check_outputs == "once" and found is not None and found.agreement == Agreement()
    if found is None or asked or request.check_outputs == "always":
        note(f"lowering {request.model.name}")
        found = _lowered_apart(request)
        _write(found, path)
    return found


def _lowered_apart(request: BuildRequest) -> LoweredModel:
    """Lower in a process of its own: a crash of the compiler then costs this model, and not the command."""
    with tempfile.TemporaryDirectory(prefix="op_profiler-") as folder, tempfile.TemporaryFile("w+") as log:
        path = Path(folder) / "lowered.json"
        with Child(__name__, (request, str(path)), log) as child:
            failure = next(child.events(), None)
            code = child.process.wait()
        found = _read(path)
    if failure is not None and failure["code"] != EXIT_MODEL:
        error = OpProfilerError(failure["error"])
        error.exit_code = failure["code"]
        raise error
    if failure is not None:
        raise ModelError(failure["error"])
    if found is None:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise ModelError(
            f"{request.model.name} does not lower: the process that lowers it died ({how}); export the model in "
            "another form, or leave out the part of it that the compiler cannot take"
        )
    return found


def main() -> int:
    """Lower a model; entry point of the process that does so."""
    return carry_out(tuple[BuildRequest, str], _lower_into)


def _lower_into(task: tuple[BuildRequest, str], _: Callable[..., None]) -> None:
    """Write the model of a request to a file."""
    request, path = task
    use_compiler(request.compiler)
    _write(_lower(request), Path(path))


def _lower(request: BuildRequest) -> LoweredModel:
    model, _, target = load_model(request)
    occurrences = compiler_in_use().operators(model, target, layers=False)
    operators = tuple(occurrence.operator for occurrence in occurrences)
    keep_loops(occurrences, request.target)
    if not operators:
        raise ModelError(f"{model.name} computes nothing: the compiler leaves no operator of it to predict")
    return LoweredModel(
        request.model.name, operators, {spec.name: spec.dtype for spec in model.inputs}, model.agreement
    )


def _identity(request: BuildRequest, content: str) -> str:
    """Of all that decides which operators a model becomes; ``llvm`` alone means this processor."""
    from op_profiler.targets.llvm.identity import processor_name

    compiler = tvm_identity(request.target, request.compiler)
    parts = [code_digest(*_GOES_THROUGH), content, request.target, request.precision, compiler, processor_name()]
    parts.append(identity_of_loops(request.target))  # which are kept when it is lowered
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _write(model: LoweredModel, path: Path) -> None:
    """Distinct operators, and which of them each call calls; behind a digest. A full disk costs the cache, no more."""
    distinct: dict[str, int] = {}
    calls = [distinct.setdefault(operator.key, len(distinct)) for operator in model.operators]
    operators = {operator.key: dataclasses.asdict(operator) for operator in model.operators}
    content = json.dumps(
        {
            "name": model.name,
            "operators": [operators[key] for key in distinct],
            "calls": calls,
            "inputs": model.input_dtypes,
            "agreement": dataclasses.asdict(model.agreement),
        }
    )
    with contextlib.suppress(OSError), atomic_file(path) as partial:
        partial.write_text(f"{_digest(content)}\n{content}", encoding="utf-8")


def _read(path: Path) -> LoweredModel | None:
    """What `_write` left; None where there is nothing, or something else."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return None
        digest, _, content = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    if digest != _digest(content):
        return None
    found: dict[str, Any] = json.loads(content)
    operators = [build(Operator, operator) for operator in found["operators"]]
    return LoweredModel(
        found["name"],
        tuple(operators[call] for call in found["calls"]),
        found["inputs"],
        Agreement(**found["agreement"]),
    )


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
