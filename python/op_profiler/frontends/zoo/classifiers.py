"""Classification models of torchvision and pretrainedmodels, with random weights.

Their names are read from the sources of the installed packages, so that listing and checking names imports nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable, Sequence
from typing import Any

from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.errors import UsageError, require
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.input_shapes import INPUT, batch_of, shapes_by_name
from op_profiler.lean_imports import package_folder, quiet

RANDOM_WEIGHTS = "random weights: the times are those of the architecture, the outputs mean nothing"

_REGISTERED = re.compile(r"@register_model\((?:name=)?[\"']?(\w*)[\"']?\)\n(?:@[^\n]*\n|\s[^\n]*\n|\)\n)*def (\w+)\(")
_IMPORTED = re.compile(r"^from \.\w+ import (\w+)$", re.MULTILINE)
_DEFAULT_IMAGE = 224
DARKNET_NAMES = {"yolov3-tiny": 416}  # name -> height and width of its images
_IMAGE_SIZES = {"inception_v3": 299, "efficientnet_b7": 600}


def installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


@functools.cache
def torchvision_names() -> tuple[str, ...]:
    """Return the classification models of the installed torchvision; empty if it is not installed."""
    folder = package_folder("torchvision")
    if folder is None:
        return ()
    names = set()
    for file in (folder / "models").glob("*.py"):
        names |= {given or function for given, function in _REGISTERED.findall(file.read_text(encoding="utf-8"))}
    return tuple(sorted(names))


@functools.cache
def pretrainedmodels_names() -> tuple[str, ...]:
    """Return the models of the installed pretrainedmodels; empty if it is not installed."""
    folder = package_folder("pretrainedmodels")
    if folder is None:
        return ()
    names = _IMPORTED.findall((folder / "models" / "__init__.py").read_text(encoding="utf-8"))
    return tuple(sorted(set(names)))


def package_of(name: str) -> str:
    """Return the package that defines a model; torchvision if both packages have the name."""
    if name in DARKNET_NAMES:
        return "libreyolo"
    return "torchvision" if name in torchvision_names() else "pretrainedmodels"


def load(request: ModelRequest) -> ImportedModel:
    """Build the requested model with random weights and import it."""
    from op_profiler.frontends.importers import torch as torch_importer

    torch = torch_importer.load_torch()
    torch.manual_seed(0)
    with quiet():
        model, image = _MAKERS[package_of(request.name)](request.name)
    shape = shape_of(request, image)
    example = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    return torch_importer.lower(
        model,
        (example,),
        name=request.name,
        source=request.source,
        input_names=(INPUT,),
        batch_size=shape[0],
        notes=(RANDOM_WEIGHTS,),
    )


def _darknet(name: str) -> tuple[Any, tuple[int, int, int]]:
    """Return YOLO's Darknet architectures as libreyolo (MIT) builds them."""
    from op_profiler.frontends.importers import torch as torch_importer

    require("libreyolo", f"the model {name!r}", "yolo")
    torch_importer.load_torchvision()
    from libreyolo.models.darknet import build_darknet

    return build_darknet(name).eval(), (3, DARKNET_NAMES[name], DARKNET_NAMES[name])


def shape_of(request: ModelRequest, image: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the only input, a batch of images: the shape that the user gave, otherwise a default.

    Args:
        image: default shape of one image.

    Raises:
        UsageError: --inputshape has another number of dimensions, or contradicts --batchsize.
    """
    given = shapes_by_name(request, (INPUT,))
    if not given:
        return (request.batch_size, *image)
    shape = next(iter(given.values()))
    if len(shape) != len(image) + 1:
        raise UsageError(f"{request.name} takes an input of {len(image) + 1} dimensions, not {shape}")
    batch_of(request, shape)
    return shape


def _torchvision(name: str) -> tuple[Any, tuple[int, int, int]]:
    from op_profiler.frontends.importers import torch as torch_importer

    models = torch_importer.load_torchvision().models
    weights = list(models.get_model_weights(name))
    size = _IMAGE_SIZES.get(name, _DEFAULT_IMAGE)
    if weights:
        size = int((weights[0].meta.get("min_size") or (size, size))[0])
        crop = getattr(weights[0].transforms(), "crop_size", None)
        size = max(size, int(crop[0])) if crop else size
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return models.get_model(name, weights=None, **options).eval(), (3, size, size)


def _pretrainedmodels(name: str) -> tuple[Any, tuple[int, ...]]:
    from op_profiler.frontends.importers import torch as torch_importer

    require("six", f"pretrainedmodels' {name}")
    torch_importer.load_torchvision()
    import pretrainedmodels

    model = getattr(pretrainedmodels, name)(num_classes=1000, pretrained=None).eval()
    settings = pretrainedmodels.pretrained_settings.get(name, {})
    size = next(iter(settings.values()))["input_size"] if settings else [3, _DEFAULT_IMAGE, _DEFAULT_IMAGE]
    return model, tuple(size)


_MAKERS: dict[str, Callable[[str], tuple[Any, tuple[int, ...]]]] = {
    "torchvision": _torchvision,
    "pretrainedmodels": _pretrainedmodels,
    "libreyolo": _darknet,
}
