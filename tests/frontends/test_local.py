"""TVM's own zoo, the recurrent networks, torchvision and pretrainedmodels."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.zoo import classifiers

ROOT = Path(__file__).resolve().parents[2]
LOCAL = FRONTENDS.get("local")
LIGHT = {"resnet18", "mobilenet_v3_small", "squeezenet1_1", "bninception"}  # of both libraries
LARGE = {"vgg-16", "vgg-19", "resnet-101", "resnet-152"}  # vgg-11 and resnet-50 are made by the same functions
ZOO = sorted({*classifiers.torchvision_names(), *classifiers.pretrainedmodels_names()} - set(LOCAL.default_names()))


def load(name: str, **fields: Any) -> Any:
    return LOCAL.load(ModelRequest(source="local", name=name, **fields))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LARGE else n for n in LOCAL.default_names()]
)
def test_own_models_lower_with_the_batch_that_was_asked_for(name: str) -> None:
    model = load(name, batch_size=2)
    assert model.batch_size == 2 and model.params
    (data,) = model.inputs
    assert data.shape[1 if name in ("rnn", "gru", "lstm") else 0] == 2
    assert int(model.mod["main"].ret_type.shape[0]) == 2


@pytest.mark.parametrize("name", [n if n in LIGHT else pytest.param(n, marks=pytest.mark.slow) for n in ZOO])
def test_zoo_models_lower(name: str, torch: Any) -> None:
    model = load(name, batch_size=1)
    (data,) = model.inputs
    assert data.name == "data" and data.shape[:2] == (1, 3)
    assert [int(d) for d in model.mod["main"].ret_type.shape] == [1, 1000]


def test_the_zoo_is_all_there(torch: Any) -> None:
    torchvision = pytest.importorskip("torchvision") if classifiers.installed("torchvision") else None
    if torchvision is None:
        pytest.skip("torchvision is not installed")
    assert list(classifiers.torchvision_names()) == sorted(torchvision.models.list_models(module=torchvision.models))
    assert {"nasnetalarge", "dpn68", "senet154"} <= set(classifiers.pretrainedmodels_names())


def test_a_zoo_model_takes_batch_and_shape(torch: Any) -> None:
    model = load("squeezenet1_1", input_shapes=((3, 3, 96, 96),))
    assert model.inputs[0].shape == (3, 3, 96, 96) and model.batch_size == 3
    with pytest.raises(UsageError, match="dimensions"):
        load("squeezenet1_1", input_shapes=((3, 96, 96),))


def test_image_shape_and_batch_that_contradict() -> None:
    assert load("mobilenet", input_shapes=((4, 3, 64, 64),)).inputs[0].shape == (4, 3, 64, 64)
    with pytest.raises(UsageError, match="batch"):
        load("mobilenet", batch_size=2, input_shapes=((4, 3, 64, 64),))


def test_the_same_request_gives_the_same_weights() -> None:
    first, second = load("mlp"), load("mlp")
    assert all((first.params[n].numpy() == second.params[n].numpy()).all() for n in first.params)


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("steps", [1, 5])
def test_recurrent_networks_agree_with_torch(name: str, steps: int, torch: Any, run: Any) -> None:
    import numpy as np

    model = load(name, batch_size=2, sequence_length=steps)
    reference = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[name](128, 128)
    ours = {"weight_ih_l0": "w_input", "weight_hh_l0": "w_hidden", "bias_ih_l0": "b_input", "bias_hh_l0": "b_hidden"}
    reference.load_state_dict({k: torch.from_numpy(model.params[v].numpy()) for k, v in ours.items()})
    data = np.random.default_rng(1).standard_normal((steps, 2, 128)).astype("float32")
    with torch.no_grad():
        expected = reference(torch.from_numpy(data))[0][-1].numpy()
    np.testing.assert_allclose(run(model, {"data": data})[0], expected, atol=1e-5)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="resnet-18"):
        LOCAL.check(ModelRequest(source="local", name="resnet-81"))


def test_own_models_work_without_pytest(tmp_path: Path) -> None:
    """A base install has none: here, every installed package but pytest."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "pytest" not in entry.name and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    code = (
        "import importlib.util as u; assert u.find_spec('pytest') is None\n"
        "from op_profiler.frontends import FRONTENDS\n"
        "from op_profiler.frontends.frontend import ModelRequest\n"
        "import sys\n"
        "for name in ('mlp', 'resnet-18'):\n"
        "    print(FRONTENDS.get('local').load(ModelRequest(source='local', name=name)).name)\n"
        "assert 'pytest' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{packages}"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["mlp", "resnet-18"]
