"""Every source lowers its models, the heavy ones with ``-m slow``; outputs are compared with the framework's own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.errors import MissingPackageError, ModelError, OpProfilerError, UnknownNameError, UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest

COLLECTOR = Path(__file__).resolve().parents[2] / "collector"
# What is slow here and quick in test_local.py is lowered there.
QUICK_LOCAL = ["dcgan", "mlp", "lstm"]
SLOW_LOCAL = ["resnet-34", "resnet-50", "resnet-101", "resnet-152", "squeezenet_v1.0", "densenet-121", "inception_v3"]
SLOW_LOCAL += ["vgg-11", "vgg-16", "vgg-19", "resnet-18", "mobilenet", "squeezenet_v1.1", "rnn", "gru", "resnet3d-18"]
SLOW_TORCH = ["resnet18", "mobilenet_v3_small", "dpn68", "nasnetalarge", "vit_b_16", "swin_t"]
QUICK_TRANSFORMERS = ["bert", "gpt2", "distilbert", "t5-encoder", "t5-decoder", "vit"]
SLOW_TRANSFORMERS = ["roberta", "albert", "electra"]
QUICK_ONNX = ["light_squeezenet"]
SLOW_ONNX = ["light_shufflenet", "light_resnet50", "light_inception_v1", "light_densenet121", "light_vgg19"]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
needs_onnx = pytest.mark.skipif(importlib.util.find_spec("onnx") is None, reason="onnx is not installed")


def load(source: str, name: str, **options: Any) -> ImportedModel:
    frontend = FRONTENDS.get(source)
    request = ModelRequest(source=source, name=name, **options)
    frontend.check(request)
    model = frontend.load(request)
    variables = {v.name_hint for v in model.mod["main"].params}
    assert {i.name for i in model.inputs} | set(model.params) == variables
    return model


def outputs(model: ImportedModel, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    from op_profiler.compilers.tvm_build import load_tvm

    tvm = load_tvm()
    from tvm.contrib import graph_executor

    with tvm.transform.PassContext(opt_level=1):
        library = tvm.relay.build(model.mod, target="llvm -opt-level=0", params=model.params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(**inputs)
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def slow(names: list[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", QUICK_LOCAL + slow(SLOW_LOCAL))
def test_local_models_lower_with_their_batch_size(name: str) -> None:
    model = load("local", name, batch_size=2)
    batch_axis = 1 if name in ("rnn", "gru", "lstm") else 0
    assert model.inputs[0].shape[batch_axis] == 2 and model.batch_size == 2


@needs_torch
@pytest.mark.parametrize("name", slow(SLOW_TORCH))
def test_classification_models_of_torch_lower(name: str) -> None:
    package = "pretrainedmodels" if name in ("dpn68", "nasnetalarge") else "torchvision"
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    assert load("local", name).inputs[0].shape[1] == 3


def test_yolov3_tiny_lowers_or_says_what_it_needs() -> None:
    if importlib.util.find_spec("libreyolo") is None:
        with pytest.raises(MissingPackageError, match="libreyolo.*env_var.sh yolo"):
            load("local", "yolov3-tiny")
    else:
        assert load("local", "yolov3-tiny").inputs[0].shape == (1, 3, 416, 416)


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library, whose models have two layers and know few words: all further ones are like these, and take as long
    to lower."""
    library = pytest.importorskip("transformers")
    usual = library.AutoConfig.for_model

    def two_layers(kind: str) -> Any:
        config = usual(kind)
        config.num_hidden_layers = 2
        if hasattr(config, "vocab_size"):
            config.vocab_size = 12288  # embeddings stay the largest of the arrays
        if hasattr(config, "num_decoder_layers"):
            config.num_decoder_layers = 2
        return config

    monkeypatch.setattr(library.AutoConfig, "for_model", two_layers)
    return library


@needs_torch
@pytest.mark.parametrize("name", QUICK_TRANSFORMERS + slow(SLOW_TRANSFORMERS))
def test_transformers_lower_with_their_sequence_length(name: str, transformers: Any) -> None:
    with_sequence = name != "vit"
    model = load("transformers", name, sequence_length=16 if with_sequence else None)
    if with_sequence:
        assert model.inputs[0].shape == (1, 16) and model.inputs[0].high > 1000


@needs_torch
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("wav2vec2-bert", (1, 100, 160)),
        ("speech_to_text", (1, 100, 80)),
        ("audio-spectrogram-transformer", (1, 1024, 128)),
        ("timesformer", (1, 8, 3, 224, 224)),
        ("clip_text_model", (1, 77)),
    ],
)
def test_transformers_get_inputs_of_their_kind(name: str, shape: tuple[int, ...], transformers: Any) -> None:
    """Frames of sound, a spectrogram, a film, and no more words than there are positions for."""
    assert load("transformers", name).inputs[0].shape == shape


@needs_onnx
@pytest.mark.parametrize("name", QUICK_ONNX + slow(SLOW_ONNX))
def test_graphs_inside_the_onnx_package_lower(name: str) -> None:
    assert load("remoteonnx", name).inputs[0].shape == (1, 3, 224, 224)


def _single_operator(name: str, x: dict[str, Any]) -> Any:
    """What torch computes of the same operands."""
    import torch
    from torch.nn import functional

    convolutions = {"conv1d": functional.conv1d, "conv2d": functional.conv2d, "conv3d": functional.conv3d}
    if name in convolutions:
        return convolutions[name](x["data"], x["weight"], padding=1)
    return {
        "add": lambda: x["a"] + x["b"],
        "batch_matmul": lambda: x["a"] @ x["b"].transpose(1, 2),
        "conv2d_transpose": lambda: functional.conv_transpose2d(x["data"], x["weight"], stride=2, padding=1),
        "dense": lambda: functional.linear(x["data"], x["weight"]),
        "depthwise_conv2d": lambda: functional.conv2d(x["data"], x["weight"], padding=1, groups=x["data"].shape[1]),
        "layer_norm": lambda: functional.layer_norm(x["data"], x["data"].shape[-1:], x["gamma"], x["beta"]),
        "matmul": lambda: x["a"] @ x["b"],
        "pooling": lambda: functional.max_pool2d(x["data"], 3, stride=2, padding=1),
        "softmax": lambda: torch.softmax(x["data"], -1),
    }[name]()


@needs_torch
@pytest.mark.parametrize("name", FRONTENDS.get("simple").names())
def test_single_operators_compute_what_torch_computes(name: str) -> None:
    import torch

    usual = load("simple", name).inputs[0]
    small = tuple(min(size or 1, limit) for size, limit in zip(usual.shape, (2, 6, 9, 7, 5), strict=False))
    model = load("simple", name, input_names=(usual.name,), input_shapes=(small,))
    rng = np.random.default_rng(0)
    inputs = {one.name: one.random(rng) for one in model.inputs}
    weights = {key: value.numpy() for key, value in model.params.items()}
    (found,) = outputs(model, inputs)
    expected = _single_operator(name, {key: torch.from_numpy(value) for key, value in (inputs | weights).items()})
    assert found.shape == tuple(expected.shape) and np.allclose(found, expected, atol=1e-5)


def _mediapipe(name: str) -> Path:
    spec = importlib.util.find_spec("mediapipe")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("mediapipe, whose wheel carries real TFLite models, is not installed")
    found = list(Path(spec.submodule_search_locations[0]).glob(f"modules/*/{name}.tflite"))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("name", ["face_detection_short_range", "hand_landmark_lite", "iris_landmark", "face_landmark"])
def test_tflite_models_lower(name: str) -> None:
    assert load("tflite", str(_mediapipe(name))).inputs[0].shape[-1] == 3


def test_a_tflite_operator_without_counterpart_is_named() -> None:
    path = _mediapipe("selfie_segmentation")
    with pytest.raises(ModelError, match="Convolution2DTransposeBias"):
        load("tflite", str(path))


@needs_torch
@pytest.mark.parametrize("name", [pytest.param("gpt2", marks=pytest.mark.slow), "bert"])
def test_transformers_compute_what_torch_computes(name: str, transformers: Any) -> None:
    import torch

    model = load("transformers", name, sequence_length=8)
    tokens = np.arange(8, dtype="int64")[None] * 7 + 3
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name)
    reference = transformers.AutoModel.from_config(config, attn_implementation="eager")
    weights = sorted(float(np.abs(v.numpy()).sum()) for v in model.params.values() if v.numpy().ndim == 2)
    expected_weights = [float(p.detach().abs().sum()) for n, p in reference.named_parameters() if p.dim() == 2]
    if not np.isclose(max(weights), max(expected_weights), rtol=1e-4):
        pytest.fail("the frontend's seed no longer gives the library's weights")
    with torch.no_grad():
        expected = reference.eval()(torch.from_numpy(tokens), return_dict=False)[0].numpy()
    (first, *_) = outputs(model, {model.inputs[0].name: tokens})
    assert np.allclose(first, expected, atol=2e-3)


@needs_torch
@pytest.mark.parametrize(("name", "kind"), [("rnn", "RNN"), ("gru", "GRU"), ("lstm", "LSTM")])
def test_recurrent_networks_compute_what_torch_computes(name: str, kind: str) -> None:
    import torch

    model = load("local", name, sequence_length=4)
    data = np.random.default_rng(0).standard_normal((4, 1, 128)).astype("float32")
    layer = getattr(torch.nn, kind)(128, 128)
    own = {n: torch.from_numpy(v.numpy()) for n, v in model.params.items()}
    names = {"w_input": "weight_ih_l0", "w_hidden": "weight_hh_l0", "b_input": "bias_ih_l0", "b_hidden": "bias_hh_l0"}
    if set(own) != set(names):
        pytest.fail(f"the weights of {name} have other names: {sorted(own)}")
    layer.load_state_dict({names[n]: v for n, v in own.items()})
    with torch.no_grad():
        expected = layer(torch.from_numpy(data))[0][-1].numpy()
    assert np.allclose(outputs(model, {"data": data})[0].reshape(expected.shape), expected, atol=1e-5)


class TestFiles:
    """A user's own models."""

    @needs_torch
    def test_torchscript_export_and_function(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
        example = torch.randn(1, 8)
        torch.jit.trace(net, example).save(tmp_path / "net.pt")
        torch.export.save(torch.export.export(net, (example,)), tmp_path / "net.pt2")
        (tmp_path / "mynet.py").write_text(
            "import torch\n\ndef build():\n    return torch.nn.Linear(8, 4), torch.randn(1, 8)\n"
            "\ndef alone():\n    return torch.nn.Linear(8, 4)\n"
        )
        monkeypatch.chdir(tmp_path)
        script = load("file", "net.pt", input_shapes=((3, 8),))
        assert script.inputs[0].shape == (3, 8)
        assert load("file", "net.pt2").inputs[0].shape == (1, 8)
        assert load("file", "mynet:build").inputs[0].shape == (1, 8)
        assert load("file", "mynet:alone", input_shapes=((2, 8),)).inputs[0].shape == (2, 8)
        with pytest.raises(ModelError, match="no example inputs; give --inputshape"):
            load("file", "mynet:alone")
        value = np.ones((3, 8), "float32")
        with torch.no_grad():
            expected = net(torch.from_numpy(value)).numpy()
        assert np.allclose(outputs(script, {script.inputs[0].name: value})[0], expected, atol=1e-5)
        with pytest.raises(UsageError, match="inputshape"):
            load("file", "net.pt")

    @needs_torch
    @pytest.mark.parametrize("name", ["unet", "mlp_mixer", "convmixer", "ghostnet", "repvgg", "edsr", "tcn"])
    def test_networks_that_nothing_was_chosen_by(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(COLLECTOR)
        model = load("file", f"unseen_networks:{name}")
        assert model.params and model.inputs[0].shape[0] == 1

    @pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
    def test_a_function_may_import_torchvision(self, tmp_path: Path) -> None:
        (tmp_path / "vision.py").write_text(
            "import torch\n\ndef build():\n"
            "    from torchvision.ops import MLP\n    return MLP(8, [4]), torch.randn(1, 8)\n"
        )
        request = "ModelRequest(source='file', name='vision:build')"
        asked = f"FRONTENDS.get('file').load({request}).inputs[0].shape"
        imports = "from op_profiler.frontends import FRONTENDS; from op_profiler.frontends.frontend import ModelRequest"
        alone = [sys.executable, "-c", f"{imports}; print({asked})"]  # nothing before it has imported torchvision
        done = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout.strip() == "(1, 8)", done.stderr

    @needs_torch
    def test_pickles_are_refused(self, tmp_path: Path) -> None:
        import torch

        torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "weights.pt")
        with pytest.raises(ModelError, match="may run any code|not loaded|pickle"):
            load("file", str(tmp_path / "weights.pt"), input_shapes=((1, 2),))

    @needs_onnx
    def test_onnx_with_a_batch_size(self, tmp_path: Path) -> None:
        self._onnx(tmp_path / "net.onnx")
        assert load("file", str(tmp_path / "net.onnx"), batch_size=3).inputs[0].shape == (3, 8)

    @needs_onnx
    def test_archives_are_read_and_their_paths_checked(self, tmp_path: Path) -> None:
        self._onnx(tmp_path / "net.onnx")
        with tarfile.open(tmp_path / "good.tar.gz", "w:gz") as tar:
            tar.add(tmp_path / "net.onnx", "folder/net.onnx")
        with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as tar:
            tar.add(tmp_path / "net.onnx", "../../evil.onnx")
        assert load("remoteonnx", str(tmp_path / "good.tar.gz")).inputs[0].shape[1] == 8
        with pytest.raises(ModelError, match=r"evil"):
            load("remoteonnx", str(tmp_path / "evil.tar.gz"))
        assert not (tmp_path.parent / "evil.onnx").exists()

    @needs_onnx
    def test_an_input_named_as_tvm_names_weights_stays_an_input(self, tmp_path: Path) -> None:
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        weight = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
        tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in ("p0", "y")]
        node = helper.make_node("MatMul", ["p0", "w"], ["y"])
        graph = helper.make_graph([node], "named", tensors[:1], tensors[1:], [numpy_helper.from_array(weight, "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "named.onnx")
        model = load("file", str(tmp_path / "named.onnx"))
        assert [one.name for one in model.inputs] == ["p0_input"] and "'p0_input' here" in model.notes[0]
        data = np.random.default_rng(1).standard_normal((64, 64)).astype("float32")
        (found,) = outputs(model, {"p0_input": data})
        np.testing.assert_allclose(found, data @ weight, rtol=1e-4, atol=1e-4)

    @needs_onnx
    def test_onnx_with_an_input_that_is_no_tensor_is_refused_in_a_sentence(self, tmp_path: Path) -> None:
        import onnx
        from onnx import TensorProto, helper

        given = [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)]
        made = [helper.make_tensor_value_info("y", TensorProto.INT64, [])]
        graph = helper.make_graph([helper.make_node("SequenceLength", ["s"], ["y"])], "sequence", given, made)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "sequence.onnx")
        with pytest.raises(ModelError, match="does not lower"):
            load("file", str(tmp_path / "sequence.onnx"))

    @staticmethod
    def _onnx(path: Path) -> None:
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        graph = helper.make_graph(
            [helper.make_node("Gemm", ["x", "w"], ["y"])],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
            [numpy_helper.from_array(np.ones((8, 4), "float32"), "w")],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)

    @pytest.mark.parametrize("suffix", [".onnx", ".tflite", ".pt", ".pt2", ".xyz"])
    @pytest.mark.parametrize("content", [b"", b"\x00\x01garbage that is no model at all" * 5])
    def test_broken_files_are_refused_in_a_sentence(self, tmp_path: Path, suffix: str, content: bytes) -> None:
        path = tmp_path / f"broken{suffix}"
        path.write_bytes(content)
        with pytest.raises(ModelError) as caught:
            load("file", str(path), input_shapes=((1, 8),) if suffix == ".pt" else ())
        assert "broken" in str(caught.value)


def test_an_address_that_does_not_answer_is_named() -> None:
    with pytest.raises(ModelError, match=r"127\.0\.0\.1:9"):
        load("remoteonnx", "http://127.0.0.1:9/model.onnx")


@pytest.mark.parametrize("source", [s for s in FRONTENDS if s not in ("tflite", "file")])
def test_unknown_names_are_refused_with_near_ones(source: str) -> None:
    with pytest.raises((UnknownNameError, MissingPackageError)):
        FRONTENDS.get(source).check(ModelRequest(source=source, name="brt-18x"))


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(OpProfilerError, match="transformers"):
        FRONTENDS.get("transformer")


def test_the_fingerprint_follows_the_content_and_the_request(tmp_path: Path) -> None:
    local = FRONTENDS.get("local")
    one = local.fingerprint(ModelRequest(source="local", name="mlp"))
    assert one == local.fingerprint(ModelRequest(source="local", name="mlp"))
    assert one != local.fingerprint(ModelRequest(source="local", name="mlp", batch_size=2))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"a")
    request = ModelRequest(source="file", name=str(path))
    before = FRONTENDS.get("file").fingerprint(request)
    path.write_bytes(b"b")
    assert FRONTENDS.get("file").fingerprint(request) != before
