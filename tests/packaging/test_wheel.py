"""The wheel and the sdist: what is in them, and that they work away from the checkout."""

from __future__ import annotations

import email
import email.message
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from ..installed import needs

ROOT = Path(__file__).resolve().parents[2]
BUILT_FROM = ("python", "results", "schedules", "pyproject.toml", "setup.py", "README.md", "LICENSE")
NOT_KEPT = ("__pycache__", "*.egg-info", "*.db*", "*.lock")
"""As in .gitignore."""


def build_wheel(tree: Path, folder: Path) -> Path:
    """Build a wheel from a source tree, as a build frontend does after it has installed setuptools."""
    code = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
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
    return build_wheel(tree, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_holds_the_package_and_what_ships(tree: Path, wheel: Path) -> None:
    package = tree / "python" / "op_profiler"
    there = {path for pattern in ("*.py", "*.c", "py.typed", "telling_points.json") for path in package.rglob(pattern)}
    there |= {path for folder in ("assets", "vendored") for path in (package / "report" / "page" / folder).iterdir()}
    wanted = {f"op_profiler/{path.relative_to(package)}": path.read_bytes() for path in there}
    for folder in ("results", "schedules"):
        for path in (tree / folder).rglob("*"):
            if path.is_file():
                wanted[f"op_profiler/shipped/{path.relative_to(tree)}"] = path.read_bytes()
    found = files_of(wheel)
    assert set(found) == set(wanted)
    assert found == wanted
    ships = "op_profiler/shipped/results/amd-epyc-family-26-model-2/predictor.zip"
    assert {ships, "op_profiler/py.typed"} <= set(found)


@pytest.fixture(scope="module")
def released(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel that `python -m build` makes, the wheel from the sdist; with the setuptools of this
    environment, since an isolated build downloads one."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(tree)]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def test_the_sdist_builds_the_same_wheel(wheel: Path, released: tuple[Path, Path]) -> None:
    sdist, from_sdist = released
    with tarfile.open(sdist) as archive:
        assert not [member.name for member in archive if member.issym() or member.islnk()]
    assert from_sdist.name == wheel.name
    assert files_of(from_sdist) == files_of(wheel)


@needs("twine")
def test_an_index_would_accept_what_is_released(released: tuple[Path, Path]) -> None:
    """Metadata of the sdist and of the wheel are valid, and the README can be shown."""
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, released)]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


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
    (named,) = re.findall(r"it takes any of: ([a-z ]+)", (ROOT / "env_var.sh").read_text())
    assert set(named.split()) == set(metadata.get_all("Provides-Extra", []))


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files where nothing of the checkout is beside them."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def away_from_the_checkout(folder: Path, **variables: str) -> dict[str, str]:
    """The environment of a user who has nothing of op_profiler's yet."""
    ours = ("OP_PROFILER_", "XDG_", "PYTHONPATH", "TOPHUB_LOCATION")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "HOME": str(folder), **variables}


def test_the_wheel_predicts_and_finds_its_records_away_from_the_checkout(unpacked: Path, tmp_path: Path) -> None:
    code = """
import json, sys
from op_profiler.cli import main
from op_profiler.schedules import record_files
print(json.dumps([str(record_files.record_file("auto", "llvm", name)) for name in ("AMD EPYC family 26 model 2", "x")]))
sys.argv = ["op-profiler", "predict", "mlp", "--format", "json"]
main()
"""
    environment = away_from_the_checkout(tmp_path, PYTHONPATH=str(unpacked))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    files, predicted = done.stdout.split("\n", 1)
    shipped = unpacked / "op_profiler" / "shipped" / "schedules" / "llvm" / "amd-epyc-family-26-model-2.jsonl"
    assert json.loads(files) == [str(shipped), str(tmp_path / ".local/share/op_profiler/schedules/llvm/x.jsonl")]
    assert json.loads(predicted)["total_us"] > 0
    assert "fitting" not in done.stderr, "the predictor that ships is not the one that answered"


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Takes the network: pip installs TVM."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    environment = away_from_the_checkout(tmp_path)

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(programs / "pip", "install", "-q", wheel)
    assert json.loads(run(programs / "op-profiler", "predict", "resnet-18", "--format", "json"))["total_us"] > 0
    run(programs / "pip", "install", "-q", f"{wheel}[postgres]")
    run(programs / "python", "-c", "import psycopg")
    run(programs / "op_performance_collector.py", "--modelname", "mlp", "--summary-json", "summary.json")
    assert json.loads((tmp_path / "summary.json").read_text())[0]["whole_model_us"] > 0
    run(programs / "op-profiler", "collect", "--modelname", "mlp", "--summary-json", "again.json")
    assert json.loads((tmp_path / "again.json").read_text())[0]["measured"] == 0
