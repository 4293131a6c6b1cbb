"""Make the pages that come from the code and from the results of benchmarks.

    python docs/generate.py        (after a change of a command, an option, a column, a format, a name or a result)

Written are the pages of `docs/reference/`, `docs/figures.md` from `docs/figures.md.in` (`prose.py` fills
sentences), and what stands between ``<!-- results: NAME -->`` and ``<!-- /results -->`` in `README.md` and
`benchmarks/README.md`. A test fails where what is written differs from what this makes.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "docs")]

from picture import picture  # noqa: E402 - beside this file
from prose import sentence, with_numbers  # noqa: E402

DOCS = ROOT / "docs"
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results"
_MADE = "<!-- Made by docs/generate.py. Change the code, not this page. -->"
_BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- /results -->)", re.DOTALL)
_CLAIMS = {
    "additivity": "Operators add up to the model.",
    "repeatability": "Intervals hold in another run.",
    "disturbed_times": "A disturbed measurement is marked.",
    "operators_agree": "A model computes what its framework computes, or is refused.",
    "held_out_models": "Predictions are judged on networks that the predictor never saw.",
}
"""What README promises, by the benchmark that judges it."""
_UNITS = {"_percent": ", %", "_us": ", us", "_s": ", s"}


def main() -> None:
    for path, text in pages():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def pages() -> Iterator[tuple[Path, str]]:
    """Every file that is made, wholly or in parts, with its text."""
    yield DOCS / "reference" / "commands.md", _page("Commands", _commands())
    yield DOCS / "reference" / "columns.md", _page("Columns", _columns())
    yield DOCS / "reference" / "formats.md", _page("Formats", _formats())
    yield DOCS / "reference" / "names.md", _page("What is chosen by name", _names())
    yield DOCS / "reference" / "python.md", _page("Python", _python())
    yield DOCS / "figures.md", _figures()
    yield DOCS / "architecture.svg", picture()
    for page, blocks in ((ROOT / "README.md", {"trust": _trust()}), (BENCHMARKS / "README.md", {"all": _index()})):
        yield page, _filled(page.read_text(encoding="utf-8"), blocks)


def _page(title: str, parts: Iterator[str]) -> str:
    return "\n\n".join([f"# {title}\n{_MADE}", *parts]) + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool] | None = None) -> str:
    """A table in Markdown; columns that `right` marks are flushed right."""
    lines = ["---:" if flushed else "---" for flushed in right or [False] * len(heads)]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (heads, lines, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


# Commands: from typer's own description of them


def _commands() -> Iterator[str]:
    import typer

    from op_profiler.cli import application

    root = typer.main.get_command(application())
    yield (
        "Every command has `--help` (`-h`), which says the same. All of them share their "
        "[exit codes](environment.md). `op_performance_collector.py` is `op-profiler collect` under its older name."
    )
    commands = list(walk(root, "op-profiler"))
    yield "\n".join(f"- [{name}](#{name.replace(' ', '-')}): {_first(command.help)}" for name, command in commands)
    for name, command in commands:
        yield from _command(name, command)


def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with all words of its name."""
    below = getattr(command, "commands", {})
    if not below or command.params:
        yield name, command
    for word, one in below.items():
        yield from walk(one, f"{name} {word}")


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"## {name}"
    yield inspect.cleandoc(command.help or "")
    arguments = [p for p in command.params if not p.opts[0].startswith("-")]
    options = [p for p in command.params if p.opts[0].startswith("-") and p.name != "help"]
    if arguments:
        yield _table(
            ["argument", "needed", "meaning"],
            [[f"`{p.name.upper()}`", "yes" if p.required else "no", _help(p)] for p in arguments],
        )
    panels: dict[str, list[Any]] = {}
    for option in options:
        panels.setdefault(option.rich_help_panel or "", []).append(option)
    for panel, members in panels.items():
        if panel and len(panels) > 1:
            yield f"**{panel}**"
        yield _table(
            ["option", "default", "meaning"],
            [[", ".join(f"`{o}`" for o in p.opts + p.secondary_opts), _default(p), _help(p)] for p in members],
        )
    examples = _examples(command.epilog or "")
    if examples:
        yield "Examples:\n\n" + "\n".join(f"    {line}" for line in examples)


def _help(parameter: Any) -> str:
    from op_profiler.cli.help import filled

    return filled(parameter.help or "")


def _default(option: Any) -> str:
    if option.required:
        return "needed"
    if option.is_flag:
        return "off"
    value = option.default() if callable(option.default) else option.default
    return "" if value in (None, "", (), []) else f"`{value}`"


def _examples(epilog: str) -> list[str]:
    """The lines of an epilogue that are commands."""
    return [line for line in epilog.splitlines() if line.startswith(("op-profiler", "op_performance_collector"))]


def _first(text: str | None) -> str:
    """The first paragraph, in one line."""
    return " ".join((text or "").strip().split("\n\n")[0].split())


# Columns and formats: from their declarations


def _columns() -> Iterator[str]:
    from op_profiler.dataset.flat import TABLES

    yield (
        "These are the columns of `op-profiler export`, of its `--where`, and of `op_profiler.dataset.flat_rows`. "
        "Units are in the names. `json` is a nested value, as JSON text where a format has none. `samples` is a list "
        "of lists."
    )
    for name, table in TABLES.items():
        yield f"## {name}"
        yield _table(["column", "type", "meaning"], [[f"`{c.name}`", c.type, c.description] for c in table.columns])


def _formats() -> Iterator[str]:
    from op_profiler.dataset.formats import FORMATS

    yield (
        "`op-profiler import --format NAME` reads a file, `op-profiler export --format NAME` writes one. Units are "
        "converted at this border. What a format has no words for is counted, never dropped in silence."
    )
    yield _table(
        ["format", "what it is", "takes --device", "takes --precision"],
        [
            [f"[`{name}`](#{name})", FORMATS.help(name), _yes(one.takes_device), _yes(one.takes_precision)]
            for name, one in FORMATS.available()
        ],
    )
    for name in FORMATS.built_in:
        yield f"## {name}"
        yield _format_text(name)


def _format_text(name: str) -> str:
    """What the module of a format says about it: a sentence, perhaps an example, and further sentences."""
    source = ROOT / "python" / "op_profiler" / "dataset" / "formats" / f"{name}.py"
    paragraphs = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").split("\n\n")
    return "\n\n".join(_paragraph(text) for text in paragraphs)


def _paragraph(text: str) -> str:
    """A paragraph of a docstring in Markdown; one that is no sentence is an example."""
    if text.rstrip().endswith((".", "failure")):
        return text.replace("``", "`")
    return "```text\n" + text + "\n```"


def _yes(told: bool) -> str:
    return "yes" if told else "no"


def _names() -> Iterator[str]:
    from op_profiler.registry import registries

    yield (
        "Each kind below has a registry. A package of yours adds to it with an entry point of the group "
        "`op_profiler.KIND` in its `pyproject.toml`: [recipes](../contributing.md) tell what one has to do. The name "
        "can then be used as those below."
    )
    for kind, registry in registries().items():
        yield f"## {kind}"
        yield f"Entry points: `op_profiler.{kind}`. Contract: `{registry.contract}`."
        rows = [[f"`{name}`", entry.help, f"`{entry.path}`"] for name, entry in registry.built_in.items()]
        yield _table([registry.noun, "what it is", "where"], rows)


# Python: from the docstrings of the public names


def _python() -> Iterator[str]:
    import op_profiler

    yield (
        "These names are imported from `op_profiler`; each is loaded when it is first used. The examples run in the "
        "tests. A function has the options of its [command](commands.md) that decide what is measured, as arguments."
    )
    for name in op_profiler.__all__:
        public = inspect.unwrap(getattr(op_profiler, name))  # predict is a folder, too
        yield f"## {name}"
        if inspect.isfunction(public):
            yield _fenced("python", _declaration(public))
        yield from map(_docstring_part, (inspect.getdoc(public) or "").split("\n\n"))
        if inspect.isclass(public):
            ours = [base for base in reversed(public.__mro__) if base.__module__.startswith("op_profiler.")]
            names = dict.fromkeys(name for base in ours for name in vars(base))
            methods = {n: getattr(public, n) for n in names if n[0] != "_" and callable(getattr(public, n))}
            rows = [[f"`{n}`", (inspect.getdoc(method) or "").split("\n\n")[0]] for n, method in methods.items()]
            yield _table(["method", "what it does"], rows)


def _declaration(function: Any) -> str:
    """How a function is declared, an argument a line."""
    signature = inspect.signature(function)
    lines: list[str] = []
    for name, argument in signature.parameters.items():
        if argument.kind is argument.KEYWORD_ONLY and not any(line.startswith("*") for line in lines):
            lines.append("*")
        stars = "*" if argument.kind is argument.VAR_POSITIONAL else ""
        default = "" if argument.default is argument.empty else f" = {argument.default!r}"
        lines.append(f"{stars}{name}: {argument.annotation}{default}")
    arguments = "".join(f"    {line},\n" for line in lines)
    return f"{function.__name__}(\n{arguments}) -> {signature.return_annotation}"


def _docstring_part(text: str) -> str:
    """An example, a list of arguments, attributes or errors, or a sentence, in Markdown."""
    if text.startswith(">>>"):
        return _fenced("pycon", text)
    head, colon, body = text.partition(":\n")
    if not colon or head not in ("Args", "Attributes", "Returns", "Raises"):
        return text.replace("``", "`")
    entries = re.sub(r"\n {8,}", " ", body).replace("``", "`").splitlines()
    named = [re.sub(r"^([\w, ]+): ", r"`\1`: ", entry.strip()) for entry in entries]
    return f"**{head}**\n\n" + "\n".join(f"- {entry}" for entry in named)


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


# Figures: from what the benchmarks stored


def _figures() -> str:
    source = DOCS / "figures.md.in"
    text = with_numbers(source.read_text(encoding="utf-8"), RESULTS.glob("*.json"))
    tables = {script.stem: _result(script) for script in _scripts()}
    return _filled(text.replace("\n", f"\n{_MADE.replace('the code', f'docs/{source.name}')}\n", 1), tables)


def _filled(text: str, blocks: Mapping[str, str]) -> str:
    """A page whose blocks hold what is made for them; of what was not measured yet they are empty."""
    return _BLOCK.sub(lambda found: found[1] + (f"{blocks[found[2]]}\n" if found[2] in blocks else "") + found[3], text)


def _result(script: Path) -> str:
    """What a benchmark found: where and when, its goal, then its tables; or how to run it."""
    path = RESULTS / f"{script.stem}.json"
    goal = _goal(script)
    aim = [] if goal is None else [f"Goal: {' '.join(goal.split())}"]
    if not path.exists():
        return "\n\n".join([f"*Not measured yet: `python benchmarks/{script.name}` does it.*", *aim]) + "\n"
    result = json.loads(path.read_text(encoding="utf-8"))
    parts = [f"*`benchmarks/{result['script']}.py`: {_provenance(result['provenance'])}*", *aim]
    for name, records in result["tables"].items():
        parts.append(f"**{name.replace('_', ' ')}**")
        parts.append(_records(records))
    return "\n\n".join(parts) + "\n"


def _trust() -> str:
    """A line for each claim of the README, with the result that supports it."""
    lines = []
    for name, claim in _CLAIMS.items():
        result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        about = result["provenance"]
        where = f"`{name}.py`, {about['date']}, {about['processor']}"
        lines.append(f"- **{claim}** {sentence(result['headline'])} ({where})")
    return "\n".join(lines) + "\n"


def _provenance(about: Mapping[str, Any]) -> str:
    """When, on what, with which versions; what is not known is left out."""
    texts = {
        "date": "{}",
        "processor": "{}",
        "cores": "{} cores",
        "machine": "{}",
        "tvm": "TVM {}",
        "python": "Python {}",
        "commit": "commit {}",
        "inputs": "of {}",
    }
    return ", ".join(text.format(about[key]) for key, text in texts.items() if about.get(key) is not None)


def _records(records: Sequence[Mapping[str, Any]]) -> str:
    """Records of the same members as a table; numbers of a column have equally many decimals."""
    names = list(records[0])
    columns = {name: [record[name] for record in records] for name in names}
    texts = {name: _cells(values) for name, values in columns.items()}
    numeric = [all(v is None or _is_number(v) for v in columns[name]) for name in names]
    rows = [[texts[name][row] for name in names] for row in range(len(records))]
    return _table([_head(name) for name in names], rows, numeric)


def _cells(values: Sequence[Any]) -> list[str]:
    decimals = max((len(repr(v).partition(".")[2]) for v in values if isinstance(v, float)), default=0)
    return [_cell(value, decimals) for value in values]


def _cell(value: Any, decimals: int) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.{decimals}f}" if _is_number(value) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _head(name: str) -> str:
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ") + unit
    return name.replace("_", " ")


def _index() -> str:
    """The table of all benchmarks: question and goal from their docstrings, the last result from what they stored."""
    rows = []
    for script in _scripts():
        rows.append([_first(_docstring(script)), f"`{script.name}`", _goal(script) or "-", _last(script)])
    return _table(["question", "script", "goal", "last result"], rows)


def _docstring(script: Path) -> str:
    return ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""


def _goal(script: Path) -> str | None:
    """Its paragraph ``Goal: ...``."""
    found = re.search(r"^Goal: (.+?)(?=\n\n|\Z)", _docstring(script), re.MULTILINE | re.DOTALL)
    return found[1] if found else None


def _scripts() -> list[Path]:
    return sorted(script for script in BENCHMARKS.glob("*.py") if not script.name.endswith("common.py"))


def _last(script: Path) -> str:
    path = RESULTS / f"{script.stem}.json"
    if not path.exists():
        return "none yet"
    result = json.loads(path.read_text(encoding="utf-8"))
    about = result["provenance"]
    when = ", ".join(str(about[key]) for key in ("date", "commit") if about[key] is not None)
    return f"{result['headline']} ({when})"


if __name__ == "__main__":
    main()
