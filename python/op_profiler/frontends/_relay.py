"""What all importers share: the error that names unsupported operators, and the last step to a `RelayModel`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from op_profiler.compiler import load_tvm
from op_profiler.errors import ModelError
from op_profiler.frontends._base import InputSpec, RelayModel

# How TVM's importers of torch, ONNX and TFLite name what they do not know.
_MISSING = (
    re.compile(r"operators are not implemented: \[(?P<names>[^\]]*)\]"),
    re.compile(r"not supported for frontend ONNX:\s*(?P<names>[\w:, ]+)"),
    re.compile(r"not supported in frontend TFLite:?\s*(?P<names>[\w:, '\[\]]+)"),
    re.compile(r"Operator (?P<names>[\w:]+) (?:is )?not (?:supported|implemented)"),
)


def unsupported(name: str, error: BaseException) -> ModelError:
    """The error for a model that an importer gave up on, with the operators that stand in the way where it tells."""
    text = str(error)
    for pattern in _MISSING:
        if found := pattern.search(text):
            names = sorted({n.strip(" '\"") for n in re.split(r"[,\n]", found["names"])} - {""})
            return ModelError(f"{name} does not lower: TVM has no converter for {', '.join(names)}")
    return ModelError(f"{name} does not lower: {said(error)}")


def said(error: BaseException) -> str:
    """The sentence of an error: TVM's last line, without the stack in front of it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kind = type(error).__name__
    if not lines:
        return kind
    telling = [line for line in lines if "Check failed" in line or "Error:" in line]
    sentence = (telling or lines)[-1]
    # str(KeyError('x')) is the bare key, str(AssertionError()) nothing: without the kind it says too little
    return (sentence if " " in sentence else f"{kind} {sentence}")[:300]


def finish(
    module: Any,
    params: Mapping[str, Any],
    specs: Iterable[InputSpec],
    *,
    name: str,
    source: str,
    batch_size: int,
    notes: Sequence[str] = (),
) -> RelayModel:
    """Type the module, drop what it does not use, and describe its inputs.

    Args:
        specs: what is known of inputs beside the module's own types: the range of integers.
    """
    tvm = load_tvm()
    try:
        module = tvm.relay.transform.InferType()(module)
    except tvm.TVMError as error:
        raise unsupported(name, error) from error
    known = {spec.name: spec for spec in specs}
    variables = module["main"].params
    used = {v.name_hint for v in variables}
    inputs = []
    for variable in variables:
        if variable.name_hint in params:
            continue
        kind, spec = variable.checked_type, known.get(variable.name_hint)
        shape = tuple(None if isinstance(d, tvm.tir.Any) else int(d) for d in kind.shape)
        inputs.append(InputSpec(variable.name_hint, shape, str(kind.dtype), high=spec.high if spec else 2))
    weights = {n: value for n, value in params.items() if n in used}
    return RelayModel(name, source, module, weights, tuple(inputs), batch_size, tuple(notes))
