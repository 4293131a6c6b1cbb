"""Imports a torch module into Relay: traces, converts, and names the inputs. All torch models go through `lower`."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.relay_rewriting import location_in_span, with_locations
from op_profiler.compilers.tvm_build import load_tvm, replaced
from op_profiler.errors import ModelError, require
from op_profiler.frontends.importers.finish import finish, output_shapes, unsupported
from op_profiler.frontends.importers.relay_values import quick_converters, sizes_of, tvm_converters
from op_profiler.frontends.importers.torch_attention import ATTENTION_CONVERTERS
from op_profiler.frontends.importers.torch_converters import CONVERTERS
from op_profiler.frontends.importers.torch_elementwise import ELEMENTWISE_CONVERTERS
from op_profiler.frontends.importers.torch_graph import prepare
from op_profiler.frontends.importers.torch_kinds import kinds_of
from op_profiler.frontends.importers.torch_layers import WRAPPED, noted_locations
from op_profiler.frontends.importers.torch_layouts import LAYOUT_CONVERTERS
from op_profiler.frontends.importers.torch_library import torch
from op_profiler.frontends.importers.torch_numbers import is_traced_number
from op_profiler.frontends.importers.torch_options import OPTION_CONVERTERS
from op_profiler.frontends.importers.torch_places import PLACE_CONVERTERS
from op_profiler.frontends.importers.torch_types import TYPE_CONVERTERS
from op_profiler.frontends.importers.torch_windows import WINDOW_CONVERTERS
from op_profiler.frontends.references.torch_reference import TorchReference
from op_profiler.lean_imports import quiet

_TRAINING, _DROPOUT = 6, 5
"""Positions among the inputs (data, states, weights, biases, layers, dropout, training, bidirectional, batch_first)."""


class UnfitInputsError(ModelError):
    """Raised if torch does not run a model on its example inputs."""


def load_torch() -> ModuleType:
    """Return torch, which `torch_library` has imported."""
    return torch


def load_torchvision() -> ModuleType:
    """Import torchvision, even if its compiled operators do not fit the installed torch.

    Raises:
        MissingPackageError: torchvision is not installed.
    """
    require("torchvision", "this model")
    try:
        import torchvision
    except RuntimeError:
        _declare_detection_operators()
        import torchvision
    return torchvision


def prepare_torchvision() -> None:
    """If torchvision is installed, make it importable for other code, as `load_torchvision` does."""
    if importlib.util.find_spec("torchvision") is not None:
        load_torchvision()


_LIBRARIES: list[Any] = []  # a torch.library goes away with its last reference


def _declare_detection_operators() -> None:
    """Declare operators for which torchvision registers a kernel at import, which fails if its library did not declare
    them."""
    library = torch.library.Library("torchvision", "DEF")
    boxes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # declared already
            library.define(f"{name}{boxes}")
    _LIBRARIES.append(library)


def lower(
    model: Any,
    examples: Sequence[Any],
    *,
    name: str,
    source: str,
    input_names: Sequence[str],
    batch_size: int,
    highs: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
    compare_shapes: bool = True,
    read_again: Callable[[], Any] | None = None,
) -> ImportedModel:
    """Trace a module with example inputs and convert the trace.

    Args:
        model: `torch.nn.Module` or TorchScript module; outputs may be nested in tuples, lists, dicts or data classes.
        examples: one tensor per input.
        highs: for integer inputs, the first value that is out of range (the size of a vocabulary).
        compare_shapes: reject outputs whose number or shapes differ from torch's.
        read_again: returns the module of a file; without it, the module stays in memory until outputs are compared.

    Raises:
        ModelError: the model cannot be traced, has operators that TVM does not support, or has outputs of other shapes.
    """
    highs = highs or {}
    given = dict(zip(input_names, examples, strict=True))
    specs = [
        InputSpec(n, tuple(example.shape), str(example.dtype).removeprefix("torch."), high=highs.get(n, 2))
        for n, example in given.items()
    ]
    about: dict[str, Any] = {"name": name, "source": source, "batch_size": batch_size}
    reference = TorchReference(
        (lambda: _flat(read_again())) if read_again is not None else _held(_flat(model)),
        specs,
        lambda opened: lower(opened, examples, input_names=input_names, highs=highs, compare_shapes=False, **about),
    )
    own = compiler_in_use().import_program("torch", name, _flat(model), given)
    if own is not None:
        return ImportedModel(name, source, own, {}, tuple(specs), batch_size, tuple(notes), reference=reference)
    returned: list[Any] = []
    traced = _trace(model, examples, name, returned, reference.doubts)
    reference.kinds = kinds_of(traced)
    infos = [(spec.name, (list(spec.shape), spec.dtype)) for spec in specs]
    module, params = _convert(traced, model, infos, name)
    lowered = finish(module, params, specs, notes=notes, **about)
    if compare_shapes:
        _compare_outputs(lowered.mod, returned, name)
    return dataclasses.replace(lowered, reference=reference)


def _held(model: Any) -> Callable[[], Any]:
    """Return a function that returns the module; a function inside `lower` would keep other objects alive too."""
    return lambda: model


def _compare_outputs(module: Any, returned: Sequence[Any], name: str) -> None:
    """Compare the outputs of a module of Relay with the tensors that the model returned on the example inputs.

    Raises:
        ModelError: their count, or the shape of one of them, differs.
    """
    shapes = output_shapes(module)
    if len(shapes) != len(returned):
        raise ModelError(f"{name} does not lower: it has {len(shapes)} outputs where torch returns {len(returned)}")
    for place, (shape, tensor) in enumerate(zip(shapes, returned, strict=True)):
        wanted = tuple(tensor.shape)
        if shape is None:
            continue
        if len(shape) != len(wanted) or any(s not in (None, w) for s, w in zip(shape, wanted, strict=True)):
            raise ModelError(
                f"{name} does not lower: output {place} has the shape {shape} where torch returns {wanted}"
            )


def by_keyword(model: Any, names: Sequence[str]) -> Any:
    """Return a module that takes inputs by position, as a trace requires, and passes them to the model by `names`."""
    return _wrapped(model, lambda inner, *tensors: inner(**dict(zip(names, tensors, strict=True)))).eval()


def _wrapped(model: Any, forward: Callable[..., Any]) -> Any:
    """Return a module that contains the model and computes `forward` of the model and the inputs."""
    torch = load_torch()

    class _Wrapper(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            setattr(self, WRAPPED, model)

        def forward(self, *inputs: Any) -> Any:
            return forward(getattr(self, WRAPPED), *inputs)

    return _Wrapper()


def _flat(model: Any, returned: list[Any] | None = None) -> Any:
    """Return the model with its outputs as one flat tuple of tensors, because a trace has no dicts and data classes.

    Args:
        returned: list that receives the tensors that the last call returned.
    """
    torch = load_torch()

    def forward(inner: Any, *inputs: Any) -> Any:
        leaves = torch.utils._pytree.tree_leaves(inner(*inputs))
        tensors = tuple(one for one in leaves if isinstance(one, torch.Tensor) and not is_traced_number(one))
        if returned is not None:
            returned[:] = tensors
        return tensors[0] if len(tensors) == 1 else tensors

    with contextlib.suppress(NotImplementedError):  # an exported program has no modes
        model.eval()
    return _wrapped(model, forward)


def _trace(model: Any, examples: Sequence[Any], name: str, returned: list[Any], doubts: list[str]) -> Any:
    """Trace a module.

    Args:
        returned: receives the tensors that the module returned.
        doubts: receives the lines of code for which torch warns that a trace may hold for these inputs only.
    """
    torch = load_torch()
    try:
        with quiet(), torch.no_grad(), _noted_doubts(doubts):
            if isinstance(model, torch.jit.ScriptModule):
                model.eval()
                _flat(model, returned)(*examples)  # says what does not fit; its own graph is converted
                return model
            return torch.jit.trace(_flat(model, returned), tuple(examples), check_trace=False, strict=False)
    except Exception as error:  # whatever the model's code raises
        shapes = ", ".join(str(tuple(example.shape)) for example in examples)
        raise UnfitInputsError(f"{name} does not run on inputs of shape {shapes}: {_last_line(error)}") from error


@contextlib.contextmanager
def _noted_doubts(doubts: list[str]) -> Iterator[None]:
    """Add the places of torch's warnings about the trace in this block, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", load_torch().jit.TracerWarning)
        yield
    places = (f"{'/'.join(Path(one.filename).parts[-2:])}:{one.lineno}" for one in caught)
    doubts.extend(dict.fromkeys(places))


@interrupts_wait()
def _convert(traced: Any, model: Any, infos: list[Any], name: str) -> tuple[Any, dict[str, Any]]:
    """Return the module and its weights."""
    tvm = load_tvm()
    try:
        with quiet():
            prepare(traced, model, _converters())
            with noted_locations() as locations, _one_copy_of_weights(), quick_converters():
                module, params = tvm.relay.frontend.from_pytorch(traced, infos, custom_convert_map=_converters())
            return with_locations(module, lambda call: locations.get(location_in_span(call), "")), params
    except Exception as error:  # the importer raises anything, AssertionError and KeyError among them
        raise unsupported(name, error) from error


def _one_copy_of_weights() -> contextlib.AbstractContextManager[None]:
    """Avoid the second copy of the weights: TVM's importer copies each weight, and at its end all copies again."""
    arrays = load_tvm().nd
    usual = arrays.array

    def array(values: Any, *args: Any, **options: Any) -> Any:
        return values if isinstance(values, arrays.NDArray) else usual(values, *args, **options)

    return replaced(arrays, "array", array)


def _converters() -> dict[str, Any]:
    """Return the converters that take precedence over TVM's own, by operator."""
    known = CONVERTERS | ELEMENTWISE_CONVERTERS | LAYOUT_CONVERTERS
    known |= TYPE_CONVERTERS | OPTION_CONVERTERS | PLACE_CONVERTERS
    return known | ATTENTION_CONVERTERS | _RECURRENT_CONVERTERS | WINDOW_CONVERTERS


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


def _recurrent(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a converter that calls TVM's own and fixes two cases: TVM rejects dropout between layers, which only
    training applies, and stacks the last states of both directions of a GRU as (layers, 2, batch, hidden)."""

    def convert(inputs: Sequence[Any], types: Sequence[str]) -> Any:
        given = list(inputs)
        if given[_TRAINING] and given[_DROPOUT]:
            raise NotImplementedError("dropout between recurrent layers draws at random, as in training; call eval()")
        given[_DROPOUT] = 0.0
        output, *states = layer(tvm_converters(), given, types)
        return output, *(_stacked(state) for state in states)

    return convert


def _stacked(state: Any) -> Any:
    """Return states as (layers times directions, batch, hidden)."""
    shape = sizes_of(state)
    return state if len(shape) == 3 else load_tvm().relay.reshape(state, (-1, *shape[-2:]))


_RECURRENT_CONVERTERS = {
    "aten::gru": _recurrent(lambda usual, *given: usual.gru(*given)),
    "aten::lstm": _recurrent(lambda usual, *given: usual.lstm(*given)),
    "aten::rnn_tanh": _recurrent(lambda usual, *given: usual.rnn(*given, nonlinearity="tanh")),
    "aten::rnn_relu": _recurrent(lambda usual, *given: usual.rnn(*given, nonlinearity="relu")),
}


"""Converters by the name of the operator."""
