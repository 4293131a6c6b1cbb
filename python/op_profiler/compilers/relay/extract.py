"""Extracts operators from a module that the compiler has fused and labelled (after Relay's `LabelOps` pass)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.plain_values import plain
from op_profiler.compilers.relay.layers import Layers
from op_profiler.compilers.relay_rewriting import calls_in, nodes_in
from op_profiler.compilers.successors import Names, united
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Call, Function, IRModule, Node
from op_profiler.operators.describe import Description, constant
from op_profiler.operators.operator import Operator, TensorSpec

_RESHAPE_ONLY = "relay.reshape_only"  # the executors give such a function no kernel, only another view
_NOT_STRUCTURE = frozenset({"auto_scheduler_rewritten_layout", "meta_schedule_original_shape", "hash", "Primitive"})


def extract(module: IRModule, layers: Layers, weights: Collection[str] = ()) -> list[Occurrence]:
    """Return every call of a fused function in `main` that becomes a kernel, in execution order.

    Args:
        module: a `tvm.IRModule` after `LabelOps`; its primitive functions are inline in ``main`` or global.
        layers: the `Layers` object that marked the module before the first pass.
        weights: names of variables of ``main`` that stand for weights. Values computed from weights alone count as
            constants, because the compiler folds them once they are constants; their calls are left out.
    """
    cache: dict[tuple[int, tuple[bool, ...]], tuple[Operator, str, Names]] = {}
    found: list[Occurrence] = []
    keep_alive: list[Function] = []
    for entry in _entry_functions(module):
        bound = _let_bindings(entry)
        constants = _Constants(bound, frozenset(weights))
        for node in calls_in(entry.body):
            function = _primitive(node.op, module, bound)
            if function is None or (weights and constants.holds(node)):
                continue
            constant = tuple(constants.holds(arg) for arg in node.args)
            identity = (function.handle.value, constant)
            if identity not in cache:
                keep_alive.append(function)
                walk = _Describer(function, constant)
                cache[identity] = walk.operator(), walk.anchor_signature(), walk.locations(layers)
            operator, signature, names = cache[identity]
            found.append(Occurrence(operator, str(function.attrs["hash"]), function, constant, signature, names))
    return found


def _entry_functions(module: IRModule) -> Iterator[Function]:
    relay = load_tvm().relay
    for _, function in sorted(module.functions.items(), key=lambda item: str(item[0].name_hint)):
        if isinstance(function, relay.Function) and not _is_primitive(function):
            yield function


def _let_bindings(function: Function) -> dict[Node, Node]:
    """Return values by variable: the virtual machine's pipeline binds functions and constants before calls use them."""
    return {node.var: node.value for node in nodes_in(function.body) if isinstance(node, load_tvm().relay.Let)}


def _is_primitive(function: Function) -> bool:
    return function.attrs is not None and "Primitive" in function.attrs.keys()


def _primitive(op: Any, module: IRModule, bound: dict[Node, Node]) -> Function | None:
    tvm = load_tvm()
    if isinstance(op, tvm.ir.GlobalVar):
        op = module[op]
    elif isinstance(op, tvm.relay.Var):
        op = bound.get(op)
    if not isinstance(op, tvm.relay.Function) or not _is_primitive(op) or "hash" not in op.attrs.keys():
        return None
    return None if _RESHAPE_ONLY in op.attrs.keys() else op


class _Constants:
    """Determines which values are known before a model runs.

    Args:
        bound: values by variable.
        weights: names of variables that stand for constants.
    """

    def __init__(self, bound: dict[Node, Node], weights: frozenset[str]) -> None:
        self.relay = load_tvm().relay
        self.bound = bound
        self.weights = weights
        self.known: dict[Node, bool] = {}

    def holds(self, node: Node) -> bool:
        if node not in self.known:
            self.known[node] = self._holds(node)
        return self.known[node]

    def _holds(self, node: Node) -> bool:
        relay = self.relay
        if isinstance(node, relay.Var):
            return node.name_hint in self.weights or (node in self.bound and self.holds(self.bound[node]))
        if isinstance(node, relay.Call):
            moved = getattr(node.op, "name", "") in ("on_device", "device_copy")
            return (moved or bool(self.weights and node.args)) and all(self.holds(argument) for argument in node.args)
        if self.weights and isinstance(node, relay.Tuple):
            return all(self.holds(field) for field in node.fields)
        if self.weights and isinstance(node, relay.TupleGetItem):
            return self.holds(node.tuple_value)
        return isinstance(node, relay.Constant)


def tensors(ty: Any) -> tuple[TensorSpec, ...]:
    """Return the tensors of a Relay type, tuples flattened; a dynamic dimension becomes -1."""
    tvm = load_tvm()
    if isinstance(ty, tvm.relay.TupleType):
        return tuple(t for field in ty.fields for t in tensors(field))
    shape = tuple(int(d) if isinstance(d, (int, tvm.tir.IntImm)) else -1 for d in ty.shape)
    return (TensorSpec(shape, str(ty.dtype)),)


def attributes(attrs: Any) -> dict[str, Any]:
    """Return the attributes of one op as plain values, without empty ones and without the compiler's internal ones."""
    if attrs is None or not hasattr(attrs, "keys"):
        return {}
    values = {str(k): plain(attrs[k]) for k in attrs.keys() if str(k) not in _NOT_STRUCTURE}
    return {k: v for k, v in values.items() if v not in (None, "", [])}


class _Describer:
    """Walks one fused function and adds its ops to a `Description`."""

    def __init__(self, function: Function, constant: tuple[bool, ...]) -> None:
        self.relay = load_tvm().relay
        self.function = function
        self.calls: list[Call] = []
        self.description = Description([tensors(p.checked_type) for p in function.params], constant)
        self.names: dict[Node, str] = dict(zip(function.params, self.description.names))
        self.visit(function.body)

    def visit(self, node: Node) -> str:
        if node in self.names:
            return self.names[node]
        relay = self.relay
        if isinstance(node, relay.Call):
            name = self._call(node)
        elif isinstance(node, relay.Tuple):
            name = f"({','.join(self.visit(f) for f in node.fields)})"
        elif isinstance(node, relay.TupleGetItem):
            name = f"{self.visit(node.tuple_value)}.{node.index}"
        elif isinstance(node, relay.Constant):
            spec = tensors(node.checked_type)[0]
            name = constant(spec, None if spec.shape else node.data.numpy().item())
        else:
            name = type(node).__name__
        self.names[node] = name
        return name

    def _call(self, node: Call) -> str:
        relay = self.relay
        arguments = [self.visit(argument) for argument in node.args]
        if isinstance(node.op, relay.Function):
            for parameter, argument in zip(node.op.params, arguments):
                self.names[parameter] = argument
            return self.visit(node.op.body)
        op = str(getattr(node.op, "name", type(node.op).__name__))
        inputs = [t for argument in node.args for t in tensors(argument.checked_type)]
        self.calls.append(node)
        return self.description.op(op, attributes(node.attrs), arguments, inputs, tensors(node.checked_type))

    def anchor_signature(self) -> str:
        """Return the `signature` of the anchor; empty for a function without ops."""
        return self.description.anchor_signature()

    def locations(self, layers: Layers) -> Names:
        """Return the locations of the ops, those of the anchor first."""
        if not self.calls:
            return ()
        return united(map(layers.of, [self.calls[self.description.anchor()], *self.calls]))

    def operator(self) -> Operator:
        """Return the `Operator` of everything that was added."""
        function = self.function
        result = function.ret_type if function.ret_type is not None else function.body.checked_type
        return self.description.operator(tensors(result))


def describe(function: Function, constant: tuple[bool, ...]) -> Operator:
    """Return the operator of a fused Relay function.

    Args:
        function: a typed Relay function.
        constant: for each of its parameters, whether the model passes a constant (a weight).
    """
    return _Describer(function, constant).operator()
