"""What all importers share: the error that names unsupported operators, and the last step to an `ImportedModel`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, IRModule
from op_profiler.errors import ModelError

# How TVM's importers of torch, ONNX and TFLite name what they do not know.
_MISSING = (
    re.compile(r"operators are not implemented: \[(?P<names>[^\]]*)\]"),
    re.compile(r"not supported for frontend ONNX:\s*(?P<names>[\w:, ]+)"),
    re.compile(r"not supported in frontend TFLite:?\s*(?P<names>[\w:, '\[\]]+)"),
    re.compile(r"Operator (?P<names>[\w:]+) (?:is )?not (?:supported|implemented)"),
)

_OF_WEIGHTS = re.compile(r"p\d+")
"""How TVM's build names them."""

# Function of an importer that goes through the operators: its variable that holds the operator's name.
_LOOPS = {"_construct_nodes": "op_name", "convert_op_to_relay": "op_code_str", "convert_operators": "operator"}


def unsupported(name: str, error: BaseException) -> ModelError:
    """The error for a model that an importer gave up on, with the operators that stand in the way where it tells."""
    text = str(error)
    for pattern in _MISSING:
        if found := pattern.search(text):
            names = sorted({n.strip(" '\"") for n in re.split(r"[,\n]", found["names"])} - {""})
            return ModelError(f"{name} does not lower: TVM has no converter for {', '.join(names)}")
    operator = _being_converted(error)
    return ModelError(f"{name} does not lower: {f'{operator}: ' if operator else ''}{said(error)}")


def _being_converted(error: BaseException) -> str | None:
    """The operator that TVM's importer was busy with: a variable of its loop, since most of its errors do not say."""
    frame = error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        if code.co_name in _LOOPS and "frontend" in code.co_filename:
            found = frame.tb_frame.f_locals.get(_LOOPS[code.co_name])
            return found if isinstance(found, str) else None
        frame = frame.tb_next
    return None


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


def output_shapes(module: IRModule) -> list[tuple[int | None, ...] | None]:
    """Of the tensors that ``main`` returns, in Relay and in Relax; None where only run time tells."""
    main = module["main"]
    made = main.ret_ty if hasattr(main, "ret_ty") else main.body.checked_type
    kinds = made.fields if hasattr(made, "fields") else [made]
    shapes = [getattr(kind, "shape", None) for kind in kinds]
    return [None if shape is None else tuple(getattr(size, "value", None) for size in shape) for shape in shapes]


def _rename(module: IRModule, params: Mapping[str, DeviceArray]) -> tuple[IRModule, dict[str, str]]:
    """The module without inputs named as TVM's build names weights, one of which would take the place of such an input;
    and their new names."""
    relay, main = load_tvm().relay, module["main"]
    taken = {v.name_hint for v in main.params}
    renamed = {n: f"{n}_input" for n in sorted(taken - set(params)) if _OF_WEIGHTS.fullmatch(n)}
    if not renamed:
        return module, renamed
    new = {v: relay.var(renamed.get(v.name_hint, v.name_hint), v.checked_type) for v in main.params}
    function = relay.Function(list(new.values()), relay.bind(main.body, new), main.ret_type, attrs=main.attrs)
    module.update_func(module.get_global_var("main"), function)
    return relay.transform.InferType()(module), renamed


def _with_one_variable_a_name(module: IRModule) -> IRModule:
    """An importer that names where each value comes from makes a new variable of one that it first meets in a list."""
    tvm = load_tvm()
    main = module["main"]
    first: dict[str, Any] = {}
    doubles = {v: first[v.name_hint] for v in main.params if first.setdefault(v.name_hint, v) is not v}
    if not doubles:
        return module
    functions = {**module.functions, module.get_global_var("main"): tvm.relay.bind(main, doubles)}
    return tvm.IRModule(functions, module.type_definitions)


@interrupts_wait()
def finish(
    module: IRModule,
    params: Mapping[str, DeviceArray],
    specs: Iterable[InputSpec],
    *,
    name: str,
    source: str,
    batch_size: int,
    notes: Sequence[str] = (),
) -> ImportedModel:
    """Type the module, drop what it does not use, and describe its inputs.

    Args:
        specs: what is known of inputs beside the module's own types: the range of integers.
    """
    tvm = load_tvm()
    try:
        module = tvm.relay.transform.InferType()(_with_one_variable_a_name(module))
    except tvm.TVMError as error:
        raise unsupported(name, error) from error
    known = {spec.name: spec for spec in specs}
    module, renamed = _rename(module, params)
    known |= {new: known[old] for old, new in renamed.items() if old in known}
    notes = [*notes, *(f"the input {old!r} is {new!r} here: TVM names weights so" for old, new in renamed.items())]
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
    return ImportedModel(name, source, module, weights, tuple(inputs), batch_size, tuple(notes))
