"""A dataset whose times follow a known law, so that what a predictor says can be checked."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from op_profiler.operators.kinds.shapes import Conv, DenseLayer, operator_of
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency.devices import DeviceName
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.fit import fit
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor

FLOPS_PER_US = 60_000.0
BYTES_PER_US = 20_000.0
CALL_US = 1.0
NOISE = 0.02
_OPERATORS = 420
_MODELS = 24  # the last third are networks


def law_us(operator: Operator, threads: int) -> float:
    """Roofline and the cost of a call; prime widths take twice as long."""
    width = operator.outputs[0].shape[-1]
    slow = 2.0 if len(operator.outputs[0].shape) == 4 and width in (13, 29, 53) else 1.0
    work = operator.flops / FLOPS_PER_US * slow
    moved = (operator.bytes_read + operator.bytes_written) / BYTES_PER_US
    return CALL_US + max(work, moved) / threads


def random_operator(rng: np.random.Generator) -> Operator:
    """A convolution or a dense layer."""
    if rng.random() < 0.3:
        rows, inputs, outputs = (int(2 ** rng.uniform(low, 10)) for low in (0, 5, 5))
        return operator_of(DenseLayer(batch=rows, in_features=inputs, out_features=outputs, bias=True))
    size = int(rng.choice([7, 13, 14, 28, 29, 53, 56]))
    channels = [int(rng.integers(1, 17) * 16) for _ in range(2)]
    kernel = int(rng.choice([1, 3]))
    conv = Conv(
        batch=1,
        in_channels=channels[0],
        height=size,
        width=size,
        out_channels=channels[1],
        kernel=(kernel, kernel),
        stride=(1, 1),
        padding=(kernel // 2,) * 4,
        activation="nn.relu",
    )
    return operator_of(conv)


def examples_of(operators: list[Operator], rng: np.random.Generator, noise: float = NOISE) -> Examples:
    """Every operator in one model, at one and two threads."""
    distinct = list({o.key: o for o in operators}.values())
    model = np.arange(len(distinct)) % _MODELS
    moved = np.array([o.bytes_read + o.bytes_written for o in distinct], dtype=np.float64)
    traffic = np.bincount(model, moved, minlength=_MODELS)
    rows = [(i, threads) for threads in (1, 2) for i in range(len(distinct))]
    operator = np.array([i for i, _ in rows])
    threads = np.array([n for _, n in rows])
    truth = np.array([law_us(distinct[i], n) for i, n in rows])
    latency = truth * np.exp(noise * rng.standard_normal(len(rows)))
    whole = np.array([latency[(model[operator] == model[i]) & (threads == n)].sum() for i, n in rows], dtype=np.float64)
    device = DeviceName("0123456789abcdef", "llvm", "a processor of the tests", 2, "llvm -mcpu=test")
    return Examples(
        operators=distinct,
        launches=np.zeros(len(distinct), dtype=int),
        operator=operator,
        threads=threads,
        latency_us=latency,
        half_width=np.full(len(rows), 0.01),
        steady_us=np.full(len(rows), np.nan),
        device=np.zeros(len(rows), dtype=int),
        devices=[device],
        model=model[operator],
        occurrences=np.ones(len(rows), dtype=int),
        models=[f"model {i}" for i in range(_MODELS)],
        sampled=np.arange(_MODELS) < 2 * _MODELS // 3,
        traffic_bytes=traffic[model[operator]],
        working_set_bytes=traffic[model[operator]],
        reference_us=np.full((len(rows), 2), np.nan),
        reference_bytes=np.zeros(len(rows), dtype=int),
        whole_model_us=whole,
        left_out={},
    )


@pytest.fixture(scope="session", name="law_us")
def law_fixture() -> Callable[[Operator, int], float]:
    """The time without noise."""
    return law_us


@pytest.fixture(scope="session")
def known() -> Examples:
    rng = np.random.default_rng(1)
    return examples_of([random_operator(rng) for _ in range(_OPERATORS)], rng)


@pytest.fixture(scope="session")
def strangers(known: Examples) -> list[Operator]:
    """Operators that are not in the dataset."""
    rng = np.random.default_rng(2)
    keys = {o.key for o in known.operators}
    found = {o.key: o for o in (random_operator(rng) for _ in range(400)) if o.key not in keys}
    return list(found.values())


@pytest.fixture(scope="session")
def predictor(known: Examples) -> OperatorPredictor:
    return fit(known, folds=3)


@pytest.fixture(scope="session")
def fitted(known: Examples) -> Callable[[str], OperatorPredictor]:
    """The predictor of a choice; each is fitted once."""
    return functools.cache(lambda choice: fit(known, choice=choice, folds=2))
