"""From a torch module to Relay: trace, convert, name the inputs. All of torch goes through `lower`."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import MissingPackageError, ModelError
from op_profiler.frontends.importers.finish import finish, unsupported
from op_profiler.frontends.importers.torch_converters import CONVERTERS
from op_profiler.frontends.importers.torch_elementwise import ELEMENTWISE_CONVERTERS
from op_profiler.frontends.importers.torch_graph import prepare
from op_profiler.frontends.importers.torch_layers import WRAPPED, noted_layers
from op_profiler.frontends.importers.torch_layouts import LAYOUT_CONVERTERS
from op_profiler.frontends.importers.torch_options import OPTION_CONVERTERS
from op_profiler.frontends.importers.torch_places import PLACE_CONVERTERS
from op_profiler.frontends.importers.torch_types import TYPE_CONVERTERS


def load_torch() -> ModuleType:
    """Import torch.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError("torch", "this model") from error
    # The fused attention of nn.MultiheadAttention has no counterpart in Relay; without it torch runs plain operators.
    torch.backends.mha.set_fastpath_enabled(False)
    return torch


def load_torchvision() -> ModuleType:
    """Import torchvision, also beside a build of torch that its compiled operators do not fit.

    Raises:
        MissingPackageError: it is not installed.
    """
    load_torch()
    if importlib.util.find_spec("torchvision") is None:
        raise MissingPackageError("torchvision", "this model")
    try:
        import torchvision
    except RuntimeError:
        _declare_detection_operators()
        import torchvision
    return torchvision


def prepare_torchvision() -> None:
    """Where torchvision is there, others' code can import it afterwards, as `load_torchvision` does."""
    if importlib.util.find_spec("torchvision") is not None:
        load_torchvision()


_LIBRARIES: list[Any] = []  # a torch.library goes away with its last reference


def _declare_detection_operators() -> None:
    """torchvision registers a kernel for these at import and fails where its own library could not declare them."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    boxes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # declared already
            library.define(f"{name}{boxes}")
    _LIBRARIES.append(library)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings of tracing and importing, which are about the model's source and not for its user."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


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
) -> ImportedModel:
    """Trace a module with example inputs and convert the trace.

    Args:
        model: `torch.nn.Module` or TorchScript module; outputs may be nested in tuples, lists, dicts or data classes.
        examples: one tensor per input.
        highs: for inputs of integers, the first value that is too large (a vocabulary's size).

    Raises:
        ModelError: it cannot be traced, or has operators that TVM does not know.
    """
    highs = highs or {}
    given = dict(zip(input_names, examples, strict=True))
    specs = [
        InputSpec(n, tuple(example.shape), str(example.dtype).removeprefix("torch."), high=highs.get(n, 2))
        for n, example in given.items()
    ]
    own = compiler_in_use().import_program("torch", name, _flat(model), given)
    if own is not None:
        return ImportedModel(name, source, own, {}, tuple(specs), batch_size, tuple(notes))
    traced = _trace(model, examples, name)
    infos = [(spec.name, (list(spec.shape), spec.dtype)) for spec in specs]
    module, params = _convert(traced, model, infos, name)
    return finish(module, params, specs, name=name, source=source, batch_size=batch_size, notes=notes)


def by_keyword(model: Any, names: Sequence[str]) -> Any:
    """The model as a module that takes its inputs by position, which is what a trace needs."""

    torch = load_torch()

    class _ByKeyword(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            setattr(self, WRAPPED, model)

        def forward(self, *tensors: Any) -> Any:
            return getattr(self, WRAPPED)(**dict(zip(names, tensors, strict=True)))

    return _ByKeyword().eval()


def _flat(model: Any) -> Any:
    """The model with its outputs as one flat tuple of tensors, since a trace has no dicts and data classes."""
    torch = load_torch()

    class _Flat(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            setattr(self, WRAPPED, model)

        def forward(self, *inputs: Any) -> Any:
            leaves = torch.utils._pytree.tree_leaves(getattr(self, WRAPPED)(*inputs))
            tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
            return tensors[0] if len(tensors) == 1 else tensors

    with contextlib.suppress(NotImplementedError):  # an exported program has no modes
        model.eval()
    return _Flat()


def _trace(model: Any, examples: Sequence[Any], name: str) -> Any:
    torch = load_torch()
    try:
        with quiet(), torch.no_grad():
            if isinstance(model, torch.jit.ScriptModule):
                model.eval()
                model(*examples)  # says what does not fit; its own graph is converted
                return model
            return torch.jit.trace(_flat(model), tuple(examples), check_trace=False, strict=False)
    except Exception as error:  # whatever the model's code raises
        shapes = ", ".join(str(tuple(example.shape)) for example in examples)
        raise ModelError(f"{name} does not run on inputs of shape {shapes}: {_last_line(error)}") from error


@interrupts_wait()
def _convert(traced: Any, model: Any, infos: list[Any], name: str) -> tuple[Any, dict[str, Any]]:
    from op_profiler.compilers.relay.layers import layer_in_span, with_layers

    tvm = load_tvm()
    try:
        with quiet():
            prepare(traced, model)
            with noted_layers() as layers:
                module, params = tvm.relay.frontend.from_pytorch(traced, infos, custom_convert_map=_converters())
            return with_layers(module, lambda call: layers.get(layer_in_span(call), "")), params
    except Exception as error:  # the importer raises anything, AssertionError and KeyError among them
        raise unsupported(name, error) from error


def _converters() -> dict[str, Any]:
    """Those that stand before TVM's own, by the operator."""
    known = CONVERTERS | ELEMENTWISE_CONVERTERS | LAYOUT_CONVERTERS
    return known | TYPE_CONVERTERS | OPTION_CONVERTERS | PLACE_CONVERTERS


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
