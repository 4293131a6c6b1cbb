"""The picture of the architecture: the folders of the package in rows, as a model passes them on its way down."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

Box = tuple[str, str, str]
"""Folder, and two lines that say what it does."""

ROWS: tuple[tuple[str, tuple[Box, ...]], ...] = (
    ("", (("cli", "options in,", "one call, text out"), ("api", "the same options,", "for Python programs"))),
    ("a name, a path, an address", (("frontends", "name, path or address", "to a model of Relay"),)),
    (
        "a model",
        (
            ("compilers", "lower, fuse, build;", "the kernels in order"),
            ("operators", "what an operator is,", "its FLOPs and bytes"),
            ("schedules", "loops and their knobs,", "templates, records"),
        ),
    ),
    (
        "kernels",
        (
            ("targets", "processor, GPU, boards:", "all about each kind"),
            ("measure", "kernels in place,", "rounds, load, steadiness"),
            ("resources", "cores, clocks, caches:", "read, set, swept"),
        ),
    ),
    (
        "times",
        (
            ("building", "from a request", "to a built model, kept"),
            ("collection", "a worker a model,", "supervisor, sampling"),
            ("tuning", "the search,", "trials in processes"),
            ("fleet", "many machines,", "one dataset"),
        ),
    ),
    (
        "measurements",
        (
            ("dataset", "SQLite, PostgreSQL,", "tables of others"),
            ("shipped", "datasets, predictors,", "records of schedules"),
        ),
    ),
    (
        "rows",
        (
            ("analysis", "correlations and", "turnaround points"),
            ("prediction", "operators, networks,", "libraries, schedules"),
            ("parallel", "plans, and worker", "threads that run them"),
        ),
    ),
    (
        "numbers",
        (
            ("comparison", "two runs:", "what really changed"),
            ("report", "progress, tables,", "traces"),
            ("testing", "suites for tests of", "new implementations"),
        ),
    ),
)

_WIDTH, _BOX_WIDTH, _BOX_HEIGHT, _GAP, _ROW = 760, 200, 66, 30, 108


def picture() -> str:
    """The picture as SVG."""
    height = len(ROWS) * _ROW - (_ROW - _BOX_HEIGHT) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" role="img">',
        "<title>The folders of op_profiler, from a model to numbers</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#78909c"/></marker></defs>',
    ]
    for number, (label, boxes) in enumerate(ROWS):
        top = 10 + number * _ROW
        if number:
            parts.extend(_arrow(label, top))
        parts.extend(part for place, box in enumerate(boxes) for part in _box(box, top, place, len(boxes)))
    return "\n".join([*parts, "</svg>", ""])


def _arrow(label: str, top: int) -> Iterator[str]:
    """From the row above; with what goes that way."""
    middle, start = _WIDTH / 2, top - (_ROW - _BOX_HEIGHT)
    yield (
        f'<line x1="{middle:.0f}" y1="{start + 4}" x2="{middle:.0f}" y2="{top - 4}" stroke="#78909c" stroke-width="2" '
        'marker-end="url(#tip)"/>'
    )
    if label:
        yield f'<text x="{middle + 12:.0f}" y="{top - 16}" font-size="13" fill="#78909c">{escape(label)}</text>'


def _box(box: Box, top: int, place: int, count: int) -> Iterator[str]:
    name, *lines = box
    left = (_WIDTH - count * _BOX_WIDTH - (count - 1) * _GAP) / 2 + place * (_BOX_WIDTH + _GAP)
    middle = left + _BOX_WIDTH / 2
    yield (
        f'<rect x="{left:.0f}" y="{top}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="8" fill="#e8eaf6" '
        'stroke="#3f51b5"/>'
    )
    yield f'<text x="{middle:.0f}" y="{top + 22}" {_CENTRED} font-size="16" font-weight="bold">{escape(name)}/</text>'
    for row, line in enumerate(lines):
        yield f'<text x="{middle:.0f}" y="{top + 40 + 17 * row}" {_CENTRED} font-size="13">{escape(line)}</text>'


_CENTRED = 'text-anchor="middle" fill="#1a237e"'
