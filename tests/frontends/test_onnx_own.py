"""Models of ONNX's own tests: they compute what ONNX says that they do, or are refused."""

from __future__ import annotations

import importlib.util
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import ModelError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest

from ..installed import needs
from .conftest import Run

pytestmark = needs("onnx")

DIFFERENT = {
    "bernoulli": "random",
    "cast_DOUBLE_to_FLOAT16": "LLVM halves a double wrongly in TVM",
    "castlike_DOUBLE_to_FLOAT16": "LLVM halves a double wrongly in TVM",
    "qlinearmatmul": "TVM's sums of eight bits are cut off elsewhere",
    "reduce_max_empty": "the largest of nothing is the least number in TVM, in ONNX minus infinity",
    "reduce_min_empty": "the least of nothing is the largest number in TVM, in ONNX infinity",
    "roialign_mode_max": "ONNX takes the largest of weighted corners, TVM of interpolated values",
    "sequence_model3": "TVM counts places of a sequence from the front alone",
}
"""What names begin with, and why other numbers are expected there."""

ATTENTION = (
    "attention_3d",
    "attention_4d_gqa",
    "attention_4d_with_past_and_present_qk_matmul_bias",
    "attention_4d_with_qk_matmul_bias",
    "attention_4d_with_qk_matmul_softcap",
)
"""What names begin with of attention that onnx 1.18 computes in another way than onnxruntime. test_onnx_attention.py
compares with the latter. The same as a graph, of which names end with _expanded, computes as it is written."""

LOWERED = [
    "attention_4d_causal",
    "averagepool_2d_ceil_last_window_starts_on_pad",
    "center_crop_pad_crop_axes_chw",
    "cast_INT4_to_FLOAT",
    "dft_axis",
    "dropout_default_old",
    "gelu_tanh_2",
    "gridsample_bilinear",
    "gridsample_bicubic",
    "group_normalization_epsilon",
    "lppool_2d_pads",
    "maxpool_2d_ceil_output_size_reduce_by_one",
    "rms_normalization_3d_axis1_epsilon",
    "roialign_aligned_true",
    "tril_neg",
    "upsample_nearest",
]

REFUSED = {
    "cast_FLOAT_to_FLOAT8E5M2": "numbers of type FLOAT8E5M2",
    "castlike_FLOAT8E4M3FN_to_FLOAT": "numbers of type FLOAT8E4M3FN",
    "cast_FLOAT_to_INT4": "numbers of type INT4",
    "training_dropout": "drops at random",
}


def folder_of_all() -> Path:
    spec = importlib.util.find_spec("onnx")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "backend" / "test" / "data"


def lowered(folder: Path, path: Path, constant: bool) -> tuple[Any, dict[str, Any], list[Any]]:
    """A model of ONNX's, what it is given, and what it has to answer.

    Args:
        path: where the model is written that is lowered.
        constant: put all inputs but the first into the model, as exporters do with axes and sizes.
    """
    import onnx
    from onnx import numpy_helper

    def read(kind: str, values: Any) -> list[Any]:
        tensors = []
        for index, value in enumerate(values):
            if value.type.WhichOneof("value") != "tensor_type":
                pytest.skip("no tensors")
            data = (folder / "test_data_set_0" / f"{kind}_{index}.pb").read_bytes()
            tensors.append(numpy_helper.to_array(onnx.TensorProto.FromString(data)))
        return tensors

    model = onnx.load(folder / "model.onnx")
    graph = model.graph
    given = [one for one in graph.input if one.name not in {t.name for t in graph.initializer}]
    arrays = dict(zip([one.name for one in given], read("input", given), strict=True))
    expected = read("output", graph.output)
    if constant and given:
        graph.initializer.extend(numpy_helper.from_array(arrays.pop(one.name), one.name) for one in given[1:])
        del graph.input[:]
        graph.input.extend(given[:1])
    onnx.save(model, path)
    return FRONTENDS.get("file").load(ModelRequest(source="file", name=str(path))), arrays, expected


def compare(outputs: list[Any], expected: list[Any]) -> None:
    assert [one.shape for one in outputs] == [np.shape(one) for one in expected]
    for one, other in zip(outputs, expected, strict=True):
        assert one.dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name", LOWERED)
def test_what_was_another_program_or_none(name: str, tmp_path: Path, run: Run) -> None:
    folder = folder_of_all() / "node" / f"test_{name}"
    if not folder.is_dir():
        pytest.skip(f"this onnx has no test {name}")
    model, arrays, expected = lowered(folder, tmp_path / "model.onnx", constant=True)
    compare(run(model, arrays), expected)
    assert ("numbers of four bits are held in eight" in model.notes) == ("INT4" in name)


@pytest.mark.parametrize("name", REFUSED)
def test_what_tvm_has_no_program_for_is_refused(name: str, tmp_path: Path) -> None:
    folder = folder_of_all() / "node" / f"test_{name}"
    if not folder.is_dir():
        pytest.skip(f"this onnx has no test {name}")
    with pytest.raises(ModelError, match=REFUSED[name]):
        lowered(folder, tmp_path / "model.onnx", constant=True)


@pytest.mark.slow
@pytest.mark.parametrize("letter", string.ascii_lowercase)
def test_all_that_lowers_is_right(letter: str, tmp_path: Path, run: Run) -> None:
    """Each as it is, and where that is refused with constants for all but its first input."""
    wrong, right = [], 0
    for folder in sorted(folder_of_all().glob(f"*/test_{letter}*")):
        name = folder.name.removeprefix("test_")
        if not (folder / "test_data_set_0").is_dir() or name.startswith(tuple(DIFFERENT)):
            continue
        if name.startswith(ATTENTION) and not name.endswith("_expanded"):
            continue
        for constant in (False, True):
            try:
                model, arrays, expected = lowered(folder, tmp_path / "model.onnx", constant)
                outputs = run(model, arrays)
            except (ModelError, pytest.skip.Exception):
                continue
            except Exception:  # TVM does not build it, as where sizes are only known at run time
                break
            try:
                compare(outputs, expected)
                right += 1
            except AssertionError as error:
                wrong.append(f"{name}: {error}")
            break
    assert not wrong, "\n".join(wrong)
    assert right or letter in "jkvyz"
