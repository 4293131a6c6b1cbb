"""Knobs of TVM's own templates in the words of the dataset."""

from __future__ import annotations

import pytest

from op_profiler.schedules.factors import Factors, factors_of_knobs


@pytest.mark.parametrize(
    ("knobs", "wanted"),
    [
        (
            {"tile_ic": [-1, 16], "tile_oc": [-1, 32], "tile_ow": [-1, 7], "unroll_kw": True},
            Factors(tile={"oc": 32, "ow": 7}, split={"ic": 16}, vectorize=32, unroll="unroll_kw"),
        ),
        (
            {"tile_y": [-1, 2, 8], "tile_x": [-1, 3, 16], "tile_k": [-1, 4], "tile_inner": [-1, 4]},
            Factors(tile={"y": 8, "x": 16, "inner": 4}, split={"k": 4}, vectorize=16),
        ),
        (
            {"tile_co": [8, 4], "reorder_0": [0, 1, 2], "ann_reduce": ["none", "unroll"], "ann_spatial": ["vec"]},
            Factors(
                tile={"co": 4}, vectorize=4, unroll="ann_reduce[1]", reorder="reorder_0=[0, 1, 2] ann_spatial[0]=vec"
            ),
        ),
        ({"auto_unroll_max_step": 512, "unroll_explicit": 0}, Factors(unroll="auto_unroll_max_step=512")),
        ({}, Factors()),
    ],
)
def test_knobs_become_factors(knobs: dict[str, object], wanted: Factors) -> None:
    assert factors_of_knobs(knobs) == wanted
