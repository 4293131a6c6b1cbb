"""Runs a torch module in eager mode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.imported_model import (
    Form,
    FrameworkReference,
    ImportedModel,
    InputSpec,
    NoReference,
    Opened,
)
from op_profiler.errors import first_line
from op_profiler.frontends.importers.torch_layers import unwrapped
from op_profiler.frontends.importers.torch_library import torch
from op_profiler.frontends.references.torch_rounding import OtherRounding
from op_profiler.frontends.references.values import varying
from op_profiler.lean_imports import quiet

if TYPE_CHECKING:
    import numpy as np


class TorchReference(FrameworkReference):
    """The reference of an imported torch module, whose outputs are one tensor or a flat tuple of tensors.

    Args:
        load: returns the module. The module takes one tensor per input.
        inputs: inputs in the order of the arguments.
        lower: imports a module with the same inputs.
    """

    def __init__(
        self, load: Callable[[], Any], inputs: Sequence[InputSpec], lower: Callable[[Any], ImportedModel]
    ) -> None:
        self.framework = f"torch {torch.__version__.partition('+')[0]}"
        self.inputs = tuple(inputs)
        self.doubts: list[str] = []
        self._load = load
        self._lower = lower

    def outputs(self, batches: Sequence[Mapping[str, np.ndarray]]) -> list[list[np.ndarray]]:
        """Run the module in this process, and return its outputs for each batch.

        The second half of the batches runs with different rounding (`OtherRounding`).
        """
        return self._run_all(self._load(), batches)

    def opened(self, batches: Sequence[Mapping[str, np.ndarray]]) -> Opened | None:
        """Run the module with the values of its nodes (exported programs) or innermost modules as outputs, then import
        it with only the outputs that depend on the inputs; return None for TorchScript."""
        model = self._load()
        inner = unwrapped(model)
        if isinstance(inner, torch.jit.ScriptModule):
            return None
        graph = inner if isinstance(inner, torch.fx.GraphModule) else None
        opened = _of_nodes(graph) if graph is not None else _of_modules(model, inner)
        values = self._run_all(opened, batches)
        kept = [place for place in varying(values) if opened.names[place]]
        opened.keep(kept)
        return Opened(
            self._lower(opened),
            tuple(opened.names[place] for place in kept),
            [[value[place] for place in kept] for value in values],
        )

    def write(self, form: Form, folder: Path, inputs: Sequence[np.ndarray]) -> Path:
        """Write the module as ONNX, TorchScript or a program of torch.export into a folder, and return the file."""
        if form == "tflite":
            return super().write(form, folder, inputs)
        file = folder / f"model.{form}"
        model = self._load()
        model.training = False  # of the wrapper alone: the exporter would give it to all modules inside
        tensors = tuple(self._tensors({spec.name: array for spec, array in zip(self.inputs, inputs, strict=True)}))
        with quiet(), torch.no_grad():
            if form == "onnx":  # the exporter that names nodes after modules
                names = [spec.name for spec in self.inputs]
                torch.onnx.export(model, tensors, str(file), dynamo=False, input_names=names)
            elif form == "pt2":
                torch.export.save(torch.export.export(model, tensors, strict=False), file)
            else:
                torch.jit.trace(model, tensors, check_trace=False, strict=False).save(str(file))
        return file

    def _tensors(self, batch: Mapping[str, np.ndarray]) -> list[Any]:
        return [torch.from_numpy(batch[i.name].copy()).to(getattr(torch, i.dtype)) for i in self.inputs]

    def _run_all(self, model: Any, batches: Sequence[Mapping[str, np.ndarray]]) -> list[list[np.ndarray]]:
        half = len(batches) // 2
        plain = [self._run(model, batch) for batch in batches[:half]]
        with OtherRounding():
            return plain + [self._run(model, batch) for batch in batches[half:]]

    def _run(self, model: Any, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        tensors = self._tensors(batch)
        try:
            with quiet(), torch.no_grad():
                made = model(*tensors)
        except Exception as error:  # whatever the model's code raises
            raise NoReference(f"torch does not run it on random inputs: {first_line(error)[:200]}") from error
        return [_array(tensor) for tensor in (made if isinstance(made, (tuple, list)) else (made,))]


def _array(tensor: Any) -> Any:
    plain = tensor.detach().resolve_conj().resolve_neg()
    return (plain.to(torch.float32) if plain.dtype == torch.bfloat16 else plain).contiguous().numpy().copy()


def _opened(model: Any, values: Callable[..., tuple[list[str], list[Any]]]) -> Any:
    """Return a module whose outputs are values inside a model.

    Args:
        model: model with the weights.
        values: returns, for inputs, the names of what computed the values, and the values.
    """

    class _Opened(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.names: list[str] = []
            self.kept: list[int] | None = None

        def keep(self, places: list[int]) -> None:
            self.kept = places

        def forward(self, *inputs: Any) -> Any:
            names, tensors = values(*inputs)
            if self.kept is None:
                self.names = names
            return tuple(tensors if self.kept is None else [tensors[place] for place in self.kept])

    return _Opened().eval() if not isinstance(model, torch.fx.GraphModule) else _Opened()


def _of_modules(model: Any, inner: Any) -> Any:
    """Return a module whose outputs are the outputs of the innermost modules, in the order of their calls.

    Args:
        model: model that is called with the inputs.
        inner: the user's module, which gives the modules their names.
    """

    def values(*inputs: Any) -> tuple[list[str], list[Any]]:
        names: list[str] = []
        seen: list[Any] = []

        def note(name: str) -> Callable[..., None]:
            def hook(_module: Any, _given: Any, made: Any) -> None:
                for leaf in torch.utils._pytree.tree_leaves(made):
                    if isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point:
                        names.append(name)
                        seen.append(leaf * 1)  # the next module may write over it

            return hook

        leaves = [(name, one) for name, one in inner.named_modules() if name and not any(one.children())]
        with _removed([one.register_forward_hook(note(name)) for name, one in leaves]):
            model(*inputs)
        return names, seen

    return _opened(model, values)


def _of_nodes(program: Any) -> Any:
    """Return a module whose outputs are the values of an exported program's nodes, in execution order."""

    class _Nodes(torch.fx.Interpreter):
        def __init__(self) -> None:
            super().__init__(program)
            self.names: list[str] = []
            self.seen: list[Any] = []

        def run_node(self, n: Any) -> Any:
            made = super().run_node(n)
            if n.op.startswith("call") and isinstance(made, torch.Tensor):
                self.names.append(n.name)
                self.seen.append(made)
            return made

    def values(*inputs: Any) -> tuple[list[str], list[Any]]:
        nodes = _Nodes()
        nodes.run(*inputs)
        return nodes.names, nodes.seen

    return _opened(program, values)


@contextlib.contextmanager
def _removed(handles: Sequence[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
