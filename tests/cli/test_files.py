"""Files that a user asked for appear whole, or an older one stays as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from op_profiler.errors import OpProfilerError
from op_profiler.files import atomic_file, atomic_folder, check_writable, whole_file, write_whole


@pytest.mark.parametrize("path", ["missing/file", "folder", "a file/below", "/dev/null", "n" * 256])
def test_what_cannot_be_written_is_told_by_its_option(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a file").touch()
    with pytest.raises(OpProfilerError, match=f"cannot write --json .*{path}: .*; give another path"):
        check_writable({"--json": tmp_path / path})
    assert sorted(os.listdir(tmp_path)) == ["a file", "folder"]


def test_what_fails_midway_keeps_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("older")
    with pytest.raises(OpProfilerError, match="cannot write .*file: No space left on device"), whole_file(path) as new:
        new.write_text("half")
        raise OSError(28, "No space left on device")
    assert path.read_text() == "older" and os.listdir(tmp_path) == ["file"]


def test_a_file_of_the_package_s_own_makes_its_folder_and_leaves_nothing_of_what_fails(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "kind" / "file"
    with pytest.raises(ValueError, match="midway"), atomic_file(path) as partial:
        partial.write_text("half")
        raise ValueError("midway")
    assert list(path.parent.iterdir()) == []
    with atomic_file(path) as partial:
        partial.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole" and list(path.parent.iterdir()) == [path]


def test_a_folder_appears_whole_and_what_another_process_made_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "kind" / "folder"
    with pytest.raises(ValueError, match="midway"), atomic_folder(path) as partial:
        (partial / "half").touch()
        raise ValueError("midway")
    assert list(path.parent.iterdir()) == []
    with atomic_folder(path) as partial, atomic_folder(path) as faster:
        (partial / "slower").touch()
        (faster / "faster").touch()
        assert not path.exists()
    assert [file.name for file in path.iterdir()] == ["faster"] and list(path.parent.iterdir()) == [path]


def test_a_folder_takes_the_place_of_an_older_one_when_it_is_whole(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    (folder / "older").mkdir(parents=True)
    link.symlink_to(folder)
    with pytest.raises(ValueError, match="midway"), atomic_folder(link, replace=True):
        raise ValueError("midway")
    with atomic_folder(link, replace=True) as partial:
        (partial / "newer").touch()
        assert os.listdir(folder) == ["older"]
    assert os.listdir(folder) == ["newer"] and link.is_symlink() and sorted(os.listdir(tmp_path)) == ["folder", "link"]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("older")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    check_writable({"--json": tmp_path / "link"})
    assert (tmp_path / "real").read_text() == "older"
    write_whole(tmp_path / "link", "newer\n")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "newer\n"
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * os.pathconf(tmp_path, "PC_NAME_MAX"))
    check_writable({"--json": path, "--trace": None})
    write_whole(path, "text")
    assert path.read_text() == "text"


def test_a_read_only_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept"
    path.write_text("older")
    path.chmod(0o444)
    if os.access(path, os.W_OK):  # root may write everything: ask what another user would be told
        monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OpProfilerError, match="--json .*kept: it is read-only"):
        check_writable({"--json": path})


def test_standard_output_is_no_file() -> None:
    check_writable({"--json": Path("-")})
