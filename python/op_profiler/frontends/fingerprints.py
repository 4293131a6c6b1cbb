"""Fingerprints of the files, package versions and requests that models are made from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.errors import ModelError
from op_profiler.frontends.frontend import AUTO, ModelRequest

_LOWERING = 1  # raise it when this package lowers the same model differently
_TVM_PACKAGES = ("xtc-tvm-python-bindings", "apache-tvm")
_LATER = {"past": None, "importer": AUTO}  # fields that came later, and what says nothing


def fingerprint(request: ModelRequest, *, packages: Iterable[str] = (), files: Iterable[Path] = ()) -> str:
    """16 hex digits over the request, the content of files, and the versions of the packages that read it."""
    digest = hashlib.sha256()
    fields = _fields(request)
    if files:
        fields["name"] = Path(request.name).name  # the content counts, not where it lies
    versions = {name: _version(name) for name in (*_TVM_PACKAGES, *packages)}
    digest.update(json.dumps([_LOWERING, fields, versions], sort_keys=True).encode())
    if files:
        digest.update(hash_files(files).encode())
    return digest.hexdigest()[:16]


def fingerprint_of(request: ModelRequest, model: ImportedModel) -> str:
    """The same over what was lowered: graph, shapes and constants. How it was written leaves no trace in it."""
    import numpy as np  # most fingerprints are asked for by a process that loads nothing heavy

    main = model.mod["main"]
    digest = hashlib.sha256(json.dumps([_LOWERING, _fields(request)], sort_keys=True).encode())
    digest.update(json.dumps([dataclasses.asdict(spec) for spec in model.inputs]).encode())
    digest.update(compiler_in_use().structural_hash(model.mod).encode())
    for variable in main.params if model.params else ():  # else they are constants, which the hash is over
        if variable.name_hint in model.params:
            digest.update(np.ascontiguousarray(model.params[variable.name_hint].numpy()).data)
    return digest.hexdigest()[:16]


def _fields(request: ModelRequest) -> dict[str, Any]:
    """Of a request; one that came later is left out where it says nothing, since keys that datasets hold stay."""
    fields = dataclasses.asdict(request)
    return {name: one for name, one in fields.items() if name not in _LATER or one != _LATER[name]}


def hash_files(files: Iterable[Path]) -> str:
    """SHA-256 over the content of files, in order."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _version(package: str) -> str | None:
    """Of a package in the environment; a compiler's own packages are no part of a model, and not every process of a
    command sees them."""
    own = compiler_in_use().own_packages()
    path = [entry for entry in sys.path if own is None or entry != str(own)]
    return next((found.version for found in metadata.distributions(name=package, path=path)), None)


def check_file(path: Path) -> None:
    """Refuse a model file that is not there or holds nothing.

    Raises:
        ModelError: says which of the two.
    """
    if not path.exists():
        raise ModelError(f"there is no file {path}")
    if path.is_dir():
        raise ModelError(f"{path} is a folder, not a model file")
    if path.stat().st_size == 0:
        raise ModelError(f"{path} is empty (0 bytes)")
