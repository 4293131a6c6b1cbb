"""How much faster are operators by the rule?

    python benchmarks/rule.py     (two minutes)

Compiles convolutions, transposed convolutions, products and functions of resnet-50, mobilenet_v2, efficientnet_b0,
dcgan, shufflenet_v2, vit_b_16 and bert, and products, convolutions and rows whose sizes no vector divides. Builds with
TVM's own schedules and with `--schedules rule` run in turns on one thread. Times contain the changes of layout at both
ends of a convolution, which whole networks do not need.

Goal: no operator is slower by more than 10 % by the rule.
"""

from __future__ import annotations

import dataclasses
import os
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import numpy as np
from common import at_least, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

_ROUNDS = 15
_CONVOLUTIONS = {  # channels, image, output channels, kernel, stride, padding, groups
    "3x3, 64 channels, 56x56": (64, 56, 64, 3, 1, 1, 1),
    "3x3, 128 channels, 28x28": (128, 28, 128, 3, 1, 1, 1),
    "3x3, 256 channels, 14x14": (256, 14, 256, 3, 1, 1, 1),
    "3x3, 512 channels, 7x7": (512, 7, 512, 3, 1, 1, 1),
    "3x3 stride 2, 512 channels, 14x14": (512, 14, 512, 3, 2, 1, 1),
    "7x7 stride 2, 3 to 64 channels, 224x224": (3, 224, 64, 7, 2, 3, 1),
    "1x1, 64 to 256 channels, 56x56": (64, 56, 256, 1, 1, 0, 1),
    "1x1 stride 2, 256 to 512 channels, 56x56": (256, 56, 512, 1, 2, 0, 1),
    "1x1, 256 to 1024 channels, 14x14": (256, 14, 1024, 1, 1, 0, 1),
    "1x1, 2048 to 512 channels, 7x7": (2048, 7, 512, 1, 1, 0, 1),
    "1x1, 144 to 24 channels, 56x56": (144, 56, 24, 1, 1, 0, 1),
    "1x1, 16 to 96 channels, 112x112": (16, 112, 96, 1, 1, 0, 1),
    "3x3, 58 channels, 28x28": (58, 28, 58, 3, 1, 1, 1),
    "1x1, 58 channels, 28x28": (58, 28, 58, 1, 1, 0, 1),
    "1x1, 116 channels, 14x14": (116, 14, 116, 1, 1, 0, 1),
    "depthwise 3x3 stride 2, 96 channels, 112x112": (96, 112, 96, 3, 2, 1, 96),
    "depthwise 3x3, 144 channels, 56x56": (144, 56, 144, 3, 1, 1, 144),
    "depthwise 5x5, 240 channels, 28x28": (240, 28, 240, 5, 1, 2, 240),
}
_TRANSPOSED = {  # channels, image, output channels; kernel 4, strides 2, padding 1
    "transposed 4x4, 512 to 256 channels, 4x4": (512, 4, 256),
    "transposed 4x4, 128 to 64 channels, 16x16": (128, 16, 64),
}
_PRODUCTS = {  # batch (None: with a weight), rows, depth, columns
    "dense, 197 rows, 768 to 3072": (None, 197, 768, 3072),
    "dense, 128 rows, 768 to 768": (None, 128, 768, 768),
    "dense, 1 row, 2048 to 1000": (None, 1, 2048, 1000),
    "dense, 64 rows, 280 to 208": (None, 64, 280, 208),
    "dense, 64 rows, 300 to 300": (None, 64, 300, 300),
    "batched product, 12 x 197 x 64 x 197": (12, 197, 64, 197),
    "batched product, 12 x 128 x 128 x 64": (12, 128, 128, 64),
}
_FUNCTIONS = {
    "exp, 320,000 values": ("exp", (1, 320_000)),
    "erf, 320,000 values": ("erf", (1, 320_000)),
    "negative, 1,024 rows of 100": ("negative", (1024, 100)),
    "negative, 1,024 rows of 17": ("negative", (1024, 17)),
    "sigmoid, 1,024 rows of 197": ("sigmoid", (1024, 197)),
    "erf, 1,024 rows of 30": ("erf", (1024, 30)),
}


def operators() -> dict[str, tuple[Any, dict[str, tuple[int, ...]]]]:
    """Return an expression and the shapes of its weights by the text of each operator."""
    from tvm import relay

    found: dict[str, tuple[Any, dict[str, tuple[int, ...]]]] = {}
    for text, (channels, image, outputs, kernel, stride, padding, groups) in _CONVOLUTIONS.items():
        x, shape = relay.var("x", shape=(1, channels, image, image)), (outputs, channels // groups, kernel, kernel)
        named = {"strides": (stride, stride), "padding": (padding, padding), "groups": groups, "channels": outputs}
        y = relay.nn.conv2d(x, relay.var("w", shape=shape), kernel_size=(kernel, kernel), **named)
        found[text] = relay.nn.relu(y), {"w": shape}
    for text, (channels, image, outputs) in _TRANSPOSED.items():
        x, shape = relay.var("x", shape=(1, channels, image, image)), (channels, outputs, 4, 4)
        named = {"strides": (2, 2), "padding": (1, 1), "channels": outputs, "kernel_size": (4, 4)}
        found[text] = relay.nn.relu(relay.nn.conv2d_transpose(x, relay.var("w", shape=shape), **named)), {"w": shape}
    for text, (batch, rows, depth, columns) in _PRODUCTS.items():
        x = relay.var("x", shape=(rows, depth) if batch is None else (batch, rows, depth))
        if batch is None:
            found[text] = relay.nn.dense(x, relay.var("w", shape=(columns, depth))), {"w": (columns, depth)}
        else:
            found[text] = relay.nn.batch_matmul(x, relay.var("y", shape=(batch, columns, depth))), {}
    for text, (name, values) in _FUNCTIONS.items():
        found[text] = getattr(relay, name)(relay.var("x", shape=values)), {}
    return found


def measured(text: str, body: Any, weights: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return a row: medians of both builds in us, and the median and range of the rounds' ratios."""
    import tvm
    from tvm.contrib import graph_executor

    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.relay.relay_compiler import RELAY
    from op_profiler.schedules.records import Conditions
    from op_profiler.schedules.usable_records import UsableRecords
    from op_profiler.targets.target import resolve_target

    rng = np.random.default_rng(0)
    module = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(body))
    params = {name: tvm.nd.array(rng.standard_normal(shape).astype("float32")) for name, shape in weights.items()}
    own = UsableRecords({}, Conditions(1))
    runs, target = [], resolve_target("llvm")
    for records in (own, dataclasses.replace(own, by_rule=True)):
        library = RELAY.build(ImportedModel("operator", "benchmark", module, dict(params), ()), target, records)
        made = library.compiled.library
        run = graph_executor.create(made.get_graph_json(), made.get_lib(), tvm.cpu())
        run.set_input(**made.get_params())
        for parameter in module["main"].params:
            if parameter.name_hint not in weights:
                shape = tuple(int(d) for d in parameter.checked_type.shape)
                run.set_input(parameter.name_hint, rng.standard_normal(shape).astype("float32"))
        runs.append(run)
    times = np.array([[run.benchmark(tvm.cpu(), repeat=1, number=5).mean for run in runs] for _ in range(_ROUNDS)])
    own_us, rule_us = 1e6 * np.median(times, axis=0)
    ratios = times[:, 0] / times[:, 1]
    low, high = np.quantile(ratios, (0.1, 0.9))
    return {
        "operator": text,
        "own_us": round(float(own_us), 1),
        "rule_us": round(float(rule_us), 1),
        "own_over_rule": round(float(np.median(ratios)), 2),
        "from": round(float(low), 2),
        "to": round(float(high), 2),
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    return every(at_least(row["own_over_rule"], 1 / 1.1) for row in tables.get("operators", ()))


def main() -> None:
    os.environ["TVM_NUM_THREADS"] = "1"
    print(provenance())
    rows = []
    for text, (body, weights) in operators().items():
        rows.append(measured(text, body, weights))
        print(rows[-1], flush=True)
    ratios = [row["own_over_rule"] for row in rows]
    headline = (
        f"with TVM's own schedules, {len(rows)} operators take {geometric_mean(ratios):.1f} times as long as by the "
        f"rule in the geometric mean, from {min(ratios):.2f} to {max(ratios):.1f}"
    )
    store("rule", headline, {"operators": rows}, whole=True)


if __name__ == "__main__":
    main()
