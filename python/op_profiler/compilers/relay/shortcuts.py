"""Avoids slow work in two of Relay's passes: lowering gives the same operators in a quarter of the time.

Two passes take nine tenths of the lowering time. `FoldConstant` compiles a function with LLVM for every operation on
constants, 276 for the batch normalizations of ResNet-18. `SimplifyExpr` infers the types of the whole module again for
each of its patterns, and to infer the type of a convolution TVM prints the rules of its layouts. If weights are
variables, it also multiplies the constants that remain of batch normalizations, with one kernel each: nine for
ResNet-18.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.relay.pass_config import pass_config
from op_profiler.compilers.relay_rewriting import rebuilt
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Call, IRModule, Named, Node

_FLOATS, _WHOLE = ("float32", "float64"), ("int32", "int64")
_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    name: getattr(np, name) for name in ("add", "subtract", "multiply", "divide", "negative", "sqrt")
}
"""Operations that are rounded correctly (IEEE 754), so numpy computes the same as a compiled kernel."""
_WHOLE_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in ("add", "subtract", "multiply", "floor_divide")},
    "floor_mod": np.mod,
}
"""Integer operations."""
DIVISIONS = ("floor_divide", "floor_mod")
"""Integer operations for which LLVM refuses TVM's kernels, because these declare vectors of quotients. `pass_config`
has the repair, but TVM folds constants without it."""
_VIEWS = frozenset({"expand_dims", "squeeze", "reshape"})


@dataclasses.dataclass(frozen=True)
class _Hidden:
    """A convolution that was replaced by a call of `variable`.

    Attributes:
        weights: arguments that are hidden from the pass as well, by their index.
    """

    variable: Node
    call: Call
    weights: dict[int, Node]


def shortcuts(weights: Collection[str] = (), *, divides: bool = False) -> Any:
    """Return a pass instrument that prepares modules for the passes `FoldConstant` and `SimplifyExpr`, so that they are
    faster, and reverts the changes afterwards.

    The instrument changes modules in place, because it cannot return another module.

    Args:
        weights: names of variables of ``main`` that stand for weights.
        divides: whether the module has operations of `DIVISIONS`.
    """
    tvm = load_tvm()

    @tvm.ir.instrument.pass_instrument
    class Shortcuts:
        def __init__(self) -> None:
            self.hidden: dict[str, _Hidden] = {}
            self.typed: Node | None = None

        def should_run(self, module: IRModule, info: Named) -> bool:
            """Let every pass run; skip type inference, which every pass does again."""
            return info.name != "InferType" or self.typed is None or not self.typed.same_as(_only_function(module))

        def run_before_pass(self, module: IRModule, info: Named) -> None:
            if info.name == "FoldConstant":
                _update(module, rebuilt(module, _fold_all if divides else _fold))
            elif info.name.startswith("SimplifyExpr"):
                body = rebuilt(module, lambda call, arguments: _hide(call, arguments, self.hidden, weights))
                _update(module, body, add=[one.variable for one in self.hidden.values()])

        def run_after_pass(self, module: IRModule, info: Named) -> None:
            if info.name == "InferType":
                self.typed = _only_function(module)
            if info.name.startswith("SimplifyExpr") and self.hidden:
                hidden, self.hidden = self.hidden, {}
                body = rebuilt(module, lambda call, arguments: _show(call, arguments, hidden))
                _update(module, body, drop=len(hidden))

    return Shortcuts()


def _only_function(module: IRModule) -> Node | None:
    """Return the only function of a module; None if it has several."""
    functions = module.functions_items()
    return functions[0][1] if len(functions) == 1 else None


def _fold(call: Call, arguments: list[Node]) -> Node | None:
    """Return the constant that a call of constants computes; None to leave the call to the pass."""
    relay = load_tvm().relay
    if not arguments or not all(isinstance(argument, relay.Constant) for argument in arguments):
        return None
    made = call.checked_type
    if not _is_static(made):
        return None
    constants: Sequence[Any] = arguments
    values = [constant.data.numpy() for constant in constants]
    shape, dtype = tuple(int(size) for size in made.shape), str(made.dtype)
    name = getattr(call.op, "name", "")
    found = None
    if name in _ARITHMETIC and dtype in _FLOATS:
        found = _ARITHMETIC[name](*values)
    elif name in _WHOLE_ARITHMETIC and dtype in _WHOLE and ("floor" not in name or values[1].all()):
        found = _WHOLE_ARITHMETIC[name](*values)
    elif name == "arange":
        found = np.arange(*values, dtype=dtype)
    elif name in _VIEWS:
        found = values[0].reshape(shape)
    elif name == "transpose":
        found = values[0].transpose(None if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes])
    elif name == "layout_transform":
        found = in_layout(values[0], str(call.attrs.src_layout), str(call.attrs.dst_layout))
    if found is None or found.shape != shape or str(found.dtype) != dtype:
        return None
    return relay.const(np.asarray(found, order="C"), dtype)  # `ascontiguousarray` would give a scalar a dimension


def _fold_all(call: Call, arguments: list[Node]) -> Node | None:
    """As `_fold`, also for integers that numpy does not compute: the pass would divide them in a kernel that LLVM
    refuses, and the divisions are not reached by `_fold` if their operands are not folded."""
    relay = load_tvm().relay
    found = _fold(call, arguments)
    parts = [part for one in arguments for part in (one.fields if isinstance(one, relay.Tuple) else [one])]
    is_constant = bool(parts) and all(isinstance(part, relay.Constant) for part in parts)
    if found is not None or not is_constant or not _is_static(call.checked_type):
        return found
    if str(call.checked_type.dtype) not in _WHOLE:
        return None
    alone = load_tvm().IRModule.from_expr(relay.Call(call.op, arguments, call.attrs))
    with load_tvm().transform.PassContext(opt_level=0, config=pass_config()):
        library = relay.build(alone, target="llvm")
    graph, kernels = library.get_graph_json(), library.get_lib()
    run = load_tvm().contrib.graph_executor.create(graph, kernels, load_tvm().cpu())
    run.load_params(load_tvm().runtime.save_param_dict(library.get_params()))
    run.run()
    return relay.const(run.get_output(0))


def _is_static(kind: Any) -> bool:
    """Return whether a type is that of a tensor whose size is known."""
    tvm = load_tvm()
    return isinstance(kind, tvm.relay.TensorType) and all(isinstance(size, tvm.tir.IntImm) for size in kind.shape)


def in_layout(array: np.ndarray, source: str, target: str) -> np.ndarray | None:
    """Return an array in another layout, such as an ``NCHW`` array in ``NCHW16c``; None if the source layout is
    blocked, or if a size is not a multiple of the target's block."""
    axes = re.findall(r"(\d*)([A-Za-z])", target)
    blocks = {letter.upper(): int(size) for size, letter in axes if letter.islower()}
    letters = [letter for _, letter in axes]
    if len(source) != array.ndim or sorted(letters) != sorted([*source, *map(str.lower, blocks)]):
        return None
    split: list[int] = []
    order: list[str] = []
    for size, letter in zip(array.shape, source, strict=True):
        block = blocks.get(letter, 1)
        if size % block:
            return None
        split += [size // block, block] if letter in blocks else [size]
        order += [letter, letter.lower()] if letter in blocks else [letter]
    return array.reshape(split).transpose([order.index(letter) for letter in letters])


def _hide(call: Call, arguments: list[Node], hidden: dict[str, _Hidden], weights: Collection[str]) -> Node | None:
    """Replace a convolution by the call of a variable, and store it in `hidden` by the variable's name.

    No pattern of the pass contains such a call, nor computations from its weights alone.
    """
    relay = load_tvm().relay
    if "conv" not in getattr(call.op, "name", ""):
        return None
    known = {place: one for place, one in enumerate(arguments) if _known(one, weights)}
    seen = [place for place in range(len(arguments)) if place not in known]
    kind = relay.FuncType([call.args[place].checked_type for place in seen], call.checked_type)
    variable = relay.Var(f"op_profiler convolution {len(hidden)}", kind)
    hidden[variable.name_hint] = _Hidden(variable, call, known)
    return relay.Call(variable, [arguments[place] for place in seen], span=call.span)


def _known(node: Node, weights: Collection[str]) -> bool:
    """Return whether a value is computed from weights and constants alone, by calls one after the other."""
    relay = load_tvm().relay
    while isinstance(node, relay.Call):
        others = [argument for argument in node.args if not _is_weight(argument, weights)]
        if len(others) > 1 or not node.args:
            return False
        node = others[0] if others else node.args[0]
    return _is_weight(node, weights)


def _is_weight(node: Node, weights: Collection[str]) -> bool:
    relay = load_tvm().relay
    return isinstance(node, relay.Constant) or (isinstance(node, relay.Var) and node.name_hint in weights)


def _show(call: Call, arguments: list[Node], hidden: dict[str, _Hidden]) -> Node | None:
    found = hidden.get(getattr(call.op, "name_hint", ""))
    if found is None:
        return None
    original, seen = found.call, iter(arguments)
    every = [found.weights[place] if place in found.weights else next(seen) for place in range(len(original.args))]
    return load_tvm().relay.Call(original.op, every, original.attrs, original.type_args, original.span)


def _update(module: IRModule, body: Node | None, *, add: Sequence[Node] = (), drop: int = 0) -> None:
    """Give ``main`` another body, with types, and with parameters added or dropped at the end."""
    if body is None:
        return
    relay = load_tvm().relay
    variable = module.get_global_var("main")
    main = module[variable]
    parameters = [*main.params[: len(main.params) - drop], *add]
    module.update_func(variable, relay.Function(parameters, body, None, main.type_params, main.attrs, main.span))
    module.update_func(variable, relay.transform.InferType()(module)[variable])
