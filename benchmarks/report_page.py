"""Is the page of a report small, quickly written and responsive? Of mlp, resnet-50, bert and nasnet, in Chromium.

    python benchmarks/report_page.py [MODEL ...] [--keep FILE] [--db ADDRESS] [--picture FILE.png]

Goal: at most 6 MB for resnet-50, made in 5 s; every interaction under 200 ms, also for nasnet.

Models that are not in the dataset are collected first (nasnet takes a quarter of an hour; an interrupted collection
resumes). Then a model takes two minutes at most. An interaction is timed in the page, from the event to the second
frame after it; the shortest of several times counts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import ROOT, at_most, collect, each_in_own_process, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

MODELS = ("local:mlp", "local:resnet-50", "transformers:bert", "local:nasnetalarge")
_PICTURED = "local:resnet-50"
_REPEATS = 4
_SETTLE_MS = 400
_INTERACTIONS = {
    "sort": "document.querySelector('.tabulator-col[tabulator-field=us]').click()",
    "search": "search('#search', 'conv')",
    "clear the search": "search('#search', '')",
    "open an operator": "location.hash = document.querySelector('.tabulator-row a.operator').getAttribute('href')",
    "close it": "document.querySelector('dialog').close()",
    "find in the graph": "search('#graph input', 'add')",
    "other threads": "document.querySelector('#threads button[aria-pressed=false]')?.click()",
    "light or dark": "document.querySelector('header .icon').click()",
}
_TIMED = """async (what) => {
    const search = (place, text) => {
        const input = document.querySelector(place);
        input.value = text;
        input.dispatchEvent(new Event("input"));
    };
    const acts = { ACTS };
    const began = performance.now();
    acts[what]();
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    return performance.now() - began;
}"""
_SCROLL = """async () => {
    document.documentElement.style.scrollBehavior = "auto";
    for (const section of document.querySelectorAll("main > section")) {
        section.scrollIntoView();
        await new Promise((done) => setTimeout(done, 100));
    }
    scrollTo(0, 0);
}"""


def made(db: str, name: str, page: Path) -> float:
    """Seconds of the command, in a process of its own, its imports included."""
    code = "from op_profiler.cli import main; main()"
    started = time.perf_counter()
    command = [sys.executable, "-c", code, "report", name, "--db", db, "--output", str(page), "--quiet"]
    subprocess.run(command, check=True, cwd=ROOT / "python")
    return time.perf_counter() - started


def interactions(page: Path, picture: Path | None) -> dict[str, float]:
    """Milliseconds of each interaction by name, and how many calls the model makes."""
    from playwright.sync_api import sync_playwright

    acts = ", ".join(f"{json.dumps(name)}: () => {{ {act} }}" for name, act in _INTERACTIONS.items())
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab: Any = browser.new_page(viewport={"width": 1400, "height": 900})
        tab.goto(page.as_uri())
        tab.wait_for_selector("#overview .verdict")
        calls = 0.0
        found: dict[str, float] = {name: float("inf") for name in _INTERACTIONS}
        for _ in range(_REPEATS):
            for name in _INTERACTIONS:
                tab.evaluate(_SCROLL)  # other threads and colours draw anew what comes near the screen
                calls = float(tab.wait_for_selector(".graph[data-boxes]", timeout=120_000).get_attribute("data-boxes"))
                found[name] = min(found[name], tab.evaluate(_TIMED.replace("ACTS", acts), name))
                tab.wait_for_timeout(_SETTLE_MS)
        if picture is not None:
            tab.evaluate("document.getElementById('operators').scrollIntoView()")
            tab.screenshot(path=picture)
        browser.close()
    return found | {"calls": calls}


def measure(name: str, db: str, picture: Path | None) -> dict[str, Any]:
    """The page of one model."""
    source, _, model = name.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        code, _ = collect(["--modelsource", source, "--modelname", model, "--db", db], Path(folder))
        assert code == 0, f"the collection of {name} ended with {code}"
        page = Path(folder) / "report.html"
        seconds = min(made(db, name, page) for _ in range(2))
        found = interactions(page, picture)
        calls = int(found.pop("calls"))
        worst = max(found, key=found.__getitem__)
        return {
            "calls": calls,
            "megabytes": round(page.stat().st_size / 1e6, 2),
            "made_s": round(seconds, 2),
            "slowest_interaction": worst,
            "interaction_ms": round(found[worst]),
        }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    A model without a row counts as unknown.
    """
    pages = {row["model"]: row for row in tables.get("pages", ())}
    if not pages.keys() >= set(MODELS):
        return None
    resnet = pages[_PICTURED]
    quick = [row["interaction_ms"] < 200 for row in pages.values()]
    return every([at_most(resnet["megabytes"], 6), at_most(resnet["made_s"], 5), *quick])


def main() -> None:
    from op_profiler.cache import cache_folder

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="of these only; default: all")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="results of earlier runs, which go on from there")
    parser.add_argument("--db", help="dataset of the models; default: report_page.db in the cache folder")
    parser.add_argument("--picture", type=Path, help=f"keep a picture of the page of {_PICTURED}")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    db = given.db or f"sqlite:///{cache_folder()}/report_page.db"
    if given.one:
        print(json.dumps(measure(given.one, db, given.picture if given.one == _PICTURED else None)))
        return
    print(provenance())
    options = ["--db", db, *(["--picture", str(given.picture)] if given.picture else [])]
    rows = []
    for found in each_in_own_process(__file__, given.models or MODELS, given.keep, options):
        rows.append({"model": found.name, **found.result})
        print(f"{found.name:20}", found.result, flush=True)
    if {row["model"] for row in rows} >= set(MODELS):
        by_name = {row["model"]: row for row in rows}
        resnet, slowest = by_name[_PICTURED], max(rows, key=lambda row: row["interaction_ms"])
        headline = (
            f"resnet-50's page has {resnet['megabytes']} MB and is made in {resnet['made_s']} s; the slowest "
            f"interaction of all takes {slowest['interaction_ms']} ms ({slowest['model']})"
        )
        store(__file__, headline, {"pages": rows}, whole=not given.models)


if __name__ == "__main__":
    main()
