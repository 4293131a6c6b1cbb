"""Valid files, which the tests then damage."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..tables import TABLES
from .harness import Commands

_CONV = [["TENSOR", [1, 16, 8, 8], "float32"], ["TENSOR", [32, 16, 3, 3], "float32"], [1, 1], [1, 1, 1, 1], [1, 1]]
_CONV += ["NCHW", "NCHW", "float32"]
_DENSE = [["TENSOR", [1, 16], "float32"], ["TENSOR", [8, 16], "float32"], None, "float32"]


def _record(template: str, arguments: Sequence[object], cost: float) -> str:
    entity = [["tile_x", "sp", [-1, 8]], ["unroll_kw", "ot", True]]
    fields = {"input": ["llvm -keys=cpu", template, arguments, {}], "result": [[cost], 0, 0.5, 1662554099.0]}
    config = {"index": 1, "code_hash": None, "entity": entity}
    return json.dumps(fields | {"config": config, "version": 0.2, "tvm_version": "0.19.0"})


FILES = TABLES | {
    "tinynas": "".join(
        f"{{{kind},{batch},32,{size},{size},{out},{kernel},1,{fused}}} {0.001 * size * out * kernel}\n"
        for kind, fused in (("Regular", 0), ("Regular", 1))
        for batch in (1, 64)
        for size in (8, 12, 16, 28)
        for out in (32, 64, 96)
        for kernel in (1, 3)
    ),
    "autotvm": _record("conv2d_NCHWc.x86", _CONV, 1e-5) + "\n" + _record("dense_nopack.x86", _DENSE, 2e-6) + "\n",
}


def write_tables(commands: Commands, folder: Path) -> dict[str, bytes]:
    found = {}
    for format, text in FILES.items():
        (folder / format).write_text(text)
        done = commands.run(folder, "import", format, "--format", format, "--db", "sqlite:///all.db")
        assert done.returncode == 0, str(done)
        found[format] = text.encode()
    for format in ("csv", "parquet", "jsonl"):
        done = commands.run(
            folder, "export", "--format", format, "--output", f"all.{format}", "--db", "sqlite:///all.db"
        )
        assert done.returncode == 0, str(done)
        found[format] = (folder / f"all.{format}").read_bytes()
    assert not (folder / "all.db-wal").exists() or (folder / "all.db-wal").stat().st_size == 0
    return found | {"sqlite": (folder / "all.db").read_bytes()}


@dataclasses.dataclass(frozen=True)
class Model:
    """A valid model.

    Attributes:
        files: content by path.
        damaged: the one of them that the tests damage.
        arguments: of ``op-profiler predict`` and the like: the model, and what it needs.
    """

    files: dict[str, bytes]
    damaged: str
    arguments: tuple[str, ...]

    def write(self, folder: Path, content: bytes) -> None:
        for name, original in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if name == self.damaged else original)


def write_models(folder: Path) -> dict[str, Model]:
    """Those that the installed packages can write and read."""
    found = {}
    if importlib.util.find_spec("onnx") is not None:
        _write_onnx(folder / "x.onnx", folder / "archive.tar.gz")
        found["onnx"] = _of_file(folder / "x.onnx")
        found["tar.gz"] = _of_file(folder / "archive.tar.gz", "--modelsource", "remoteonnx")
    if importlib.util.find_spec("tflite") is not None:
        _write_tflite(folder / "x.tflite")
        found["tflite"] = _of_file(folder / "x.tflite")
    if importlib.util.find_spec("torch") is not None:
        _write_torch(folder / "x.pt", folder / "x.pt2")
        found["pt2"] = _of_file(folder / "x.pt2")
    if importlib.util.find_spec("transformers") is not None:
        _write_checkpoint(folder / "bert")
        files = {f"bert/{file.name}": file.read_bytes() for file in (folder / "bert").iterdir()}
        arguments = ("--modelsource", "transformers", "--sequence-length", "4", "./bert")
        for name in ("config.json", "pytorch_model.bin"):
            found[name] = Model(files, f"bert/{name}", arguments)
    return found


def _of_file(path: Path, *options: str) -> Model:
    return Model({path.name: path.read_bytes()}, path.name, (*options, path.name))


def _write_onnx(path: Path, archive: Path) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "k"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Reshape", ["b", "s"], ["c"]),
            helper.make_node("Gemm", ["c", "w"], ["y"]),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [
            numpy_helper.from_array(np.ones((4, 3, 3, 3), "float32"), "k"),
            numpy_helper.from_array(np.array([1, 256]), "s"),
            numpy_helper.from_array(np.ones((256, 4), "float32"), "w"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(path, "folder/net.onnx")


def _write_tflite(path: Path) -> None:
    import flatbuffers
    import tflite

    made = flatbuffers.Builder(512)

    def vector(start: Callable[[Any, int], Any], offsets: Sequence[int]) -> int:
        start(made, len(offsets))
        for offset in reversed(offsets):
            made.PrependUOffsetTRelative(offset)
        return int(made.EndVector())

    def integers(*values: int) -> int:
        made.StartVector(4, len(values), 4)
        for value in reversed(values):
            made.PrependInt32(value)
        return int(made.EndVector())

    def table(kind: str, **fields: int) -> int:
        getattr(tflite, f"{kind}Start")(made)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(made, value)
        return int(getattr(tflite, f"{kind}End")(made))

    texts = [made.CreateString(name) for name in ("x", "y")]
    tensors = [table("Tensor", Shape=integers(1, 4, 4, 3), Type=tflite.TensorType.FLOAT32, Name=text) for text in texts]
    relu = table("Operator", Inputs=integers(0), Outputs=integers(1))
    graph = table(
        "SubGraph",
        Tensors=vector(tflite.SubGraphStartTensorsVector, tensors),
        Inputs=integers(0),
        Outputs=integers(1),
        Operators=vector(tflite.SubGraphStartOperatorsVector, [relu]),
    )
    operator = tflite.BuiltinOperator.RELU
    code = table("OperatorCode", DeprecatedBuiltinCode=operator, BuiltinCode=operator, Version=1)
    model = table(
        "Model",
        Version=3,
        OperatorCodes=vector(tflite.ModelStartOperatorCodesVector, [code]),
        Subgraphs=vector(tflite.ModelStartSubgraphsVector, [graph]),
        Buffers=vector(tflite.ModelStartBuffersVector, [table("Buffer")]),
    )
    made.Finish(model, b"TFL3")
    path.write_bytes(bytes(made.Output()))


def _write_torch(script: Path, exported: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    torch.jit.save(torch.jit.trace(model, torch.zeros(1, 8)), str(script))
    torch.export.save(torch.export.export(model, (torch.zeros(1, 8),)), str(exported))


def _write_checkpoint(folder: Path) -> None:
    from op_profiler.frontends import transformers as source

    library = source._library()
    import torch

    config = library.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config.save_pretrained(folder)
    torch.save(dict(library.BertModel(config).state_dict()), folder / "pytorch_model.bin")
