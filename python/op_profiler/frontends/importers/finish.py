"""Code that all importers share: the error that names unsupported operators, and the last step to an
`ImportedModel`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.relay_rewriting import calls_in
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import is_internal
from op_profiler.compilers.tvm_types import DeviceArray, IRModule
from op_profiler.errors import ModelError
from op_profiler.frontends.importers.transposed_weights import with_transposed_weights

# How TVM's importers of torch, ONNX and TFLite name what they do not know.
_MISSING = (
    re.compile(r"operators are not implemented: \[(?P<names>[^\]]*)\]"),
    re.compile(r"not supported for frontend ONNX:\s*(?P<names>[\w:, ]+)"),
    re.compile(r"not supported in frontend TFLite:?\s*(?P<names>[\w:, '\[\]]+)"),
    re.compile(r"Operator (?P<names>[\w:]+) (?:is )?not (?:supported|implemented)"),
)

_FAULTS = (AttributeError, ImportError, IndexError, KeyError, NameError, TypeError, UnboundLocalError)
"""Python errors that an importer raises for unexpected models; their texts do not help the user."""
_NO_REASON = (
    "TVM's importer does not take it with these types, sizes and options, and gives no reason; export that part of the "
    "model in another form"
)
_OF_CHECK = re.compile(r"Check failed: .*?(?:is false|\(.* vs\. .*?\))\s*:\s*(?P<reason>.*\w.*)$")

_OF_WEIGHTS = re.compile(r"p\d+")
"""Names that TVM's build gives to weights."""

# Function of an importer that goes through the operators: its variable that holds the operator's name.
_LOOPS = {"_construct_nodes": "op_name", "convert_op_to_relay": "op_code_str", "convert_operators": "operator"}


_ROUNDED_DOWN = ("floor_divide", "floor_mod")


def unsupported(name: str, error: BaseException) -> ModelError:
    """Return the error for a model that an importer rejected, with the unsupported operators if the importer reports
    them."""
    text = str(error)
    for pattern in _MISSING:
        if found := pattern.search(text):
            names = sorted({n.strip(" '\"") for n in re.split(r"[,\n]", found["names"])} - {""})
            return ModelError(f"{name} does not lower: TVM has no converter for {', '.join(names)}")
    operator = _being_converted(error)
    return ModelError(f"{name} does not lower: {f'{operator}: ' if operator else ''}{readable_reason(error)}")


def _being_converted(error: BaseException) -> str | None:
    """Return the operator that TVM's importer was converting: a variable of its loop, because most errors omit it."""
    frame = error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        if code.co_name in _LOOPS and "frontend" in code.co_filename:
            found = frame.tb_frame.f_locals.get(_LOOPS[code.co_name])
            return found if isinstance(found, str) else None
        frame = frame.tb_next
    return None


def readable_reason(error: BaseException) -> str:
    """Return the readable sentence of an error, without stack traces, C++ conditions and expressions of TVM."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, _FAULTS) or not lines:
        return _NO_REASON
    candidates = [number for number, line in enumerate(lines) if "Check failed" in line or "Error:" in line]
    at = candidates[-1] if candidates else len(lines) - 1
    sentence = re.sub(r"^\w*Error: ", "", lines[at])
    if "Check failed" in sentence:
        reason = _OF_CHECK.search(sentence)
        following = lines[at + 1] if at + 1 < len(lines) else ""
        sentence = (reason["reason"] if reason else following).strip()
    return sentence[:300] if " " in sentence and not is_internal(sentence) else _NO_REASON


def output_shapes(module: IRModule) -> list[tuple[int | None, ...] | None]:
    """Return the shape of each tensor that ``main`` of a Relay or Relax module returns; a size, or a whole shape, is
    None if it is known only at run time."""
    main = module["main"]
    made = main.ret_ty if hasattr(main, "ret_ty") else main.body.checked_type
    kinds = made.fields if hasattr(made, "fields") else [made]
    shapes = [getattr(kind, "shape", None) for kind in kinds]
    return [None if shape is None else tuple(getattr(size, "value", None) for size in shape) for shape in shapes]


def _rename(module: IRModule, params: Mapping[str, DeviceArray]) -> tuple[IRModule, dict[str, str]]:
    """Rename inputs that have names that TVM's build gives to weights, because a weight would replace such an input.

    Returns:
        The module, and the new names by the old ones.
    """
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
    """Merge variables of one name: some importers create a second variable for an input that is in a list."""
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
    params: dict[str, DeviceArray],
    specs: Iterable[InputSpec],
    *,
    name: str,
    source: str,
    batch_size: int,
    notes: Sequence[str] = (),
) -> ImportedModel:
    """Infer the types of an imported module, drop unused weights, and return the model with a description of its
    inputs.

    Args:
        params: weights by name; weights that the module transposes are replaced by their transposes.
        specs: specs of inputs, which contain what the types in the module lack: the range of integer inputs.
    """
    from op_profiler.frontends.importers.known_loops import with_known_loops  # brings numpy, which checks do without

    tvm = load_tvm()
    try:
        module = tvm.relay.transform.InferType()(_with_one_variable_a_name(module))
    except tvm.TVMError as error:
        raise unsupported(name, error) from error
    known = {spec.name: spec for spec in specs}
    module, of_loops = with_known_loops(_without_floor_divisions(module), params)
    module, renamed = _rename(module, params)
    module = with_transposed_weights(module, params)
    known |= {new: known[old] for old, new in renamed.items() if old in known}
    notes = [
        *notes,
        *of_loops,
        *(f"the input {old!r} is {new!r} here: TVM names weights so" for old, new in renamed.items()),
    ]
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


def _without_floor_divisions(module: IRModule) -> IRModule:
    """Return the typed module with rounded-down divisions and remainders replaced by truncated ones.

    Divisions by a positive constant are kept: TVM computes them without variables.
    """
    relay = load_tvm().relay
    calls = (call for function in module.functions.values() for call in calls_in(function))
    found = [one for one in calls if getattr(one.op, "name", "") in _ROUNDED_DOWN and _is_affected(one)]
    if not found:
        return module

    class Cut(relay.ExprMutator):  # type: ignore[name-defined]  # TVM has no types
        def visit_call(self, call: Any) -> Any:
            made = super().visit_call(call)
            if call not in found:
                return made
            data, divisor = made.args
            return _cut(call.op.name, data, divisor, str(call.checked_type.dtype))

    for name, function in list(module.functions.items()):
        module.update_func(name, Cut().visit(function))
    return relay.transform.InferType()(module)


def _is_affected(call: Any) -> bool:
    relay = load_tvm().relay
    if not str(call.checked_type.dtype).startswith("int"):
        return False
    divisor = call.args[1]
    return not (isinstance(divisor, relay.Constant) and not divisor.data.shape and divisor.data.numpy() > 0)


def _cut(name: str, data: Any, divisor: Any, dtype: str) -> Any:
    """Compute a rounded-down quotient or remainder: a truncated remainder has the sign of the data, not the divisor."""
    relay = load_tvm().relay
    zero, one = (relay.const(number, dtype) for number in (0, 1))
    left = relay.mod(data, divisor)
    other_sign = relay.not_equal(relay.less(left, zero), relay.less(divisor, zero))
    moves = relay.logical_and(relay.not_equal(left, zero), other_sign)
    if name == "floor_mod":
        return relay.where(moves, relay.add(left, divisor), left)
    quotient = relay.divide(data, divisor)
    return relay.where(moves, relay.subtract(quotient, one), quotient)
