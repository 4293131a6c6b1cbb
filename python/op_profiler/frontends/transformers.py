"""The source ``transformers``: models by configuration name with random weights, or a local checkpoint folder.

Nothing is downloaded. Names are read from the sources of the installed package, without importing it.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.errors import ModelError, UnknownNameError, require
from op_profiler.frontends.fingerprints import fingerprint
from op_profiler.frontends.frontend import Frontend, ModelRequest
from op_profiler.lean_imports import package_folder, quiet

_DEFAULT_SEQUENCE = 128
_DEFAULTS = ("bert", "gpt2", "roberta", "distilbert", "albert", "electra", "t5-encoder", "vit")
DECODERS = ("llama", "mistral", "qwen2")
"""Model types with llama's structure, whose steps over a KV cache can be measured."""
_PARTS = ("t5-encoder", "t5-decoder")  # names of ours, beside the library's; "t5" is the encoder
_MAPPING = re.compile(r"^CONFIG_MAPPING_NAMES(?: = OrderedDict|\.update)\((.*?)^\)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r'"([\w.\-]+)"\s*[,:]\s*"\w+Config"')
_NO_IMAGE = "without its part for images: it does not run with a random image and random tokens"
_HINT = "A folder with a checkpoint works too; nothing is downloaded."


def has_small_sizes(name: str) -> bool:
    """Return whether decoder steps of a model have the sizes of a small model: True for a name in `DECODERS`, unless it
    is a folder with a checkpoint."""
    return name in DECODERS and not Path(name).is_dir()


class TransformersFrontend(Frontend):
    """The source ``transformers``: language, vision and speech models of Hugging Face's transformers."""

    source = "transformers"

    def names(self) -> list[str]:
        """Return the names of transformers' configurations and of parts of models; empty without transformers."""
        known = _configuration_names()
        return sorted({*known, *_PARTS}) if known else []

    def default_names(self) -> list[str]:
        """Return the names of seven language models and a vision transformer."""
        return list(_DEFAULTS)

    steps_of = f"Steps are there for {', '.join(DECODERS)}, and for folders with a config.json of one of them."

    def takes_past(self, name: str) -> bool:
        """Return whether the type of the model is one of `DECODERS`."""
        return _type_of(name) in DECODERS

    def _check(self, request: ModelRequest) -> None:
        if request.past is not None:
            return  # its configuration is all that is read, and the library makes nothing of it
        for package in ("transformers", "torch"):
            require(package, f"the transformers model {request.name!r}")
        if _is_folder(request.name):
            if not (Path(request.name) / "config.json").is_file():
                raise ModelError(f"{request.name} has no config.json, so it is not a checkpoint of transformers")
        elif request.name not in self.names():
            raise UnknownNameError("transformers model", request.name, self.names(), _HINT)

    def takes_sequence_length(self, name: str) -> bool:
        """Return whether the library's code of the model has an argument for tokens (``input_ids``), which models of
        images and sound lack; True if the code is not found."""
        source = _source_of(_type_of(name))
        return source is None or "input_ids" in source.read_text(encoding="utf-8")

    def has_framework(self, request: ModelRequest) -> bool:
        """Return False for a step of a decoder, which torch does not run; else True."""
        return request.past is None

    def fingerprint(self, request: ModelRequest) -> str | None:
        """Hash the request, package versions and a checkpoint's files; None for an adapter without its base model."""
        files: list[Path] = []
        if request.past is not None:
            config = Path(request.name) / "config.json"
            return fingerprint(request, files=[config] if config.is_file() else [])
        if _is_folder(request.name):
            folder = Path(request.name)
            if (folder / "adapter_config.json").is_file():  # the weights that it adapts lie elsewhere
                return None
            files = sorted(f for f in folder.rglob("*") if f.suffix in (".json", ".safetensors", ".bin"))
        return fingerprint(request, packages=("transformers", "torch"), files=files)

    def load(self, request: ModelRequest) -> ImportedModel:
        """Create the model with random weights of seed 0, or read a checkpoint folder, and trace it with torch.

        Raises:
            UnknownNameError, MissingPackageError: as `check`.
            ModelError: transformers cannot create the model, or an operator is not supported.
        """
        self.check(request)
        from op_profiler.frontends.importers import torch as torch_importer
        from op_profiler.frontends.zoo import transformers as transformers_zoo

        _library()
        torch = torch_importer.load_torch()
        torch.manual_seed(0)
        with quiet():
            try:
                model, notes = transformers_zoo.build(request.name, folder=_is_folder(request.name))
            except ModelError:
                raise
            except Exception as error:  # a damaged configuration or checkpoint sends the library anywhere
                reason = str(error).strip().splitlines() or [type(error).__name__]
                raise ModelError(f"{request.name} cannot be made by transformers: {reason[0][:300]}") from error
        length = request.sequence_length or transformers_zoo.shortened(_DEFAULT_SEQUENCE, model)
        inputs = transformers_zoo.inputs_of(model, request, length)
        try:
            return _lowered(model, inputs, request, notes)
        except torch_importer.UnfitInputsError:
            text = transformers_zoo.without_image(inputs)
            if not text or "pixel_values" in request.input_names:
                raise
            return _lowered(model, text, request, (*notes, _NO_IMAGE))


def _lowered(model: Any, inputs: Mapping[str, Any], request: ModelRequest, notes: tuple[str, ...]) -> ImportedModel:
    from op_profiler.frontends.importers import torch as torch_importer

    names = list(inputs)
    return torch_importer.lower(
        torch_importer.by_keyword(model, names),
        [made.tensor for made in inputs.values()],
        name=request.name,
        source=request.source,
        input_names=names,
        batch_size=int(inputs[names[0]].tensor.shape[0]),
        highs={name: made.high for name, made in inputs.items()},
        notes=notes,
    )


FRONTEND = TransformersFrontend()


@functools.cache
def _configuration_names() -> tuple[str, ...]:
    """Return the model types of the installed library; empty if it is not installed."""
    models = _library_models()
    if models is None:
        return ()
    folder = models / "auto"
    names: set[str] = set()
    for file in ("configuration_auto.py", "auto_mappings.py"):  # the table moved from one to the other
        if (folder / file).is_file():
            for table in _MAPPING.findall((folder / file).read_text(encoding="utf-8")):
                names.update(_ENTRY.findall(table))
    return tuple(sorted(names))


def _library_models() -> Path | None:
    """Return the folder of the installed library's models; None if it is not installed."""
    folder = package_folder("transformers")
    return None if folder is None else folder / "models"


def _source_of(kind: str) -> Path | None:
    """Return the file that computes models of a type; None if it is elsewhere in the library."""
    models, folder = _library_models(), kind.replace("-", "_")
    file = models / folder / f"modeling_{folder}.py" if models is not None else None
    return file if file is not None and file.is_file() else None


def _type_of(name: str) -> str:
    """Return the library's type of a model by name or folder; empty if the folder's configuration has none."""
    if name in _PARTS:
        return "t5"
    if not _is_folder(name):
        return name
    try:
        found = json.loads((Path(name) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # the library says what is wrong with it
        return ""
    kind = found.get("model_type") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) and re.fullmatch(r"[\w\-]+", kind) else ""


def _is_folder(name: str) -> bool:
    """Return whether a name is a folder: it contains a slash, or is no model type and exists in the current folder."""
    return Path(name).is_dir() and (os.sep in name or name not in _configuration_names())


def _library() -> Any:
    """Import transformers without its network, advice and progress bars."""
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(variable, "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from op_profiler.frontends.importers import torch as torch_importer

    with quiet():
        torch_importer.prepare_torchvision()  # transformers imports it where it is there
        import transformers

    transformers.logging.set_verbosity_error()
    return transformers
