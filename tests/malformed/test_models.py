"""Model files of every kind: damaged, of another kind, and with something in them that runs when they are read."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .damage import BYTES, TEXT, Damage, damaged, value
from .harness import MARKER, READERS, Commands, asks_for_slow
from .valid import Model

KINDS: dict[str, tuple[Damage, ...]] = {
    **{kind: BYTES for kind in ("onnx", "tflite", "pt2", "tar.gz", "pytorch_model.bin")},
    "config.json": (*TEXT, value, value),
}
CASES = [(kind, damage, seed) for kind, damages in KINDS.items() for seed, damage in enumerate(damages)]
MANY = [
    pytest.param(kind, damage, seed, marks=pytest.mark.slow)
    for kind, damages in KINDS.items()
    for damage in damages
    for seed in range(100, 130)
]


def _id(found: object) -> str:
    return getattr(found, "__name__", None) or str(found)


def model_of(models: dict[str, Model], kind: str) -> Model:
    if kind not in models:
        pytest.skip(f"what reads {kind} is not installed")
    return models[kind]


@pytest.fixture(scope="session")
def commands() -> Commands:
    """What reads models is imported beforehand."""
    return Commands(READERS)


def lower(commands: Commands, folder: Path, tables: dict[str, bytes], *arguments: str) -> None:
    """Ask for the schedules of a model: it is read, lowered and taken apart, and nothing is built."""
    (folder / "x.db").write_bytes(tables["sqlite"])
    commands.check(
        folder, "schedule", *arguments, "--trials-from", "none", "--db", "sqlite:///x.db", codes=(0, 2, 3, 4, 5)
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "damage" in metafunc.fixturenames:
        cases = [*CASES, *(MANY if asks_for_slow(metafunc.config) else [])]
        metafunc.parametrize(("kind", "damage", "seed"), cases, ids=_id)


def test_a_damaged_model(
    kind: str,
    damage: Damage,
    seed: int,
    commands: Commands,
    models: dict[str, Model],
    tables: dict[str, bytes],
    tmp_path: Path,
) -> None:
    model = model_of(models, kind)
    model.write(tmp_path, damaged(model.files[model.damaged], damage, seed))
    lower(commands, tmp_path, tables, *_as_file(model))


def _as_file(model: Model) -> tuple[str, ...]:
    return model.arguments if "--modelsource" in model.arguments else ("--modelsource", "file", *model.arguments)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["onnx", "tflite", "pt2", "tar.gz"])
def test_a_model_with_the_ending_of_another(
    kind: str, ending: str, commands: Commands, models: dict[str, Model], tables: dict[str, bytes], tmp_path: Path
) -> None:
    model = model_of(models, kind)
    (tmp_path / f"y.{ending}").write_bytes(model.files[model.damaged])
    source = {"tar.gz": "remoteonnx", "tflite": "tflite"}.get(ending, "file")
    lower(commands, tmp_path, tables, "--modelsource", source, f"y.{ending}")


class _Runs:
    """A pickle that creates a file when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (MARKER, "w")


def _zip(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_DOT_", "."), content)
    return buffer.getvalue()


def _tar(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        tar.addfile(info, io.BytesIO(b""))
    return buffer.getvalue()


RUNS = pickle.dumps(_Runs())
TRAPS: dict[str, bytes] = {
    "pickle.pt": RUNS,
    "pickle.onnx": RUNS,
    "pickle.pt2": RUNS,
    "old.pth": pickle.dumps(_Runs(), protocol=0),
    "saved.pt": _zip(archive__data_DOT_pkl=RUNS, archive__version=b"3\n"),
    "script.pt": _zip(
        x__constants_DOT_pkl=RUNS, x__data_DOT_pkl=RUNS, x__code____torch___DOT_py=b"", x__version=b"3\n"
    ),
    "exported.pt2": _zip(x__archive_format=b"pt2", x__data__weights__model_DOT_pt=RUNS, x__version=b"1\n"),
    "older.pt2": _zip(serialized_exported_program_DOT_json=b"{}", serialized_state_dict_DOT_pt=RUNS, version=b"8.8"),
    "up.tar.gz": _tar(f"../{MARKER}.onnx"),
    "absolute.tar.gz": _tar(f"/{MARKER}.onnx"),
    "link.tar.gz": _tar("x.onnx", tarfile.SYMTYPE, "/etc/passwd"),
    "device.tar.gz": _tar("x.onnx", tarfile.CHRTYPE),
    "empty.tar.gz": _tar("readme.txt"),
    "code.py": f"open({MARKER!r}, 'w')".encode(),
    "code.pt2": f"open({MARKER!r}, 'w')".encode(),
}


@pytest.mark.parametrize("name", TRAPS)
def test_nothing_in_a_model_is_run(name: str, commands: Commands, tables: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(TRAPS[name])
    source = "remoteonnx" if name.endswith(".tar.gz") else "file"
    lower(commands, tmp_path, tables, "--modelsource", source, name)
    assert not (tmp_path.parent / f"{MARKER}.onnx").exists() and not Path(f"/{MARKER}.onnx").exists()


def _checkpoint(**changes: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        config = {"model_type": "bert", "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1}
        config |= {"num_attention_heads": 2, "intermediate_size": 16, **changes}
        (folder / "own.py").write_text(f"open({MARKER!r}, 'w')\n")
        (folder / "config.json").write_text(json.dumps(config))

    return write


def _no_object(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


CHECKPOINTS: dict[str, Callable[[Path], None]] = {
    "code": _checkpoint(model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModel": "own.Model"}),
    "code beside a known type": _checkpoint(auto_map={"AutoConfig": "own.Config", "AutoModel": "own.Model"}),
    "huge": _checkpoint(hidden_size=1 << 20, num_hidden_layers=1000, num_attention_heads=16),
    "no layers": _checkpoint(num_hidden_layers=0),
    "heads that do not fit": _checkpoint(num_attention_heads=3),
    "negative": _checkpoint(vocab_size=-1),
    "text for a number": _checkpoint(hidden_size="sixteen"),
    "another library's": _checkpoint(quantization_config={"quant_method": "gptq", "bits": 4}),
    "no type": _checkpoint(model_type=None),
    "a path for a type": _checkpoint(model_type="../../own"),
    "no object": _no_object,
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_is_none(
    name: str, commands: Commands, models: dict[str, Model], tables: dict[str, bytes], tmp_path: Path
) -> None:
    model_of(models, "config.json")
    (tmp_path / "own").mkdir()
    CHECKPOINTS[name](tmp_path / "own")
    lower(commands, tmp_path, tables, "--modelsource", "transformers", "./own", "--sequence-length", "4")


FUNCTIONS = {
    "syntax": "def make(:",
    "raises": "raise SystemError('no')",
    "ends": "raise SystemExit(0)",
    "nothing": "def make():\n    return None",
    "three": "def make():\n    return 1, 2, 3",
    "no module": "def make():\n    return 1, 2",
    "recursion": "def make():\n    return make()",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_is_no_model(name: str, commands: Commands, tables: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FUNCTIONS[name])
    lower(commands, tmp_path, tables, "--modelsource", "file", "own:make")


@pytest.mark.parametrize("kind", ["onnx", "pt2", "config.json"])
def test_a_worker_process_over_a_damaged_model(
    kind: str, commands: Commands, models: dict[str, Model], tmp_path: Path
) -> None:
    model = model_of(models, kind)
    model.write(tmp_path, damaged(model.files[model.damaged], BYTES[2], 3))
    *options, name = _as_file(model)
    commands.check(tmp_path, "collect", *options, "--modelname", name, "--dry-run", "--db", "sqlite:///new.db")
