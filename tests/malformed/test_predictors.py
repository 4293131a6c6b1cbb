"""Predictors: damaged, and with other members than they are written with."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..command_line import ROOT
from .damage import BYTES, Damage, damaged, value
from .harness import MARKER, Commands

PREDICTOR = ROOT / "results" / "amd-epyc-family-26-model-2" / "predictor.zip"


@pytest.mark.parametrize("kind", BYTES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_predictor(kind: Damage, seed: int, commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(damaged(PREDICTOR.read_bytes(), kind, seed))
    commands.check(tmp_path, "predict", "mlp", "--predictor", "x.zip", codes=(0, 2, 5))


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return open, (MARKER, "w")


def _pickled_array() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, limits=np.array([_Runs()], dtype=object))
    return buffer.getvalue()


Members = dict[str, bytes]
CHANGES: dict[str, Callable[[Members], Members]] = {
    "pickled array": lambda members: members | {"arrays.npz": _pickled_array()},
    "pickle for arrays": lambda members: members | {"arrays.npz": pickle.dumps(_Runs())},
    "pickle for a model": lambda members: members | {"model0.skops": pickle.dumps(_Runs())},
    "unknown model": lambda members: members | {"model9.pkl": pickle.dumps(_Runs())},
    "empty model": lambda members: {n: b"" if n.startswith("model") else c for n, c in members.items()},
    "damaged models": lambda members: {n: c[: len(c) // 2] if n.startswith("model") else c for n, c in members.items()},
    "random models": lambda members: {n: b"\x7b\x4c" * 99 if n.startswith("model") else c for n, c in members.items()},
    "no arrays": lambda members: {n: c for n, c in members.items() if n != "arrays.npz"},
    "empty arrays": lambda members: members | {"arrays.npz": b""},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_predictor_with_another_member(change: str, commands: Commands, tmp_path: Path) -> None:
    """Its digests are those of what it holds."""
    contents, members = _members()
    members = CHANGES[change](members)
    contents["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    _write(tmp_path / "x.zip", json.dumps(contents), members)
    commands.check(tmp_path, "predict", "mlp", "--predictor", "x.zip", codes=(0, 3, 5))


@pytest.mark.parametrize("seed", range(24))
def test_a_predictor_with_other_contents(seed: int, commands: Commands, tmp_path: Path) -> None:
    contents, members = _members()
    contents = {key: contents[key] for key in random.Random(seed).sample(sorted(contents), len(contents))}
    _write(tmp_path / "x.zip", damaged(json.dumps(contents).encode(), value, seed).decode(), members)
    commands.check(tmp_path, "predict", "mlp", "--predictor", "x.zip", codes=(0, 1, 2, 3, 5))


def _members() -> tuple[dict[str, Any], Members]:
    with zipfile.ZipFile(PREDICTOR) as archive:
        contents = json.loads(archive.read("contents.json"))
        return contents, {name: archive.read(name) for name in contents["sha256"]}


def _write(path: Path, contents: str, members: Members) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("contents.json", contents)
        for name, content in members.items():
            archive.writestr(name, content)
