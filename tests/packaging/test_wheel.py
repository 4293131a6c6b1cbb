"""The wheel and the sdist: what is in them, and that they work away from the checkout."""

from __future__ import annotations

import email
import email.message
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT_FROM = ("python", "results", "schedules", "pyproject.toml", "setup.py", "README.md", "LICENSE")
NOT_KEPT = ("__pycache__", "*.egg-info", "*.db*", "*.lock")
"""As in .gitignore."""


def build(tree: Path, what: str, folder: Path) -> Path:
    """What a build frontend does after it has installed setuptools."""
    code = f"import sys; from setuptools import build_meta; print(build_meta.build_{what}(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=tree, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def files_of(wheel: Path) -> dict[str, bytes]:
    """Content of the files of the package, by name; what the build says about them is left out."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the package is built from: a build leaves folders behind."""
    tree = tmp_path_factory.mktemp("tree")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns(*NOT_KEPT))
        else:
            shutil.copy(ROOT / name, tree)
    return tree


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_holds_the_package(tree: Path, wheel: Path) -> None:
    package = tree / "python" / "op_profiler"
    there = {path for pattern in ("*.py", "*.c", "py.typed") for path in package.rglob(pattern)}
    wanted = {f"op_profiler/{path.relative_to(package)}": path.read_bytes() for path in there}
    found = files_of(wheel)
    assert set(found) == set(wanted)
    assert found == wanted
    assert "op_profiler/py.typed" in found


def test_the_sdist_builds_the_same_wheel(tree: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(tree, "sdist", tmp_path)) as archive:
        assert not [member.name for member in archive if member.issym() or member.islnk()]
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    again = build(unpacked, "wheel", tmp_path)
    assert again.name == wheel.name
    assert files_of(again) == files_of(wheel)


def test_what_the_wheel_says_of_itself(metadata: email.message.Message) -> None:
    assert (metadata["Name"], metadata["License-Expression"]) == ("op-profiler", "Apache-2.0")
    assert not any("torch" in r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r)


@pytest.mark.parametrize("extra", ["test", "all"])
def test_env_var_installs_what_an_extra_brings_along(metadata: email.message.Message, extra: str) -> None:
    """It remembers which extras there are, so it has to know which of them are in others."""
    (brought,) = re.findall(
        rf"op-profiler\[(.+)\]; extra == .{extra}.", "\n".join(metadata.get_all("Requires-Dist", []))
    )
    (words,) = re.findall(rf'\b{extra}\) wanted="\$wanted (.+)" ;;', (ROOT / "env_var.sh").read_text())
    assert {*brought.split(","), extra} == set(words.split())


def test_env_var_takes_every_extra(metadata: email.message.Message) -> None:
    (named,) = re.findall(r"it takes any of: ([a-z ]+) \(a", (ROOT / "env_var.sh").read_text())
    assert set(named.split()) == set(metadata.get_all("Provides-Extra", []))
