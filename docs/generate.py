"""Make the pages that come from the code and from the results of benchmarks.

    python docs/generate.py        (after a change of a command, an option, a column, a format, a name or a result)

It writes the pages of `docs/reference/`, what `figure_pages.py` makes of the results of benchmarks, and what
`notebook_pages.py` makes of the notebooks. A test fails if a page differs from what this writes.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from op_profiler.operators.kinds.point import Point

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "docs")]

from figure_pages import figure_pages  # noqa: E402 - beside this file
from notebook_pages import notebook_pages  # noqa: E402
from page_parts import first_paragraph, markdown_table  # noqa: E402
from picture import picture  # noqa: E402

DOCS = ROOT / "docs"
_MADE = "<!-- Made by docs/generate.py. Change the code, not this page. -->"


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
    yield from figure_pages()
    yield from notebook_pages()
    yield DOCS / "architecture.svg", picture()


def _page(title: str, parts: Iterator[str]) -> str:
    return "\n\n".join([f"# {title}\n{_MADE}", *parts]) + "\n"


# Commands: from typer's own description of them


def _commands() -> Iterator[str]:
    import typer

    from op_profiler.cli import application

    root = typer.main.get_command(application())
    yield (
        "Every command prints this text with `--help` (`-h`). All commands have the same "
        "[exit codes](environment.md). `op_performance_collector.py` is the older name of `op-profiler collect`."
    )
    commands = list(walk(root, "op-profiler"))
    yield "\n".join(
        f"- [{name}](#{name.replace(' ', '-')}): {first_paragraph(command.help)}" for name, command in commands
    )
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
        yield markdown_table(
            ["argument", "needed", "meaning"],
            [[f"`{p.name.upper()}`", "yes" if p.required else "no", _help(p)] for p in arguments],
        )
    panels: dict[str, list[Any]] = {}
    for option in options:
        panels.setdefault(option.rich_help_panel or "", []).append(option)
    for panel, members in panels.items():
        if panel and len(panels) > 1:
            yield f"**{panel}**"
        yield markdown_table(
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


# Columns and formats: from their declarations


def _columns() -> Iterator[str]:
    from op_profiler.dataset.flat import TABLES

    yield (
        "These are the columns of `op-profiler export`, of its `--where`, and of `op_profiler.dataset.flat_rows`. "
        "The name of a column contains its unit. Type `json`: a nested value; formats without nested values contain "
        "it as JSON text. Type `samples`: a list of lists."
    )
    for name, table in TABLES.items():
        yield f"## {name}"
        yield markdown_table(
            ["column", "type", "meaning"], [[f"`{c.name}`", c.type, c.description] for c in table.columns]
        )


def _formats() -> Iterator[str]:
    from op_profiler.dataset.formats import FORMATS

    yield (
        "`op-profiler import --format NAME` reads a file, `op-profiler export --format NAME` writes one. Both "
        "commands convert units, and print the number of values that the format cannot express."
    )
    yield markdown_table(
        ["format", "content", "import reads it", "--device applies", "--precision applies"],
        [
            [
                f"[`{name}`](#{name})",
                FORMATS.help(name),
                _yes(one.reads),
                _yes(one.takes_device),
                _yes(one.takes_precision),
            ]
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
    from op_profiler.collection.sampling.mixtures import USUAL
    from op_profiler.collection.sampling.spaces import described_names
    from op_profiler.operators.kinds import described_classes
    from op_profiler.registry import registries

    yield (
        "Each section below lists the names of one registry. Your own package can add names to a registry with an "
        "entry point of the group `op_profiler.KIND` in its `pyproject.toml`; the [recipes](../contributing.md) list "
        "the steps. Options then accept the added name like a name below."
    )
    for kind, registry in registries().items():
        yield f"## {kind}"
        yield f"Entry points: `op_profiler.{kind}`. Contract: `{registry.contract}`."
        rows = [[f"`{name}`", entry.help, f"`{entry.path}`"] for name, entry in registry.built_in.items()]
        yield markdown_table([registry.noun, "meaning", "object"], rows)
    yield "## kinds of sampled operators"
    yield "Names for `op-profiler sample --kinds`. Without that option, operators of the usual kinds are drawn."
    kinds = [[f"`{name}`", _yes(name in USUAL), what] for name, what in described_names().items()]
    yield markdown_table(["kind", "usual", "operators"], kinds)
    yield "## kinds of described layers"
    yield (
        "Names for `kind` in the layers of a JSON line of `op-profiler predict @FILE` ([many models]"
        "(../tutorials/predict.md#predict-many-models)), with the other fields of such a layer."
    )
    layers = [
        [f"`{one.kind}`", ", ".join(_fields(one)), (inspect.getdoc(one) or "").split("\n\n")[0]]
        for one in described_classes()
    ]
    yield markdown_table(["kind", "fields", "layer"], layers)


def _fields(kind: type[Point]) -> Iterator[str]:
    """The fields of a kind of layers, with the defaults and the names that are allowed."""
    for field in dataclasses.fields(kind):
        default = "" if field.default is dataclasses.MISSING else f" = {json.dumps(field.default)}"
        choices = kind.choices.get(field.name)
        yield f"`{field.name}{default}`" + (f" (one of {', '.join(choices)})" if choices else "")


# Python: from the docstrings of the public names


def _python() -> Iterator[str]:
    import op_profiler

    yield (
        "Import these names from `op_profiler`; each is loaded at its first use. The tests run the examples. The "
        "arguments of a function are those options of its [command](commands.md) that decide what is measured."
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
            yield markdown_table(["method", "what it does"], rows)


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


if __name__ == "__main__":
    main()
