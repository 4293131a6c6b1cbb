"""Pages made from what the benchmarks stored: one of verdicts, and one of tables for each question.

`figures.md.in` has a section for each question, with blocks ``<!-- results: NAME -->``. Numbers in its sentences are
placeholders (`prose.py`). `README.md`, `benchmarks/README.md` and the tutorial about CI have such blocks, too.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from page_parts import first_paragraph, markdown_table
from prose import sentence, with_numbers

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results"
SOURCE = DOCS / "figures.md.in"
_MADE = (
    f"<!-- Made by docs/generate.py from docs/{SOURCE.name} and benchmarks/results/. Change those, not this page. -->"
)
_BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- /results -->)", re.DOTALL)
_REACHED = {True: "yes", False: "**no**", None: "-"}
_CLAIMS = {
    "additivity": "Operators add up to the model.",
    "repeatability": "Intervals contain the times of a second run.",
    "compare": "[`compare` in CI](docs/tutorials/ci.md) raises few false alarms.",
    "operators_agree": "Outputs of an imported model are compared with those of its own framework.",
    "held_out_models": "Predictions are evaluated on networks that the predictor never saw.",
}
"""What README promises, by the benchmark that judges it; its function `claim` supports the promise with a number."""
_OLD_ANCHORS = {
    "new_processor": "how-good-is-a-predictor-from-few-samples-of-a-new-device",
    "gpu_tuning": "a-search",
    "gpu_predictor": "the-predictor",
    "gpu_dataset": "what-ships-of-it",
    "gpu_streams": "streams-and-graphs",
    "gpu_counters": "counters",
}
"""Anchors of headings that the page of figures once had, by the benchmark whose result they showed."""
_SHOWN = {"foreign load": "background load", "alone": "in isolation", "loops told": "loops known"}
"""Words of stored names of columns, and what headings show instead."""
_UNITS = {"_percent": ", %", "_us": ", us", "_s": ", s"}


def figure_pages() -> Iterator[tuple[Path, str]]:
    """Every page with its text."""
    text = with_numbers(SOURCE.read_text(encoding="utf-8"), RESULTS.glob("*.json"))
    intro, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    results = {script.stem: _result(script) for script in _scripts()}
    rows = []
    for section in sections:
        question, slug, body = _parts(section)
        yield DOCS / "figures" / f"{slug}.md", f"# {question}\n{_MADE}\n{_filled(body, results).rstrip()}\n"
        names = [found[2] for found in _BLOCK.finditer(section)]
        rows += [_verdict(name, _anchors(name, slug, first=at == 0), slug) for at, name in enumerate(names)]
    heads = ["question", "answer", "goal", "reached", "measured"]
    yield DOCS / "figures.md", f"{intro.rstrip()}\n\n{markdown_table(heads, rows)}\n".replace("\n", f"\n{_MADE}\n", 1)
    others = {
        ROOT / "README.md": {"trust": _trust(), "peers": _peers()},
        DOCS / "tutorials" / "ci.md": {"compare": _false_alarms()},
        BENCHMARKS / "README.md": {"all": _index()},
    }
    for page, blocks in others.items():
        yield page, _filled(page.read_text(encoding="utf-8"), blocks)


def _parts(section: str) -> tuple[str, str, str]:
    """Return the question of a section, the name of its page, and the text.

    ``<!-- page: NAME -->`` behind a question keeps the name of a page whose question was rewritten, and thus its links.
    """
    heading, _, body = section.partition("\n")
    question, _, name = heading.partition(" <!-- page: ")
    return question, name.removesuffix(" -->") or slug_of(question), body


def slug_of(heading: str) -> str:
    """The name of a heading in links."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower().replace("'", "")).strip("-")


def _anchors(name: str, slug: str, *, first: bool) -> str:
    """Return the anchors of a row: that of the question in its first row, and one that older links use."""
    ids = (slug if first else None, _OLD_ANCHORS.get(name))
    return "".join(f'<a id="{one}"></a>' for one in ids if one is not None)


def _verdict(name: str, anchor: str, slug: str) -> list[str]:
    """A row of the page of verdicts."""
    script = BENCHMARKS / f"{name}.py"
    question = f"{anchor}[{first_paragraph(_docstring(script))}](figures/{slug}.md)"
    goal = " ".join((_goal(script) or "-").split())
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return [question, "not measured yet", goal, "-", f"`{script.name}`"]
    result = json.loads(path.read_text(encoding="utf-8"))
    about = result["provenance"]
    measured = f"{about['date']}<!-- age: {name} {about['date']} -->, {about['processor']}, `{script.name}`"
    return [question, sentence(result["headline"]), goal, _REACHED[_reached(script, result["tables"])], measured]


def _reached(script: Path, tables: Mapping[str, Any]) -> bool | None:
    """What the script's function `reached` says of its stored tables; None if there is no goal."""
    if "def reached(" not in script.read_text(encoding="utf-8"):
        return None
    reached: bool | None = _module(script).reached(tables)
    return reached


def _module(script: Path) -> Any:
    """A benchmark, imported."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(script.stem)
    finally:
        sys.path.remove(str(BENCHMARKS))


def _index() -> str:
    """The table of all benchmarks."""
    rows = [[first_paragraph(_docstring(script)), f"`{script.name}`", _goal(script) or "-"] for script in _scripts()]
    return markdown_table(["question", "script", "goal"], rows)


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
    """A bullet for each claim of the README, with one number of the result that supports it."""
    lines = []
    for name, claim in _CLAIMS.items():
        result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        support = _module(BENCHMARKS / f"{name}.py").claim(result["tables"])
        lines.append(f"- **{claim}** {support} {_where(name, result['provenance'])}")
    return "\n".join(lines)


def _false_alarms() -> str:
    """What the tutorial about CI says of `compare`."""
    found, where = _found("compare")
    return "\n".join(f"- {one}" for one in found) + f"\n\n{where}\n"


def _found(name: str) -> tuple[list[str], str]:
    """The sentences of a result, and where it was measured."""
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return [sentence(one) for one in result["headline"].split("; ")], _where(name, result["provenance"])


def _where(name: str, about: Mapping[str, Any]) -> str:
    """Script, date and processor of a result."""
    # The processor that computed the fits is not the subject: each line of this result names its own.
    processor = "" if name == "held_out_models" else f", {about['processor']}"
    return f"(`{name}.py`, {about['date']}{processor})"


def _peers() -> str:
    """The README's table of networks here and in the faster of two other runtimes; empty before they were measured."""
    path = RESULTS / "peers.json"
    if not path.exists():
        return ""
    result = json.loads(path.read_text(encoding="utf-8"))
    columns = ("threads", "networks", "default_over_this", "worst", "rule_over_this", "worst_by_rule")
    rows = [
        {name.replace("this", "best"): row[name] for name in columns}
        for row in result["tables"]["summary"]
        if " or " in row["against"]
    ]
    return f"{_records(rows)}\n\n(`peers.py`, {_provenance(result['provenance'])})"


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
    return markdown_table([_head(name) for name in names], rows, numeric)


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
    unit = next((ending for ending in _UNITS if name.endswith(ending)), "")
    text = name.removesuffix(unit).replace("_", " ")
    for word, shown in _SHOWN.items():
        text = text.replace(word, shown)
    return text + _UNITS.get(unit, "")


def _docstring(script: Path) -> str:
    return ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""


def _goal(script: Path) -> str | None:
    """Its paragraph ``Goal: ...``."""
    found = re.search(r"^Goal: (.+?)(?=\n\n|\Z)", _docstring(script), re.MULTILINE | re.DOTALL)
    return found[1] if found else None


def _scripts() -> list[Path]:
    return sorted(script for script in BENCHMARKS.glob("*.py") if not script.name.endswith("common.py"))
