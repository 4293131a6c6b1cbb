"""A page in Chromium, and what it says and asks for."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

PATIENCE_MS = 300_000
"""Nothing takes a tenth of it, also where others use the machine."""
WIDE, NARROW = {"width": 1400, "height": 900}, {"width": 400, "height": 800}
DRAW_ALL = """async () => {
    document.documentElement.style.scrollBehavior = "auto";
    for (const section of document.querySelectorAll("main > section")) {
        section.scrollIntoView();
        const drawn = () => section.hidden || section.querySelector("[data-section] > *");
        do await new Promise(requestAnimationFrame); while (!drawn());
    }
    scrollTo(0, 0);
}"""


class Opened:
    """A page, with all that it said and asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.set_default_timeout(PATIENCE_MS)
        self.said: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("main > section:not([hidden]) [data-section] > *")
        self.page.evaluate(DRAW_ALL)
        return self.page

    def printed(self) -> str:
        """The text of the page on paper, and a line for each picture; of the charts nothing is cut off."""
        import pypdf

        labels = self.page.locator("main > section:not([hidden]) svg text").all_text_contents()
        pages = pypdf.PdfReader(io.BytesIO(self.page.pdf(format="A4"))).pages
        text = "\n".join([*(one.extract_text() for one in pages), *("picture" for one in pages for _ in one.images)])
        paper = _letters(text)
        assert [label for label in labels if _letters(label) not in paper] == []
        return text

    def check(self) -> None:
        """Nothing was complained of, and nothing was asked of a network."""
        assert self.said == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def _letters(text: str) -> str:
    """Without spaces, marks and ligatures, which a reader of PDF may tell otherwise."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text)))


def data_of(path: Path) -> dict[str, Any]:
    """What a page holds."""
    found: dict[str, Any] = json.loads(re.findall(r'id="data">(.*?)</script>', path.read_text())[0])
    return found
