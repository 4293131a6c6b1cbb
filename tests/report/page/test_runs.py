"""Two runs of a model on one device, in Chromium."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from op_profiler.dataset import Dataset
from op_profiler.report.page.models import model_part
from op_profiler.report.page.report import chosen_models, report_of, write_report

from .browser import PATIENCE_MS, Opened

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE_MS)


def test_runs_stand_beside_each_other(opened: Opened, collected: str, tmp_path: Path) -> None:
    with Dataset.open(collected, read_only=True) as dataset:
        (stored,) = chosen_models(dataset, ["mlp"])
        before = msgspec.structs.replace(model_part(dataset, stored), label="before")
    slower, time = before.operators[1], before.operators[1].times["1"]
    assert time.median_us is not None
    later = {"1": msgspec.structs.replace(time, median_us=3 * time.median_us)}
    operators = [msgspec.structs.replace(one, times=later) if one is slower else one for one in before.operators]
    after = msgspec.structs.replace(before, key="0" * 16, label="after", operators=operators)
    write_report(tmp_path / "both.html", report_of([before, after]))
    page = opened.open(tmp_path / "both.html")
    wholes, rows = (page.locator("#runs table").nth(number) for number in (0, 1))
    expect(wholes.locator("thead")).to_contain_text("after, relay")
    expect(rows.locator("tbody tr")).to_have_count(len(before.operators))
    expect(rows.locator("tbody tr").first).to_contain_text(slower.title)
    expect(rows.locator("tbody tr").first).to_contain_text("3.00")
    assert page.locator("#runs svg path").count() >= 1
    expect(page.locator("#devices")).to_be_hidden()
