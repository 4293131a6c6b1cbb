"""Products of matrices: with weights, and of activations alone."""

from __future__ import annotations

import dataclasses

from op_profiler.collection.sampling.point import Point, Scope, activate, epilogue
from op_profiler.compilers.tvm_types import Node


@dataclasses.dataclass(frozen=True)
class Dense(Point):
    """Fully connected layer."""

    kind = "dense"
    rows: int
    in_features: int
    out_features: int
    epilogue: str = "none"

    def expression(self, scope: Scope) -> Node:
        x = scope.relay.nn.dense(
            scope.input(self.rows, self.in_features),
            scope.weight(self.out_features, self.in_features),
            out_dtype=scope.out_dtype,
        )
        return epilogue(scope, x, (self.rows, self.out_features), self.epilogue, self.out_features)

    def work(self) -> tuple[float, float]:
        m, k, n = self.rows, self.in_features, self.out_features
        return 2.0 * m * k * n, float(m * k + k * n + m * n)


@dataclasses.dataclass(frozen=True)
class BatchMatmul(Point):
    """Product of activations: [batch, rows, inner] by [batch, columns, inner] transposed, or by [batch, inner, columns]
    as it stands, which importers of torch and ONNX write and TVM computes in another way."""

    kind = "batch_matmul"
    batch: int
    rows: int
    columns: int
    inner: int
    transposed: bool = True

    def expression(self, scope: Scope) -> Node:
        left = scope.input(self.batch, self.rows, self.inner)
        shape = (self.columns, self.inner) if self.transposed else (self.inner, self.columns)
        right = scope.input(self.batch, *shape)
        nn = scope.relay.nn
        return nn.batch_matmul(left, right, scope.out_dtype, transpose_a=False, transpose_b=self.transposed)

    def work(self) -> tuple[float, float]:
        m, k, n = self.rows, self.inner, self.columns
        return 2.0 * self.batch * m * k * n, float(self.batch * (m * k + k * n + m * n))


@dataclasses.dataclass(frozen=True)
class DenseOfActivations(Point):
    """A fully connected layer whose weight is computed while the model runs, so that nothing of it is packed before.

    TVM packs it at run time, in an operator of its own where the product is of its blocked kind. `transposed`: it comes
    as [in_features, out_features], as torch's matmul and tied embeddings have it, and is transposed on the way.
    """

    kind = "dense_of_activations"
    rows: int
    in_features: int
    out_features: int
    transposed: bool = False

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        if self.transposed:
            weight = relay.transpose(scope.input(self.in_features, self.out_features), axes=[1, 0])
        else:
            weight = scope.input(self.out_features, self.in_features)
        return relay.nn.dense(scope.input(self.rows, self.in_features), weight, out_dtype=scope.out_dtype)

    def work(self) -> tuple[float, float]:
        m, k, n = self.rows, self.in_features, self.out_features
        return 2.0 * m * k * n, float(m * k + 3 * k * n + m * n)


@dataclasses.dataclass(frozen=True)
class GatedDense(Point):
    """A fully connected layer of one row behind a hardswish, as in MobileNetV3: TVM folds the gate into the weight, and
    packs that while the model runs."""

    kind = "gated_dense"
    in_features: int
    out_features: int

    def expression(self, scope: Scope) -> Node:
        x = activate(scope, scope.input(1, self.in_features), "hardswish")
        return scope.relay.nn.dense(x, scope.weight(self.out_features, self.in_features), out_dtype=scope.out_dtype)

    def work(self) -> tuple[float, float]:
        k, n = self.in_features, self.out_features
        return 2.0 * k * n, float(k + 3 * k * n + n)


@dataclasses.dataclass(frozen=True)
class AttentionEinsum(Point):
    """A product of attention that a model writes as an einsum over heads: no schedule blocks it, and the cutting of
    [rows, heads * width] into heads is part of its loops.

    Attributes:
        windows: of tokens, each with an attention of its own.
        scores: of queries [rows] and keys [keys]; else of weights [rows, keys] and values [keys].
    """

    kind = "attention_einsum"
    windows: int
    rows: int
    keys: int
    heads: int
    width: int
    scores: bool

    def expression(self, scope: Scope) -> Node:
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
        products = float(self.windows * self.heads * self.rows * self.keys)
        tokens = self.windows * self.heads * self.width * (self.rows + self.keys)
        return 2.0 * products * self.width, products + tokens
