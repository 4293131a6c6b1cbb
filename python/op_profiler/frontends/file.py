"""The source ``file``: TorchScript, torch.export programs, ONNX, TFLite, and functions that return a torch module."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Literal

from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.errors import ModelError, UsageError, require
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.fingerprints import check_file, fingerprint
from op_profiler.frontends.frontend import Frontend, ModelRequest
from op_profiler.frontends.importers import tflite as tflite_importer

Kind = Literal["torchscript", "export", "onnx", "tflite", "function"]

_FUNCTION = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*(\[\d+\])?$")
"""A function, or an entry of a list."""
_PACKAGES: dict[Kind, str] = {
    "torchscript": "torch",
    "export": "torch",
    "onnx": "onnx",
    "tflite": "tflite",
    "function": "torch",
}


class FileFrontend(Frontend):
    """The source ``file``: a model file, whose kind is recognized by its content, or ``package.module:function``."""

    source = "file"

    def names(self) -> list[str]:
        """Return an empty list: models are given by path or as ``package.module:function``."""
        return []

    def _check(self, request: ModelRequest) -> None:
        kind = kind_of(request.name)
        if kind == "function":
            source_of(request.name)
        require(_PACKAGES[kind], request.name)
        if kind == "torchscript" and not request.input_shapes:
            raise UsageError(
                f"{request.name} is TorchScript, which does not contain the shapes of its inputs; "
                "give them with --inputshape, such as 1,3,224,224"
            )

    def fingerprint(self, request: ModelRequest) -> str | None:
        """Hash the model's files, the external data of ONNX included; None for a function."""
        self.check(request)
        kind = kind_of(request.name)
        if kind == "function":
            return None
        files = [Path(request.name)]
        if kind == "onnx":
            from op_profiler.frontends.importers import onnx as onnx_importer

            files = onnx_importer.files_of(files[0])
        return fingerprint(request, packages=(_PACKAGES[kind],), files=files)

    def load(self, request: ModelRequest) -> ImportedModel:
        """Import the file with the importer of its kind, or the module that the function returns.

        Raises:
            UsageError, MissingPackageError, ModelError: as `check`; ModelError also if an operator is not supported.
        """
        self.check(request)
        kind, path = kind_of(request.name), Path(request.name)
        if kind == "tflite":
            return tflite_importer.lower(path, request)
        if kind == "onnx":
            from op_profiler.frontends.importers import onnx as onnx_importer

            return onnx_importer.lower(path, request)
        from op_profiler.frontends.importers import torch_files

        if kind == "torchscript":
            return torch_files.lower_torchscript(path, request)
        if kind == "export":
            return torch_files.lower_exported(path, request)
        return torch_files.lower_function(request)


FRONTEND = FileFrontend()


def kind_of(name: str) -> Kind:
    """Return the kind of a model, from the content of the file; the suffix is used only if the content is ambiguous.

    Raises:
        ModelError: the file is missing, empty, incomplete, a pickle, or of an unknown kind.
    """
    path = Path(name)
    if _FUNCTION.match(name) and not path.exists():
        return "function"
    check_file(path)
    with path.open("rb") as file:
        start = file.read(8)
    if start[4:] == tflite_importer.IDENTIFIER:
        return "tflite"
    if start.startswith(b"PK"):
        return _kind_of_zip(path)
    if start.startswith(b"\x80"):
        raise ModelError(
            f"{path} is a pickle, which runs code when it is read, so it is not. Save the model with torch.jit.save or "
            "torch.export.save, or give package.module:function"
        )
    if path.suffix == ".onnx" or (start.startswith(b"\x08") and path.suffix not in (".tflite", ".pt", ".pth", ".pt2")):
        return "onnx"
    if path.suffix in (".pt", ".pth", ".pt2", ".tflite"):
        raise ModelError(f"{path} is not a valid {path.suffix} file; it may be damaged")
    raise ModelError(f"{path} is no model of a known kind (TorchScript, torch.export, ONNX, TFLite)")


def _kind_of_zip(path: Path) -> Kind:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile as error:
        raise ModelError(f"{path} is cut off or damaged: {error}") from error
    inner = {name.partition("/")[2] for name in names} | set(names)
    if "archive_format" in inner or "serialized_exported_program.json" in inner:
        return "export"
    if "constants.pkl" in inner and any(name.startswith("code/") for name in inner):
        return "torchscript"
    if "data.pkl" in inner:
        raise ModelError(
            f"{path} contains weights or a pickled module (torch.save), no program. Save the model with torch.jit.save "
            "or torch.export.save, or give package.module:function"
        )
    raise ModelError(f"{path} is a zip archive, but neither TorchScript nor a torch.export program")


def source_of(name: str) -> Path:
    """Return the source file of the module in ``package.module:function`` without importing anything.

    Raises:
        ModelError: there is no such module.
    """
    top, *rest = name.partition(":")[0].split(".")
    for folder in (Path(entry or os.curdir) for entry in [os.getcwd(), *sys.path]):
        base = folder.joinpath(top, *rest)
        for candidate in (base.with_suffix(".py") if rest else folder / f"{top}.py", base / "__init__.py"):
            if candidate.is_file():
                return candidate
    raise ModelError(
        f"{name}: there is no model source and, in this folder and on PYTHONPATH, no module "
        f"{'.'.join([top, *rest])}. Sources: {', '.join(FRONTENDS)}"
    )
