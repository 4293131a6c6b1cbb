"""Caches lowered modules on disk: importing a large ONNX or torch model takes longer than reading the result.

Only models that were slow to lower are cached. The files are TVM's own JSON and parameter format, never pickle, in a
folder of the user.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

from op_profiler import cache
from op_profiler.cache import cache_folder
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.weight_files import bytes_of, drop_copies, read_weights, write_weights
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.fingerprints import fingerprint_of
from op_profiler.frontends.frontend import Frontend, ModelRequest

_WORTH_KEEPING_SECONDS = 5.0
_LARGEST_BYTES = 1 << 30
_FORMAT = 4  # from 3 on, weights lie one behind the other; from 4 on, the spans of calls are texts of their locations


def original_model(request: ModelRequest) -> ImportedModel:
    """Return the model of a request before any change of its precision, from the cache or from its source."""
    return load_cached(FRONTENDS.get(request.source), request)


def load_cached(frontend: Frontend, request: ModelRequest) -> ImportedModel:
    """Return the model from the cache if the same content was lowered before, otherwise from `frontend.load`."""
    content = frontend.fingerprint(request)
    if content is None:  # only lowering shows whether it is the model that was lowered earlier
        model = _lowered(frontend, request)
        return dataclasses.replace(model, content=fingerprint_of(request, model), content_is_source=False)
    code = cache.code_digest("compilers", "frontends")[:16]
    folder = cache_folder() / compiler_in_use().name / load_tvm().__version__ / f"{content}-{code}"
    try:
        # the same content may lie at another path, which is then the name
        found = dataclasses.replace(_read(folder), content=content, name=request.name)
    except (OSError, ValueError, KeyError, RuntimeError):
        pass  # not there, or unusable: lower it again
    else:
        cache.touch(folder)
        return found
    started = time.perf_counter()
    model = _lowered(frontend, request)
    if time.perf_counter() - started > _WORTH_KEEPING_SECONDS:
        _write(folder, model)
    return dataclasses.replace(model, content=content)


def _lowered(frontend: Frontend, request: ModelRequest) -> ImportedModel:
    model = compiler_in_use().load_model(frontend, request)
    drop_copies(model.params)
    return model


def _read(folder: Path) -> ImportedModel:
    tvm = load_tvm()
    about = json.loads((folder / cache.ABOUT).read_text())
    if about["format"] != _FORMAT:
        raise ValueError("another version wrote it")
    module = tvm.ir.load_json((folder / "module.json").read_text())
    params = read_weights(folder / "params.bin")
    inputs = tuple(InputSpec(**{**i, "shape": tuple(i["shape"])}) for i in about["inputs"])
    return ImportedModel(
        about["name"],
        about["source"],
        module,
        params,
        inputs,
        about["batch_size"],
        tuple(about["notes"]),
    )


def _write(folder: Path, model: ImportedModel) -> None:
    if not model.params:  # the weights are constants of the module, which would be written as text
        return
    tvm = load_tvm()
    if sum(map(bytes_of, model.params.values())) > _LARGEST_BYTES:
        return
    about = {
        "format": _FORMAT,
        "title": f"{model.source}:{model.name}, batch {model.batch_size}",
        "name": model.name,
        "source": model.source,
        "batch_size": model.batch_size,
        "notes": list(model.notes),
        "inputs": [dataclasses.asdict(i) for i in model.inputs],
    }

    def fill(partial: Path) -> None:
        (partial / "module.json").write_text(tvm.ir.save_json(model.mod))
        write_weights(partial / "params.bin", model.params)
        (partial / cache.ABOUT).write_text(json.dumps(about))

    cache.keep(folder, fill, damaged=folder.is_dir())  # it could not be read
