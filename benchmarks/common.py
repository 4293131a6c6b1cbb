"""What benchmarks share: machine, versions and date beside their figures, the file of their result, their processes."""

from __future__ import annotations

import argparse
import datetime
import functools
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
_FIGURES = ("benchmarks/results", "docs/figures.md", "docs/figures", "benchmarks/README.md")
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


Records = Sequence[Mapping[str, Any]]
"""Rows of a table: the same members in each, units in their names, rounded to what is told."""
Tables = Mapping[str, Sequence[Mapping[str, Any]]]
"""The tables of a result by their names, as `store` writes them."""


@functools.cache
def measured_on() -> dict[str, Any]:
    """When, on what, with which versions: of the first call, as what is committed meanwhile is not what runs."""
    from importlib import metadata

    from op_profiler.cores import usable_cores

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    about = {line.split(":")[0].strip(): line.split(":")[1].strip() for line in lines if ":" in line}
    name, family, model = (about.get(key, "?") for key in ("model name", "cpu family", "model"))
    return {
        "date": datetime.date.today().isoformat(),
        "machine": "virtual machine" if "hypervisor" in about.get("flags", "").split() else platform.machine(),
        "processor": f"{name} family {family} model {model}",
        "cores": usable_cores(),
        "tvm": metadata.version("xtc-tvm-python-bindings"),
        "python": platform.python_version(),
        "commit": commit(),
    }


def commit() -> str:
    """Of this checkout; tells where something in it was changed but what benchmarks found."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *(f":!{path}" for path in _FIGURES))
    return _git("describe", "--always") + ("-dirty" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def provenance() -> str:
    """`measured_on` in one line."""
    about = measured_on()
    return (
        f"# {about['date']}, {about['processor']}, {about['cores']} cores, {about['machine']}, TVM {about['tvm']}, "
        f"Python {about['python']}, commit {about['commit']}"
    )


_WRONG = "WRONG"


def outputs_verdict(equal: bool, agree: bool) -> str:
    """For the column ``outputs`` of a table of plans; `store` fails where outputs are wrong."""
    return "equal" if equal else "agree" if agree else _WRONG


def every(parts: Iterable[bool | None]) -> bool | None:
    """Return False if a part of a goal is missed, else None if there is no part or one is unknown, else True."""
    parts = list(parts)
    if False in parts:
        return False
    return True if parts and None not in parts else None


def at_most(value: float | None, limit: float) -> bool | None:
    """Return whether a value is at most the limit, or None if there is no value."""
    return None if value is None else value <= limit


def at_least(value: float | None, limit: float) -> bool | None:
    """Return whether a value is at least the limit, or None if there is no value."""
    return None if value is None else value >= limit


def store(
    script: str,
    headline: str,
    tables: Mapping[str, Records],
    *,
    whole: bool,
    folder: Path = RESULTS,
    provenance: Mapping[str, Any] | None = None,
    inputs: Sequence[str] = (),
) -> None:
    """Keep what a benchmark found as ``results/<script>.json``, which the documentation's figures are made from.

    Args:
        script: its ``__file__``.
        headline: the result in one sentence.
        tables: by name; each has a row at least.
        whole: false for a run of a part, which is not stored: it would take the place of more than it has.
        provenance: of what was measured elsewhere, in place of `measured_on`.
        inputs: datasets that it was given, as files or addresses; the result names them.

    Raises:
        SystemExit: outputs of a row are wrong; it is stored.
    """
    if not whole:
        print("a part of the benchmark: its result is not stored")
        return
    about = dict(provenance or measured_on()) | ({"inputs": ", ".join(map(_named, inputs))} if inputs else {})
    _write(script, {"headline": headline, "provenance": about, "tables": tables}, folder)
    wrong = [row for records in tables.values() for row in records if row.get("outputs") == _WRONG]
    if wrong:
        raise SystemExit(f"outputs are wrong: {wrong}")


def store_table(script: str, table: str, records: Records, *, folder: Path = RESULTS) -> None:
    """Replace one table of a stored result at once, also in a run of a part; the rest stays as it is."""
    stored = _stored(script, folder) or {"headline": "not measured yet", "provenance": measured_on(), "tables": {}}
    _write(script, stored | {"tables": {**stored["tables"], table: records}}, folder)


def _write(script: str, result: Mapping[str, Any], folder: Path) -> None:
    """The file of a result: a record of its tables a line."""
    from op_profiler.files import write_whole

    head = json.dumps(
        {"script": Path(script).stem, **{key: result[key] for key in ("headline", "provenance")}}, indent=1
    )
    rows = {name: ",\n".join(f"   {json.dumps(row)}" for row in records) for name, records in result["tables"].items()}
    body = ",\n".join(f"  {json.dumps(name)}: [\n{text}\n  ]" for name, text in rows.items())
    folder.mkdir(exist_ok=True)
    write_whole(folder / f"{Path(script).stem}.json", f'{head[:-2]},\n "tables": {{\n{body}\n }}\n}}\n')


def digest(path: Path) -> str:
    """The first twelve digits of the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _named(dataset: str) -> str:
    """A dataset in a result; of a file also its digest."""
    from op_profiler.addresses import without_password

    path = Path(dataset.removeprefix("sqlite:///"))
    return f"{path.name} (sha256 {digest(path)})" if path.is_file() else without_password(dataset)


_DIFFER = ("date", "machine", "commit")
"""In what runs of one benchmark on one kind of device differ."""


def with_earlier(
    script: str, table: str, found: Iterable[dict[str, Any]], names: Sequence[str], *, folder: Path = RESULTS
) -> list[dict[str, Any]]:
    """Rows of this run, and those of a stored result that it does not have: who is lent a machine for minutes measures
    parts.

    Args:
        names: columns that tell what a row is of.
    """
    earlier = stored_tables(script, folder=folder).get(table, [])
    return list({tuple(row[name] for name in names): row for row in (*earlier, *found)}.values())


def stored_tables(script: str, *, folder: Path = RESULTS) -> dict[str, list[dict[str, Any]]]:
    """Tables of the stored result, by name; empty where none is stored."""
    return dict(_stored(script, folder).get("tables", {}))


def about_all(script: str, about: Mapping[str, Any], *, folder: Path = RESULTS) -> dict[str, Any]:
    """Provenance of this run and of a stored result whose rows stay: all dates, machines and commits."""
    earlier = _stored(script, folder).get("provenance", {})
    told = {name: [*str(earlier.get(name) or "").split(","), *str(about[name] or "").split(",")] for name in _DIFFER}
    return {
        **about,
        **{name: ", ".join(dict.fromkeys(filter(None, map(str.strip, parts)))) for name, parts in told.items()},
    }


def _stored(script: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{Path(script).stem}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


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


class Found(NamedTuple):
    """What a benchmark found of one name."""

    name: str
    result: dict[str, Any]


class Run(NamedTuple):
    """The names of a run one after the other, as they are measured, and whether they are all that there are."""

    found: Iterator[Found]
    whole: bool


def each_in_own_process(
    script: str, names: Iterable[str], kept: Path | None = None, options: Sequence[str] = ()
) -> Iterator[Found]:
    """A benchmark's ``--one NAME`` for several names; says which of them failed.

    Args:
        kept: file of results, a line of JSON each. What is there is not run again if it is of the same machine,
            versions and commit, and nothing was changed: all rows of a table are of one code.
        options: further words of each command line.

    Raises:
        SystemExit: there is no result of any.
    """
    now, words = provenance(), " ".join(options)
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    entries = (entry for entry in map(json.loads, lines) if entry.get("options", "") == words)
    there = {entry["name"]: entry for entry in entries if _is_same(entry["provenance"], now)}
    none = True
    for name in names:
        if name not in there:
            found = in_own_process(script, ["--one", name, *options])
            if found is None:
                print(f"{name}: failed", flush=True)
                continue
            there[name] = {"name": name, "options": words, "provenance": now, "found": found}
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(there[name]) + "\n")
        none = False
        yield Found(name, there[name]["found"])
    if none:
        raise SystemExit("nothing was measured")


def _is_same(provenance: str, now: str) -> bool:
    """Whether what was measured then can stand beside what is measured now; the day may be another."""
    return provenance.partition(", ")[2] == now.partition(", ")[2] and not now.endswith("-dirty")


def run_of(script: str, description: str | None, measure: Callable[[str], dict[str, Any]], names: Sequence[str]) -> Run:
    """The command line of a benchmark that measures models one by one, each in a process of its own.

    Prints provenance; in such a process prints what `measure` finds as JSON, and exits.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="models, or models joined by + where the text says so; default: all")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="results of earlier runs, which go on from there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        _end_what_was_started()
        print(json.dumps(measure(arguments.one)))
        raise SystemExit(0)
    print(provenance())
    return Run(each_in_own_process(script, arguments.models or names, arguments.keep), not arguments.models)


def _end_what_was_started() -> None:
    """Whoever stops the benchmark, or kills it, stops this process as an error would: with all that it started."""
    from op_profiler.child_processes import end_with_parent

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    end_with_parent(signal.SIGTERM)


def requests_of(names: str) -> tuple[BuildRequest, ...]:
    """What to build for models that are joined by +."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.frontends import source_and_name
    from op_profiler.frontends.frontend import ModelRequest

    found = (source_and_name(name) for name in names.split("+"))
    return tuple(BuildRequest(model=ModelRequest(source=source, name=name)) for source, name in found)


def collect(arguments: list[str], folder: Path, **variables: str) -> tuple[int, list[dict[str, Any]]]:
    """Run the collector as a user would, with these variables of the environment; exit code and summary."""
    summary = folder / "summary.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **variables}
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
