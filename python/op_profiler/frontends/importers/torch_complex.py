"""Writes complex numbers in the graph of a trace as pairs of real numbers, along a new last axis, as
``torch.view_as_real`` does. Rotary position embeddings are often computed with complex numbers; TVM has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from op_profiler.frontends.importers.torch_decompositions import insert_recorded, recorded
from op_profiler.frontends.importers.torch_fourier import FOURIER
from op_profiler.frontends.importers.torch_library import torch
from op_profiler.frontends.importers.torch_nodes import known_tensor


class _Pair(NamedTuple):
    """A complex tensor: real and imaginary parts along the last axis."""

    both: Any


def say_without_complex_numbers(traced: Any) -> None:
    """Replace operators that read or return complex tensors by operators on pairs, in place. Operators that are not in
    `_FUNCTIONS` are not replaced."""
    graph = traced.graph
    pairs: dict[str, Any] = {}
    if not any(_is_complex(value) for node in graph.nodes() for value in node.outputs()):
        return
    _open_tuples(graph)
    for node in list(graph.nodes()):
        function = _FUNCTIONS.get(node.kind())
        if function is None or not any(_is_complex(value) for value in (*node.inputs(), *node.outputs())):
            continue
        try:
            tensors: list[Any] = []
            inputs: list[Any] = []
            given = [_argument(traced, node, value, pairs, tensors, inputs) for value in node.inputs()]
        except ValueError:
            continue
        if isinstance(function(*(one(tensors) for one in given)), _Pair) != _is_complex(node.output()):
            continue  # a conversion between real and complex numbers
        found = recorded(lambda *made, f=function, g=given: _plain(f(*(one(made) for one in g))), tensors)
        (made,) = insert_recorded(graph, node, found.graph, inputs)
        if _is_complex(node.output()):
            pairs[node.output().debugName()] = made
        else:
            node.output().replaceAllUsesWith(made)
    torch._C._jit_pass_dce(graph)


def _open_tuples(graph: Any) -> None:
    """Use the members of tuples directly where modules pass them to each other."""
    for node in graph.nodes():
        if node.kind() == "prim::TupleUnpack" and node.inputsAt(0).node().kind() == "prim::TupleConstruct":
            for old, new in zip(node.outputs(), node.inputsAt(0).node().inputs(), strict=True):
                old.replaceAllUsesWith(new)


def _is_complex(value: Any) -> bool:
    kind = value.type()
    return kind.kind() == "TensorType" and kind.dtype() is not None and bool(kind.dtype().is_complex)


def _argument(
    traced: Any, node: Any, value: Any, pairs: dict[str, Any], tensors: list[Any], inputs: list[Any]
) -> Callable[[Sequence[Any]], Any]:
    """Return a function that picks an argument from the tensors of the graph; an example of a tensor is added to
    `tensors`, and its value to `inputs`.

    Raises:
        ValueError: the argument is known only at run time.
    """
    made_by, kind = value.node(), value.type()
    if made_by.kind() == "prim::ListConstruct":
        values = [one.toIValue() for one in made_by.inputs()]
        if None in values:
            raise ValueError("a size is not known")
        return lambda _: values
    if kind.kind() != "TensorType":
        if made_by.kind() != "prim::Constant":
            raise ValueError("a number is not known")
        return lambda _: value.toIValue()
    place, is_pair = len(tensors), _is_complex(value)
    if is_pair and value.debugName() not in pairs:
        stored = known_tensor(traced, value)
        if stored is None:
            raise ValueError("complex numbers come from elsewhere")
        with traced.graph.insert_point_guard(node):
            pairs[value.debugName()] = traced.graph.insertConstant(torch.view_as_real(stored.detach()).clone())
    if kind.sizes() is None:
        raise ValueError("a shape is not known")
    inputs.append(pairs[value.debugName()] if is_pair else value)
    real = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(kind.dtype(), kind.dtype())
    tensors.append(torch.zeros([*kind.sizes(), 2] if is_pair else kind.sizes(), dtype=real))
    return (lambda made: _Pair(made[place])) if is_pair else (lambda made: made[place])


def _plain(result: Any) -> Any:
    return result.both if isinstance(result, _Pair) else result


def _mul(one: Any, other: Any) -> _Pair:
    if isinstance(one, _Pair) and isinstance(other, _Pair):
        (a, b), (c, d) = (pair.both.unbind(-1) for pair in (one, other))
        return _Pair(torch.stack([a * c - b * d, a * d + b * c], -1))
    pair, factor = (one, other) if isinstance(one, _Pair) else (other, one)
    return _Pair(pair.both * (factor[..., None] if isinstance(factor, torch.Tensor) and factor.dim() else factor))


def _conjugate(pair: _Pair) -> _Pair:
    real, imaginary = pair.both.unbind(-1)
    return _Pair(torch.stack([real, -imaginary], -1))


def _polar(size: Any, angle: Any) -> _Pair:
    return _Pair(torch.stack([size * torch.cos(angle), size * torch.sin(angle)], -1))


def _shaped(name: str) -> Callable[..., _Pair]:
    """Return a function of a pair and sizes."""
    return lambda pair, sizes, *_: _Pair(getattr(pair.both, name)([*sizes, 2]))


def _along(name: str, axes: int = 1) -> Callable[..., _Pair]:
    """Return a function of a pair and axes, which count from the last axis of the complex tensor if negative."""

    def call(pair: _Pair, *given: Any) -> _Pair:
        moved = [axis - 1 if axis < 0 else axis for axis in given[:axes]]
        return _Pair(getattr(torch.ops.aten, name)(pair.both, *moved, *given[axes:]))

    return call


def _same(pair: Any, *_: Any) -> Any:
    return pair


def _fourier(transform: Callable[..., tuple[Any, Any]], *, is_real: bool) -> Callable[..., Any]:
    """Return a transform of a tensor or pair, which returns a tensor if `is_real`."""

    def parts(one: Any) -> Any:
        if isinstance(one, _Pair):
            return one.both.unbind(-1)
        return (one, None) if isinstance(one, torch.Tensor) else one

    def call(*given: Any) -> Any:
        real, imaginary = transform(*map(parts, given))
        return real if is_real else _Pair(torch.stack([real, imaginary], -1))

    return call


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "aten::polar": _polar,
    "aten::complex": lambda real, imaginary: _Pair(torch.stack([real, imaginary], -1)),
    "aten::view_as_complex": _Pair,
    "aten::view_as_real": lambda pair: pair.both,
    "aten::real": lambda pair: pair.both[..., 0],
    "aten::imag": lambda pair: pair.both[..., 1],
    "aten::abs": lambda pair: pair.both.square().sum(-1).sqrt(),
    **{f"aten::{name}": _conjugate for name in ("conj", "_conj", "conj_physical")},
    "aten::mul": _mul,
    "aten::add": lambda one, other, alpha: _Pair(one.both + alpha * other.both),
    "aten::sub": lambda one, other, alpha: _Pair(one.both - alpha * other.both),
    **{f"aten::{name}": _shaped(name) for name in ("view", "reshape", "expand")},
    **{f"aten::{name}": _along(name) for name in ("unsqueeze", "select", "slice")},
    "aten::transpose": _along("transpose", 2),
    **{name: _fourier(transform, is_real="irfft" in name) for name, transform in FOURIER.items()},
    **{f"aten::{name}": _same for name in ("alias", "clone", "contiguous", "detach", "resolve_conj", "to")},
}
"""Functions of `_Pair`, by the operators on complex numbers that they replace."""
