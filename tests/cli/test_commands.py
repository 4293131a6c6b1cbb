"""What the commands say: help, lists, and every way of being asked for the impossible."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import op_profiler as package
from op_profiler.compilers.relax import tvm_package

from ..command_line import op_profiler

ROOT = Path(__file__).resolve().parents[2]
MAIN = [sys.executable, "-c", "from op_profiler.cli import main; main()"]
COLLECTOR = [sys.executable, str(ROOT / "collector" / "op_performance_collector.py")]
OLDER = [sys.executable, str(ROOT / "python" / "performance_collector" / "op_performance_collector.py")]


Done = subprocess.CompletedProcess[str]
WIDE = {"COLUMNS": "120", "NO_COLOR": "1"}
OPTIONS = [
    *("modelsource", "modelname", "target", "batchsize", "precision", "executor", "threads", "coverage", "cache"),
    *("inputname", "inputshape", "sequence-length", "iftune", "ifcompare", "ifpartial", "tuner", "trials"),
    *("host", "port", "device-key", "module", "entry", "inputdata", "db", "summary-json"),
    *("dry-run", "quiet", "schedules", "vendor", "sweep"),
]


WRITE_IMPORTED = """
import atexit, os, sys
atexit.register(lambda: open(os.environ["IMPORTED"], "a").write("\\n".join(sys.modules) + "\\n"))
"""
SLOW_TO_IMPORT = {"numpy", "pandas", "pyarrow", "scipy", "sklearn", "sqlalchemy", "torch", "tvm", "xgboost"}


def run(command: list[str], *arguments: str, folder: Path | None = None) -> tuple[Done, set[str]]:
    """What came of a command, and the modules that it, or a Python that it started, imported."""
    with tempfile.TemporaryDirectory() as hook:
        Path(hook, "sitecustomize.py").write_text(WRITE_IMPORTED)
        paths = {"PYTHONPATH": f"{hook}{os.pathsep}{ROOT / 'python'}", "IMPORTED": f"{hook}/imported"}
        done = subprocess.run(
            [*command, *arguments],
            cwd=folder,
            env={**os.environ, **paths, **WIDE},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        return done, set(Path(paths["IMPORTED"]).read_text().split())


@pytest.mark.parametrize("command", [[*MAIN, "collect"], COLLECTOR, OLDER])
def test_help_names_every_option(command: list[str]) -> None:
    done, _ = run(command, "--help")
    assert done.returncode == 0
    for option in OPTIONS:
        assert f"--{option}" in done.stdout
    assert "Examples" in done.stdout


@pytest.mark.parametrize("command", [[*MAIN, "collect"], [*MAIN, "corun"], [*MAIN, "compare"], MAIN, COLLECTOR])
def test_help_imports_nothing_that_takes_long(command: list[str]) -> None:
    """So that it is there in half a second; which would tell of this machine and its load as well."""
    done, imported = run(command, "--help")
    assert done.returncode == 0 and "op_profiler.cli" in imported
    assert not imported & SLOW_TO_IMPORT


def test_the_version_is_told_with_the_commit_and_without_what_takes_long() -> None:
    done, imported = run(MAIN, "--version")
    assert done.returncode == 0
    assert re.fullmatch(rf"op-profiler {re.escape(package.__version__)}( \([0-9a-f]{{12}}(-dirty)?\))?\n", done.stdout)
    assert not imported & SLOW_TO_IMPORT


@pytest.mark.parametrize("compiler", ["relay", "relax"])
def test_a_collection_that_is_there_is_looked_up_without_what_measures(tmp_path: Path, compiler: str) -> None:
    """What the second of two equal collections takes is imports: numpy, and another database, would be for nothing."""
    if compiler == "relax" and tvm_package.version() is None:
        pytest.skip(f"there is no TVM with Relax: {tvm_package.INSTALL}")
    summary = tmp_path / "summary.json"
    files = ("--db", f"sqlite:///{tmp_path}/results.db", "--summary-json", str(summary))
    model = ("--modelname", "mlp", "--threads", "1", "--compiler", compiler, "--quiet", *files)
    first = op_profiler("collect", *model, folder=tmp_path)
    assert first.returncode == 0, first.stderr
    (found,) = json.loads(summary.read_text())
    assert {"starting", "lowering", "compiling", "opening the machine", "measuring"} <= found["stage_seconds"].keys()
    second, imported = run(COLLECTOR, *model, folder=tmp_path)
    assert second.returncode == 0 and "sqlalchemy" in imported
    (found,) = json.loads(summary.read_text())
    assert found["measured"] == 0 and found["reused"] == found["operators"] and found["stage_seconds"] == {}
    assert not imported & ((SLOW_TO_IMPORT - {"sqlalchemy"}) | {"sqlalchemy.dialects.postgresql", "rich"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--modelname", "resnet-81"], ["resnet-81", "resnet-18"]),
        (["--modelsource", "lokal"], ["lokal", "local"]),
        (["--target", "lvm"], ["lvm", "llvm"]),
        (["--target", "pynq", "--modelname", "mlp"], ["pynq", "--host", "--dry-run"]),
        (["--target", "cuda", "--dry-run", "--modelname", "mlp"], ["-arch=sm_90"]),
        (["--target", "pynq", "--host", "127.0.0.1", "--port", "0"], ["--port 0"]),
        (["--inputdata", "nowhere.npz", "--modelname", "mlp"], ["nowhere.npz"]),
        (["--module", "nowhere.so", "--entry", "f", "--target", "pynq"], ["--inputshape", "--host"]),
        (["--tuner", "xgboost", "--modelname", "mlp"], ["xgboost", "xgb"]),
        (["--trials", "9", "--modelname", "mlp"], ["9", "10 to 3000"]),
        (["--batchsize", "0", "--modelname", "mlp"], ["--batchsize 0", "1 or more"]),
        (["--threads", "0", "--modelname", "mlp"], ["--threads 0"]),
        (["--threads", "4096", "--modelname", "mlp"], ["--threads 4096", "cores"]),
        (["--threads", "two", "--modelname", "mlp"], ["'two'"]),
        (["--coverage", "1.5", "--modelname", "mlp"], ["--coverage 1.5"]),
        (["--cache", "warm", "--modelname", "mlp"], ["warm", "hot"]),
        (["--precision", "float8", "--modelname", "mlp"], ["float8", "float16"]),
        (["--executor", "vm", "--cache", "hot", "--modelname", "mlp"], ["vm", "model only"]),
        (["--iftune", "maybe", "--modelname", "mlp"], ["--iftune", "'maybe'"]),
        (["--inputshape", "1,a", "--modelname", "mlp"], ["--inputshape", "1,a"]),
        (["--host", "127.0.0.1", "--modelname", "mlp"], ["--host", "--port"]),
        (["--modelsource", "file"], ["--modelname"]),
    ],
)
def test_wrong_usage_is_refused_at_once(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    done = op_profiler("collect", *arguments, folder=tmp_path, environment=WIDE, without=["tvm"])
    assert done.returncode == 2, done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert list(tmp_path.iterdir()) == [], "a refused command leaves nothing behind"


def test_an_empty_model_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    done = op_profiler("collect", "--modelsource=file", "--modelname=empty.onnx", folder=tmp_path)
    assert done.returncode == 4
    assert "empty.onnx" in done.stderr and "empty" in done.stderr and "Traceback" not in done.stderr


def test_a_database_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "letter.db"
    other.write_text("Dear reader, this is not a database.")
    done = op_profiler("collect", "--modelname=mlp", f"--db=sqlite:///{other}", folder=tmp_path)
    assert done.returncode == 5
    assert "letter.db" in done.stderr and "Traceback" not in done.stderr
    assert (done.stdout + done.stderr).count("letter.db") == 1, "the dataset's error is told once, and of no model"
    assert other.read_text() == "Dear reader, this is not a database."


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("collect", "--modelname=mlp"), "--summary-json"),
        (("predict", "mlp"), "--save"),
        (("corun", "mlp"), "--json"),
        (("corun", "mlp"), "--trace"),
        (("corun", "mlp"), "--save-plan"),
        (("compare", "a", "b"), "--markdown"),
        (("compare", "a", "b"), "--report"),
        (("export",), "--output"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_first(command: tuple[str, ...], option: str, tmp_path: Path) -> None:
    done = op_profiler(*command, option, "missing/file", folder=tmp_path, without=["tvm"])
    assert done.returncode == 5 and f"{option} missing/file: No such file" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert os.listdir(tmp_path) == [], "nothing was begun"


def test_two_options_cannot_name_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "same")
    done = op_profiler("corun", "mlp", "--json", "same", "--trace", "link", folder=tmp_path)
    assert done.returncode == 2 and "--trace and --json both name" in done.stderr


def test_models_are_listed() -> None:
    done = op_profiler("models", "--json", environment=WIDE)
    names = json.loads(done.stdout)
    assert {"resnet-18", "mobilenet", "lstm"} <= set(names["local"])
    assert "conv2d" in names["simple"]
    listed = op_profiler("collect", "--modelname", "list", environment=WIDE)
    assert "resnet-18" in listed.stdout.split()
    of_files = op_profiler("collect", "--modelsource", "file", "--modelname", "list", environment=WIDE)
    assert (of_files.returncode, of_files.stdout, of_files.stderr) == (0, "", "")


@pytest.mark.parametrize("command", [["schedule"], ["collect", "--dry-run", "--modelname"], ["predict"], ["explain"]])
def test_a_model_is_named_alike_everywhere(command: list[str], tmp_path: Path) -> None:
    no_file = op_profiler(*command, "nosuch.onnx", folder=tmp_path)
    assert (no_file.returncode, no_file.stderr.splitlines()[-1]) == (4, "error: there is no file nosuch.onnx")
    no_model = op_profiler(*command, "transformers:mlpp", folder=tmp_path)
    assert no_model.returncode == 2 and "error: unknown transformers model 'mlpp'" in no_model.stderr


def test_devices_tells_the_build() -> None:
    done = op_profiler("devices", "--local", "--json", environment=WIDE)
    about = json.loads(done.stdout)
    assert about["tvm"]["tvm_version"] and about["tvm"]["llvm_version"]
    assert "LLVM" in about["tvm"]["built_with"] and "CUDA" not in about["tvm"]["built_with"]
    assert about["device"]["cores"] >= 1
    table = [line.split("│") for line in op_profiler("devices", "--local").stdout.splitlines() if "│" in line]
    shown = {cells[1].strip(): cells[2].strip() for cells in table}
    assert shown["processor"] == about["device"]["processor"] and shown["memory"].endswith("iB")
    assert shown["properties.system"] == about["device"]["properties"]["system"] and "threads" in shown


def test_export_without_a_dataset_says_so(tmp_path: Path) -> None:
    done = op_profiler("export", "--output", "x.csv", "--format", "csv", folder=tmp_path)
    assert done.returncode == 5 and "Traceback" not in done.stderr
    assert not (tmp_path / "x.csv").exists() and not (tmp_path / "results").exists()


def test_ci_runs_the_commands_of_the_first_screen_on_the_base_installation() -> None:
    commands = re.findall(
        r"^    source \./env_var\.sh && (\S+(?: [a-z]+)?)", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert commands == ["op_performance_collector.py", "op-profiler predict"]
    script = (ROOT / ".ci" / "run").read_text()
    base, _, tests = script.partition("source ./env_var.sh test")
    assert [command for command in (*commands, "op-profiler corun") if f"\n    {command} " not in base] == []
    assert tests == " && python -m pytest\n", "the README's test command is the last line"


def test_standard_output_may_be_a_stream_of_python() -> None:
    """As in a notebook, whose output is no file."""
    text = "import contextlib, io; out = io.StringIO()\nwith contextlib.redirect_stdout(out):\n"
    ends = "    try: main()\n    except SystemExit as end: code = end.code\nprint(code, 'squeezenet' in out.getvalue())"
    program = f"from op_profiler.cli import main; {text}{ends}"
    done, _ = run([sys.executable, "-c", program], "models")
    assert done.stdout == "0 True\n", done.stderr
