"""Two runs beside each other, in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from op_profiler.comparison.changes import Change
from op_profiler.comparison.result import Comparison, OnlyOne, RowComparison, RunComparison
from op_profiler.comparison.runs import runs_of
from op_profiler.report.page.comparisons import comparison_part
from op_profiler.report.page.report import report_of, write_report

from .browser import NARROW, PATIENCE_MS, Opened
from .conftest import HOSTILE

SERIES = """async () => {
    const [chart] = (await import("#chart")).all();
    return chart.getOption().series.map(({ name, data }) => [name, data.length]);
}"""
expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE_MS)


def compared(name: str | None, share: float | None, *, real: bool | None = False, **fields: Any) -> RowComparison:
    """A row; without a `share` of change there are no two times."""
    low, high = (share - 0.01, share + 0.01) if share is not None and real is not None else (None, None)
    change = Change(10.0, 10.0 * (1 + share), share, low, high, 0.01, real) if share is not None else None
    title = "the whole model" if name is None else name.removeprefix("fused_")
    return RowComparison(name=name, title=title, threads=1, output=(1, 64), share=0.2, change=change, **fields)


@pytest.fixture(scope="module")
def path(collected: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run that was really collected, with changes that are known."""
    (run,) = runs_of(collected, collected, "mlp")
    rows = (
        compared(None, 0.07, real=True),
        compared(
            "fused_dense",
            0.12,
            real=True,
            layer="encoder.fc1",
            layers=("encoder.fc1", "encoder.fc2"),
            schedules=("x86 tile 4", "x86 tile 1"),
            how="layers",
        ),
        compared("fused_softmax", -0.05, real=True),
        compared(HOSTILE, 0.004),
        compared("fused_add", 0.3, real=None),
        compared("fused_relu", None, problem="failed after: broken"),
    )
    only = OnlyOne(name="fused_tanh", title="tanh", key="k", calls=1, times_us={1: 3.0})
    pair = RunComparison(
        before=run, after=run, warnings=(HOSTILE,), rows=rows, only_before=(only,), only_after=(), foreign_load=True
    )
    path = tmp_path_factory.mktemp("comparison") / "page.html"
    found = Comparison(runs=(pair,), method="in turns", level=0.99, notes=("a note",))
    write_report(path, report_of(comparison=comparison_part(found)))
    return path


def names(page: Any) -> list[str]:
    found: list[str] = page.locator('.tabulator-row .tabulator-cell[tabulator-field="title"]').all_inner_texts()
    return found


def test_changes_are_drawn_and_told(shared: Opened) -> None:
    page = shared.page
    headline = page.locator("#comparison .verdict").inner_text()
    assert headline.startswith("The model mlp is 7.0% slower (6.0% to 8.0%) at 1 thread")
    assert "3 changes are real, of 4 compared: 2 slower, 1 faster" in headline
    assert names(page) == ["the whole model", "dense", "softmax", HOSTILE, "add", "relu"]
    told = page.locator("#comparison").inner_text()
    for words in ("schedule: x86 tile 4 -> x86 tile 1", "failed after: broken", "only before: tanh", "inconclusive"):
        assert words in told
    assert "a note" in told and HOSTILE in told
    assert page.locator(".tabulator-row.slower").count() == 2 and page.locator(".tabulator-row.faster").count() == 1
    assert page.locator(".interval").first.get_attribute("aria-label") == "+6.0 % to +8.0 %"
    layers = page.locator("h3:has-text('Differences by layer') ~ .chart svg text").all_text_contents()
    assert "+1.20 µs (+12.0 %)" in layers and {"encoder.fc1", "encoder.fc2"} <= set(layers)
    series = page.evaluate(SERIES)
    kinds = {"slower": 2, "faster": 1, "no change seen": 1}
    assert series == [[kind, count] for kind, count in kinds.items() for _ in ("interval", "point")]
    assert page.locator("img").count() == 0 and page.title().startswith("changes of mlp")


def test_the_table_sorts_filters_and_searches(opened: Opened, path: Path) -> None:
    page = opened.open(path)
    page.get_by_role("columnheader", name="change", exact=True).click()
    assert names(page)[0] == "add"
    page.get_by_role("button", name="real changes").click()
    expect(page.locator(".tabulator-row")).to_have_count(3)
    page.keyboard.press("/")
    page.keyboard.type("tile 1")
    expect(page.locator(".tabulator-row")).to_have_count(1)
    assert "1 of 6" in page.locator("#comparison [role=status]").inner_text()
    page.locator("#search").fill("nothing like it")
    page.wait_for_selector("text=No row fits.")


def test_it_prints(shared: Opened) -> None:
    pytest.importorskip("pypdf")
    text = shared.printed()
    for mark in ("the whole model", "softmax", "+12.0 %", "change of the time", "failed after: broken"):
        assert mark in text, mark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_needs_no_scrolling_aside(chromium: Any, path: Path, scheme: str) -> None:
    context = chromium.browser.new_context(viewport=NARROW, color_scheme=scheme)
    opened = Opened(context.new_page())
    page = opened.open(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    opened.check()
    context.close()
