"""What users read has the field's words, not private words of this project."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "op_profiler"
PRIVATE = {
    "foreign load": "background load",
    "(un)?settled?|settles": "converged, not converged",
    "told|tells?": "reported, reports",
    "(tuned|called|ops?|operators?|kernels?|us) alone": "in isolation",
    "(its|their) (heavy )?ops? alone": "in isolation",
    "steadiness|gauges?": "reference kernels",
    "another run finds?": "between-run interval",
    "(un)?usual state": "reference state",
    "put aside": "quarantined",
    "twins?": "same hardware model, different machine",
    "tiers?": "source of the estimate",
    "whose families were held out": "leave-one-family-out",
    "final networks": "test set",
    "(is|are|was|were|what it is) off by|: off by": "error, MAPE, bias",
}
"""Expressions for private words, and what to write instead."""
STABLE = (
    r"`[^`\n]*`",  # names of columns, options and functions
    r"settled=(true|false)",
    r"UPDATE \w+ SET settled.*|WHERE settled.*|\bsettled, details\b",  # SQL with a column's name
    r"the compiler alone",
)
"""Names that users' files and scripts hold, and plain English."""
ONLY_IN_DIGESTS = {"put aside"}
GENERATED = [*(ROOT / "docs" / "reference").glob("*.md"), *(ROOT / "docs" / "figures").glob("*.md")]
NOT_READ = {"changelog.md", "glossary.md"}  # what older releases said; which words older files have
WRITTEN = [page for page in (ROOT / "docs").glob("*.md") if page.name not in NOT_READ]
WRITTEN += [page for folder in ("tutorials", "design") for page in (ROOT / "docs" / folder).glob("*.md")]
PAGES = [*GENERATED, *WRITTEN, ROOT / "README.md"]


def private_words(text: str) -> list[str]:
    """Private words of a text, each with the words around it and with what to write instead."""
    for name in STABLE:
        text = re.sub(name, " ", text)
    found = []
    for words, instead in PRIVATE.items():
        for one in re.finditer(rf"(?<![\w.-])({words})(?![\w-])", text, re.IGNORECASE):
            around = " ".join(text[max(0, one.start() - 30) : one.end() + 30].split())
            found.append(f"{one[0]!r} in {around!r}: write {instead}")
    return found


def sentences(module: Path) -> Iterator[tuple[int, str]]:
    """String constants of a module that have several words, and their lines: docstrings are not printed."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        if " " in node.value.strip() and node.value not in ONLY_IN_DIGESTS:
            yield node.lineno, node.value


def test_messages_tables_and_column_descriptions_have_no_private_words() -> None:
    found = [
        f"{module.relative_to(PACKAGE)}:{line}: {word}"
        for module in PACKAGE.rglob("*.py")
        for line, text in sentences(module)
        for word in private_words(text)
    ]
    assert found == []


def test_report_pages_have_no_private_words() -> None:
    found = []
    for script in (PACKAGE / "report" / "page" / "assets").glob("*.js"):
        code = re.sub(r"/\*.*?\*/|(?<!:)//.*$", "", script.read_text(), flags=re.DOTALL | re.MULTILINE)
        for one in re.finditer(r'"([^"\n]*)"|`([^`]*)`', code):
            literal = re.sub(r"\$\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", " x ", one[1] or one[2] or "")
            found += [f"{script.name}: {word}" for word in private_words(literal)]
    assert found == []


def test_headings_of_tables_have_no_private_words() -> None:
    """Headings of one word, which `sentences` leaves out."""
    called = {"texts", "numbers"}
    headings = [
        (module.name, word.value)
        for module in (PACKAGE / "report").glob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in called
        for word in node.args
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    ]
    assert len(headings) > 50
    assert [(name, text) for name, text in headings if private_words(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_no_private_words(page: Path) -> None:
    assert private_words(page.read_text(encoding="utf-8")) == []


def test_helps_have_no_private_words() -> None:
    helps: dict[str, list[str]] = json.loads((ROOT / "tests" / "cli" / "help.json").read_text())
    assert {command: found for command, lines in helps.items() if (found := private_words("\n".join(lines)))} == {}


@pytest.mark.parametrize(
    "text", ["It tells why", "not settled", "operators alone", "the tier", "under foreign load", "is off by 3 %"]
)
def test_private_words_are_found(text: str) -> None:
    assert len(private_words(text)) == 1


@pytest.mark.parametrize(
    "text", ["`settled`: its interval", "`--tier`", "storytelling", "stand-alone", "the compiler alone"]
)
def test_stable_names_and_plain_english_are_allowed(text: str) -> None:
    assert private_words(text) == []
