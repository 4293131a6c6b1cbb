"""Pages made from the notebooks, with the outputs that are stored in them.

    python docs/notebook_pages.py        # run the notebooks and store their outputs; then: python docs/generate.py

Run this on a quiet machine: its times are published.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
_TABLE = re.compile(r"<table[^>]*>(.*?</table>)", re.DOTALL)


def main() -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from common import provenance

    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            book = executed(path, Path(folder))
        for cell in book["cells"]:
            for one in (cell, *cell.get("outputs", ())):
                one.update({"execution_count": None} if "execution_count" in one else {})
        book["metadata"] = json.loads(path.read_text())["metadata"] | {"measured_on": provenance().removeprefix("# ")}
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def executed(path: Path, folder: Path) -> Any:
    """The notebook with the outputs of a run in a folder."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": folder}}
    NotebookClient(book, timeout=600, kernel_name="python3", record_timing=False, resources=resources).execute()
    return json.loads(nbformat.writes(book))


def notebook_pages() -> Iterator[tuple[Path, str]]:
    """Every page with its text."""
    for path in NOTEBOOKS:
        book = json.loads(path.read_text(encoding="utf-8"))
        made = f"<!-- Made by docs/generate.py from {path.name}. Change that, not this page. -->"
        about = f"This page is a [notebook]({path.name}). Its outputs are of {book['metadata']['measured_on']}."
        first, *cells = book["cells"]
        title, _, rest = "".join(first["source"]).partition("\n")
        parts = [f"{title}\n{made}", about, rest.strip(), *(part for cell in cells for part in _cell(cell))]
        yield path.with_suffix(".md"), "\n\n".join(parts) + "\n"


def _cell(cell: Any) -> Iterator[str]:
    """A cell in Markdown, then its outputs."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        table = _TABLE.search("".join(data.get("text/html", "")))
        text = "".join(output.get("text") or data.get("text/plain", ""))
        yield f"<table>{table[1]}" if table else f"```text\n{text.rstrip()}\n```"


if __name__ == "__main__":
    main()
