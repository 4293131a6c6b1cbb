"""A dataset with a real model in it, and a real browser."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import Dataset, Row
from op_profiler.measure.measurement import Measurement
from op_profiler.schedules.factors import factors_of_knobs
from op_profiler.schedules.schedule import Schedule

from ...command_line import op_profiler
from .browser import WIDE, Opened

HOSTILE = "</script><img src=x onerror=\"document.title='attacked'\"><b>net</b>"


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory, cache_folder: Path) -> str:
    """mlp, measured here at one thread and explained, with a search; beside it one whose names no page must believe."""
    url = f"sqlite:///{tmp_path_factory.mktemp('report')}/results.db"
    done = op_profiler("collect", "--modelname", "mlp", "--threads", "1", "--counters", "--quiet", "--db", url)
    assert done.returncode == 0, done.stderr
    explained = op_profiler("explain", "mlp", "--threads", "1", "--trials-from", "none", "--quiet", "--db", url)
    assert explained.returncode == 0, explained.stderr
    with Dataset.open(url) as dataset:
        _add_search(dataset)
        _add_hostile(dataset)
    return url


def _add_hostile(dataset: Dataset) -> None:
    (model,) = dataset.models()
    assert model.device_key is not None
    device = dataset.find_device(model.device_key)
    timing = dataset.find_model_timing(model.key, threads=1, cache="model")
    assert device is not None and timing is not None
    identity = {f: getattr(model, f) for f in ("source", "batch_size", "precision", "executor", "target", "device_key")}
    dataset.add_model(key="f" * 16, name=HOSTILE, notes=[HOSTILE], **identity)
    operators = [
        (dataclasses.replace(operator, name=HOSTILE, op_names=(HOSTILE,), attrs=({HOSTILE: HOSTILE},)), positions)
        for operator, positions in dataset.model_operators(model.key)
    ]
    layers = {operator.key: [[f"block{place // 2}.{HOSTILE}"]] for place, (operator, _) in enumerate(operators)}
    code = {operator.key: HOSTILE for operator, _ in operators}
    dataset.add_operators("f" * 16, operators, code=code, locations=layers)
    dataset.record_model_timing("f" * 16, timing.settings, device, timing.timing)
    dataset.record_all(
        Row(
            operator_key=operator.key,
            schedule=Schedule(HOSTILE, {HOSTILE: HOSTILE}),
            settings=timing.settings,
            device=device,
            model_key="f" * 16,
            measurement=Measurement(error=HOSTILE),
        )
        for operator, _ in operators
    )


_closing = contextlib.ExitStack()


@functools.cache
def _context() -> Any:
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium on this machine; Debian's package is called chromium")
    driver = _closing.enter_context(playwright.sync_playwright())
    browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
    _closing.callback(browser.close)
    return browser.new_context(viewport=WIDE, offline=True, color_scheme="light")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """The browser goes with the last test here: as long as it is there, the main thread has an event loop that runs,
    beside which no other one does."""
    try:
        yield
    finally:
        if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
            _context.cache_clear()
            _closing.close()


@pytest.fixture(scope="module")
def chromium() -> Any:
    """A context of the system's browser. Pages of one context share compiled scripts, which is half of their time."""
    return _context()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Opened]:
    opened = Opened(chromium.new_page())
    yield opened
    opened.check()
    opened.page.evaluate("() => { try { localStorage.clear(); } catch {} }")
    opened.page.close()


@pytest.fixture(scope="module")
def shared(chromium: Any, path: Path) -> Iterator[Opened]:
    """The page at the `path` of a file of tests, opened once for those that leave it as it was: that takes longest."""
    opened = Opened(chromium.new_page())
    opened.open(path)
    yield opened
    opened.check()
    opened.page.close()


def _add_search(dataset: Dataset) -> None:
    """Trials of the first heavy op of mlp, its finalists, and torch's kernel for it."""
    (model,) = (model for model in dataset.models() if model.name == "mlp")
    timing = dataset.find_model_timing(model.key, threads=1, cache="model")
    device = dataset.find_device(str(model.device_key))
    assert timing is not None and device is not None
    fused, _ = dataset.model_operators(model.key)[0]
    anchor = dataclasses.replace(
        fused, name="dense", op_names=fused.op_names[:1], attrs=fused.attrs[:1], params=fused.params[:1]
    )
    dataset.add_anchor(anchor)
    hot = dataclasses.replace(timing.settings, cache="hot", executor="kernel")

    def row(template: str, origin: Any, us: float, tile: int) -> Row:
        schedule = Schedule(template, {"tile_x": [-1, tile]}, origin, factors_of_knobs({"tile_x": [-1, tile]}))
        measured = Measurement(samples_us=((us,),), min_us=us, median_us=us, mean_us=us)
        return Row(operator_key=anchor.key, schedule=schedule, settings=hot, device=device, measurement=measured)

    trials = [row("dense.op_profiler", "trial", 100.0 / tile, tile) for tile in range(1, 21)]
    done = [
        row("dense.op_profiler", "tuned", 6.0, 20),
        row("dense.x86", "tuned", 9.0, 4),
        row("torch", "vendor", 7.0, 1),
    ]
    dataset.record_all([*trials, *done])
