"""Runs onnxruntime and LiteRT in a separate process.

A crash of that process does not end the command. The frameworks' threads, which keep polling for work, and their copy
of the weights end with the process, before anything is measured.
"""

from __future__ import annotations

import dataclasses
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from op_profiler.child_processes import Child, carry_out
from op_profiler.compilers.imported_model import Form, FrameworkReference, InputSpec, NoReference
from op_profiler.errors import first_line
from op_profiler.frontends.references.values import read_arrays, write_arrays

if TYPE_CHECKING:
    import numpy as np

_SECONDS = 600
_SMALL_BYTES = 64 << 20
"""Largest size of the weights of a model that onnx's evaluator runs: it computes in numpy, node by node."""


@dataclasses.dataclass(frozen=True)
class ReferenceRun:
    """Task of the separate process: a model to run in its own framework.

    Attributes:
        form: form of the file.
        model: path of the file.
        data: folder that contains the external weights.
        inputs: names of the inputs, in the order of the model.
        batches: number of batches of inputs.
        nodes: whether to return the values of all nodes as outputs.
    """

    form: Literal["onnx", "tflite"]
    model: str
    data: str
    inputs: tuple[str, ...]
    batches: int
    nodes: bool = False


@dataclasses.dataclass(frozen=True)
class Ran:
    """Result of running a model in its own framework.

    Attributes:
        framework: name and version of the framework that ran the model.
        names: names of the model's outputs.
        outputs: outputs for each batch, in the order of `names`.
    """

    framework: str
    names: tuple[str, ...]
    outputs: list[list[np.ndarray]]


def run(what: ReferenceRun, batches: Sequence[Mapping[str, np.ndarray]]) -> Ran:
    """Run a model in its own framework, in a separate process, and return its outputs.

    Raises:
        NoReference: the framework is not installed, or does not run the model.
    """
    with tempfile.TemporaryDirectory(prefix="op_profiler-") as name:
        folder = Path(name)
        for number, batch in enumerate(batches):
            write_arrays(folder / f"in{number}.npz", [batch[name] for name in what.inputs])
        with tempfile.TemporaryFile("w+") as log, Child(__name__, (name, what), log) as child:
            event = next(child.events(), None)
            code = child.process.wait()
        if code == -signal.SIGALRM:
            raise NoReference(f"its own framework took more than {_SECONDS} s")
        if event is None:
            raise NoReference(f"the process of its own framework ended with {code}")
        if "error" in event:
            raise NoReference(event["error"])
        outputs = [read_arrays(folder / f"out{number}.npz") for number in range(len(batches))]
    return Ran(event["framework"], tuple(event["names"]), outputs)


class FileReference(FrameworkReference):
    """The reference of an imported model: the model's file, run by its framework in the separate process.

    Args:
        path: path of the file.

    Attributes:
        form: form of the file.
    """

    form: Literal["onnx", "tflite"]

    def __init__(self, path: Path, inputs: Sequence[InputSpec]) -> None:
        self.inputs = tuple(inputs)
        self._path = path

    def outputs(self, batches: Sequence[Mapping[str, np.ndarray]]) -> list[list[np.ndarray]]:
        """Run the model in the separate process, and return its outputs for each batch."""
        return self._run(batches).outputs

    def write(self, form: Form, folder: Path, inputs: Sequence[np.ndarray]) -> Path:
        """Return the path of the model's file if it has the requested form; reject other forms."""
        return self._file(folder) if form == self.form else super().write(form, folder, inputs)

    def _file(self, folder: Path) -> Path:
        """Return the path of the model; a subclass may write it to the folder."""
        return self._path.resolve()

    def _run(self, batches: Sequence[Mapping[str, np.ndarray]], *, nodes: bool = False) -> Ran:
        """Return the outputs, or the values of all nodes."""
        with tempfile.TemporaryDirectory(prefix="op_profiler-") as folder:
            path, names = self._file(Path(folder)), tuple(spec.name for spec in self.inputs)
            what = ReferenceRun(self.form, str(path), str(path.parent), names, len(batches), nodes)
            ran = run(what, batches)
        self.framework = ran.framework
        return ran


def main() -> int:
    """Run the task that the parent process sent; return the exit code."""
    signal.alarm(_SECONDS)
    return carry_out(tuple[str, ReferenceRun], _run)


def _run(task: tuple[str, ReferenceRun], send: Callable[..., None]) -> None:
    """Read the inputs, write the outputs."""
    folder, what = Path(task[0]), task[1]
    try:
        batches = [read_arrays(folder / f"in{number}.npz") for number in range(what.batches)]
        framework, names, outputs = _FORMS[what.form](what, batches)
        for number, values in enumerate(outputs):
            write_arrays(folder / f"out{number}.npz", values)
    except NoReference as error:
        send(error=str(error))
    except Exception as error:  # noqa: BLE001 - whatever a framework raises
        send(error=f"its own framework does not run it on random inputs: {first_line(error)[:300]}")
    else:
        send(framework=framework, names=names)


_Ran = tuple[str, list[str], list[list[Any]]]


def _onnx(what: ReferenceRun, batches: Sequence[list[Any]]) -> _Ran:
    import onnx

    model = onnx.load(what.model, load_external_data=False)
    names = [one.name for one in model.graph.output]
    if what.nodes:
        made = [name for node in model.graph.node for name in node.output if name]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in names)
        names = made
    try:
        import onnxruntime
    except ImportError:
        return _by_evaluator(what, batches, names, "onnxruntime is not installed (source ./env_var.sh models)")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", what.data)
    content = what.model if not what.nodes else model.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        ran = [session.run(names, dict(zip(what.inputs, batch))) for batch in batches]
    except Exception as error:
        why = f"onnxruntime does not run it on random inputs: {first_line(error)[:300]}"
        return _by_evaluator(what, batches, names, why)
    return f"onnxruntime {onnxruntime.__version__}", names, [_arrays(values) for values in ran]


def _by_evaluator(what: ReferenceRun, batches: Sequence[list[Any]], names: list[str], why: str) -> _Ran:
    """Run a small model in onnx's own evaluator."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    files = [Path(what.model), *(f for f in Path(what.data).iterdir() if f.suffix == ".data")]
    if what.nodes or sum(file.stat().st_size for file in files) > _SMALL_BYTES:
        raise NoReference(why)
    try:
        evaluator = ReferenceEvaluator(onnx.load(what.model))
        ran = [evaluator.run(names, dict(zip(what.inputs, batch))) for batch in batches]
    except Exception as error:
        raise NoReference(why) from error
    return f"onnx {onnx.__version__}", names, [_arrays(values) for values in ran]


def _tflite(what: ReferenceRun, batches: Sequence[list[Any]]) -> _Ran:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise NoReference("LiteRT is not installed (source ./env_var.sh models)") from error
    interpreter = Interpreter(model_path=what.model, experimental_preserve_all_tensors=what.nodes)
    given = interpreter.get_input_details()
    for one, array in zip(given, batches[0], strict=True):
        if tuple(one["shape"]) != array.shape:
            interpreter.resize_tensor_input(one["index"], array.shape)
    interpreter.allocate_tensors()
    made = [one["index"] for one in interpreter.get_output_details()]
    if what.nodes:
        ops = interpreter._get_ops_details()
        made = [int(index) for op in ops for index in op["outputs"]]
    names = [str(index) for index in made]
    ran = []
    for batch in batches:
        for one, array in zip(given, batch, strict=True):
            interpreter.set_tensor(one["index"], array)
        interpreter.invoke()
        ran.append(_arrays([interpreter.get_tensor(index) for index in made]))
    return f"LiteRT {metadata.version('ai-edge-litert')}", names, ran


def _arrays(values: Sequence[Any]) -> list[Any]:
    """Return plain arrays of numbers; a sequence is split into its elements.

    Raises:
        NoReference: a value is neither a number, nor a Boolean, nor a sequence of these.
    """
    import numpy as np

    found: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _arrays(value)
            continue
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise NoReference(f"an output holds {array.dtype}, which is not compared")
        found.append(array)
    return found


_FORMS: dict[str, Callable[[ReferenceRun, Sequence[list[Any]]], _Ran]] = {"onnx": _onnx, "tflite": _tflite}
