"""What used to be accepted in silence: an option that cannot have the effect that its user wants of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ..command_line import op_profiler

MAIN = "from op_profiler.cli import main; main()"
MLP = ["collect", "--modelname", "mlp"]
MODULE = ["--module", "f.so", "--entry", "f", "--inputshape", "64;64", "--target", "pynq", "--host", "h", "--port", "1"]
needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="no transformers")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return op_profiler(*arguments, folder=folder, environment={"COLUMNS": "200", "NO_COLOR": "1"})


BEFORE_ANYTHING: list[tuple[list[str], list[str]]] = [
    ([*MLP, "--inputname", "image"], ["'image'", "data"]),
    ([*MLP, "--inputname", "data,data"], ["twice"]),
    ([*MLP, "--inputname", ","], ["--inputname"]),
    (["collect", "--modelname", "resnet-18", "--inputshape", "1,3,224"], ["4 dimensions"]),
    ([*MLP, "--sequence-length", "0"], ["--sequence-length", "or equal to 1"]),
    ([*MLP, "--sequence-length", "64"], ["mlp", "--sequence-length"]),
    (["collect", "--modelsource", "simple", "--sequence-length", "64"], ["--sequence-length 64"]),
    ([*MLP, "--schedules", "nowhere"], ["--schedules 'nowhere'", "auto"]),
    (["collect", "--modelname", ""], ["empty"]),
    ([*MLP, "--precision", "float32,int9"], ["int9", "int8"]),
    ([*MLP, "--precision", ","], ["--precision"]),
    ([*MLP, "--precision", "float32,float16", "--executor", "vm"], ["--executor vm", "float32"]),
    ([*MLP, "--threads", ","], ["--threads", "1,2,4"]),
    ([*MLP, "--threads", "1,99999999999999999999"], ["--threads"]),
    ([*MLP, "--device-key", "pynq"], ["--device-key", "--host"]),
    ([*MLP, "--host", "", "--port", "9190"], ["--host"]),
    ([*MLP, "--pipeline", "stock"], ["--pipeline stock", "relay"]),
    ([*MLP, "--importer", "relax"], ["--importer relax", "relay", "leave --importer out"]),
    (["predict", "mlp", "--importer", "relax"], ["--importer relax", "relay", "leave --importer out"]),
    (["corun", "mlp", "--importer", "relax"], ["--importer relax", "relay", "leave --importer out"]),
    ([*MLP, "--decode", "1"], ["--decode", "--past"]),
    ([*MLP, "--past", "512"], ["--decode", "--past"]),
    ([*MLP, "--decode", "1", "--past", "0"], ["--past 0"]),
    (["collect", "--modelname", "llama", "--prefill", "8"], ["--prefill", "; give --compiler relax"]),
    (["scheduler", "--port", "99999999"], ["--port", "65535"]),
    (["collect", "--modelname", "llama", "--prefill", "8", "--sequence-length", "8"], ["--sequence-length"]),
    ([*MLP, "--trials", "64"], ["--trials", "--iftune true"]),
    ([*MLP, "--tuner", "ga", "--iftune", "false"], ["--tuner", "--iftune true"]),
    ([*MLP, "--space", "templates"], ["--space", "--iftune true"]),
    ([*MLP, "--iftune", "true", "--space", "automatic"], ["--space automatic", "--compiler relay", "templates"]),
    ([*MLP, "--by-layer", "-1"], ["--by-layer", "or equal to 0"]),
    (["export", "--partition-by", "anchor", "part.csv"], ["--partition-by", "part.csv", "folder"]),
    (["export", "a.parquet", "--threads", "-1"], ["--threads -1", "1 or more"]),
    ([*MLP, "--label", "-x"], ["--label '-x'", "letters"]),
    ([*MLP, "--label", "x", "--cache", "hot"], ["--label", "hot"]),
    (["collect", "--module", "f.so", "--entry", "f", "--label", "x"], ["--label", "--module"]),
    (["collect", *MODULE, "--dry-run"], ["leave out --dry-run"]),
    (["collect", *MODULE, "--cache", "cold", "--threads", "2"], ["leave out", "--cache", "--threads"]),
    (["collect", *MODULE, "--iftune", "true", "--counters"], ["leave out", "--iftune", "--counters"]),
    ([*MLP, "--module", "f.so", "--entry", "f"], ["--module", "--modelname"]),
    (["sample", "--count", "5", "--resolutions", "160"], ["--resolutions", "--models"]),
    (["sample", "--models", "local:mlp", "--sequence-lengths", "8", "--dry-run"], ["--sequence-lengths 8"]),
    (["sample", "--models", "local:lstm", "--resolutions", "64", "--dry-run"], ["--resolutions 64"]),
    (["sample", "--models", "local:mlp,local:mlpp", "--dry-run"], ["mlpp", "mlp"]),
    (["sample", "--models", "local:mlp", "--batches", "0", "--dry-run"], ["--batches 0"]),
    (["sample", "--kinds", ",", "--count", "5"], ["--kinds"]),
    (["sample", "--count", "5", "--schedules", "nowhere"], ["--schedules 'nowhere'"]),
    (["calibrate", "--budget", "soon"], ["--budget", "10m"]),
    (["calibrate", "--share", "x.parquet", "--cluster", "tcp://127.0.0.1:9"], ["--share", "leave out --cluster"]),
    (["calibrate", "--rounds", "0"], ["error: --rounds 0 is out of range; give 3 or more"]),
    (["sample", "--count", "0"], ["--count 0 is out of range"]),
    (["sample", "--kinds", "", "--count", "5"], ["--kinds", "names nothing"]),
    (["sample", "--models", ""], ["--models", "names nothing"]),
    (["corun", "mlp", "--plan", "p.json", "--policy", "greedy"], ["--plan", "leave out --policy"]),
    (
        ["corun", "mlp", "--plan", "p.json", "--costs", "predicted", "--merge"],
        ["--plan", "leave out --costs, --merge"],
    ),
    (["scheduler", "--host", "::1"], ["--host ::1", "IPv4"]),
    (["certificates", "tls", "--host", "bad host!!"], ["bad host!!", "no certificate"]),
    (["predict", "mlp", "--target", "cuda", "--threads", "2"], ["--threads", "GPU", "leave it out"]),
    (["predict", "mlp", "--predictor", "no.zip", "--db", "x.db"], ["no.zip", "default"]),
    (["predict", "mlp", "--sequence-length", "8"], ["mlp", "--sequence-length"]),
    (["predict", "mlp", "--threads", ","], ["--threads"]),
    (["predict", "mlp", "--inputname", "image"], ["'image'", "data"]),
    (["predict", "mlp", "--input_dims", '{"data": [1, 1, 28, 28.5]}'], ["--input_dims"]),
    (["predict", "mlp", "--db", "sqlite:///x.db", "--adapt", "50"], ["--adapt was removed", "op-profiler calibrate"]),
    (["evaluate", "--split", ","], ["--split"]),
    (["evaluate", "--predictor", ""], ["--predictor"]),
    (["evaluate", "--library", "conv.out", "--device", "V100"], ["--device", "--library"]),
    (["evaluate", "--seed", "-1"], ["--seed"]),
    (["evaluate", "--set", "ncnn", "--device", "V100"], ["--set", "--device"]),
    (["evaluate", "--from", "here"], ["--from", "--set"]),
    (["analyze", "--factor", ","], ["--factor"]),
    (["corun", "mlp", "--sequence-length", "8"], ["mlp", "--sequence-length"]),
    (["collect", "--modelname", "mlp", "--executor", "vm", "--counters"], ["--counters"]),
    (["explain", "mlp", "--top", "0"], ["--top 0"]),
    (["explain", "mlp", "--target", "pynq", "--threads", "1"], ["--target llvm"]),
    (["explain", "mlp", "--trials-from", "mine"], ["shipped or none"]),
    (["corun", "mlp", "--schedules", "nowhere"], ["--schedules 'nowhere'"]),
    (["schedule", "mlp", "--schedules", "nowhere"], ["--schedules 'nowhere'"]),
    (["compare", "a", "b", "--fail-above", "5 apples"], ["--fail-above", "5%"]),
    (["compare", "a", "b", "--fail-above", "-5%"], ["--fail-above"]),
    (["compare", "a", "b", "--fail-above", "5"], ["--fail-above", "percent sign", "'5'"]),
    (["compare", "a", "b", "--fail-above", "five ms"], ["--fail-above", "5ms"]),
    (["compare", "a", "b", "--seconds", "0", "--rerun"], ["--seconds 0"]),
    (["compare", "a", "b", "--seconds", "5"], ["--seconds", "--rerun"]),
    (["compare", "a"], ["a is compared with nothing", "--against"]),
    (["compare", "mlp", "b", "--against", "torch"], ["AFTER", "--against"]),
    (["compare", "mlp", "--against", "torch", "--rerun"], ["--rerun", "--against"]),
    (["compare", "mlp", "--against", "tensorflow"], ["unknown runtime 'tensorflow'", "onnxruntime"]),
    (["compare", "a", "b", "--batchsize", "2"], ["--batchsize", "--against"]),
    (["devices", "--host", "127.0.0.1", "--port", "9", "--target", "pinq"], ["pinq", "pynq"]),
    (["devices", "--device-key", "pynq"], ["--device-key", "--host"]),
]


@pytest.mark.parametrize(("arguments", "words"), BEFORE_ANYTHING, ids=lambda value: " ".join(value))
def test_an_option_without_its_effect_is_refused_before_anything(
    arguments: list[str], words: list[str], tmp_path: Path
) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and [word for word in words if word not in done.stderr] == [], done.stderr
    assert list(tmp_path.iterdir()) == [], "a refused command leaves nothing behind"


def test_a_file_that_is_not_there_is_no_unknown_model_of_the_zoo(tmp_path: Path) -> None:
    done = run(tmp_path, "predict", "nosuch.onnx")
    assert (done.returncode, done.stderr.strip()) == (4, "error: there is no file nosuch.onnx")


def test_a_stored_predictor_learns_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "p.zip").touch()
    done = run(tmp_path, "predict", "mlp", "--predictor", "p.zip", "--db", "x.db")
    assert done.returncode == 2 and "p.zip" in done.stderr and "leave out --db" in done.stderr


@pytest.mark.parametrize("kind", ["npy", "cut off", "pickled", "text", "larger than memory", "flipped"])
def test_inputs_that_are_no_arrays_are_refused_before_anything(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "inputs.npz"
    np.savez_compressed(file, data=np.random.default_rng(0).standard_normal((1, 1, 28, 28)).astype("float32"))
    whole = file.read_bytes()
    if kind == "npy":
        with file.open("wb") as out:
            np.save(out, np.zeros((1, 1, 28, 28)))
    elif kind == "larger than memory":
        header = (
            b"\x93NUMPY\x01\x00v\x00" + repr({"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)}).encode()
        )
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("data.npy", header.ljust(127) + b"\n")
    elif kind == "pickled":
        np.savez(file, data=np.array([{}], dtype=object))
    elif kind == "text":
        np.savez(file, data=np.array(["a"]))
    elif kind == "flipped":
        file.write_bytes(whole[:200] + bytes([whole[200] ^ 0xFF]) + whole[201:])
    else:
        file.write_bytes(whole[: len(whole) // 2])
    done = run(tmp_path, *MLP, "--inputdata", "inputs.npz")
    assert done.returncode == 2 and "inputs.npz" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["inputs.npz"]


TARGETS = [
    ("llvm -mcpu=nonsense", "processor in -mcpu 'nonsense'"),
    ("llvm -mcpu=native", "this processor"),
    ("llvm -mcpu=cortex-a9", "'cortex-a9'"),
    ("llvm -mattr=+avx2,+nonsense", "-mattr=+nonsense"),
    ("llvm -mattr=avx2", "+ or - in front"),
    ("llvm -mtriple=nonsense-linux", "architecture in -mtriple 'nonsense'"),
    ("llvm -mfloat-abi=medium", "invalid -mfloat-abi option medium"),
    ("arm_cpu -mtriple=aarch64-linux-gnu -mattr=+avx2", "-mattr=+avx2"),
    ("pynq -mcpu=znver4", "boards with an ARM processor"),
    ("arm_cpu -mtriple=x86_64-linux-gnu", "boards with an ARM processor"),
    ("llvm -mabi=xx", "-mabi=xx"),
    ("arm_cpu -mtriple=aarch64-linux-gnu -mabi=lp64", "only aapcs"),
    ("llvm -opt-level=9", "-opt-level=9 is out of range; LLVM has 0 to 3"),
    ("llvm -opt-level=-1", "-opt-level=-1"),
]


@pytest.mark.parametrize(("name", "words"), TARGETS)
def test_options_that_llvm_would_ignore_or_die_of_are_refused(name: str, words: str) -> None:
    from op_profiler.errors import UsageError
    from op_profiler.targets.target import resolve_target

    with pytest.raises(UsageError) as refused:
        resolve_target(name)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["llvm", "pynq", "arm_cpu", "llvm -mcpu=skylake-avx512 -mattr=-avx512vnni,-avxvnni", "llvm -mattr=+avx2,+fma"]
    + ["llvm -mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a9 -mattr=+neon", "llvm -mtriple=x86_64-apple-darwin"]
    + ["arm_cpu -mtriple=aarch64-linux-gnu -mcpu=cortex-a53 -mabi=aapcs", "llvm -opt-level=0"],
)
def test_targets_that_llvm_knows_are_not(name: str) -> None:
    from op_profiler.targets.target import resolve_target

    assert resolve_target(name).kind.name == "llvm"


def test_a_processor_that_llvm_does_not_know_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    done = run(tmp_path, *MLP, "--target", "llvm -mcpu=nonsense", "--db", "sqlite:///x.db")
    assert done.returncode == 2 and "nonsense" in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_an_architecture_that_no_gpu_has_is_refused() -> None:
    from op_profiler.errors import UsageError
    from op_profiler.targets.target import kind_of

    with pytest.raises(UsageError, match="-arch=nonsense"):
        kind_of("cuda").check("cuda -arch=nonsense", remote=False, dry_run=True)


def test_the_sequence_length_goes_to_the_models_that_have_one() -> None:
    from op_profiler.cli.values import lengths_of
    from op_profiler.frontends import FRONTENDS

    models = [(FRONTENDS.get("local"), name) for name in ("resnet-18", "lstm")]
    assert lengths_of(models, 8) == [None, 8] and lengths_of(models, None) == [None, None]


@needs_transformers
def test_models_of_images_have_no_sequence() -> None:
    from op_profiler.frontends import FRONTENDS

    frontend = FRONTENDS.get("transformers")
    with_one = ["bert", "t5-encoder", "clip", "whisper"]
    assert [n for n in [*with_one, "vit", "swin", "wav2vec2"] if frontend.takes_sequence_length(n)] == with_one


def _checkpoint(folder: Path) -> tuple[Path, dict[str, object]]:
    """A tiny BERT without weights, and its weights."""
    from op_profiler.frontends import transformers as source

    library = source._library()
    config = library.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    config.save_pretrained(folder)
    return folder, dict(library.BertModel(config).state_dict())


@needs_transformers
def test_a_checkpoint_that_is_a_pickle_is_read_as_tensors_only(tmp_path: Path) -> None:
    """As the documentation says: whatever else is in the file makes it unreadable."""
    from op_profiler.errors import ModelError
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest

    folder, weights = _checkpoint(tmp_path / "bert")
    import torch

    torch.save(weights, folder / "pytorch_model.bin")
    request = ModelRequest(source="transformers", name=str(folder), sequence_length=4)
    frontend = FRONTENDS.get("transformers")
    assert "random weights" not in " ".join(frontend.load(request).notes)

    class Marker:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "ran",)

    torch.save({**weights, "more": Marker()}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be made"):
        frontend.load(request)
    assert not (tmp_path / "ran").exists()


@needs_transformers
def test_code_of_a_checkpoint_is_neither_run_nor_asked_about(tmp_path: Path) -> None:
    import json

    from op_profiler.errors import ModelError
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest

    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    named = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": named}))
    with pytest.raises(ModelError):
        FRONTENDS.get("transformers").load(ModelRequest(source="transformers", name=str(folder)))
    assert not (tmp_path / "ran").exists() and threading.active_count() < 50


def test_modules_in_the_current_folder_are_not_taken_for_the_libraries(tmp_path: Path) -> None:
    """A worker is a Python of its own, which would look there first."""
    for name in ("tvm", "numpy", "json", "sqlalchemy", "torch"):
        (tmp_path / f"{name}.py").write_text(f"open('ran-{name}', 'w')\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("python"), "-c", f"import sys; del sys.path[0]; {MAIN}", *MLP, "--dry-run"],
        cwd=tmp_path,
        env=os.environ.copy(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0 and list(tmp_path.glob("ran-*")) == [], done.stderr
