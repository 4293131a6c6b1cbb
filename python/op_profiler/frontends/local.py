"""The source ``local``: TVM's test networks, recurrent and randomly wired networks, and models of torchvision,
pretrainedmodels and libreyolo."""

from __future__ import annotations

import contextlib
import importlib
import types
from collections.abc import Callable
from typing import Any

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import UnknownNameError, UsageError, require
from op_profiler.frontends.fingerprints import fingerprint
from op_profiler.frontends.frontend import Frontend, ModelRequest
from op_profiler.frontends.input_shapes import INPUT, batch_of, shapes_by_name
from op_profiler.frontends.zoo import classifiers, randwire, weight_layers
from op_profiler.lean_imports import standing_in

_DEFAULT_SEQUENCE = 10
_HIDDEN = 128

# name -> (module of tvm.relay.testing, further arguments, shape of one image)
_TESTING: dict[str, tuple[str, dict[str, Any], tuple[int, ...] | None]] = {
    **{f"resnet-{n}": ("resnet", {"num_layers": n}, (3, 224, 224)) for n in (18, 34, 50, 101, 152)},
    "resnet3d-18": ("resnet_3d", {"num_layers": 18}, (3, 16, 112, 112)),
    "mobilenet": ("mobilenet", {}, (3, 224, 224)),
    "squeezenet_v1.0": ("squeezenet", {"version": "1.0"}, (3, 224, 224)),
    "squeezenet_v1.1": ("squeezenet", {"version": "1.1"}, (3, 224, 224)),
    "densenet-121": ("densenet", {"densenet_size": 121}, (3, 224, 224)),
    **{f"vgg-{n}": ("vgg", {"num_layers": n}, (3, 224, 224)) for n in (11, 16, 19)},
    "inception_v3": ("inception_v3", {}, (3, 299, 299)),
    "dcgan": ("dcgan", {}, None),
    "mlp": ("mlp", {}, (1, 28, 28)),
}
_RECURRENT = {"rnn": 1, "gru": 3, "lstm": 4}  # name -> gates


class LocalFrontend(Frontend):
    """The source ``local``: models that need no file and no network."""

    source = "local"

    def names(self) -> list[str]:
        """Return the default models, and those of torchvision, pretrainedmodels and libreyolo if installed."""
        darknet = classifiers.DARKNET_NAMES if classifiers.installed("libreyolo") else ()
        return sorted(
            {*self.default_names(), *classifiers.torchvision_names(), *classifiers.pretrainedmodels_names(), *darknet}
        )

    def default_names(self) -> list[str]:
        """Return TVM's test networks, the recurrent networks, and one randomly wired network."""
        return [*_TESTING, *_RECURRENT, f"{randwire.PREFIX}0"]

    def _check(self, request: ModelRequest) -> None:
        name = request.name
        if name in _TESTING or name in _RECURRENT:
            shapes_by_name(request, (INPUT,))
            if request.input_shapes and (name in _RECURRENT or _TESTING[name][2] is None):
                raise UsageError(f"{name} does not take --inputshape; its input follows from --batchsize")
            if request.input_shapes:
                _batch_and_image(request)
            return
        if randwire.seed_of(name) is not None:
            classifiers.shape_of(request, randwire.IMAGE)
            return
        if name in classifiers.DARKNET_NAMES:
            require("libreyolo", f"the model {name!r}", "yolo")
        if name in self.names():
            shapes_by_name(request, (INPUT,))
            return
        hint = "" if classifiers.installed("torchvision") else "More names with: source ./env_var.sh models."
        raise UnknownNameError("local model", name, self.names(), hint)

    def takes_sequence_length(self, name: str) -> bool:
        """Return whether the model is a recurrent network."""
        return name in _RECURRENT

    def has_framework(self, request: ModelRequest) -> bool:
        """Return whether torch runs the model; the networks that are written in Relay have no framework."""
        return bool(_packages(request.name))

    def fingerprint(self, request: ModelRequest) -> str:
        """Hash the request and the versions of the packages that define the model."""
        return fingerprint(request, packages=_packages(request.name))

    def load(self, request: ModelRequest) -> ImportedModel:
        """Build the network in the package that defines it and import it, with random weights.

        Raises:
            UsageError, UnknownNameError, MissingPackageError: as `check`.
            ModelError: an operator is not supported.
        """
        self.check(request)
        if request.name in _RECURRENT:
            return _recurrent(request)
        if request.name in _TESTING:
            return _from_testing(request)
        if randwire.seed_of(request.name) is not None:
            return _random_wires(request)
        return classifiers.load(request)


FRONTEND = LocalFrontend()


def _packages(name: str) -> tuple[str, ...]:
    """Return the packages besides TVM that define a model: a new version may define another model of the same name."""
    if name in _TESTING or name in _RECURRENT or randwire.seed_of(name) is not None:
        return ()
    return ("torch", "torchvision", classifiers.package_of(name))


@interrupts_wait()
def _random_wires(request: ModelRequest) -> ImportedModel:
    shape = classifiers.shape_of(request, randwire.IMAGE)
    module, params = randwire.randwire(randwire.seed_of(request.name) or 0, shape)
    inputs = (InputSpec("data", shape),)
    return ImportedModel(request.name, request.source, module, params, inputs, shape[0], (classifiers.RANDOM_WEIGHTS,))


@interrupts_wait()
def _from_testing(request: ModelRequest) -> ImportedModel:
    module_name, arguments, image = _TESTING[request.name]
    with _pytest_not_needed():
        load_tvm()
        builder = importlib.import_module(f"tvm.relay.testing.{module_name}")
    batch = request.batch_size
    if request.input_shapes:
        batch, image = _batch_and_image(request)
    if image is not None:
        arguments = {**arguments, "image_shape": image}
    module, params = builder.get_workload(batch_size=batch, **arguments)
    inputs = tuple(
        InputSpec(v.name_hint, tuple(int(d) for d in v.checked_type.shape), str(v.checked_type.dtype))
        for v in load_tvm().relay.transform.InferType()(module)["main"].params
        if v.name_hint not in params
    )
    module = weight_layers.with_layers_of_weights(module, params)
    return ImportedModel(request.name, request.source, module, params, inputs, batch, (classifiers.RANDOM_WEIGHTS,))


def _batch_and_image(request: ModelRequest) -> tuple[int, tuple[int, ...]]:
    """Return batch and image of the shape that the user gave; raise an error if the batch contradicts --batchsize."""
    shape = request.input_shapes[0]
    usual = _TESTING[request.name][2] or ()
    if len(shape) != len(usual) + 1:
        raise UsageError(f"{request.name} takes an input of {len(usual) + 1} dimensions, not {shape}")
    return batch_of(request, shape), shape[1:]


@interrupts_wait()
def _recurrent(request: ModelRequest) -> ImportedModel:
    """Return one recurrent layer of 128 units, unrolled over the sequence; the output is the last hidden state."""
    tvm = load_tvm()
    import numpy as np
    from tvm.relay.frontend import common

    relay = tvm.relay
    steps = request.sequence_length or _DEFAULT_SEQUENCE
    batch, gates = request.batch_size, _RECURRENT[request.name]
    data = relay.var("data", shape=(steps, batch, _HIDDEN))
    shapes = {
        "w_input": (gates * _HIDDEN, _HIDDEN),
        "w_hidden": (gates * _HIDDEN, _HIDDEN),
        "b_input": (gates * _HIDDEN,),
        "b_hidden": (gates * _HIDDEN,),
    }
    weights = {name: relay.var(name, shape=shape) for name, shape in shapes.items()}
    sequence = (
        [relay.squeeze(s, axis=[0]) for s in relay.split(data, steps, axis=0)]
        if steps > 1
        else [relay.squeeze(data, axis=[0])]
    )
    start = relay.zeros((batch, _HIDDEN), "float32")
    cell: Callable[..., Any] = getattr(common, f"{request.name}_cell")
    state = (start, start) if request.name == "lstm" else (start,)
    outputs, *_ = cell(sequence, *state, *weights.values())
    module = tvm.IRModule.from_expr(relay.Function([data, *weights.values()], outputs[-1]))
    rng = np.random.default_rng(0)
    params = {n: tvm.nd.array(rng.standard_normal(s).astype("float32") / 8) for n, s in shapes.items()}
    module = relay.transform.InferType()(module)
    inputs = (InputSpec("data", (steps, batch, _HIDDEN)),)
    return ImportedModel(request.name, request.source, module, params, inputs, batch, (classifiers.RANDOM_WEIGHTS,))


def _pytest_not_needed() -> contextlib.AbstractContextManager[None]:
    """Replace pytest by a stand-in: `tvm.relay.testing` imports it for its own tests, which takes a tenth of a second,
    and users may not have it."""
    stand_in = types.ModuleType("pytest")
    stand_in.mark = _Anything()  # type: ignore[attr-defined]
    stand_in.fixture = _Anything()  # type: ignore[attr-defined]
    return standing_in("pytest", stand_in)


class _Anything:
    """Replaces any decorator of pytest: attributes and calls return the object itself, decorated functions are kept."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __call__(self, *arguments: Any, **keywords: Any) -> object:
        if len(arguments) == 1 and callable(arguments[0]) and not isinstance(arguments[0], _Anything):
            return arguments[0]
        return self
