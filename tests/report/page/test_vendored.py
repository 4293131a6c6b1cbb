"""The libraries that pages hold are those that their list names."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import op_profiler.report.page

FOLDER = Path(op_profiler.report.page.__file__).parent / "vendored"


def test_the_list_names_every_file_with_its_digest() -> None:
    listed = dict(
        re.findall(r"^\| `([\w.]+)` .* `([0-9a-f]{64})` \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    )
    files = {path.name: path for path in FOLDER.iterdir() if path.suffix in (".js", ".css")}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == listed


def test_every_library_has_its_licence() -> None:
    for path in FOLDER.glob("*.js"):
        assert (FOLDER / f"{path.name.partition('.')[0]}.LICENSE").stat().st_size > 500
