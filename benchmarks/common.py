"""What every benchmark prints beside its figures: machine, versions, date."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from op_profiler.collection.request import CollectRequest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

FIGURE_MODELS = (
    ("local", "resnet-18"),
    ("local", "resnet-50"),
    ("local", "mobilenet"),
    ("local", "squeezenet_v1.1"),
    ("local", "inception_v3"),
    ("local", "densenet-121"),
    ("transformers", "bert"),
    ("remoteonnx", "light_shufflenet"),
)


def provenance() -> str:
    """One line: when, on what, with which versions."""
    from importlib import metadata

    from op_profiler.cores import usable_cores

    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    about = {line.split(":")[0].strip(): line.split(":")[1].strip() for line in lines if ":" in line}
    processor = f"{about.get('model name', '?')} family {about.get('cpu family', '?')} model {about.get('model', '?')}"
    tvm = metadata.version("xtc-tvm-python-bindings")
    date = datetime.date.today().isoformat()
    return f"# {date}, {processor}, {usable_cores()} cores, TVM {tvm}, Python {sys.version.split()[0]}, commit {commit}"


def in_own_process(script: str, arguments: list[str]) -> dict[str, Any] | None:
    """Run a part of a benchmark in a process of its own; its last line of output is its result as JSON."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    done = subprocess.run(
        [sys.executable, script, *arguments], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        return None
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def each_in_own_process(
    script: str, names: Iterable[str], kept: Path | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A benchmark's ``--one NAME`` for several names; says which of them failed.

    Args:
        kept: file of results, a line of JSON each: what is there is not run again, and told with its own provenance.
    """
    now = provenance()
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    there = {entry["name"]: entry for entry in map(json.loads, lines)}
    for name in names:
        if name not in there:
            found = in_own_process(script, ["--one", name])
            if found is None:
                print(f"{name}: failed", flush=True)
                continue
            there[name] = {"name": name, "provenance": now, "found": found}
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(there[name]) + "\n")
        elif there[name]["provenance"] != now:
            print(f"\n{there[name]['provenance']}:", flush=True)
        yield name, there[name]["found"]


def results_of(
    script: str, description: str | None, measure: Callable[[str], dict[str, Any]], names: Iterable[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The command line of a benchmark that measures models one by one, each in a process of its own.

    Prints provenance; in such a process prints what `measure` finds as JSON, and exits.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="models, or models joined by + where the text says so; default: all")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="results of earlier runs, which go on from there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        raise SystemExit(0)
    print(provenance())
    return each_in_own_process(script, arguments.models or names, arguments.keep)


def requests_of(names: str) -> tuple[CollectRequest, ...]:
    """What to build for models that are joined by +."""
    from op_profiler.cli.options import parse_model
    from op_profiler.collection.request import CollectRequest
    from op_profiler.frontends.frontend import ModelRequest

    found = (parse_model(name, "local") for name in names.split("+"))
    return tuple(CollectRequest(model=ModelRequest(source=source, name=name)) for source, name in found)


def collect(arguments: list[str], folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """Run the collector as a user would; exit code and summary."""
    summary = folder / "summary.json"
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    script = ROOT / "collector" / "op_performance_collector.py"
    done = subprocess.run(
        [sys.executable, str(script), *arguments, "--summary-json", str(summary), "--quiet"],
        env=environment,
        check=False,
    )
    return done.returncode, json.loads(summary.read_text()) if summary.exists() else []


def run_command(arguments: list[str]) -> None:
    """Run a command of op-profiler as a user would; what it prints goes to the screen.

    Raises:
        subprocess.CalledProcessError: it could not do what was asked; operators that failed are no reason.
    """
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    line = [sys.executable, "-c", "from op_profiler.cli import main; main()", *arguments]
    done = subprocess.run(line, env=environment, check=False)
    if done.returncode > 1:
        raise subprocess.CalledProcessError(done.returncode, line)
