"""Links to sections of the site still work: each anchor that its pages had on 2026-11-28 is on the page today.

`old_anchors.json` lists these anchors by page. If a heading is renamed, put ``<a id="OLD"></a>`` above it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from markdown.extensions.toc import slugify, unique

DOCS = Path(__file__).resolve().parents[2] / "docs"
OLD = json.loads(Path(__file__).with_name("old_anchors.json").read_text())


def anchors(text: str) -> set[str]:
    """Return the anchors of a page in Markdown: those of its headings, as mkdocs makes them, and explicit ones."""
    found: set[str] = set()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} (.+)$", prose, re.MULTILINE):
        plain = re.sub(r"<[^>]*>|[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        unique(slugify(plain.strip(), "-"), found)  # adds it
    return found | set(re.findall(r'<a id="([^"]+)"></a>', text))


@pytest.mark.parametrize("page", OLD)
def test_old_anchors_are_still_there(page: str) -> None:
    missing = [anchor for anchor in OLD[page] if anchor not in anchors((DOCS / page).read_text())]
    assert missing == [], f'put <a id="..."></a> where the content of docs/{page} is now'


def test_anchors_are_those_of_headings_and_explicit_ones() -> None:
    text = '# `A b`, c\n<a id="old"></a>\n\n## [Two](x.md)\n## Two\n```\n# no heading\n```\n'
    assert anchors(text) == {"a-b-c", "old", "two", "two_1"}


def test_the_list_is_that_of_the_older_site() -> None:
    assert sum(map(len, OLD.values())) > 220 and len(OLD["figures.md"]) > 30
