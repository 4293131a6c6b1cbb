"""Models that the TVM with Relay imports, taken over by a process of its own."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from op_profiler.child_processes import python_path
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relax import tvm_package
from op_profiler.errors import ModelError

if TYPE_CHECKING:
    from op_profiler.frontends.frontend import ModelRequest

_ABOUT = "about.json"
_CHILD = "import sys; del sys.path[0]; from op_profiler.compilers.relax.relay_models import main; sys.exit(main())"


class _Import:
    """The process with Relay, from its start; it writes into a folder of its own."""

    def __init__(self, request: ModelRequest) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="op_profiler-")
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, self.folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": tvm_package.without(python_path())},
        )
        atexit.register(self.process.kill)  # where nobody asks for the model in the end
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as stdin:  # it ended at once, and left no model
            stdin.write(msgspec.json.encode(request))

    def end(self) -> None:
        """For an import that nobody asked for in the end."""
        self.process.kill()
        self.process.wait()
        atexit.unregister(self.process.kill)
        self.folder.cleanup()


_begun: dict[ModelRequest, _Import] = {}


def begin(request: ModelRequest) -> None:
    """Let the process with Relay import a model, which `load_from_relay` then waits for. TVM is not needed for that.

    An import that was begun before and that nobody took is of a call that failed: files may have changed since.
    """
    stale = _begun.pop(request, None)
    if stale is not None:
        stale.end()
    _begun[request] = _Import(request)


def load_from_relay(request: ModelRequest) -> ImportedModel:
    """The model, as Relay imports it, in Relax; its weights are constants of the module.

    Raises:
        ModelError: Relay does not import it, or it has an op that has no counterpart in Relax.
    """
    from op_profiler.compilers.relax.from_relay import read_graph

    begun = _begun.pop(request, None) or _Import(request)
    with begun.folder as folder:
        code = begun.process.wait()
        atexit.unregister(begun.process.kill)
        about_file = Path(folder) / _ABOUT
        if not about_file.is_file():
            raise ModelError(f"the process that imports {request.name} with Relay ended with {code}")
        about = json.loads(about_file.read_text())
        if "error" in about:
            raise ModelError(about["error"])
        module = read_graph(Path(folder))
    inputs = tuple(InputSpec(**(spec | {"shape": tuple(spec["shape"])})) for spec in about["inputs"])
    return ImportedModel(request.name, request.source, module, {}, inputs, about["batch_size"], tuple(about["notes"]))


def main() -> int:
    """In the process with Relay: read a request, write the graph, and what else there is to say of the model."""
    from op_profiler.building.requested_model import original_model
    from op_profiler.compilers import DEFAULT_COMPILER
    from op_profiler.compilers.compiler import use_compiler
    from op_profiler.compilers.relay.plain_graph import write_graph
    from op_profiler.errors import OpProfilerError
    from op_profiler.frontends.frontend import ModelRequest

    folder = Path(sys.argv[1])
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ModelRequest)
    use_compiler(DEFAULT_COMPILER)
    try:
        model = original_model(request)
        write_graph(folder, model.mod, model.params)
        about = {
            "inputs": [dataclasses.asdict(spec) for spec in model.inputs],
            "batch_size": model.batch_size,
            "notes": model.notes,
        }
    except OpProfilerError as error:
        about = {"error": str(error)}
    (folder / _ABOUT).write_text(json.dumps(about))
    return 0
