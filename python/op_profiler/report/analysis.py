"""Plots of an analysis: latency over a factor with turnaround points, and a map of correlations.

Each plot is written as PNG (by matplotlib's Agg) and as SVG; no display is needed, and pyplot's global state is not
changed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.analysis.correlations import Correlation, comparable
from op_profiler.analysis.table import Factor, FactorTable
from op_profiler.analysis.turnaround import Turnaround
from op_profiler.errors import DatasetError, needing
from op_profiler.files import atomic_file

if TYPE_CHECKING:
    import pandas

FORMATS = ("png", "svg")
_CATEGORIES = 12
"""Largest number of categories of a factor that are drawn: those with the most samples."""


def write_plots(
    table: FactorTable,
    factors: Sequence[Factor],
    found: Sequence[Correlation],
    turnarounds: Sequence[Turnaround],
    folder: Path,
) -> list[Path]:
    """Write one plot for each anchor and factor with enough samples, and one map of the correlations.

    Args:
        folder: created if it is missing; files of the same names are replaced.

    Returns:
        Paths of the written files; each plot is written in all of `FORMATS`.

    Raises:
        MissingPackageError: matplotlib is not installed.
        DatasetError: the folder cannot be written.
    """
    written: list[Path] = []
    enough = {(c.anchor, c.factor) for c in found if c.not_enough is None}
    try:
        for (anchor, frame), factor in itertools.product(table.frame.groupby("anchor", sort=True), factors):
            curves = [t for t in turnarounds if (t.anchor, t.factor) == (anchor, factor.name)]
            if curves or (anchor, factor.name) in enough:
                figure = _factor_figure(str(anchor), frame, factor, curves)
                written += _save(figure, folder, f"{factor.name}_{anchor}")
        written += _save(_map_figure(found), folder, "correlations")
    except OSError as error:
        reason = error.strerror or error
        raise DatasetError(f"cannot write to {folder}: {reason}; give another folder with --plots") from error
    return written


def _figure(width: float, height: float) -> Any:
    with needing("matplotlib", "--plots", extra="predict"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, folder: Path, name: str) -> list[Path]:
    paths = [folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.{format}" for format in FORMATS]
    for path in paths:
        with atomic_file(path) as partial:
            figure.savefig(partial, dpi=120, format=path.suffix[1:])
    return paths


def _factor_figure(anchor: str, frame: pandas.DataFrame, factor: Factor, curves: Sequence[Turnaround]) -> Any:
    figure = _figure(7, 4.5)
    axes = figure.add_subplot()
    axes.set_title(f"{anchor}: latency over {factor.name}")
    axes.set_xlabel(factor.name + (f" ({factor.unit})" if factor.unit else ""))
    samples = comparable(frame, factor)
    if curves:
        _draw_curves(axes, curves)
    elif factor.kind == "category":
        _draw_categories(axes, samples)
    else:
        axes.plot(samples["x"], np.exp(samples["y"]), "o", markersize=3, alpha=0.5)
        _logarithmic(axes, samples["x"])
    if not curves:
        between = factor.level == "operator"
        axes.set_ylabel("latency (us)" if between else "latency over the median of its operator")
    axes.set_yscale("log")
    axes.grid(visible=True, alpha=0.3)
    return figure


def _draw_curves(axes: Any, curves: Sequence[Turnaround]) -> None:
    """Draw one line per operator, relative to its latency at the smallest value, with a dot at its turnaround point."""
    for curve in curves:
        cost = np.array(curve.cost) / curve.cost[0]
        (line,) = axes.plot(curve.values, cost, linewidth=0.8, alpha=0.6)
        if curve.value is not None:
            where = curve.values.index(curve.value)
            axes.plot(curve.values[where], cost[where], "o", color=line.get_color(), markersize=6)
    turned = sum(curve.value is not None for curve in curves)
    axes.plot([], [], "o", color="gray", label=f"turnaround point ({turned} of {len(curves)} curves have one)")
    axes.legend(loc="best", fontsize="small")
    axes.set_ylabel("latency per work" * curves[0].per_work + "latency" * (not curves[0].per_work) + ", smallest = 1")
    _logarithmic(axes, [value for curve in curves for value in curve.values])


def _draw_categories(axes: Any, samples: pandas.DataFrame) -> None:
    names = samples["x"].astype(str)
    most = list(names.value_counts().index[:_CATEGORIES])
    axes.boxplot([np.exp(samples["y"][names == name]) for name in most], tick_labels=most, showfliers=False)
    axes.tick_params(axis="x", labelrotation=60, labelsize="x-small")
    if names.nunique() > len(most):
        axes.set_title(f"{axes.get_title()} ({len(most)} most frequent of {names.nunique()})")


def _logarithmic(axes: Any, values: Iterable[float]) -> None:
    """Use a scale to base 2 with plain numbers, if the values allow it."""
    from matplotlib.ticker import ScalarFormatter

    if min(values, default=0) > 0:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(ScalarFormatter())


def _map_figure(found: Sequence[Correlation]) -> Any:
    """Draw Spearman's coefficient of numeric factors (-1 to 1) next to eta of categories (0 to 1)."""
    parts = [("number", "spearman", "Spearman", "RdBu_r", -1.0), ("category", "eta", "eta", "Purples", 0.0)]
    parts = [part for part in parts if any(c.kind == part[0] for c in found)]
    anchors = sorted({c.anchor for c in found})
    widths = [len({c.factor for c in found if c.kind == part[0]}) for part in parts]
    figure = _figure(4 + 0.55 * sum(widths), 2.5 + 0.5 * len(anchors))
    grid = figure.subplots(1, max(len(parts), 1), squeeze=False, width_ratios=widths or None)[0]
    for axes, (kind, field, title, colours, lowest) in zip(grid, parts):
        columns = list(dict.fromkeys(c.factor for c in found if c.kind == kind))
        values = np.full((len(anchors), len(columns)), np.nan)
        for c in found:
            if c.kind == kind and getattr(c, field) is not None:
                values[anchors.index(c.anchor), columns.index(c.factor)] = getattr(c, field)
        image = axes.imshow(values, cmap=colours, vmin=lowest, vmax=1, aspect="auto")
        axes.set_facecolor("lightgray")  # seen where there is not enough
        axes.set_xticks(range(len(columns)), columns, rotation=60, ha="right", fontsize="small")
        axes.set_yticks(range(len(anchors)), anchors, fontsize="small")
        axes.set_title(f"{title} with latency; gray: not enough", fontsize="small")
        for (row, column), value in np.ndenumerate(values):
            text = "n/a" if np.isnan(value) else f"{value:.2f}"
            colour = "white" if abs(value) > 0.6 else "black"
            axes.text(column, row, text, ha="center", va="center", fontsize="x-small", color=colour)
        figure.colorbar(image, ax=axes)
    return figure
