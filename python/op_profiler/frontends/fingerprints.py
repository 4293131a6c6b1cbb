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
_LATER = {"past": None, "importer": AUTO}  # fields that were added later, and their defaults


def fingerprint(request: ModelRequest, *, packages: Iterable[str] = (), files: Iterable[Path] = ()) -> str:
    """Return a digest (16 hex digits) of a request, of the content of files, and of the versions of the packages that
    read the files."""
    digest = hashlib.sha256()
    fields = fields_of(request)
    if files:
        fields["name"] = Path(request.name).name  # the content counts, not where it lies
    versions = {name: _version(name) for name in (*_TVM_PACKAGES, *packages)}
    digest.update(json.dumps([_LOWERING, fields, versions], sort_keys=True).encode())
    if files:
        digest.update(hash_files(files).encode())
    return digest.hexdigest()[:16]


def fingerprint_of(request: ModelRequest, model: ImportedModel) -> str:
    """Return a digest (16 hex digits) of a request and its lowered model: graph, shapes and constants. The source code
    of the model is not part of it."""
    import numpy as np  # most fingerprints are asked for by a process that loads nothing heavy

    main = model.mod["main"]
    digest = hashlib.sha256(json.dumps([_LOWERING, fields_of(request)], sort_keys=True).encode())
    digest.update(json.dumps([dataclasses.asdict(spec) for spec in model.inputs]).encode())
    digest.update(compiler_in_use().structural_hash(model.mod).encode())
    for variable in main.params if model.params else ():  # otherwise weights are constants, which the hash includes
        if variable.name_hint in model.params:
            digest.update(np.ascontiguousarray(model.params[variable.name_hint].numpy()).data)
    return digest.hexdigest()[:16]


def fields_of(request: ModelRequest) -> dict[str, Any]:
    """Return the fields of a request. Fields that were added later are left out if they have their default, so that
    the keys in existing datasets remain valid."""
    fields = dataclasses.asdict(request)
    return {name: one for name, one in fields.items() if name not in _LATER or one != _LATER[name]}


def hash_files(files: Iterable[Path]) -> str:
    """Return the SHA-256 of the content of files, in order."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed.

    The compiler's own packages are ignored: they are not part of a model, and only some processes of a command can
    import them.
    """
    own = compiler_in_use().own_packages()
    path = [entry for entry in sys.path if own is None or entry != str(own)]
    return next((found.version for found in metadata.distributions(name=package, path=path)), None)


def check_file(path: Path) -> None:
    """Reject a model file that is missing or empty.

    Raises:
        ModelError: the file is missing or empty; the message names the reason.
    """
    if not path.exists():
        raise ModelError(f"there is no file {path}")
    if path.is_dir():
        raise ModelError(f"{path} is a folder, not a model file")
    if path.stat().st_size == 0:
        raise ModelError(f"{path} is empty (0 bytes)")
