"""A page in Chromium: what is on it, that it answers, that nothing leaves it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import Dataset
from op_profiler.report.page.report import write_model_report

from .browser import DRAW_ALL, NARROW, PATIENCE_MS, Opened, data_of

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=PATIENCE_MS)
AREAS = """async () => {
    const charts = (await import("#chart")).all();
    const areas = charts.flatMap((one) => one.getOption().series).find(({ type }) => type === "treemap").data;
    const withAll = (area) => [area, ...(area.children ?? []).flatMap(withAll)];
    return areas.flatMap(withAll).map((area) => area.itemStyle?.color);
}"""
FLAME = """async () => {
    const chart = (await import("#chart")).all().find((one) => one.getDom().closest("#treemap"));
    return chart.getOption().series[0].data.map(({ value: [from, to, row], name, itemStyle }) =>
        ({ from, to, row, name, colour: itemStyle?.color }));
}"""
FIGURES = """async () => {
    const { time, percent } = await import("#format");
    const charts = (await import("#chart")).all();
    const areas = charts.flatMap((one) => one.getOption().series).find(({ type }) => type === "treemap").data;
    const withAll = (area) => [area, ...(area.children ?? []).flatMap(withAll)];
    const total = areas.reduce((sum, one) => sum + one.value, 0);
    const whole = new Set(areas.flatMap(withAll).flatMap(({ value }) => [time(value), percent(value / total)]));
    const shown = [...document.querySelectorAll("#treemap svg text")].map((text) => text.textContent);
    const figures = shown.filter((text) => /^[0-9.,]+( [^ ]*)?…?$/.test(text));
    return { figures: figures.length, cut: figures.filter((text) => !whole.has(text)) };
}"""
ROOFS = """async () => {
    const chart = (await import("#chart")).all().find((one) => one.getDom().closest("#roofline"));
    return chart.getOption().series.filter(({ name }) => name.startsWith("roof ")).map(({ data, markPoint }) => {
        const [from, to] = data.map((point) => chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, point));
        const [label] = markPoint.data;
        const place = chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, label.coord);
        const height = from[1] + (to[1] - from[1]) * (place[0] - from[0]) / (to[0] - from[0]);
        const slope = Math.atan2(from[1] - to[1], to[0] - from[0]) * 180 / Math.PI;
        return { turned: label.label.rotate, slope, apart: Math.abs(place[1] - height) };
    });
}"""
TAP_FIRST = """async () => {
    const graph = (await import("#graph")).current();
    const box = graph.container().getBoundingClientRect();
    const place = graph.nodes()[0].renderedPosition();
    return { x: box.x + place.x, y: box.y + place.y };
}"""


@pytest.fixture(scope="module")
def path(collected: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    with Dataset.open(collected, read_only=True) as dataset:
        write_model_report(path, dataset, ["mlp", "f" * 16])
    return path


def names(page: Any) -> list[str]:
    return [row.inner_text() for row in page.query_selector_all(".tabulator-row a.operator")]


def test_every_section_has_its_marks(shared: Opened) -> None:
    page = shared.page
    assert page.title().startswith("mlp")
    assert page.locator("#overview .card").count() == 1
    assert len(names(page)) == 4
    for section in ("treemap", "timeline"):
        assert page.locator(f"#{section} svg path").count() >= 4, section
    for section in ("explain", "roofline", "prediction", "tuning"):
        assert page.locator(f"#{section} svg path").count() >= 4, section
    page.wait_for_selector('.graph[data-boxes="4"] canvas')


def test_the_graph_finds_zooms_and_opens(shared: Opened) -> None:
    page = shared.page
    graph = page.locator('.graph[data-boxes="4"]')
    graph.wait_for()
    page.get_by_label("Find in the graph").fill("softmax")
    page.wait_for_selector("#graph [role=status]:has-text('1 found')")
    page.keyboard.press("Enter")
    graph.press("+")
    graph.press("ArrowDown")
    page.get_by_role("button", name="Fit").click()
    graph.scroll_into_view_if_needed()
    place = page.evaluate(TAP_FIRST)
    page.mouse.click(place["x"], place["y"])
    page.wait_for_selector("dialog[open] h2")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.get_by_label("Find in the graph").fill("")


def test_the_table_sorts_filters_and_searches(opened: Opened, path: Path) -> None:
    page = opened.open(path)
    page.get_by_role("columnheader", name="output").click()
    outputs = [cell.inner_text() for cell in page.query_selector_all('.tabulator-cell[tabulator-field="shape"]')]
    assert outputs == sorted(outputs)
    page.keyboard.press("/")
    page.keyboard.type("softmax 1 x 10")
    expect(page.locator(".tabulator-row")).to_have_count(1)
    assert names(page) == ["softmax"] and "1 of 4" in page.locator("#operators [role=status]").inner_text()
    page.locator("#search").fill("")
    page.get_by_label("Kind of operator").select_option("dense_pack")
    expect(page.locator(".tabulator-row")).to_have_count(3)
    page.locator("#search").fill("nothing like it")
    page.wait_for_selector("text=No operator fits.")


def test_a_row_opens_its_operator_and_keys_lead_on_and_back(shared: Opened) -> None:
    page = shared.page
    page.locator(".tabulator-row a.operator").first.press("Enter")
    dialog = page.locator("dialog[open]")
    dialog.wait_for()
    first = dialog.locator("h2").inner_text()
    titles = dialog.locator("h3").all_inner_texts()
    assert titles[:2] == ["Why it takes this long", "Samples"]
    assert {
        "Schedule and loops",
        "Prediction",
        "What it computes",
    } <= set(titles)
    expect(dialog.locator("section", has_text="Counters")).to_contain_text("page faults")
    assert dialog.locator("svg path").count() > 10, "neither samples nor a histogram"
    assert dialog.locator(".loop.vectorized").count() >= 1
    assert "%" in dialog.get_by_label("Assembly of the hottest loop").inner_text()
    assert "1 of 4" in dialog.inner_text()
    page.keyboard.press("ArrowRight")
    expect(dialog).to_contain_text("2 of 4")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert "op=" not in page.url and first in names(page)


def test_all_areas_have_colours_of_kinds(shared: Opened) -> None:
    """Of groups too: where their operators are too small to be drawn, they are seen."""
    colours = shared.page.evaluate(AREAS)
    assert len(colours) > 4 and all(colours)


def test_a_flame_graph_has_all_modules_as_wide_as_their_share(opened: Opened, path: Path, tmp_path: Path) -> None:
    deeper = tmp_path / "deeper.html"
    deeper.write_text(re.sub(r'"(fc[12])"', r'"a.encoder.block.\1"', path.read_text()))
    page = opened.open(deeper)
    colours = set(page.evaluate(AREAS))
    form = page.locator("#treemap").get_by_role("group", name="View as")
    form.get_by_text("flame graph").click()
    bars = page.evaluate(FLAME)
    operators = data_of(path)["models"][0]["operators"]
    leaves = [bar for bar in bars if " | " in bar["name"]]
    assert [bar["name"].split(" | ")[0] for bar in leaves] == [one["title"] for one in operators]
    assert {bar["colour"] for bar in leaves} <= colours
    total = sum(one["times"]["1"]["median_us"] * len(one["calls"]) for one in operators)
    assert (bars[0]["row"], bars[0]["from"], bars[0]["to"]) == (0, 0, pytest.approx(total))
    assert sum(bar["to"] - bar["from"] for bar in leaves) == pytest.approx(total)
    for bar in bars[1:]:
        above = [one for one in bars if one["row"] == bar["row"] - 1 and one["from"] < bar["to"] - 1e-6]
        assert above[-1]["to"] >= bar["to"] - 1e-6, "it is below what it is part of"
    rows = {bar["name"]: bar["row"] for bar in bars}
    assert (rows["a.encoder.block"], rows["fc1"], rows["fc2"]) == (1, 2, 2), "the whole path, not only three parts"
    label = page.locator("#treemap svg text", has_text="fc1")
    assert str(label.text_content()).endswith(" %")
    label.click()
    assert page.evaluate(FLAME)[0]["name"] == "fc1"
    page.locator("#treemap svg text").first.click()
    assert page.evaluate(FLAME) == bars
    page.locator("#treemap svg text", has_text="dense").first.click()
    page.wait_for_selector("dialog[open] h2")


def test_what_operators_lose_is_told_and_how_to_get_to_know_it(opened: Opened, path: Path) -> None:
    page = opened.open(path)
    rows = page.locator("#explain tbody tr")
    assert 1 <= rows.count() <= 4 and "of 4 (" in page.locator("#explain .lead").inner_text()
    rows.first.locator("a.operator").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text(" takes ")
    expect(dialog).to_contain_text("hottest loop")
    page.keyboard.press("Escape")
    page.get_by_label("Model", exact=True).select_option("1")
    page.evaluate(DRAW_ALL)
    unknown = page.locator("#explain .unknown")
    expect(unknown).to_contain_text("not known yet")
    expect(unknown.locator("code")).to_contain_text("op-profiler explain")


@pytest.mark.parametrize("width", [1000, 1700])
def test_labels_of_the_roofline_stand_on_their_lines(opened: Opened, path: Path, width: int) -> None:
    """Also after the window changed its width."""
    page = opened.open(path)
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(500)
    roofs = page.evaluate(ROOFS)
    assert len(roofs) >= 2
    for roof in roofs:
        assert roof["turned"] == pytest.approx(roof["slope"], abs=1) and roof["apart"] < 1


def test_a_link_to_an_operator_opens_it(opened: Opened, path: Path) -> None:
    page = opened.open(path)
    link = page.locator(".tabulator-row a.operator").first.get_attribute("href")
    page.goto(path.as_uri() + str(link))
    page.reload()
    page.wait_for_selector("dialog[open] h2")


def test_a_link_names_its_model(opened: Opened, path: Path) -> None:
    second = data_of(path)["models"][1]
    opened.page.goto(f"{path.as_uri()}#model={second['key']}&op={second['operators'][0]['key']}")
    page = opened.page
    page.wait_for_selector("dialog[open] h2")
    expect(page.locator("#overview-title")).to_contain_text("<img")
    assert page.get_by_label("Model", exact=True).input_value() == "1"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert page.url.endswith(f"#model={second['key']}")


def test_the_table_goes_to_a_file_and_to_the_clipboard(opened: Opened, path: Path) -> None:
    page = opened.open(path)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#search").fill("softmax")
    expect(page.locator(".tabulator-row")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename == "mlp operators.csv"
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith("operator,layers,output,") and lines[1].startswith("softmax,") and len(lines) == 2
    page.locator("#operators").get_by_role("button", name="Copy").click()
    expect(page.locator("#operators").get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").splitlines()[1].startswith("softmax\t")


@pytest.mark.parametrize("section", ["treemap", "graph", "timeline"])
def test_colours_tell_efficiency_and_losses_on_demand(opened: Opened, path: Path, section: str) -> None:
    page = opened.open(path)
    place = page.locator(f"#{section}")
    for way, meaning in (("efficiency", "100 % of the peak"), ("loss", "all of its time")):
        place.get_by_role("group", name="Colour by").get_by_text(way, exact=True).click()
        expect(place.locator(".ramp")).to_contain_text(meaning)


@pytest.mark.parametrize("width", [400, 1400, 1920])
def test_every_width_is_used_and_no_figure_is_cut(chromium: Any, path: Path, width: int) -> None:
    context = chromium.browser.new_context(viewport={"width": width, "height": 900})
    opened = Opened(context.new_page())
    page = opened.open(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    used = page.locator("#operators .tabulator").bounding_box()
    assert used is not None and used["width"] >= 0.9 * width
    cells = [one.bounding_box() for one in page.query_selector_all(".tabulator-row:first-child .tabulator-cell")]
    assert all(cell["x"] + cell["width"] <= width + 1 for cell in cells[:3])
    if width == NARROW["width"]:
        assert (
            len({row.inner_text() for row in page.query_selector_all(".tabulator-row .tabulator-cell:first-child")})
            == 4
        )
    found = page.evaluate(FIGURES)
    assert found["figures"] >= 1 and found["cut"] == []  # how many rectangles have room depends on the measured shares
    opened.check()
    context.close()


def test_names_of_a_model_are_text_and_nothing_else(opened: Opened, path: Path) -> None:
    page = opened.open(path)
    page.get_by_label("Model", exact=True).select_option("1")
    expect(page.locator("#overview-title")).to_contain_text("<img")
    page.evaluate(DRAW_ALL)
    assert "failed" in page.locator("#overview .notice.warning").inner_text()
    page.get_by_role("group", name="Layers").get_by_text("outermost").click()
    page.wait_for_selector('.graph[data-boxes="2"] canvas')
    page.get_by_label("Find in the graph").fill("block1")
    page.wait_for_selector("#graph [role=status]:has-text('1 found')")
    page.locator(".tabulator-row a.operator").first.click()
    page.wait_for_selector("dialog[open]")
    page.locator("summary").last.click()
    assert page.title().startswith("mlp")
    assert page.locator("img").count() == 0 and page.locator("main b", has_text="net").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_telephone_needs_no_scrolling_aside(chromium: Any, path: Path, scheme: str) -> None:
    context = chromium.browser.new_context(viewport=NARROW, color_scheme=scheme)
    opened = Opened(context.new_page())
    page = opened.open(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")
    page.get_by_label("Light or dark").click()
    assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)") != light
    opened.check()
    context.close()


def test_it_prints_its_table_and_its_charts(shared: Opened) -> None:
    pytest.importorskip("pypdf")
    page = shared.page
    page.wait_for_selector('.graph[data-boxes="4"] canvas')
    text = shared.printed()
    for name in names(page):
        assert name in text
    for mark in ("µs a call", "GFLOP/s", "FLOP a byte", "of one run", "trial", "measured", "picture"):
        assert mark in text, mark
    assert "Show" not in text and "Search" not in text
