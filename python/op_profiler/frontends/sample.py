"""Batches of sampled operators, and the models that they are measured as (``op-profiler sample`` writes them).

An operator's time depends on what its neighbours leave in the caches, so sampled operators are not measured in
isolation with warm caches: a batch of them becomes one model. In it, each operator follows an operation that has just
written its input, and its weights are wherever the rest of the batch left them in the caches, as in a network. Batches
differ in size, and so in the share of their weights that fits into the caches.

The file of a batch contains fused functions in TVM's own JSON, one JSON object per line.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from op_profiler.cache import cache_folder
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relay_rewriting import calls_in
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray
from op_profiler.errors import ModelError
from op_profiler.files import atomic_file
from op_profiler.frontends.fingerprints import check_file, fingerprint
from op_profiler.frontends.frontend import Frontend, ModelRequest
from op_profiler.operators.cost import size_bytes
from op_profiler.operators.operator import Operator

_FORMAT = "op_profiler sampled operators 1"
_OF_ACTIVATIONS = ("float", "int8", "uint8")
"""Prefixes of the dtypes of tensors that operators write for each other; other integers may be indices into a table."""
AROUND_SAMPLED = (["broadcast_to"], ["cast", "broadcast_to"], ["copy"], ["strided_slice"])
"""Fused ops that a batch puts before and after each of its operators."""
_BRANCHING = frozenset(
    (
        *("erf", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
        *("power", "mod", "where", "nn.prelu", "topk", "sort", "argsort"),
    )
)
"""Ops whose kernels branch on their values, by default. On family 6 model 167 ``erff`` takes 10 ns for standard normal
values, 5 ns where a thousand of them repeat, and 2.5 ns where all are 0.3 (measured by hand, 2026-11-28). On family 25
model 17 ``where`` takes 8 times as long for standard normal values as for equal ones (measured by hand, 2026-11-30)."""
_NAME = re.compile(r"[\w.-]+")
_APART = "-apart-"
"""Part of the names of batches in which each tensor has separate memory; in older batches, equal shapes shared it."""
CACHED = "-cached"
"""Part of the labels of batches that are so small that their weights stay in the second-level cache."""


@dataclasses.dataclass(frozen=True)
class SampledOperator:
    """A fused function to measure.

    Attributes:
        function: fused function in TVM's JSON.
        constant: for each of its parameters, whether a model passes a constant.
    """

    function: str
    constant: tuple[bool, ...]


def name_of_batch(label: str, digest: str) -> str:
    """Return the name of a batch from its label and the digest of its content."""
    return f"{label}{_APART}{digest}"


def shares_inputs(name: str) -> bool:
    """Return whether inputs of equal shape share one tensor in a batch of this name; only older batches do this."""
    return _APART not in name


def stays_cached(name: str) -> bool:
    """Return whether the weights of a batch's operators stay in the second-level cache."""
    return CACHED in name


def bytes_written_before(operator: Operator, batch: str) -> int:
    """Return the bytes of an operator's inputs that the previous operations in a batch of this name write.

    Indices into tables are inputs of the model, so no operation writes them.
    """
    written = [one for one in operator.inputs if one.dtype.startswith(_OF_ACTIVATIONS)]
    return sum(map(size_bytes, set(written) if shares_inputs(batch) else written))


def batch_path(name: str) -> Path:
    """Return the path of the file of a batch.

    Raises:
        ModelError: `name` is not the name of a batch.
    """
    if not _NAME.fullmatch(name):
        raise ModelError(f"{name!r} is no name of a batch of sampled operators")
    return cache_folder() / "samples" / f"{name}.jsonl"


def write_batch(
    name: str,
    batch: Sequence[SampledOperator],
    asked: Iterable[str] = (),
    refused: Sequence[str] = (),
    *,
    steps: int = 1,
) -> None:
    """Store a batch, completely or not at all.

    Args:
        asked: computations whose schedule records were looked up to create the batch.
        refused: reasons why requested operators are not in the batch.
        steps: how often all operators run, one after the other, in one run of the model.
    """
    path = batch_path(name)
    about: dict[str, object] = {"format": _FORMAT, "tvm": load_tvm().__version__, "asked": sorted(asked)}
    if refused:  # files without stay as they were, and what was measured of them is found again
        about["refused"] = list(refused)
    if steps > 1:
        about["steps"] = steps
    lines = [about, *map(dataclasses.asdict, batch)]
    with atomic_file(path) as partial:
        partial.write_text("".join(json.dumps(line) + "\n" for line in lines))


def kept_batches(start: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each stored batch, and the computations whose schedule records were looked up to create it.

    Args:
        start: prefix of the names.
    """
    for path in sorted((cache_folder() / "samples").glob(f"{start}*.jsonl")):
        try:
            with path.open() as file:
                asked = [str(computation) for computation in json.loads(file.readline())["asked"]]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # damaged; it is written again
        yield path.stem, asked


def refused_by(name: str) -> list[str]:
    """Return the reasons why requested operators are not in a batch."""
    with batch_path(name).open() as file:
        return [str(reason) for reason in json.loads(file.readline()).get("refused", [])]


def read_batch(name: str) -> tuple[list[SampledOperator], int]:
    """Return the functions of a batch, and how often all of them run in one run of the model.

    Raises:
        ModelError: there is no such batch, or it was created by another version of TVM.
    """
    path = batch_path(name)
    check_file(path)
    try:
        about, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        found = [SampledOperator(row["function"], tuple(row["constant"])) for row in rows]
        steps = int(about.get("steps", 1))
        tvm_version = about["tvm"] if about["format"] == _FORMAT else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is no batch of sampled operators: {error}") from error
    if tvm_version != load_tvm().__version__:
        raise ModelError(f"{path} was made with TVM {tvm_version}; run op-profiler sample again")
    return found, steps


class SampleFrontend(Frontend):
    """The source ``sample``: batches that ``op-profiler sample`` created; users do not name this source."""

    source = "sample"
    has_precisions = True

    def names(self) -> list[str]:
        """Return the names of the batches in the cache folder."""
        return sorted(path.stem for path in (cache_folder() / "samples").glob("*.jsonl"))

    def _check(self, request: ModelRequest) -> None:
        check_file(batch_path(request.name))

    def has_framework(self, request: ModelRequest) -> bool:
        """Return False: fused functions have no model in a framework."""
        return False

    def fingerprint(self, request: ModelRequest) -> str:
        """Hash the file of the batch."""
        self.check(request)
        return fingerprint(request, files=[batch_path(request.name)])

    def load(self, request: ModelRequest) -> ImportedModel:
        """Return a model in which each operator follows an operation that writes its inputs, and precedes an operation
        that reads one element of its output.

        The storage plan reuses the memory of these tensors, as in a network. As inputs and outputs of the model, each
        would have separate memory that is cold at every call (mobilenet's operators then took 1.1 to 2 times as long as
        in mobilenet). Each tensor is written separately, because shared inputs would be read only once.
        """
        functions, steps = read_batch(request.name)
        tvm = load_tvm()
        relay = tvm.relay
        written = _Arguments(relay)
        loaded = [tvm.ir.load_json(sampled.function) for sampled in functions]
        outputs: list[Any] = []
        for _ in range(steps):
            for index, (function, sampled) in enumerate(zip(loaded, functions)):
                call = relay.Call(function, written.of(index, function, sampled.constant))
                several = isinstance(function.ret_type, relay.TupleType)
                fields = len(function.ret_type.fields) if several else 0
                results = [relay.TupleGetItem(call, field) for field in range(fields)] if several else [call]
                types = list(function.ret_type.fields) if several else [function.ret_type]
                outputs += [_first_element(result, len(ty.shape)) for result, ty in zip(results, types)]
        module = tvm.IRModule.from_expr(relay.Function(list(written.variables.values()), relay.Tuple(outputs)))
        module = relay.transform.InferType()(module)
        return ImportedModel(request.name, request.source, module, written.params, tuple(written.inputs))


class _Arguments:
    """Arguments of the operators of a batch.

    Attributes:
        variables: variables of the model by name; `inputs`: those that are not weights; `params`: values of weights.
    """

    def __init__(self, relay: Any) -> None:
        import numpy as np

        self.variables: dict[str, Any] = {}
        self.inputs: list[InputSpec] = []
        self.params: dict[str, DeviceArray] = {}
        self._relay = relay
        self._rng = np.random.default_rng(0)

    def of(self, index: int, function: Any, constant: Sequence[bool]) -> list[Any]:
        """Return the arguments of operator `index` in this step; weights and indices into tables are equal in all
        steps."""
        varied = not _BRANCHING.isdisjoint(_op_names(function))
        return [
            self._of_parameter(f"{'w' if fixed else 'x'}{index}_{place}", parameter, fixed, varied)
            for place, (parameter, fixed) in enumerate(zip(function.params, constant))
        ]

    def _of_parameter(self, name: str, parameter: Any, constant: bool, varied: bool) -> Any:
        ty = parameter.checked_type
        spec = InputSpec(name, tuple(int(size) for size in ty.shape), str(ty.dtype))
        if not constant and spec.dtype.startswith(_OF_ACTIVATIONS) and not (varied and "float" in spec.dtype):
            return self._relay.broadcast_to(self._relay.cast(self._number(), spec.dtype), spec.shape)
        if name not in self.variables:
            self.variables[name] = self._relay.Var(name, ty)
            if constant:
                self.params[name] = load_tvm().nd.array(_weights(spec, self._rng))
            else:
                self.inputs.append(spec)
        copied = varied and not constant and "float" in spec.dtype
        return self._relay.copy(self.variables[name]) if copied else self.variables[name]

    def _number(self) -> Any:
        """Add an input of one element to the model and return it. Each written tensor has a separate one, because the
        compiler would merge tensors that are written in the same way."""
        name = f"scalar{len(self.inputs)}"
        self.variables[name] = self._relay.var(name, shape=(1,))
        self.inputs.append(InputSpec(name, (1,)))
        return self.variables[name]


def _op_names(function: Any) -> set[str]:
    return {str(call.op.name) for call in calls_in(function.body) if isinstance(call.op, load_tvm().ir.Op)}


def _first_element(tensor: Any, rank: int) -> Any:
    relay = load_tvm().relay
    return relay.strided_slice(tensor, begin=[0] * rank, end=[1] * rank)


def _weights(spec: InputSpec, rng: Any) -> Any:
    if not spec.dtype.startswith("float"):
        return spec.random(rng)
    return rng.random(size=spec.shape, dtype="float32").astype(spec.dtype)


FRONTEND = SampleFrontend()
