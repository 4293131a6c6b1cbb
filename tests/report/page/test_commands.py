"""`--report` of the commands: what each of them found, in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...command_line import ROOT, op_profiler
from .browser import PATIENCE_MS, Opened, data_of

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE_MS)


def sections(page: object) -> list[str]:
    """Titles of those that are shown."""
    found: list[str] = page.locator("main > section:not([hidden]) > h2").all_inner_texts()  # type: ignore[attr-defined]
    return found


def written(path: Path, *arguments: str) -> Path:
    done = op_profiler(*arguments, "--report", str(path), "--quiet", folder=path.parent)
    assert done.returncode == 0, done.stderr
    return path


def test_a_collection(opened: Opened, collected: str, tmp_path: Path) -> None:
    """All is in the dataset already."""
    arguments = ("collect", "--modelname", "mlp", "--threads", "1", "--db", collected)
    path = written(tmp_path / "page.html", *arguments)
    (model,) = data_of(path)["models"]
    assert model["name"] == "mlp" and model["runs"][0]["whole"]["median_us"] > 0
    page = opened.open(path)
    expect(page.locator("#operators .tabulator-row")).to_have_count(4)
    assert {"Operators", "Model graph", "Roofline", "One run", "Tuning"} <= set(sections(page))


def test_a_prediction(opened: Opened, tmp_path: Path) -> None:
    path = written(tmp_path / "page.html", "predict", "mlp", "--threads", "1,2")
    (model,) = data_of(path)["models"]
    assert [one["threads"] for one in model["predictions"]] == [1, 2] and model["predicted"] and model["rooflines"]
    assert "times of " in model["predictor"], "whose times these are"
    page = opened.open(path)
    assert page.locator("#overview .card").count() == 2
    assert "Nothing here was measured" in page.locator("#overview .notice.warning").inner_text()
    expect(page.locator("#operators .tabulator-row")).to_have_count(4)
    assert page.locator("#treemap svg path").count() >= 4
    assert not {"Model graph", "One run", "Tuning"} & set(sections(page))
    page.locator(".tabulator-row a.operator").first.click()
    expect(page.locator("dialog[open]")).to_contain_text("Prediction")


def test_a_plan_beside_sequential(opened: Opened, tmp_path: Path) -> None:
    arguments = ("corun", "mlp", "rnn", "--policy", "greedy", "--rounds", "7", "--schedules", "none")
    page = opened.open(written(tmp_path / "page.html", *arguments))
    assert sections(page) == ["Side by side"]
    assert "one operator after the other" in page.locator("#corun .verdict").inner_text()
    labels = page.locator("#corun svg text").all_text_contents()
    assert {"plan, core 0", "sequential, core 0", "mlp", "rnn"} <= set(labels)
    bars = page.evaluate(
        """async () => {
            const series = (await import("#chart")).all()[0].getOption().series.flatMap((one) => one.data);
            const values = series.map(({ value }) => value);
            const lanes = new Set(values.map(([row]) => row)).size / 2;
            return [values.filter(([row]) => row < lanes), values.filter(([row]) => row >= lanes)];
        }"""
    )
    assert all(len(one) >= 4 for one in bars)
    assert all(start < end for one in bars for _, start, end in one)
    for lane in {row for row, _, _ in bars[1]}:
        times = sorted((start, end) for row, start, end in bars[1] if row == lane)
        assert all(end <= later + 1e-3 for (_, end), (later, _) in zip(times, times[1:])), "one after the other"


def test_the_plan_that_was_timed_is_the_one_that_is_drawn(opened: Opened, tmp_path: Path) -> None:
    """`auto` returns one operator after the other if no plan is faster; the page has what was timed."""
    path = written(tmp_path / "page.html", "corun", "mlp", "--policy", "auto", "--rounds", "7", "--schedules", "none")
    (corun,) = data_of(path)["coruns"]
    page = opened.open(path)
    assert f"({corun['policy']})" in page.locator("#corun .verdict").inner_text()
    assert page.locator("#corun h3").inner_text() == f"mlp: {corun['policy']}"


def test_samples(opened: Opened, tmp_path: Path) -> None:
    arguments = ("sample", "--kinds", "dense,softmax", "--count", "4", "--rounds", "7", "--threads", "1")
    page = opened.open(written(tmp_path / "page.html", *arguments, "--db", "sqlite:///samples.db"))
    assert page.locator("#operators .tabulator-row").count() >= 2
    page.locator(".tabulator-row a.operator").first.click()
    expect(page.locator("dialog[open] h3").first).to_be_visible()


def test_an_analysis(opened: Opened, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    trials = str(ROOT / "results" / "schedule_trials.parquet")
    only = ("--anchor", "nn.contrib_conv2d_NCHWc", "--factor", "vectorize,fuse")
    path = written(tmp_path / "page.html", "analyze", "--file", trials, *only)
    analysis = data_of(path)["analysis"]
    assert {one["factor"] for one in analysis["relations"]} == {"vectorize", "fuse"} and analysis["turns"]
    page = opened.open(path)
    assert sections(page) == ["Factors"]
    assert page.locator("#analysis svg path").count() >= 2
    assert "vectorize" in page.locator("#analysis svg text").all_text_contents()
    assert page.locator("#analysis tbody tr").count() >= 1
