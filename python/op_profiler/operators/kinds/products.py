"""Matrix products with weights and of activations, and the packing of weights at run time."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

from op_profiler.operators.kinds import sizes
from op_profiler.operators.kinds.point import EPILOGUES, Draw, Point, Scope, activate, epilogue, requantized

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node

_WINDOWS = (2, 4, 7, 8, 14)


@dataclasses.dataclass(frozen=True)
class Dense(Point):
    """Fully connected layer."""

    kind = "dense"
    described = True
    choices = {"epilogue": EPILOGUES}
    rows: int
    in_features: int
    out_features: int
    epilogue: str = "none"

    def expression(self, scope: Scope) -> Node:
        """Return ``nn.dense`` of an input [rows, in_features] and a weight [out_features, in_features], then the
        epilogue."""
        x = scope.relay.nn.dense(
            scope.input(self.rows, self.in_features),
            scope.weight(self.out_features, self.in_features),
            out_dtype=scope.out_dtype,
        )
        return epilogue(scope, x, (self.rows, self.out_features), self.epilogue)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: one multiply-add per row, input feature and output feature; each matrix moves once."""
        return _of_product(self.rows, self.in_features, self.out_features)


@dataclasses.dataclass(frozen=True)
class BatchMatmul(Point):
    """Product of activations: [batch, rows, inner] by [batch, columns, inner] transposed, or by [batch, inner, columns]
    without transposition, which importers of torch and ONNX create and for which TVM has another kernel.
    """

    kind = "batch_matmul"
    described = True
    batch: int
    rows: int
    columns: int
    inner: int
    transposed: bool = True

    def expression(self, scope: Scope) -> Node:
        """Return ``nn.batch_matmul`` of two inputs."""
        left = scope.input(self.batch, self.rows, self.inner)
        shape = (self.columns, self.inner) if self.transposed else (self.inner, self.columns)
        right = scope.input(self.batch, *shape)
        nn = scope.relay.nn
        return nn.batch_matmul(left, right, out_dtype=scope.out_dtype, transpose_a=False, transpose_b=self.transposed)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: one multiply-add per row, column and inner index of a product; each matrix moves once."""
        operations, moved = _of_product(self.rows, self.inner, self.columns)
        return self.batch * operations, self.batch * moved


@dataclasses.dataclass(frozen=True)
class DenseOfActivations(Point):
    """A fully connected layer whose weight is computed at run time, so that it cannot be packed in advance.

    TVM packs the weight at run time, in a separate operator if the product is blocked. If `transposed` is set, the
    weight is [in_features, out_features], as in torch's matmul and tied embeddings, and is also transposed.
    """

    kind = "dense_of_activations"
    rows: int
    in_features: int
    out_features: int
    transposed: bool = False

    def expression(self, scope: Scope) -> Node:
        """Return ``nn.dense`` of two inputs, the second after a transposition if `transposed` is set."""
        relay = scope.relay
        if self.transposed:
            weight = relay.transpose(scope.input(self.in_features, self.out_features), axes=[1, 0])
        else:
            weight = scope.input(self.out_features, self.in_features)
        return relay.nn.dense(scope.input(self.rows, self.in_features), weight, out_dtype=scope.out_dtype)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: the operations of `Dense`; the weight, which is packed at run time, moves three times."""
        return _of_product(self.rows, self.in_features, self.out_features, moves=3)


@dataclasses.dataclass(frozen=True)
class GatedDense(Point):
    """A fully connected layer of one row after a hardswish, as in MobileNetV3: TVM folds the gate into the weight, and
    packs the weight at run time.
    """

    kind = "gated_dense"
    in_features: int
    out_features: int

    def expression(self, scope: Scope) -> Node:
        """Return ``nn.dense`` of a hardswish of an input [1, in_features] and a weight."""
        x = activate(scope, scope.input(1, self.in_features), "hardswish")
        return scope.relay.nn.dense(x, scope.weight(self.out_features, self.in_features), out_dtype=scope.out_dtype)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: the operations of `Dense` with one row; the weight, which is packed at run time, moves
        three times."""
        return _of_product(1, self.in_features, self.out_features, moves=3)


@dataclasses.dataclass(frozen=True)
class AttentionEinsum(Point):
    """A product of attention that a model expresses as an einsum over heads. No schedule blocks it, and its loops
    also split [rows, heads * width] into heads.

    Attributes:
        windows: number of windows of tokens, each with separate attention.
        scores: True: the product of `rows` queries and `keys` keys; False: the product of attention weights
            [rows, keys] and `keys` values.
    """

    kind = "attention_einsum"
    windows: int
    rows: int
    keys: int
    heads: int
    width: int
    scores: bool

    def expression(self, scope: Scope) -> Node:
        """Return the scores, divided by the root of `width`; or the weighted values with the heads joined again."""
        relay, together = scope.relay, self.heads * self.width
        if self.scores:
            product = relay.einsum([self._heads(scope, self.rows), self._heads(scope, self.keys)], "bhlk,bhtk->bhlt")
            return relay.multiply(product, scope.constant(self.width**-0.5))
        weights = scope.input(self.windows, self.heads, self.rows, self.keys)
        product = relay.einsum([weights, self._heads(scope, self.keys)], "bhlt,bhtv->bhlv")
        return relay.reshape(relay.transpose(product, (0, 2, 1, 3)), (self.windows * self.rows, together))

    def _heads(self, scope: Scope, tokens: int) -> Node:
        relay = scope.relay
        x = scope.input(self.windows * tokens, self.heads * self.width)
        return relay.transpose(relay.reshape(x, (self.windows, tokens, self.heads, self.width)), (0, 2, 1, 3))

    def work(self) -> tuple[float, float]:
        """See `Point.work`: one multiply-add per window, head, row, key and element of the width; scores and tokens
        move once."""
        products = float(self.windows * self.heads * self.rows * self.keys)
        tokens = self.windows * self.heads * self.width * (self.rows + self.keys)
        return 2.0 * products * self.width, products + tokens


@dataclasses.dataclass(frozen=True)
class Repacking(Point):
    """The weight [rows, columns] of a dense layer, packed in blocks of rows at run time.

    Each value of a block comes from another row, `4 * columns` bytes apart. If this distance is a power of two, the
    rows map to few sets of a cache.
    """

    kind = "repacking"
    rows: int
    columns: int
    block: int

    def expression(self, scope: Scope) -> Node:
        """Return ``layout_transform`` from NC to ``NC{block}n``."""
        x = scope.input(self.rows, self.columns)
        return scope.relay.layout_transform(x, src_layout="NC", dst_layout=f"NC{self.block}n")

    def work(self) -> tuple[float, float]:
        """See `Point.work`: zero operations; input and output move once."""
        return 0.0, 2.0 * self.rows * self.columns


@dataclasses.dataclass(frozen=True)
class Int8Dense(Point):
    """Fully connected layer of int8 with sums in int32, a bias, relu, and conversion to int8."""

    kind = "dense_int8"
    precision = "int8"
    rows: int
    in_features: int
    out_features: int

    def expression(self, scope: Scope) -> Node:
        """Return ``nn.dense`` of int8 with int32 sums, plus an int32 bias [1, out_features], requantized to int8."""
        relay = scope.relay
        data = scope.input(self.rows, self.in_features, dtype="int8")
        weight = scope.weight(self.out_features, self.in_features, dtype="int8")
        sums = relay.nn.dense(data, weight, out_dtype="int32")
        return requantized(scope, relay.add(sums, scope.weight(1, self.out_features, dtype="int32")))

    def work(self) -> tuple[float, float]:
        """See `Point.work`: one multiply-add per row, input feature and output feature; each matrix moves once."""
        return _of_product(self.rows, self.in_features, self.out_features)


def _of_product(rows: int, inner: int, columns: int, moves: int = 1) -> tuple[float, float]:
    """Return the work of a product of matrices, of which the second moves several times."""
    return 2.0 * rows * inner * columns, float(rows * inner + moves * inner * columns + rows * columns)


def _dense(rng: random.Random) -> Point:
    return Dense(
        rows=1 if rng.random() < 0.4 else sizes.sequence(rng),
        in_features=sizes.features(rng, 32),
        out_features=sizes.features(rng, 10),
        epilogue=rng.choices(("none", "bias", "bias_relu", "bias_gelu", "bias_tanh"), (1, 3, 1, 1, 0.5))[0],
    )


def _few_outputs(rng: random.Random) -> Point:
    """Draw a product with one to eight outputs or rows."""
    few, many = sizes.log_uniform(rng, 1, 8), sizes.log_uniform(rng, 1, 2048)
    rows, columns = rng.choice(((few, many), (many, few), (many, few), (rng.choice((1, 8, 32)), few)))
    inner = sizes.log_uniform(rng, 4, 8192)
    if rng.random() < 0.25:
        return BatchMatmul(rng.choice((1, 8, 32)), rows, columns, min(inner, 1024), rng.random() < 0.4)
    return Dense(rows, inner, columns, rng.choice(("none", "bias")))


def _batch_matmul(rng: random.Random) -> Point:
    transposed = rng.random() < 0.4
    heads = rng.choice((1, 2, 3, 4, 6, 8, 12, 16)) * rng.choices((1, 2, 4), (0.8, 0.1, 0.1))[0]
    sequence, width = sizes.sequence(rng), rng.choice((16, 32, 48, 64, 80, 96, 128))
    if rng.random() < 0.5:
        return BatchMatmul(heads, sequence, sequence, width, transposed)
    if rng.random() < 0.7:
        return BatchMatmul(heads, sequence, width, sequence, transposed)
    return BatchMatmul(heads, sizes.sequence(rng), sizes.sequence(rng), sizes.log_uniform(rng, 8, 512), transposed)


def _transformer(rng: random.Random) -> Point:
    """Draw a projection or feed-forward layer of a sequence, whose weights fit only the last cache and are read for
    many rows."""
    width, times = sizes.log_uniform(rng, 128, 1280, 64), rng.choice((1, 1, 2, 3, 4, 4))
    wide = rng.random() < 0.5
    features = (times * width, width) if wide else (width, times * width)
    rows = rng.choice(
        (rng.choice((32, 64, 128, 256)), sizes.log_uniform(rng, 16, 320), rng.choice((37, 49, 77, 101, 197, 257)))
    )
    return Dense(rows, *features, rng.choice(("none", "bias", "bias", "bias_gelu", "bias_tanh")))


def _run_time_weights(rng: random.Random) -> Point:
    """Draw a dense layer whose weight is an activation, or the packing of such a weight as a single operator."""
    rows, columns = sizes.features(rng, 32), sizes.features(rng, 32)
    if rng.random() < 0.4:
        return Repacking(rows, columns, sizes.largest_divisor(rows, 32))
    return DenseOfActivations(sizes.sequence(rng), columns, rows, transposed=rng.random() < 0.5)


def _gated_dense(rng: random.Random) -> Point:
    inputs = sizes.near_power_of_two(rng, 128, 2048) if rng.random() < 0.3 else sizes.log_uniform(rng, 96, 2048, 8)
    return GatedDense(inputs, rng.choice((1000, 1000, 1001)) if rng.random() < 0.4 else sizes.features(rng, 32))


def _attention_einsum(rng: random.Random) -> Point:
    """Draw attention over a whole image, or over its windows; keys may come from an image of a quarter of the size."""
    windows = rng.choice((1, 1, 1, 4, 16, 64))
    rows = rng.choice(_WINDOWS) ** 2 if windows > 1 else sizes.rows(rng)
    keys = rows if windows > 1 or rng.random() < 0.5 else max(rows // 4, 1) + rng.choice((0, 0, 1))
    heads, width = rng.choice((1, 2, 3, 4, 6, 8, 12, 16)), rng.choice((24, 32, 32, 48, 64, 64, 96))
    return AttentionEinsum(windows, rows, keys, heads, width, rng.random() < 0.5)


def _reduced_attention(rng: random.Random) -> Point:
    """Draw attention of each position of an image to a few rows of the reduced image, as in SegFormer and PVT."""
    size, times = rng.choice((14, 16, 28, 28, 32, 56, 56, 64)), rng.choice((1, 2, 4, 7, 8))
    rows, keys, width = size**2, max(size // times, 4) ** 2 + rng.choice((0, 0, 1)), rng.choice((16, 24, 32, 40, 64))
    columns, inner = (width, keys) if rng.random() < 0.5 else (keys, width)
    return BatchMatmul(rng.choice((1, 1, 2, 3, 4, 5, 8)), rows, columns, inner, transposed=False)


DRAWS: dict[str, Draw] = {
    "dense": _dense,
    "few_outputs": _few_outputs,
    "batch_matmul": _batch_matmul,
    "transformer": _transformer,
    "run_time_weights": _run_time_weights,
    "gated_dense": _gated_dense,
    "attention_einsum": _attention_einsum,
    "reduced_attention": _reduced_attention,
}
