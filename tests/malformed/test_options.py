"""Values that no option takes, for every option of every command."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from op_profiler.cli import application

from .harness import MARKER, Commands, asks_for_slow

LETTER = "Dear reader, this is not a database."
VALUES = (
    *(
        "",
        " ",
        ",",
        ";",
        ":",
        "-",
        "--",
        "nonsense",
        "-1",
        "9" * 30,
        "1e400",
        "nan",
        "é\u2028",
        "a\tb\n",
        "x" * 5000,
        "\\",
    ),
    *("[bold]", "%s%n", "{0}", "None", "=", "a=", "=a", "../../nowhere/x", "/", ".", "\udcff", f"$(touch {MARKER})"),
    *("1.5", "0", "0x10", "１", "1,", "1,,2"),
)
# What each command gets beside the option, such that it ends soon whatever it makes of the option.
BASES: dict[str, list[str]] = {
    "collect": ["--modelname", "mlp", "--db", "sqlite:///letter.db"],
    "sample": ["--count", "3", "--dry-run"],
    "calibrate": ["--db", "sqlite:///letter.db"],
    "predict": ["mlp", "--predictor", "letter.db"],
    "check": ["mlp", "--predictor", "letter.db"],
    "evaluate": ["--db", "sqlite:///letter.db"],
    "corun": ["mlp", "--plan", "letter.db"],
    "schedule": ["mlp", "--trials-from", "none"],
    "analyze": ["--db", "sqlite:///letter.db"],
    "report": ["resnet-18", "--db", "sqlite:///letter.db"],
    "explain": ["mlp", "--trials-from", "none", "--db", "sqlite:///letter.db"],
    "export": ["--output", "older.csv", "--db", "sqlite:///letter.db"],
    "import": ["letter.db", "--db", "sqlite:///letter.db"],
    "compare": ["before", "after", "--db", "sqlite:///letter.db"],
    "devices": ["--host", "127.0.0.1", "--port", "1"],
    "dataset": ["--db", "sqlite:///letter.db"],
    "dataset merge": ["sqlite:///letter.db", "--into", "sqlite:///letter.db"],
    "dataset adopt": ["letter.db"],
    "dataset remove": ["resnet-18", "--yes", "--db", "sqlite:///letter.db"],
}
_EACH, _EACH_SLOW = 1, 10
"""Values for every option, so that each value meets some; the second for those who have the time."""


def _commands(group: Any, *above: str) -> Iterator[tuple[str, Any]]:
    """Every command with its whole name; a group is one too."""
    for name, command in group.commands.items():
        yield " ".join((*above, name)), command
        if hasattr(command, "commands"):
            yield from _commands(command, *above, name)


COMMANDS = dict(_commands(typer.main.get_command(application())))


def _cases(slow: bool) -> Iterator[Any]:
    """Name of the command, option and value."""
    for name, command in COMMANDS.items():
        for option in command.params:
            if option.param_type_name == "argument" or option.is_flag or option.name == "help":
                continue
            flag = max(option.opts, key=len)
            for number, text in enumerate(random.Random(f"{name} {flag}").sample(VALUES, len(VALUES))):
                if number >= (_EACH_SLOW if slow else _EACH):
                    break
                marks = [pytest.mark.slow] if number >= _EACH else []
                yield pytest.param(name, flag, text, id=f"{name} {flag} {text[:12]!a}", marks=marks)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "letter.db").write_text(LETTER)
    (tmp_path / "older.csv").write_text("an older file\n")
    return tmp_path


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "flag" in metafunc.fixturenames:
        metafunc.parametrize(("name", "flag", "value"), list(_cases(asks_for_slow(metafunc.config))))


def test_a_value_that_an_option_does_not_take(
    name: str, flag: str, value: str, commands: Commands, folder: Path
) -> None:
    commands.check(folder, *name.split(), *BASES.get(name, []), flag, value)


MODELS = [
    *("", " ", "nonsense", ":", "local:", "file:", "nonsense:x", "file:letter.db", "tflite:letter.db", "x" * 5000, "."),
    *("remoteonnx:letter.db", "remoteonnx:http://127.0.0.1:1/x.onnx", "remoteonnx:http://[x", "remoteonnx:file:///etc"),
    *(
        "file:os:system",
        "file:os:getcwd",
        "file:no_such_module:f",
        "file:a.b.c:d",
        "transformers:.",
        "transformers:..",
        "/",
    ),
    *(
        "randwire-",
        "randwire-" + "9" * 5000,
        "randwire-１",
        "simple:conv2d:x",
        "sample:x",
        "\udcff",
        "\n",
        "-",
        "resnet-18 ",
    ),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda text: repr(text[:24]))
@pytest.mark.parametrize("name", ["corun", "schedule"])
def test_a_model_that_is_none(name: str, model: str, commands: Commands, folder: Path) -> None:
    arguments = [argument for argument in BASES[name] if argument != "mlp"]
    commands.check(folder, name, *arguments, "--", model, codes=(2, 3, 4, 5))


TARGETS = [
    *(
        "",
        " ",
        "nonsense",
        "llvm -mcpu",
        "llvm -mcpu=",
        "llvm -mcpu=nonsense",
        "llvm -mattr=avx2",
        "llvm -mattr=+x",
        "-",
    ),
    *("llvm -mattr=,", "llvm -mtriple=nonsense", "llvm -mtriple=-", "llvm -mtriple=riscv64-linux", "llvm -num-cores=x"),
    *(
        "llvm -jit=x",
        "llvm -host=llvm",
        "llvm extra",
        "llvm -mfloat-abi=x",
        "llvm -keys=",
        "llvm -libs=x",
        '{"kind": "llvm"}',
    ),
    *("llvm -opt-level=99999999999999999999", "pynq", "arm_cpu -mcpu=x", "cuda -arch=x", "llvm\n", "llvm -cl-opt=-x"),
    *(
        "llvm -model=" + "x" * 5000,
        "llvm -mattr=" + ",".join(["+avx2"] * 500),
        "llvm -mcpu=\udcff",
        "llvm -mtriple=x86_64",
    ),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda text: repr(text[:40]))
def test_a_target_that_is_none(target: str, commands: Commands, folder: Path) -> None:
    commands.check(folder, "schedule", *BASES["schedule"], "--target", target, codes=(2, 5))


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["--nonsense"], ["collect", "collect"], ["", ""], ["\udcff"]])
def test_no_command(arguments: list[str], commands: Commands, folder: Path) -> None:
    commands.check(folder, *arguments, codes=(0, 2))
