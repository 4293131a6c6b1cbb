"""Predictors in files: what is read back is what was stored, and whatever else there may be is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import DatasetError
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency import open_predictor as opening
from op_profiler.prediction.latency import predictor_files
from op_profiler.prediction.latency.adapt import adapted
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.fit import fit
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor
from op_profiler.prediction.latency.query import Query


def test_stored_and_read_back_it_says_the_same(
    predictor: OperatorPredictor,
    fitted: Callable[[str], OperatorPredictor],
    known: Examples,
    strangers: list[Operator],
    tmp_path: Path,
) -> None:
    of_another_device = adapted(predictor, known.where(known.operator < 20))
    for one in (predictor, fitted("mean"), of_another_device):
        predictor_files.save(one, tmp_path / "p.zip")
        read = predictor_files.load(tmp_path / "p.zip")
        query = Query.of([*known.operators[:20], *strangers], threads=2, traffic_bytes=3e6)
        for name in ("latency_us", "low_us", "high_us", "tier"):
            # A forest adds its trees up in the order in which its threads finish.
            before, after = (getattr(p.predict(query), name) for p in (one, read))
            assert after == pytest.approx(before, rel=1e-12)
        assert read.fingerprint == one.fingerprint


def test_damaged_and_foreign_files_are_refused(predictor: OperatorPredictor, tmp_path: Path) -> None:
    path = tmp_path / "p.zip"
    predictor_files.save(predictor, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    def written(changes: dict[str, bytes]) -> Path:
        with zipfile.ZipFile(tmp_path / "changed.zip", "w") as archive:
            for name, content in (members | changes).items():
                archive.writestr(name, content)
        return tmp_path / "changed.zip"

    model = next(name for name in members if name.startswith("model"))
    flipped = bytes([*members[model][:-9], members[model][-9] ^ 1, *members[model][-8:]])
    with pytest.raises(DatasetError, match="damaged"):
        predictor_files.load(written({model: flipped}))
    contents = json.loads(members["contents.json"])
    with pytest.raises(DatasetError, match="another version"):
        predictor_files.load(written({"contents.json": json.dumps(contents | {"version": 99}).encode()}))
    with pytest.raises(DatasetError, match="no predictor of op_profiler"):
        predictor_files.load(written({"contents.json": b'{"format": "something else"}'}))
    (tmp_path / "text.zip").write_text("not a zip")
    for path in (tmp_path / "text.zip", tmp_path / "missing.zip"):
        with pytest.raises(DatasetError, match="can be read"):
            predictor_files.load(path)


def test_other_numbers_of_regressions_than_this_version_has_are_refused(
    predictor: OperatorPredictor, tmp_path: Path
) -> None:
    """Which of them see loops is told by their place, so all would be taken for others."""
    older = dataclasses.replace(predictor, models=[*predictor.models, *predictor.models])
    predictor_files.save(older, tmp_path / "older.zip")
    with pytest.raises(DatasetError, match="another version"):
        predictor_files.load(tmp_path / "older.zip")


@pytest.mark.parametrize("seed", range(40))
def test_any_damage_is_said_in_one_way(predictor: OperatorPredictor, tmp_path: Path, seed: int) -> None:
    path = tmp_path / "p.zip"
    predictor_files.save(predictor, path)
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    for place in rng.integers(0, len(content), 1 + seed % 4):
        content[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(content[: len(content) // 2] if seed % 8 == 7 else content)
    try:
        predictor_files.load(path)
    except DatasetError as error:
        assert str(path) in str(error)  # else the bits meant nothing


def _with_contents(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["contents.json"] = json.dumps(change(json.loads(members["contents.json"]))).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    "change",
    [
        lambda contents: [contents],
        lambda contents: contents | {"sha256": None},
        lambda contents: contents | {"quantiles": {}},
        lambda contents: contents | {"usual_traffic_bytes": "much"},
        lambda contents: contents | {"device": {}},
        lambda contents: contents | {"choice": "crystal ball"},
        lambda contents: contents | {"correlation": None},
        lambda contents: contents | {"comment": "x" * (1 << 24)},
    ],
)
def test_contents_that_do_not_fit_are_refused(
    predictor: OperatorPredictor, tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    predictor_files.save(predictor, tmp_path / "p.zip")
    _with_contents(tmp_path / "p.zip", change)
    with pytest.raises(DatasetError, match=r"p\.zip"):
        predictor_files.load(tmp_path / "p.zip")


def test_archives_that_unpack_to_too_much_are_not_unpacked(
    predictor: OperatorPredictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.zip"
    predictor_files.save(predictor, path)
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
        members = {name: archive.read(name) for name in archive.namelist()}
    bomb = io.BytesIO()
    np.savez_compressed(bomb, zeros=np.zeros(2 * unpacked, dtype=np.uint8))
    members["arrays.npz"] = bomb.getvalue()
    contents = json.loads(members["contents.json"])
    contents["sha256"]["arrays.npz"] = hashlib.sha256(bomb.getvalue()).hexdigest()
    members["contents.json"] = json.dumps(contents).encode()
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    for file, limit in ((path, unpacked - 1), (tmp_path / "bomb.zip", 2 * unpacked)):
        monkeypatch.setattr(predictor_files, "_LARGEST_BYTES", limit)
        with pytest.raises(DatasetError, match="too large for a predictor"):
            predictor_files.load(file)


def test_a_damaged_predictor_in_the_cache_is_fitted_again(
    known: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    monkeypatch.setattr(opening, "examples_for", lambda **_: known)
    notes: list[str] = []
    first = opening.open_predictor("decision_tree", db="sqlite://", note=notes.append)
    (kept,) = (tmp_path / "predictors").iterdir()
    whole = kept.read_bytes()
    for damaged in (whole[:-100], whole[: len(whole) // 2] + b"?" + whole[len(whole) // 2 + 1 :]):
        kept.write_bytes(damaged)
        again = opening.open_predictor("decision_tree", db="sqlite://", note=notes.append)
        assert again.fingerprint == first.fingerprint
        assert predictor_files.load(kept).fingerprint == first.fingerprint
    assert len(notes) == 3


def test_a_damaged_predictor_that_ships_is_fitted_again(
    predictor: OperatorPredictor, known: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(opening, "examples_for", lambda **_: known)
    monkeypatch.setattr("op_profiler.shipped._FOLDER", tmp_path)
    monkeypatch.setattr(opening, "fit", lambda *_, **__: predictor)  # minutes otherwise
    folder = tmp_path / "results" / "a-processor"
    folder.mkdir(parents=True)
    (folder / "predictor.zip").write_text("not a zip")
    notes: list[str] = []
    assert opening.open_predictor(note=notes.append) is predictor
    assert "predictor.zip is no predictor that can be read" in notes[0]


def test_pickles_inside_are_not_read(known: Examples, tmp_path: Path) -> None:
    import pickle

    fitted = fit(known, choice="decision_tree", folds=2)
    fitted.models[0].to_bytes = lambda: pickle.dumps(print)  # type: ignore[method-assign]
    predictor_files.save(fitted, tmp_path / "p.zip")
    with pytest.raises(DatasetError, match="can be read"):
        predictor_files.load(tmp_path / "p.zip")
