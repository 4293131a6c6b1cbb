"""The HTML file around a page's data, with all styles and scripts and without network access.

Scripts are the ES modules of ``assets/`` without a build step, and third-party libraries of ``vendored/``. The data is
JSON, which no browser executes, and the page's content security policy allows only these scripts and no connection.
Text in a model's names therefore cannot become a script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from op_profiler.files import write_whole

_LIBRARIES = ("echarts.min.js", "tabulator.min.js", "cytoscape.min.js", "dagre.min.js")
_STYLES = (("vendored", "tabulator.min.css"), ("assets", "page.css"))


def write_page(path: Path, title: str, document: msgspec.Struct) -> None:
    """Write a page.

    Args:
        title: title of the window.
        document: data for the scripts.

    Raises:
        OpProfilerError: the file cannot be written.
    """
    write_whole(path, page(title, document))


def page(title: str, document: msgspec.Struct) -> str:
    """Return the text of a page; see `write_page`."""
    modules = {
        f"#{file.name.removesuffix('.js')}": "data:text/javascript;base64,"
        + base64.b64encode(file.read_bytes()).decode()
        for file in sorted(_folder("assets").iterdir(), key=lambda file: file.name)
        if file.name.endswith(".js")
    }
    scripts = [
        *(("", _without_map(_text("vendored", name))) for name in _LIBRARIES),
        (' type="importmap"', json.dumps({"imports": modules})),
        (' type="module"', 'import "#report";'),
    ]
    hashes = " ".join(f"'sha256-{_sha256(text)}'" for _, text in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes} data:; style-src 'unsafe-inline'; img-src data: blob:; "
        "worker-src blob: data:; base-uri 'none'; form-action 'none'"
    )
    styles = "\n".join(_without_map(_text(*name)) for name in _STYLES)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{html.escape(title)}</title>\n<style>{styles}</style>\n</head>\n<body>",
            '<noscript>This page needs JavaScript.</noscript>\n<div id="page"></div>',
            f'<script type="application/json" id="data">{_embedded(document)}</script>',
            *(f"<script{attributes}>{text}</script>" for attributes, text in scripts),
            "</body>\n</html>\n",
        ]
    )


def _embedded(document: msgspec.Struct) -> str:
    """Return JSON that cannot end its HTML element; numbers that JSON does not have become null."""
    text = msgspec.json.encode(document).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _without_map(text: str) -> str:
    """Remove the line that names a source map, because the map is not included."""
    lines = [line for line in text.splitlines() if "sourceMappingURL=" not in line]
    return "\n".join(lines)


def _folder(name: str) -> Any:
    return resources.files(__package__).joinpath(name)


def _text(folder: str, name: str) -> str:
    return str(_folder(folder).joinpath(name).read_text(encoding="utf-8"))
