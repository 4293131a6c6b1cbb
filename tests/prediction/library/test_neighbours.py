"""What a table says about a convolution that it does not hold."""

from __future__ import annotations

import numpy as np

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.prediction.library.neighbours import surroundings

# depthwise, batch, in_channels, size, out_channels, kernel, stride, fused
_SMALL, _LARGE = (0, 16, 64, 8, 64, 1, 1, 0), (0, 4, 64, 32, 64, 1, 1, 0)  # 1,024 and 4,096 rows


def test_products_with_fewer_and_more_rows_are_neighbours_on_each_side() -> None:
    known = Convolutions.of([_SMALL, _LARGE, (0, 16, 32, 8, 64, 1, 1, 0)])
    asked = Convolutions.of([(0, 2, 64, 32, 64, 1, 1, 0)])  # 2,048 rows: half way on a logarithmic scale
    found = surroundings(known, np.array([1.0, 3.0, 9.0]), asked)
    before, after, middle, to_before, to_after = found.features[0, -9:-4]
    assert (before, after) == (1.0, 3.0)
    np.testing.assert_allclose([middle, to_before, to_after], [2.0, -1.0, 1.0], atol=2e-3)


def test_products_with_as_many_rows_are_neighbours_and_no_entry_is_its_own() -> None:
    """One pixel of a batch and one of an image are both a row."""
    as_many = (0, 1, 64, 32, 64, 1, 1, 0)
    known = Convolutions.of([_SMALL, as_many])
    found = surroundings(known, np.array([1.0, 2.0]), known)
    np.testing.assert_allclose(found.features[:, -9], [2.0, np.nan])
    np.testing.assert_allclose(found.features[:, -8], [np.nan, 1.0])
    np.testing.assert_allclose(found.features[0, -6], 0.0, atol=2e-3)


def test_a_device_interpolates_between_sizes_and_answers_with_the_nearest_beyond_them() -> None:
    known = Convolutions.of([(0, 1, 64, size, 64, 3, 1, 0) for size in (8, 32)])
    asked = Convolutions.of([(0, 1, 64, 16, 64, 3, 1, 0), (0, 1, 64, 64, 64, 3, 1, 0), (0, 1, 64, 64, 64, 5, 2, 0)])
    found = surroundings(known, np.array([1.0, 5.0]), asked)
    np.testing.assert_allclose(found.estimate, [3.0, 5.0, 0.0])
