"""Rewrites in-place operators in the graph of a trace as operators that return new tensors.

Relay's values never change, and TVM's importer keeps only what an in-place operator returns: code that uses the written
tensor afterwards would silently read the old values. Here every later use refers to the operator's result. If a part of
a tensor is written, the whole tensor is assembled again, and other views are taken from it. torch's schemas list the
operators that write and those that return views; a write that cannot be expressed this way is an error.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

from op_profiler.frontends.importers.torch_library import torch
from op_profiler.frontends.importers.torch_nodes import substitute

_SPLITS = ("aten::chunk", "aten::split", "aten::split_with_sizes", "aten::tensor_split", "aten::unbind")
_RESHAPED = ("view", "view_as", "unsqueeze", "squeeze", "unflatten", "reshape", "reshape_as", "flatten", "ravel")
_SWAPPED = ("transpose", "swapaxes", "swapdims", "t", "numpy_T", "mT")
"""Views that are their own inverse."""
_UNCHANGED = ("detach", "alias", "contiguous", "to", "dropout")
_MASKED = ("slice", "select", "unsqueeze")
"""Views for which a mask is created if a single value is written."""
_RENAMING = ("unsqueeze_", "squeeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "detach_")
"""Operators that change how a tensor is viewed, and write nothing."""
_NUMBERS = ("prim::NumToTensor", "aten::Int", "aten::IntImplicit", "aten::ScalarImplicit")
_ARITHMETIC = {
    "aten::add": operator.add,
    "aten::sub": operator.sub,
    "aten::mul": operator.mul,
    "aten::floor_divide": operator.floordiv,
    "aten::floordiv": operator.floordiv,
}
_ADVICE = "cannot be imported, because it writes in place; use a clone, or the operator that returns its result"


def say_without_writing(graph: Any) -> None:
    """Replace the in-place operators of a graph by operators that return new tensors; change the graph in place.

    Raises:
        NotImplementedError: a tensor is written to through a view that cannot be followed.
    """
    _Writes(graph).follow(graph, outermost=True)


class _Writes:
    """The views of a graph by their names: the node that creates each view, its base, and its output number."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.views: dict[str, tuple[Any, Any, Any, int]] = {}

    def follow(self, block: Any, *, outermost: bool) -> None:
        nodes = list(block.nodes())
        inside = {out.debugName() for node in nodes for out in node.outputs()}
        for node in nodes:
            for inner in node.blocks():
                self.follow(inner, outermost=False)
            written = _written(node)
            if written is None:
                self._note_views(node)
            elif _short(node) in _RENAMING:
                self._note(node.output(), node, written)
                written.replaceAllUsesAfterNodeWith(node, node.output())
            else:
                if not outermost and self._root(written).debugName() not in inside:
                    self._refuse_elsewhere(node, written)
                self._write(node, written)

    def _note(self, value: Any, view: Any, base: Any, at: int = 0) -> None:
        self.views[value.debugName()] = (value, view, base, at)

    def _note_views(self, node: Any) -> None:
        if node.kind() == "prim::ListUnpack" and node.inputsAt(0).node().kind() in _SPLITS:
            for at, out in enumerate(node.outputs()):
                self._note(out, node, node.inputsAt(0).node().inputsAt(0), at)
        elif _gives_view(node) and _shares(node) is not False:
            self._note(node.output(), node, node.inputsAt(0))

    def _root(self, value: Any) -> Any:
        while value.debugName() in self.views:
            value = self.views[value.debugName()][2]
        return value

    def _shared(self, written: Any) -> list[Any]:
        """Return all values that share memory with a value, in the order of their creation."""
        root = self._root(written)
        name = root.debugName()
        return [root, *(v for v, *_ in self.views.values() if self._root(v).debugName() == name)]

    def _refuse_elsewhere(self, node: Any, written: Any) -> None:
        """Reject a write inside a branch or a loop to a value from outside of it that is used elsewhere too."""
        users = [use.user for value in self._shared(written) for use in value.uses()]
        if any(user != node and user.kind() not in _SPLITS and not self._is_view(user) for user in users):
            raise NotImplementedError(f"{node.kind()} in a branch or a loop {_ADVICE}")

    def _is_view(self, node: Any) -> bool:
        return any(out.debugName() in self.views for out in node.outputs())

    def _write(self, node: Any, written: Any) -> None:
        kind, name, root = node.kind(), written.debugName(), self._root(written)
        filled = self._fill_part(node, written)
        if filled is not None:
            self._note(node.output(), *self.views[name][1:])
        shared = self._shared(written)
        new = self._left_by(node) if filled is None else filled
        last = new.node()
        if any(_kept_in_list(value, last) for value in shared):
            raise NotImplementedError(f"{kind} of a tensor that is in a list already {_ADVICE}")
        now = {name if filled is None else root.debugName(): new}
        others = [value for value in shared if value.debugName() not in now and _used_after(value, last)]
        if filled is None and name in self.views:
            self._note(new, *self.views[name][1:])
        apart = [value for value in others if self._apart(value, written)]
        if len(apart) < len(others):
            last = self._put_back(kind, written, now, last) if filled is None else last
            for value in apart:
                self._base_anew(value, now)
            for value in others:
                last = last if value in apart else self._take_again(kind, value, now, last)
        for value in shared:
            if value.debugName() in now:
                value.replaceAllUsesAfterNodeWith(last, now[value.debugName()])

    def _fill_part(self, node: Any, written: Any) -> Any:
        """Write one value to a part with known position by a mask over the whole tensor, a single operator."""
        chain, whole = [], written
        while whole.debugName() in self.views:
            _, view, whole, _at = self.views[whole.debugName()]
            _replace_computed_sizes(self.graph, view)
            chain.append((_short(view), [given.toIValue() for given in list(view.inputs())[1:]]))
        value = 0 if node.kind() == "aten::zero_" else node.inputsAt(1).toIValue() if node.inputsSize() > 1 else None
        known = all(short in _MASKED and None not in given for short, given in chain)
        if node.kind() not in ("aten::fill_", "aten::zero_") or not chain or not known:
            return None
        if value is None or whole.type().sizes() is None:
            return None
        part = mask = torch.zeros(whole.type().sizes(), dtype=torch.bool)
        for short, given in reversed(chain):
            part = getattr(torch.ops.aten, short)(part, *given)
        part.fill_(True)
        with self.graph.insert_point_guard(node):
            inputs = [whole, self.graph.insertConstant(mask), self.graph.insertConstant(float(value))]
        filled = self._after(node, "aten::masked_fill", inputs, node).output()
        filled.setType(whole.type())
        return filled

    def _left_by(self, node: Any) -> Any:
        """Return the value that an in-place operator writes; copy_ is renamed, because the importer would
        follow it too."""
        if node.kind() != "aten::copy_":
            return node.output()
        made = self._after(node, "aten::copy", list(node.inputs()), node)
        substitute(node, made.output())
        return made.output()

    def _after(self, last: Any, kind: str, inputs: Sequence[Any], like: Any) -> Any:
        """Insert a node after another one, with outputs of the types of `like`."""
        made = self.graph.create(kind, list(inputs), like.outputsSize())
        made.copyAttributes(like)
        made.copyMetadata(like)
        made.insertAfter(last)
        for out, other in zip(made.outputs(), like.outputs(), strict=True):
            out.setType(other.type())
        return made

    def _put_back(self, kind: str, part: Any, now: dict[str, Any], last: Any) -> Any:
        """Assemble the tensors that contain a written part, from the part's new value; return the last new node."""
        while part.debugName() in self.views:
            _, view, base, at = self.views[part.debugName()]
            new = now[part.debugName()]
            _replace_computed_sizes(self.graph, view)
            whole = self._whole(kind, part, new, last)
            last = last if whole is new else whole.node()
            now[base.debugName()] = whole
            self._note(new, view, whole, at)
            part = base
        return last

    def _whole(self, kind: str, part: Any, new: Any, last: Any) -> Any:
        """Return the base of a part, with the new value of the part."""
        _, view, base, at = self.views[part.debugName()]
        short, rest = _short(view).removesuffix("_"), list(view.inputs())[1:]
        known = _shares(view)
        if known and short in _UNCHANGED:
            return new
        if short == "narrow" and (steps := _as_slice(self.graph, view)):
            short, rest = "slice", steps
        if short in ("slice", "select"):
            made = self._after(last, f"aten::{short}_scatter", [base, new, *rest], new.node())
        elif known and short in _RESHAPED:
            made = self._after(last, "aten::reshape_as", [new, base], new.node())
        elif short in _SWAPPED:
            made = self._after(last, f"aten::{short}", [new, *rest], new.node())
        elif short == "permute" and (order := _inverse(self.graph, view)):
            made = self._after(last, "aten::permute", [new, order], new.node())
        elif view.kind() == "prim::ListUnpack":
            made = self._joined(view, at, base, new, last)
        else:
            raise NotImplementedError(f"{kind} of what {view.kind()} gives {_ADVICE}")
        made.output().setType(base.type())
        return made.output()

    def _joined(self, unpack: Any, at: int, base: Any, new: Any, last: Any) -> Any:
        split = unpack.inputsAt(0).node()
        parts = self._split_again(unpack, base, last)
        inputs = [new if i == at else out for i, out in enumerate(parts.outputs())]
        joined = self._after(parts, "prim::ListConstruct", inputs, split)
        kind = "aten::stack" if split.kind() == "aten::unbind" else "aten::cat"
        return self._after(joined, kind, [joined.output(), split.inputsAt(split.inputsSize() - 1)], new.node())

    def _split_again(self, unpack: Any, base: Any, last: Any) -> Any:
        split = unpack.inputsAt(0).node()
        again = self._after(last, split.kind(), [base, *list(split.inputs())[1:]], split)
        return self._after(again, unpack.kind(), [again.output()], unpack)

    def _take_again(self, kind: str, value: Any, now: dict[str, Any], last: Any) -> Any:
        """Create a view of a changed tensor again, after the views that it is a view of; add their new values to `now`
        and return the last new node."""
        if value.debugName() in now:
            return last
        _, view, base, at = self.views[value.debugName()]
        if _shares(view) is None:
            raise NotImplementedError(f"{kind} of what {view.kind()} may give {_ADVICE}")
        last = self._take_again(kind, base, now, last)
        if view.kind() == "prim::ListUnpack":
            made = self._split_again(view, now[base.debugName()], last)
        else:
            inputs = [now[base.debugName()], *list(view.inputs())[1:]]
            made = self._after(last, view.kind().removesuffix("_"), inputs, view)
        now[value.debugName()] = made.outputsAt(at)
        self._note(made.outputsAt(at), view, now[base.debugName()], at)
        return made

    def _base_anew(self, value: Any, now: dict[str, Any]) -> None:
        """Replace the base of a part that was not written by the base's new value."""
        _, view, base, at = self.views[value.debugName()]
        while base.debugName() not in now:  # only a slice of everything can be between
            base = self.views[base.debugName()][2]
        self._note(value, view, now[base.debugName()], at)

    def _apart(self, one: Any, other: Any) -> bool:
        """Return whether two parts of a tensor certainly do not overlap."""
        if not {one.debugName(), other.debugName()} <= self.views.keys():
            return False
        (_, view, base, at), (_, view2, base2, at2) = self.views[one.debugName()], self.views[other.debugName()]
        if self._taken_of(base) != self._taken_of(base2):
            return False
        if view.kind() == "prim::ListUnpack":
            return bool(view == view2) and at != at2
        if view.kind() != view2.kind() or view.kind() not in ("aten::select", "aten::slice"):
            return False
        (axis, *here), (axis2, *there) = ([i.toIValue() for i in list(v.inputs())[1:]] for v in (view, view2))
        if axis is None or axis != axis2 or any(i is None or i < 0 for i in here + there):
            return False
        return here != there if len(here) == 1 else here[1] <= there[0] or there[1] <= here[0]

    def _taken_of(self, base: Any) -> str:
        """Return the name of a base, followed through slices of all elements."""
        while base.debugName() in self.views:
            _, view, whole, _at = self.views[base.debugName()]
            given = [i.toIValue() for i in list(view.inputs())[2:]]
            if view.kind() != "aten::slice" or given[0] not in (0, None) or given[1:] != [2**63 - 1, 1]:
                break
            base = whole
        return str(base.debugName())


def _short(node: Any) -> str:
    return str(node.kind()).removeprefix("aten::")


@functools.cache
def _schema(text: str) -> Any:
    return torch._C.parse_schema(text)


def _written(node: Any) -> Any:
    """Return the tensor that an operator writes to; None if it writes to none."""
    if not node.kind().startswith("aten::") or node.outputsSize() != 1 or node.schema() == "(no schema)":
        return None
    if node.output().type().kind() != "TensorType":
        return None
    arguments = _schema(node.schema()).arguments
    positions = [i for i, argument in enumerate(arguments) if argument.alias_info and argument.alias_info.is_write]
    return node.inputsAt(positions[0]) if positions else None


def _gives_view(node: Any) -> bool:
    if node.kind() == "aten::dropout":
        return node.inputsAt(2).toIValue() is False
    if not node.kind().startswith("aten::") or node.outputsSize() != 1 or node.schema() == "(no schema)":
        return False
    schema = _schema(node.schema())
    return bool(schema.arguments and schema.arguments[0].alias_info and schema.returns[0].alias_info)


def _shares(view: Any) -> bool | None:
    """Return whether a value that may be a view or a copy is a view; None if the trace does not show it."""
    short = _short(view)
    if short not in ("reshape", "reshape_as", "flatten", "ravel", "contiguous", "to"):
        return True
    given, made = view.inputsAt(0).type(), view.output().type()
    sizes, strides = given.sizes(), given.strides()
    if sizes is None or strides is None or made.sizes() is None or made.strides() is None:
        return None
    if short in ("contiguous", "to"):
        copies = short == "to" and view.inputsAt(view.inputsSize() - 2).toIValue() is True
        return not copies and given.scalarType() == made.scalarType() and strides == made.strides()
    try:
        torch.empty_strided(sizes, strides, device="meta").view(made.sizes())
    except RuntimeError:
        return False
    return True


def _used_after(value: Any, node: Any) -> bool:
    return any(use.user.isAfter(node) for use in value.uses())


def _kept_in_list(value: Any, node: Any) -> bool:
    """Return whether a list or tuple from before a node contains a value and is used after the node."""
    lists = [u.user for u in value.uses() if u.user.kind() in ("prim::ListConstruct", "prim::TupleConstruct")]
    return any(kept.isBefore(node) and _used_after(kept.output(), node) for kept in lists)


def _as_slice(graph: Any, narrow: Any) -> list[Any] | None:
    axis, start, length = list(narrow.inputs())[1:]
    begin, count = start.toIValue(), length.toIValue()
    if not isinstance(begin, int) or count is None or begin < 0:
        return None
    with graph.insert_point_guard(narrow):
        return [axis, start, graph.insertConstant(begin + count), graph.insertConstant(1)]


def _inverse(graph: Any, permute: Any) -> Any:
    """Return the order of axes that undoes a permutation; None if the permutation is not constant."""
    order = [value.toIValue() for value in permute.inputsAt(1).node().inputs()]
    if None in order:
        return None
    order = [axis % len(order) for axis in order]
    with graph.insert_point_guard(permute):
        axes = [graph.insertConstant(order.index(axis)) for axis in range(len(order))]
        made = graph.insertNode(graph.create("prim::ListConstruct", axes, 1))
    made.output().setType(permute.inputsAt(1).type())
    return made.output()


def _replace_computed_sizes(graph: Any, view: Any) -> None:
    """Replace indices that are computed from sizes by numbers from the trace, which the importer requires here."""
    for at, value in enumerate(view.inputs()):
        if at and value.node().kind() != "prim::Constant" and (number := _number(value)) is not None:
            with graph.insert_point_guard(view):
                view.replaceInput(at, graph.insertConstant(number))


def _number(value: Any) -> int | None:
    node, known = value.node(), value.toIValue()
    if node.kind() == "prim::Constant":
        return None if known is None or isinstance(known, str) else int(known)
    if node.kind() in _NUMBERS:
        return _number(node.inputsAt(0))
    sizes = node.inputsAt(0).type().sizes() if node.kind() in ("aten::size", "aten::numel") else None
    if sizes is not None:
        axis = node.inputsAt(1).toIValue() if node.inputsSize() > 1 else None
        return math.prod(sizes) if node.kind() == "aten::numel" else sizes[axis] if axis is not None else None
    if node.kind() not in _ARITHMETIC:
        return None
    one, other = _number(node.inputsAt(0)), _number(node.inputsAt(1))
    return None if one is None or other is None else int(_ARITHMETIC[node.kind()](one, other))
