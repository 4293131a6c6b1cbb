"""Operators of ONNX, torch and TFLite, off their defaults: they compute what their framework computes, or are refused.

`benchmarks/operators_agree.py` judges all of them; here are some of each kind, and all of them among the slow tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..installed import needs
from .conftest import Run
from .operator_sets import onnx_cases, tflite_cases, torch_cases
from .operator_sets.case import Case, Outcome, judge
from .operator_sets.running import judge_all
from .operator_sets.tflite_values import BUILTINS

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "operators_agree.py"

ONNX = (
    "ArgMax: 13 T=uint8",
    "Acos: 22 T=float16",
    "Constant: 13 sparse_value=2 value=None",
    "Conv: 22 T=float64",
    "CastLike: 21 saturate=0",
    "Elu: 22 T=float64",
    "Erf: 13 base",
    "GatherElements: 13 axis=1",
    "AveragePool: 22 pads and ceil_mode",
    "Dropout: 7 output mask",
    "GridSample: 22 T1=float16",
    "GridSample: 22 T2=float64",
    "HardSwish: 22 T=float16",
    "Identity: 21 a sequence",
    "Mean: 13 base",
    "ReduceL2: 18 T=int32",
    "Resize: 10 fractions",
    "ReverseSequence: 10 base",
    "Sign: 13 T=uint8",
    "SplitToSequence: 11 split=[1, 3]",
)
"""What was another program, ended the process, or was refused."""

EIGHT_BITS = ("ConvInteger: 10 base", "QLinearConv: 10 base")
"""LLVM ended the process at convolutions of eight bits, on processors with instructions for them."""

TFLITE = (
    "ARG_MAX: int64",
    "ARG_MIN: base int8",
    "BATCH_MATMUL: base int8",
    "BATCH_MATMUL: weights",
    "DIV: base uint8",
    "GATHER: BatchDims",
    "L2_NORMALIZATION: base int8",
    "MEAN: two axes int8",
    "NON_MAX_SUPPRESSION_V5: base",
    "ONE_HOT: base",
    "PRELU: base int8",
    "REVERSE_V2: base",
    "SELECT: of rows",
    "SELECT_V2: base",
    "SOFTMAX: Beta",
    "SPACE_TO_BATCH_ND: base uint8",
    "SQUARED_DIFFERENCE: int32",
    "SQUEEZE: base",
    "SUM: KeepDims uint8",
)
"""The same of TFLite."""

REFUSED = (
    "NonMaxSuppression: 11 base",
    "RoiAlign: 10 mode=max",
    "RegexFullMatch: 20 base",
    "TfIdfVectorizer: 9 base",
)

NOT_TRIED = {"DENSIFY", "DETECTION_POSTPROCESS", "TAN", "UNIDIRECTIONAL_SEQUENCE_LSTM"}
"""A part of sparse weights, a custom operator, one that TFLite does not have, and one with a state."""

"""Operators of which some case is only refused by the comparison of outputs (`--check-outputs`)."""


def named(cases: Iterator[Case], names: tuple[str, ...]) -> list[Case]:
    found = {case.name: case for case in cases if case.name in names}
    assert set(found) == set(names)
    return list(found.values())


def wrong(cases: list[Case], execute: Any = None) -> list[str]:
    """The cases that do not agree, and why."""
    judged = [(case.name, judge(case, execute)) for case in cases]
    return [f"{name}: {v.outcome}: {v.detail}" for name, v in judged if v.outcome is not Outcome.AGREES]


@needs("onnx", "onnxruntime")
def test_every_attribute_and_input_of_onnx_has_a_value() -> None:
    assert not onnx_cases.without_values()


@needs("tflite")
def test_every_builtin_of_tflite_that_is_converted_has_cases(tvm: Any) -> None:
    from op_profiler.frontends.importers.tflite_converter import TfliteConverter

    known: dict[str, Any] = {}

    class Reading(TfliteConverter):
        def __init__(self) -> None:
            from tvm.relay.frontend.common import ExprTable

            super().__init__(None, None, ExprTable())
            known.update(self.convert_map)

    Reading()
    assert known.keys() - BUILTINS.keys() == NOT_TRIED


@needs("onnx", "onnxruntime")
def test_operators_of_onnx_that_were_wrong_agree(run: Run) -> None:
    assert not wrong(named(onnx_cases.cases(), ONNX), run)


@needs("onnx", "onnxruntime")
def test_models_that_came_quantized_are_built_for_what_llvm_compiles(tvm: Any) -> None:
    assert not wrong(named(onnx_cases.cases(), EIGHT_BITS))


@needs("onnx", "onnxruntime")
def test_what_is_refused_is_refused_with_a_sentence(tvm: Any) -> None:
    verdicts = [judge(case) for case in named(onnx_cases.cases(), REFUSED)]
    assert [one.outcome for one in verdicts] == [Outcome.REFUSED] * len(REFUSED)
    assert not any(one.has_text_of_tvm for one in verdicts)


@needs("tflite", "ai_edge_litert")
def test_operators_of_tflite_that_were_wrong_agree(run: Run) -> None:
    assert not wrong(named(tflite_cases.cases(), TFLITE), run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework",
    [
        pytest.param("onnx", marks=needs("onnx", "onnxruntime")),
        pytest.param("tflite", marks=needs("tflite", "ai_edge_litert")),
        pytest.param("torch", marks=needs("torch", "expecttest")),
    ],
)
def test_no_operator_is_another_program(framework: str) -> None:
    """TVM ends the process at some of them; each is then one case of a process of its own."""
    cases = {"onnx": onnx_cases, "tflite": tflite_cases, "torch": torch_cases}[framework].cases()
    names = [case.name for case in cases]
    verdicts = dict(judge_all(names, [sys.executable, str(BENCHMARK), "--serve", framework], jobs=2))
    assert not [f"{name}: {v.detail}" for name, v in verdicts.items() if v.outcome is Outcome.DIFFERS]
    assert not [f"{name}: {v.detail}" for name, v in verdicts.items() if v.has_text_of_tvm]
    assert sum(v.outcome is Outcome.AGREES for v in verdicts.values()) > len(names) / 4
