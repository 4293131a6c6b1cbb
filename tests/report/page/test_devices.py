"""A model on two devices, in Chromium: both beside each other, and where they disagree most."""

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


def test_devices_stand_beside_each_other(opened: Opened, collected: str, tmp_path: Path) -> None:
    with Dataset.open(collected, read_only=True) as dataset:
        (stored,) = chosen_models(dataset, ["mlp"])
        here = model_part(dataset, stored)
    odd = here.operators[1]
    operators = [
        msgspec.structs.replace(
            operator,
            times={
                threads: msgspec.structs.replace(time, median_us=time.median_us * (40 if operator is odd else 2))
                for threads, time in operator.times.items()
                if time.median_us is not None
            },
        )
        for operator in here.operators
    ]
    device = msgspec.structs.replace(here.device, key="0" * 16, processor="another <b>processor</b>")
    there = msgspec.structs.replace(here, key="0" * 16, device=device, operators=operators)
    write_report(tmp_path / "both.html", report_of([here, there]))
    page = opened.open(tmp_path / "both.html")
    machines, rows = (page.locator("#devices table").nth(number).locator("tbody tr") for number in (0, 1))
    expect(machines).to_have_count(2)
    expect(machines.nth(1)).to_contain_text("another <b>processor</b>")
    expect(rows).to_have_count(len(here.operators))
    expect(page.locator("#devices table").nth(1).locator("thead")).to_contain_text("shares differ by")
    fastest = odd.times["1"].median_us
    assert fastest is not None
    shown = float(rows.first.locator("td").nth(3).inner_text().replace(",", ""))
    assert shown == pytest.approx(fastest * 40, rel=0.01)


@pytest.mark.parametrize("other", ["label", "compiler", "content"])
def test_another_run_is_no_other_device(opened: Opened, collected: str, tmp_path: Path, other: str) -> None:
    """`before` of one machine stands beside no `after` of another one, nor one of another length."""
    with Dataset.open(collected, read_only=True) as dataset:
        (stored,) = chosen_models(dataset, ["mlp"])
        here = model_part(dataset, stored)
    assert here.compiler == "relay" and here.content
    device = msgspec.structs.replace(here.device, key="0" * 16)
    there = msgspec.structs.replace(here, key="0" * 16, device=device, **{other: "another"})
    write_report(tmp_path / f"{other}.html", report_of([here, there]))
    page = opened.open(tmp_path / f"{other}.html")
    expect(page.locator("#overview")).to_be_visible()
    expect(page.locator("#devices")).to_be_hidden()


def test_one_device_has_no_such_section(opened: Opened, collected: str, tmp_path: Path) -> None:
    with Dataset.open(collected, read_only=True) as dataset:
        (stored,) = chosen_models(dataset, ["mlp"])
        write_report(tmp_path / "one.html", report_of([model_part(dataset, stored)]))
    page = opened.open(tmp_path / "one.html")
    expect(page.locator("#overview .card")).to_have_count(1)
    expect(page.locator("#devices")).to_be_hidden()
