"""Models of the transformers library: made from a configuration with random weights, or read from a local folder."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from op_profiler.errors import MissingPackageError, ModelError, UnknownNameError
from op_profiler.frontends import _torch, _zoo
from op_profiler.frontends._base import Frontend, ModelRequest, RelayModel
from op_profiler.frontends._content import fingerprint

_DEFAULT_SEQUENCE = 128
_DEFAULT_NAMES = ("bert", "gpt2", "roberta", "distilbert", "albert", "electra", "t5-encoder", "t5-decoder", "vit")
_PARTS = ("encoder", "decoder")
_NOTE = "random weights: the times are those of the architecture, the outputs mean nothing"


class TransformersFrontend(Frontend):
    """Any configuration name of the library (bert, gpt2, ...), ``NAME-encoder``, ``NAME-decoder``, or a folder."""

    source = "transformers"
    summary = "configurations of the transformers library with random weights, or a local checkpoint folder"

    def names(self) -> list[str]:
        return sorted({*_DEFAULT_NAMES, *_configuration_names()}) if _configuration_names() else []

    def default_names(self) -> list[str]:
        return list(_DEFAULT_NAMES)

    def check(self, request: ModelRequest) -> None:
        if not _zoo.installed("transformers"):
            raise MissingPackageError("transformers", f"the model {request.name!r} of source transformers")
        if not _zoo.installed("torch"):
            raise MissingPackageError("torch", f"the model {request.name!r} of source transformers")
        folder = Path(request.name)
        if folder.is_dir():
            if not (folder / "config.json").is_file():
                raise ModelError(f"{folder} is no checkpoint folder: it has no config.json")
            return
        name, _ = _split(request.name)
        if name not in _configuration_names():
            raise UnknownNameError("transformers model", request.name, self.names(), "A local folder works too.")

    def fingerprint(self, request: ModelRequest) -> str:
        folder = Path(request.name)
        files = sorted(p for p in folder.glob("*") if p.is_file()) if folder.is_dir() else []
        return fingerprint(request, packages=("torch", "transformers"), files=files)

    def load(self, request: ModelRequest) -> RelayModel:
        self.check(request)
        os.environ["HF_HUB_OFFLINE"] = "1"
        torch = _torch.load_torch()
        torch.manual_seed(0)
        if _zoo.installed("torchvision"):
            _torch.load_torchvision()  # transformers imports it where it is there
        import transformers

        transformers.logging.set_verbosity_error()
        part = None
        if Path(request.name).is_dir():
            config = transformers.AutoConfig.from_pretrained(request.name, local_files_only=True)
            model = _quietly(
                lambda: transformers.AutoModel.from_pretrained(
                    request.name, local_files_only=True, use_safetensors=True, attn_implementation="eager"
                )
            )
            notes: tuple[str, ...] = ()
        else:
            name, part = _split(request.name)
            config = transformers.CONFIG_MAPPING[name]()
            model = _from_config(transformers, config, request.name)
            notes = (_NOTE,)
        return _lower(request, config, model.eval(), part, notes)


FRONTEND = TransformersFrontend()


@functools.cache
def _configuration_names() -> frozenset[str]:
    """Every configuration name, read from the library's source: importing it takes seconds."""
    folder = _zoo._folder("transformers")
    if folder is None:
        return frozenset()
    names: set[str] = set()
    for file in ("auto_mappings.py", "configuration_auto.py"):
        path = folder / "models" / "auto" / file
        if not path.is_file():
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(t, ast.Name) and t.id == "CONFIG_MAPPING_NAMES" for t in targets):
                    names |= {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and _is_name(n.value)}
    return frozenset(names)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and not value.endswith("Config")


def _split(name: str) -> tuple[str, str | None]:
    """``t5-decoder`` is the decoder of ``t5``; ``bert`` is all of bert."""
    if name in _configuration_names():
        return name, None
    base, _, part = name.rpartition("-")
    return (base, part) if part in _PARTS and base else (name, None)


def _quietly(make: Callable[[], Any]) -> Any:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), contextlib.redirect_stdout(nowhere):
        return make()


def _from_config(transformers: Any, config: Any, name: str) -> Any:
    try:
        return _quietly(lambda: transformers.AutoModel.from_config(config, attn_implementation="eager"))
    except Exception as error:  # noqa: BLE001 - a configuration may need anything
        raise ModelError(f"transformers cannot make {name} from its configuration: {error}") from error


def _lower(request: ModelRequest, config: Any, model: Any, part: str | None, notes: tuple[str, ...]) -> RelayModel:
    torch = _torch.load_torch()
    config.use_cache = False
    if part is None and getattr(config, "is_encoder_decoder", False):
        part = "encoder"
    body = model.get_encoder() if part == "encoder" else model.get_decoder() if part == "decoder" else model
    generator = torch.Generator().manual_seed(0)
    batch = request.batch_size
    length = request.sequence_length or _DEFAULT_SEQUENCE
    vocabulary = int(getattr(config, "vocab_size", 0) or 0)
    if vocabulary:
        shapes = request.input_shapes or ((batch, length),)
        examples = [torch.randint(0, vocabulary, shapes[0], generator=generator)]
        names = ["input_ids"]
        if part == "decoder":
            width = int(getattr(config, "d_model", None) or config.hidden_size)
            examples.append(torch.randn(*(*shapes[0], width), generator=generator))
            names.append("encoder_hidden_states")
    else:
        size = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
        shapes = request.input_shapes or ((batch, int(getattr(config, "num_channels", 3)), size, size),)
        examples, names = [torch.randn(*shapes[0], generator=generator)], ["pixel_values"]
    fixed = {"use_cache": False} if part == "decoder" else {}
    return _torch.lower(
        _positional(body, names, fixed),
        examples,
        name=request.name,
        source=request.source,
        input_names=request.input_names or names,
        high=max(vocabulary, 2),
        notes=notes,
    )


def _positional(body: Any, names: list[str], fixed: dict[str, Any]) -> Any:
    """A module that takes its inputs by position and returns the first output: what tracing wants."""
    torch = _torch.load_torch()

    class Positional(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, *inputs: Any) -> Any:
            return self.body(**dict(zip(names, inputs)), **fixed, return_dict=False)[0]

    return Positional().eval()
