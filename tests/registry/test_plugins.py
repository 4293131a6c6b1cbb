"""A package from outside adds a model source, a format and a compiler, which the commands then list and use."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ..command_line import op_profiler
from ..hurry import hurried_path

PACKAGE_ROOT = Path(__file__).resolve().parents[2] / "python"

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "1.2"
description = "{description}"

[tool.setuptools]
py-modules = ["{module}"]

{entry_points}
"""

CODE = '''
import dataclasses

from op_profiler.compilers.relay.relay_compiler import RelayCompiler
from op_profiler.dataset.formats.line_format import TableFormat, convolution
from op_profiler.dataset.formats.format import numbered_lines, read_entries
from op_profiler.dataset.formats import tinynas
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import Frontend


class Twins(Frontend):
    """Networks of the source local, by other names."""

    source = "twins"

    def names(self):
        return ["twin-mlp"]

    def _local(self, request):
        name = request.name.removeprefix("twin-")
        return FRONTENDS.get("local"), dataclasses.replace(request, source="local", name=name)

    def _check(self, request):
        frontend, request = self._local(request)
        frontend.check(request)

    def fingerprint(self, request):
        frontend, request = self._local(request)
        return frontend.fingerprint(request)

    def load(self, request):
        frontend, request = self._local(request)
        return frontend.load(request)


class Backwards(TableFormat):
    """A line of TinyNAS's, from its end to its beginning."""

    takes_precision = True
    says_failures = True

    def read(self, path, precision):
        lines = [(number, line[::-1]) for number, line in numbered_lines(path)]
        return read_entries(lines, tinynas.parse_row, mechanism="backwards")

    def shape_line(self, shape, row):
        return tinynas.format_row(convolution(shape), row["median_us"])[::-1]


class Mirror(RelayCompiler):
    """The compiler relay, by another name."""

    name = "mirror"


FRONTEND, FORMAT, COMPILER = Twins(), Backwards(), Mirror()
'''
ENTRY_POINTS = """
[project.entry-points."op_profiler.frontends"]
twins = "twins_for_op_profiler:FRONTEND"
local = "twins_for_op_profiler:FRONTEND"
broken = "twins_for_op_profiler:MISSING"

[project.entry-points."op_profiler.formats"]
backwards = "twins_for_op_profiler:FORMAT"

[project.entry-points."op_profiler.compilers"]
mirror = "twins_for_op_profiler:COMPILER"

[project.entry-points."op_profiler.tunner"]
misspelt = "twins_for_op_profiler:FRONTEND"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip has installed the package to."""
    project, folder = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("installed")
    about = {"name": "twins-for-op-profiler", "module": "twins_for_op_profiler", "description": "Twins of networks"}
    (project / "pyproject.toml").write_text(PROJECT.format(**about, entry_points=ENTRY_POINTS))
    (project / "twins_for_op_profiler.py").write_text(CODE)
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(project)], check=True, timeout=120)
    return folder


def run(folder: Path, words: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own that finds the packages of a folder."""
    code = "from op_profiler.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": hurried_path(PACKAGE_ROOT, folder), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_model_source_of_another_package_is_listed_and_used(installed: Path, tmp_path: Path) -> None:
    listed = run(installed, ["models"], tmp_path)
    assert listed.returncode == 0
    assert "twins: Twins of networks (of twins-for-op-profiler 1.2)\n  twin-mlp\n" in listed.stdout
    assert "twins" in run(installed, ["collect", "--help"], tmp_path).stdout
    done = run(installed, ["collect", "--modelsource=twins", "--modelname=twin-mlp", "--dry-run"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "twin-mlp, batch 1" in done.stdout and "4 operators, not measured" in done.stdout
    refused = run(installed, ["collect", "--modelsource=twin", "--modelname=x"], tmp_path)
    assert refused.returncode == 2 and "unknown model source 'twin'; the nearest known: twins" in refused.stderr


def test_a_format_of_another_package_is_read_and_written(installed: Path, tmp_path: Path) -> None:
    lines = ["{Regular,1,32,8,8,32,3,1,0} 0.5"[::-1], "{Depthwise,1,32,8,9,32,3,1,0} 0.01"[::-1]]
    (tmp_path / "in").write_text("\n".join(lines) + "\n")
    words = ["--format=backwards", "--db=sqlite:///x.db"]
    done = run(installed, ["import", "in", *words, "--device=phone"], tmp_path)
    assert done.returncode == 0 and "2 measurements from in" in done.stdout, done.stderr
    done = run(installed, ["export", "out", *words], tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "out").read_text().splitlines()) == sorted(lines)


def test_rows_of_another_compiler_stand_beside_relays_and_answer_only_for_it(installed: Path, tmp_path: Path) -> None:
    words = ["collect", "--modelname=mlp", "--threads=1", "--db=sqlite:///x.db"]
    assert op_profiler(*words, folder=tmp_path).returncode == 0
    (relay,) = rows_of_model(tmp_path / "x.db")
    mirrored = run(installed, [*words, "--compiler=mirror"], tmp_path)
    assert mirrored.returncode == 0, mirrored.stderr
    both = rows_of_model(tmp_path / "x.db")
    assert relay in both and sorted(compiler for compiler, *_ in both) == ["mirror", "relay"]
    assert run(installed, [*words, "--compiler=mirror"], tmp_path).returncode == 0
    assert rows_of_model(tmp_path / "x.db") == both
    refused = run(installed, [*words, "--compiler=miror"], tmp_path)
    assert refused.returncode == 2 and "unknown compiler 'miror'; the nearest known: mirror" in refused.stderr


def rows_of_model(path: Path) -> list[tuple[str, ...]]:
    """Compiler, key and time of every model that was timed."""
    with sqlite3.connect(path) as connection:
        columns = "d.compiler, t.model_key, t.measured_at"
        joined = "model_timings t JOIN devices d ON d.key = t.device_key"
        return list(connection.execute(f"SELECT {columns} FROM {joined} ORDER BY t.measured_at"))


def test_what_is_broken_is_named_by_who_asks_for_it_and_breaks_nothing_else(installed: Path, tmp_path: Path) -> None:
    asked = run(installed, ["collect", "--modelsource=broken", "--modelname=x"], tmp_path)
    assert asked.returncode == 5 and "Traceback" not in asked.stderr
    told = "the model source 'broken' of the package twins-for-op-profiler 1.2 cannot be loaded: AttributeError"
    assert told in asked.stderr
    listed = run(installed, ["models"], tmp_path)
    assert listed.returncode == 0 and listed.stderr.count(f"left out: {told}") == 1


def test_a_name_that_is_taken_stays_what_it_was_and_that_is_said(installed: Path, tmp_path: Path) -> None:
    done = run(installed, ["models", "--modelsource=local"], tmp_path)
    assert done.returncode == 0 and "resnet-18" in done.stdout and "twin-mlp" not in done.stdout
    assert done.stderr.count("twins-for-op-profiler 1.2 offers the model source 'local', which is built in") == 1


def test_an_unknown_kind_is_said(installed: Path, tmp_path: Path) -> None:
    done = run(installed, ["models", "--modelsource=local"], tmp_path)
    assert "offers 'misspelt' as op_profiler.tunner, which is no kind; there are: frontends" in done.stderr


def test_a_package_that_cannot_be_read_breaks_nothing(tmp_path: Path) -> None:
    about = tmp_path / "bad-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[op_profiler.frontends]\nthis is no entry point\n")
    done = run(tmp_path, ["models", "--modelsource=simple"], tmp_path)
    assert done.returncode == 0 and "conv2d" in done.stdout
    assert "the entry points of a package cannot be read" in done.stderr and "Traceback" not in done.stderr
