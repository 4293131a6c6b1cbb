"""Lowered models for predictors: a model is lowered once, then read from the cache folder without importing TVM.

Where the TVM that lowers for a target is missing, the lowered models that are included with the package replace it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_model import load_model
from op_profiler.cache import cache_folder, code_digest
from op_profiler.child_processes import KeptChild, failure_of, serve
from op_profiler.compilers.compiler import compiler_in_use, use_compiler
from op_profiler.compilers.imported_model import OF_COMPARED_KINDS, Agreement
from op_profiler.cores import usable_cores
from op_profiler.dataset.convert import build
from op_profiler.errors import MeasureError, ModelError, OpProfilerError
from op_profiler.files import atomic_file
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.fingerprints import fields_of
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency.loops import identity_of_loops, keep_loops, loops_of
from op_profiler.prediction.latency.network import Network
from op_profiler.prediction.latency.scheduled import OperatorByRule, by_rule
from op_profiler.schedules.records import RULE
from op_profiler.schedules.usable_records import UsableRecords
from op_profiler.shipped import shipped_gpus
from op_profiler.targets.llvm import identity
from op_profiler.targets.target import tvm_identity

_GOES_THROUGH = ("compilers", "frontends", "operators")
"""Parts of this package that convert a model to a network."""
_LARGEST_BYTES = 1 << 26
_Result = TypeVar("_Result")
_BY_RULE = "by_rule"
_VERSION = 2
"""Version of the format of these files: files of another version are not read."""
_COMPARED_KINDS: set[str] = set()
"""Kinds of nodes in the models whose outputs this process has compared."""


@dataclasses.dataclass(frozen=True)
class LoweredModel:
    """A lowered model: the operators that the compiler creates from it.

    Attributes:
        name: name of the model.
        operators: operators of all calls, in order.
        input_dtypes: data types by the name of the input.
        agreement: agreement of the outputs with those of the model's own framework.
        layers: layers of the model in each call, that of the anchor first; None if they were not tracked.
    """

    name: str
    operators: tuple[Operator, ...]
    input_dtypes: dict[str, str]
    agreement: Agreement = Agreement()
    layers: tuple[tuple[str, ...], ...] | None = None

    def network(self) -> Network:
        """Return the model as a `Network`, the form that predictors need."""
        return Network.of(self.name, self.operators, self.layers)


Lower = Callable[[BuildRequest], LoweredModel]


def lowered_model(
    request: BuildRequest, note: Callable[[str], None] = lambda text: None, lower: Lower | None = None
) -> LoweredModel:
    """Return the model of a request, fused for its target, without schedule records.

    Args:
        note: called with a text before the model is lowered.
        lower: function that lowers the model. None: a separate process lowers it, so that a crash of the compiler does
            not end the command.

    Raises:
        ModelError: the model cannot be lowered, or it has no operators.
        OpProfilerError: the TVM for the target is missing, and the model is neither cached nor included.
    """
    lower, alone = lower or _lowered_apart, lower is None
    content = FRONTENDS.get(request.model.source).fingerprint(request.model)
    if content is None:  # without a fingerprint, the model cannot be found in the cache
        request.check_build()
        note(f"lowering {request.model.title}")
        return lower(request)
    path = cache_folder() / "networks" / f"{_identity(request, content)}.json"
    found = _read(path)
    asked = request.check_outputs == "once" and found is not None and _is_open(found.agreement, alone=alone)
    of_many = alone and found is not None and found.layers is None
    if found is None or asked or of_many or request.check_outputs == "always":
        try:
            request.check_build()
        except OpProfilerError as error:
            return found or _included(request, error)
        note(f"lowering {request.model.title}")
        found = lower(request)
        _write(found, path)
    return found


def _is_open(agreement: Agreement, *, alone: bool) -> bool:
    """Return whether outputs must still be compared; `alone`: whether the request has a single model."""
    return agreement == Agreement() or (alone and agreement.outputs_reference == OF_COMPARED_KINDS)


def _included(request: BuildRequest, lacking: OpProfilerError) -> LoweredModel:
    """Return a lowered model that is included with the package; raise an OpProfilerError if it is not."""
    for gpu in shipped_gpus() if request.check_outputs != "always" else []:
        if gpu.networks is not None:
            with zipfile.ZipFile(gpu.networks) as file, contextlib.suppress(KeyError):
                found = _parsed(file.read(_included_name(request)).decode())
                if found is not None:
                    return found
    raise OpProfilerError(f"{request.model.title} is neither among the included lowered models nor cached; {lacking}")


def write_included(models: Mapping[BuildRequest, LoweredModel], path: Path) -> None:
    """Write lowered models as included data, which `lowered_model` reads where the TVM for their target is missing."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        for request, model in models.items():
            file.writestr(zipfile.ZipInfo(_included_name(request)), _text(model), zipfile.ZIP_LZMA)


def _included_name(request: BuildRequest) -> str:
    """Return a name that depends on the request only, not on the TVM that lowers it: included models were measured."""
    parts = [fields_of(request.model), request.target, request.precision, request.schedules, request.compiler]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _lowered_apart(request: BuildRequest) -> LoweredModel:
    with LoweringProcess() as process:
        return process.lower(request)


class LoweringProcess(contextlib.AbstractContextManager["LoweringProcess"]):
    """A process that lowers one model after the other. As a context manager, it ends the process.

    Args:
        of_many: whether the process lowers many models. If so, it also reads the loops of the models' operators, does
            not track layers (which takes up to half as long as lowering), and compares the outputs only of models with
            a kind of node that no earlier model has.

    Attributes:
        has_died: whether a model crashed the compiler; the process then lowers no more models.
    """

    def __init__(self, *, of_many: bool = False) -> None:
        self.has_died = False
        self._of_many = of_many
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="op_profiler-")))
        log = self._stack.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115 - closed by `__exit__`
        self._child = KeptChild(__name__, log)
        self._stack.push(self._child)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def lower(self, request: BuildRequest) -> LoweredModel:
        """Lower the model of a request.

        Raises:
            ModelError: the model cannot be lowered, or it crashed the process.
        """
        path = self._folder / "lowered.json"
        path.unlink(missing_ok=True)
        answer = self._child.ask(_LoweringTask(request, str(path), self._of_many))
        if answer is None:
            self.has_died = True
            raise ModelError(
                f"{request.model.name} does not lower: the process that lowers it died ({self._child.end()}); export "
                "the model in another form, or leave out the part of it that the compiler cannot take"
            )
        if "error" in answer:
            raise failure_of(answer)
        found = _read(path)
        if found is None:
            raise MeasureError(f"{request.model.name} was lowered, but {path} cannot be read; is the disk full?")
        return found


class LoweringPool(contextlib.AbstractContextManager["LoweringPool"]):
    """Processes that lower models, one per core, started when they are needed. As a context manager, it ends them.

    A process that died is replaced.

    Args:
        of_many: as for `LoweringProcess`.
    """

    def __init__(self, *, of_many: bool) -> None:
        self._of_many = of_many
        self._threads = ThreadPoolExecutor(usable_cores())
        self._own = threading.local()  # a process ends with the thread that started it
        self._processes: list[LoweringProcess] = []

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.__exit__()
        self._threads.shutdown(cancel_futures=True)

    def submit(self, work: Callable[[Lower], _Result]) -> Future[_Result]:
        """Call `work` in a thread, with a function that lowers a model in one of the processes; return the future of
        the result of `work`."""
        return self._threads.submit(work, self._lower)

    def _lower(self, request: BuildRequest) -> LoweredModel:
        own, tvm = vars(self._own), f"{request.compiler} {request.kind.tvm_build}"  # a process can load only one TVM
        process: LoweringProcess | None = own.get(tvm)
        if process is None or process.has_died:
            process = own[tvm] = LoweringProcess(of_many=self._of_many)
            self._processes.append(process)
        return process.lower(request)


@dataclasses.dataclass(frozen=True)
class _LoweringTask:
    """A model to lower into a file, and whether many are lowered."""

    request: BuildRequest
    path: str
    of_many: bool


def main() -> int:
    """Run the process that lowers models."""
    return serve(_LoweringTask, _lower_into)


def _lower_into(task: _LoweringTask) -> dict[str, object]:
    """Write the model of a request to a file."""
    use_compiler(task.request.compiler)
    model = _lower(task.request, of_many=task.of_many)
    if task.of_many:
        loops_of(list({operator.key: operator for operator in model.operators}.values()), task.request.target)
    _write(model, Path(task.path))
    return {}


def _lower(request: BuildRequest, *, of_many: bool) -> LoweredModel:
    model, _, target = load_model(request, compared_kinds=_COMPARED_KINDS if of_many else None)
    lower = functools.partial(compiler_in_use().operators, model, target, layers=not of_many)
    if request.schedules == RULE:
        fused = compiler_in_use().fuse(lower, target, UsableRecords.only_rule())
        occurrences, ruled = fused.occurrences, fused.by_rule
    else:
        occurrences, ruled = lower(), frozenset[str]()
    operators = tuple(by_rule(o.operator) if o.operator.key in ruled else o.operator for o in occurrences)
    keep_loops(occurrences, request.target)
    if not operators:
        raise ModelError(f"{model.name} computes nothing: the compiler leaves no operator of it to predict")
    return LoweredModel(
        request.model.name,
        operators,
        {spec.name: spec.dtype for spec in model.inputs},
        model.agreement,
        None if of_many else tuple(tuple(occurrence.layers) for occurrence in occurrences),
    )


def _identity(request: BuildRequest, content: str) -> str:
    """Return a digest of everything that determines the operators of a model; ``llvm`` without options is this
    processor."""
    compiler = tvm_identity(request.target, request.compiler)
    parts = [
        code_digest(*_GOES_THROUGH),
        content,
        request.target,
        request.precision,
        compiler,
        identity.processor_name(),
    ]
    parts.append(request.schedules)
    parts.append(identity_of_loops(request.target))  # lowering also caches the loops
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _write(model: LoweredModel, path: Path) -> None:
    """Write a model to a file; if the disk is full, nothing is stored."""
    with contextlib.suppress(OSError), atomic_file(path) as partial:
        partial.write_text(_text(model), encoding="utf-8")


def _text(model: LoweredModel) -> str:
    """Return a model as text: a line with a digest, then JSON with the distinct operators and the operator of each
    call."""
    distinct: dict[str, int] = {}
    calls = [distinct.setdefault(operator.key, len(distinct)) for operator in model.operators]
    operators = {
        operator.key: {**dataclasses.asdict(operator), _BY_RULE: isinstance(operator, OperatorByRule)}
        for operator in model.operators
    }
    content = json.dumps(
        {
            "version": _VERSION,
            "name": model.name,
            "operators": [operators[key] for key in distinct],
            "calls": calls,
            "inputs": model.input_dtypes,
            "agreement": dataclasses.asdict(model.agreement),
            "layers": model.layers,
        }
    )
    return f"{_digest(content)}\n{content}"


def _read(path: Path) -> LoweredModel | None:
    """Return the model in a file that `_write` wrote; None if the file is missing, damaged or of another version."""
    try:
        return None if path.stat().st_size > _LARGEST_BYTES else _parsed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


def _parsed(text: str) -> LoweredModel | None:
    digest, _, content = text.partition("\n")
    if digest != _digest(content):
        return None
    found: dict[str, Any] = json.loads(content)
    if found.get("version") != _VERSION:
        return None
    operators = [build(OperatorByRule if one[_BY_RULE] else Operator, one) for one in found["operators"]]
    return LoweredModel(
        found["name"],
        tuple(operators[call] for call in found["calls"]),
        found["inputs"],
        Agreement(**found["agreement"]),
        None if found["layers"] is None else tuple(map(tuple, found["layers"])),
    )


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
