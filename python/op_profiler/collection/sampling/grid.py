"""Sampling configurations of TinyNAS: a grid of convolutions, and rules that exclude points of the grid.

Each line of a file is ``key value ...``; ``#`` starts a comment. Keys: batch, elmt_fused, filter_size,
min_feature_size, max_feature_size, number_feature_size, output_channel, stride, type (0 regular, 1 depthwise),
channel_ratio (input over output channels; 3 input channels are always tried as well), and ``skip_rule`` with names of
`RULES`.
Source: alibaba/lightweight-neural-architecture-search, tinynas/latency/op_profiler.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from op_profiler.errors import UnknownNameError, UsageError, check_known
from op_profiler.operators.kinds.convolutions import Conv2d

_STEM_CHANNELS = 3
_MOST_CHANNELS = 4096
_MOST_ELEMENTS = 943_718_400
_MOST_MULTIPLY_ADDS = 2.297e11


@dataclasses.dataclass(frozen=True)
class GridPoint:
    """One convolution of a sampling grid, whether or not the rules allow it; the attributes have TinyNAS's names."""

    depthwise: bool
    batch: int
    in_channels: int
    size: int
    out_channels: int
    kernel: int
    stride: int
    fused: bool

    @property
    def is_stem(self) -> bool:
        """Whether the convolution reads 3 channels, as the first layer of a network does."""
        return self.in_channels == _STEM_CHANNELS

    def convolution(self) -> Conv2d:
        """Return the convolution of this point; it adds a residual if `fused` is true, otherwise only a bias."""
        return Conv2d(
            batch=self.batch,
            in_channels=self.in_channels,
            height=self.size,
            width=self.size,
            out_channels=self.out_channels,
            kernel=self.kernel,
            stride=self.stride,
            groups=self.in_channels if self.depthwise else 1,
            epilogue="residual_relu" if self.fused else "bias_relu",
        )


def _multiply_adds(point: GridPoint) -> float:
    out_size = point.size / point.stride
    per_group = 1 if point.depthwise else point.in_channels
    return float(point.batch) * out_size * out_size * point.out_channels * per_group * point.kernel**2


RULES: dict[str, tuple[str, Callable[[GridPoint], bool]]] = {
    "channels_multiple_of_32": (
        "channels are multiples of 32; a stem's 3 input channels are exempt",
        lambda p: p.out_channels % 32 == 0 and (p.in_channels % 32 == 0 or p.is_stem),
    ),
    "no_stem": ("no 3 input channels; an oversight of the original, off unless requested", lambda p: not p.is_stem),
    "channels_at_most_4096": (
        f"at most {_MOST_CHANNELS} channels",
        lambda p: max(p.in_channels, p.out_channels) <= _MOST_CHANNELS,
    ),
    "stem_output_at_most_256": (
        "3 input channels only with at most 256 output channels",
        lambda p: not p.is_stem or p.out_channels <= 256,
    ),
    "stride_2_on_even_sizes": ("stride 2 only where the size is even", lambda p: p.stride != 2 or p.size % 2 == 0),
    "depthwise_keeps_channels": (
        "depthwise only with as many input as output channels",
        lambda p: not p.depthwise or p.in_channels == p.out_channels,
    ),
    "depthwise_not_fused": ("depthwise without a residual", lambda p: not (p.depthwise and p.fused)),
    "depthwise_kernel_at_most_7": ("depthwise kernels up to 7", lambda p: not p.depthwise or p.kernel <= 7),
    "elements_fit": (
        f"input and output of at most {_MOST_ELEMENTS:,} elements",
        lambda p: p.batch * p.size**2 * max(p.in_channels, p.out_channels / p.stride**2) <= _MOST_ELEMENTS,
    ),
    "work_fits": (
        f"at most {_MOST_MULTIPLY_ADDS:.4g} multiply-adds",
        lambda p: _multiply_adds(p) <= _MOST_MULTIPLY_ADDS,
    ),
}
"""Requirement in words and test of each rule, by name; a point that does not pass the test is excluded."""

ORIGINAL_RULES = frozenset(RULES)
"""Names of all rules; TinyNAS applies all of them."""
DEFAULT_RULES = ORIGINAL_RULES - {"no_stem"}

_INTEGERS = (
    "batch",
    "elmt_fused",
    "filter_size",
    "min_feature_size",
    "max_feature_size",
    "number_feature_size",
    "output_channel",
    "stride",
    "type",
)
_SINGLE = ("min_feature_size", "max_feature_size", "number_feature_size")


@dataclasses.dataclass(frozen=True)
class Grid:
    """A sampling configuration of TinyNAS.

    Attributes:
        values: numbers by key of the configuration file.
        skipped_rules: names of `RULES` that the file disables.
    """

    values: dict[str, tuple[float, ...]]
    skipped_rules: frozenset[str] = frozenset()

    def sizes(self) -> list[int]:
        """Return feature sizes in equal steps of log2, from smallest to largest; inner sizes are rounded up to even."""
        low, high, count = (int(self.values[key][0]) for key in _SINGLE)
        if count < 2:
            return [low]
        step = (math.log2(high) - math.log2(low)) / (count - 1)
        inner = [int(2 ** (math.log2(low) + step * i)) for i in range(1, count - 1)]
        return [low, *(size + size % 2 for size in inner), high]

    def points(self) -> Iterator[GridPoint]:
        """Yield every point of the grid, whether the rules allow it or not."""
        axes = [self.values[key] for key in ("type", "batch", "elmt_fused", "filter_size", "stride", "output_channel")]
        for kind, batch, fused, kernel, stride, out in itertools.product(*axes):
            inputs = [_STEM_CHANNELS, *(int(ratio * out) for ratio in self.values["channel_ratio"])]
            for channels, size in itertools.product(inputs, self.sizes()):
                yield GridPoint(bool(kind), int(batch), channels, size, int(out), int(kernel), int(stride), bool(fused))

    def valid_points(self, rules: Collection[str] = DEFAULT_RULES) -> list[GridPoint]:
        """Return the points that all rules allow, each once.

        Args:
            rules: names of `RULES` to apply; rules that the file disables are not applied.

        Raises:
            UnknownNameError: a rule is not in `RULES`.
        """
        for name in rules:
            check_known("rule", name, RULES)
        tests = [RULES[name][1] for name in rules if name not in self.skipped_rules]
        return list(dict.fromkeys(p for p in self.points() if p.in_channels > 0 and all(test(p) for test in tests)))


def read_grid(path: Path) -> Grid:
    """Return the grid in a configuration file.

    Raises:
        UsageError: the file cannot be read, or a key is unknown, missing or has an invalid value.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path} cannot be read: {error}") from error
    values: dict[str, tuple[float, ...]] = {}
    skipped: set[str] = set()
    for number, line in enumerate(lines, 1):
        key, *words = line.partition("#")[0].split() or [""]
        if not key:
            continue
        if key == "skip_rule":
            skipped.update(words)
            continue
        if key not in (*_INTEGERS, "channel_ratio"):
            raise UnknownNameError(f"key in line {number} of {path}", key, (*_INTEGERS, "channel_ratio", "skip_rule"))
        values[key] = _numbers(words, key, f"{path}, line {number}")
    missing = [key for key in (*_INTEGERS, "channel_ratio") if key not in values]
    if missing:
        raise UsageError(f"--config {path} lacks {', '.join(missing)}")
    unknown = skipped - set(RULES)
    if unknown:
        raise UnknownNameError("rule", min(unknown), RULES)
    return Grid(values, frozenset(skipped))


def _numbers(words: list[str], key: str, place: str) -> tuple[float, ...]:
    try:
        found = tuple(float(word) if key == "channel_ratio" else int(word) for word in words)
    except ValueError:
        found = ()
    least = 0 if key in ("elmt_fused", "type") else 1e-9
    if not found or (key in _SINGLE and len(found) != 1) or min(found) < least:
        expected = "one positive number" if key in _SINGLE else "positive numbers"
        raise UsageError(f"{place}: {key} takes {expected}, not {' '.join(words)!r}")
    return found
