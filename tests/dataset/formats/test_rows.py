"""One row of each format, read and written: orders, units, and what is no row."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from op_profiler.dataset.formats import caffe2, gsoc, paddle, runtime_lut, tinynas
from op_profiler.dataset.formats.format import UnknownKindError
from op_profiler.operators.kinds.shapes import Conv, DenseLayer, Plain, Unfit

GSOC = dict(zip(gsoc.COLUMNS, ["net", "3", "32", "112", "112", "16", "2", "same", "1.5"]))
LUT: dict[str, Any] = {
    "op_type": "Int8ConvRelu",
    "op_args": ['name: "Y_scale"\nf: 0.5\n', 'name: "kernel"\ni: 3\n', 'name: "order"\ns: "NHWC"\n']
    + ['name: "pad"\ni: 1\n', 'name: "stride"\ni: 2\n', 'name: "ws_nbytes_limit"\ni: 67108864\n'],
    "input_shapes": [[1, 224, 200, 3], [32, 3, 3, 3], [32]],
    "input_dtypes": [6, 7, 2],
    "runtime_us_p0": 900.0,
    "runtime_us_p10": 930.0,
    "runtime_us_p50": 960.0,
    "runtime_us_p90": 990.0,
    "runtime_us_p100": 1200.5,
    "device": "SM-G950U-7.0-24",
}


def test_a_tinynas_row_is_in_its_order_and_in_milliseconds() -> None:
    entry = tinynas.parse_row("{Regular,128,3,480,240,192,7,2,1}   30.9881")
    conv = entry.shape
    assert isinstance(conv, Conv) and entry.median_us == pytest.approx(30988.1)
    assert (conv.batch, conv.in_channels, conv.height, conv.width) == (128, 3, 480, 240)
    assert (conv.out_channels, conv.kernel, conv.stride, conv.residual) == (192, (7, 7), (2, 2), True)
    assert conv.padding == (3, 3, 3, 3) and conv.convolution.out_sizes == (240, 120)


def test_a_tinynas_sample_line_and_a_failure() -> None:
    entry = tinynas.parse_row("Depthwise  1 32 8 8\t32 3 1 0   0.25")
    assert isinstance(entry.shape, Conv) and entry.shape.depthwise and entry.median_us == 250.0
    failed = tinynas.parse_row("{Depthwise,1,32,8,8,32,3,1,0} -1")
    assert failed.median_us is None and failed.samples_us == () and failed.error
    assert tinynas.format_row(entry.shape, None) == "{Depthwise,1,32,8,8,32,3,1,0} -1"


numbers = st.integers(1, 300)
latencies = st.floats(1e-3, 1e9, allow_nan=False)


@given(numbers, numbers, numbers, numbers, numbers, st.integers(1, 9), st.integers(1, 4), st.booleans(), latencies)
def test_tinynas_rows_come_back(
    batch: int, ic: int, h: int, w: int, oc: int, kernel: int, stride: int, fused: bool, time: float
) -> None:
    line = f"{{Regular,{batch},{ic},{h},{w},{oc},{kernel},{stride},{int(fused)}}} {time:.9g}"
    entry = tinynas.parse_row(line)
    assert isinstance(entry.shape, Conv) and tinynas.format_row(entry.shape, entry.median_us) == line


@given(numbers, numbers, numbers, numbers, st.integers(1, 9), st.integers(0, 4), st.integers(1, 3), latencies)
def test_paddle_rows_come_back(n: int, c: int, h: int, oc: int, k: int, pad: int, stride: int, time: float) -> None:
    line = f"conv,1,0,{n},{c},{h},{h + 1},{oc},1,{k},{pad},{stride},2\t{time:.9g}"
    entry = paddle.parse_row(line)
    assert isinstance(entry.shape, Conv) and entry.median_us is not None
    assert entry.median_us == pytest.approx(time) and paddle.format_row(entry.shape, entry.median_us) == line


def test_a_paddle_row() -> None:
    entry = paddle.parse_row("conv,0,1,1,3,640,320,8,1,3,1,2,1\t2433", device="RK3399")
    conv = entry.shape
    assert isinstance(conv, Conv) and (entry.median_us, entry.device) == (2433.0, "RK3399")
    assert (conv.batch, conv.in_channels, conv.height, conv.width, conv.out_channels) == (1, 3, 640, 320, 8)
    assert (conv.groups, conv.kernel, conv.padding, conv.stride) == (1, (3, 3), (1, 1, 1, 1), (2, 2))
    assert (conv.bias, conv.activation) == (False, "nn.relu")
    assert paddle.parse_header("op_type\tdevice\tus") is None and paddle.parse_header("op_type\tRK\tus") == "RK"


@given(st.integers(1, 7), st.integers(2, 64), st.integers(1, 64), numbers, st.integers(1, 3), st.data())
def test_gsoc_rows_come_back(kernel: int, filters: int, c: int, h: int, stride: int, data: Any) -> None:
    padding = data.draw(st.sampled_from(["same", "valid", "9"]))
    cells = ["net", kernel, filters, h, h + 1, c, stride, padding, "2.5"]
    entry = gsoc.parse_row(dict(zip(gsoc.COLUMNS, map(str, cells))))
    assert isinstance(entry.shape, Conv) and entry.median_us == 2500.0
    again = gsoc.parse_row(dict(zip(gsoc.COLUMNS, gsoc.format_row("net", entry.shape, entry.median_us))))
    assert again == entry


def test_a_depthwise_gsoc_row_has_one_filter() -> None:
    entry = gsoc.parse_row({**GSOC, "filter_size": "1"})
    assert isinstance(entry.shape, Conv) and entry.shape.depthwise and entry.shape.out_channels == 16
    assert entry.shape.padding == (0, 0, 1, 1)  # TensorFlow pads the end first
    assert gsoc.format_row("net", entry.shape, 1500.0) == [*GSOC.values()][:2] + ["1", *[*GSOC.values()][3:]]
    alone = dataclasses.replace(entry.shape, groups=1, out_channels=1)
    with pytest.raises(Unfit, match="read as depthwise"):
        gsoc.format_row("net", alone, 1.0)


def test_gsoc_rows_that_look_mixed_up_are_kept_and_marked() -> None:
    entry = gsoc.parse_row({**GSOC, "input_h": "3", "input_w": "224", "input_channel": "224"})
    assert entry.remark is not None and "height and channels" in entry.remark
    assert gsoc.parse_row(GSOC).remark is None
    assert gsoc.mixed_up(224, 3, 224) and not gsoc.mixed_up(56, 56, 56) and not gsoc.mixed_up(20, 30, 3)


def test_a_lut_row_is_nhwc_with_codes_and_percentiles() -> None:
    entry = runtime_lut.parse_row(json.dumps(LUT))
    conv = entry.shape
    assert isinstance(conv, Conv)
    assert (conv.in_channels, conv.height, conv.width, conv.out_channels) == (3, 224, 200, 32)
    assert (conv.dtypes, conv.bias, conv.activation) == (("uint8", "int8", "int32"), True, "nn.relu")
    assert (conv.kernel, conv.stride, conv.padding, conv.extra) == ((3, 3), (2, 2), (1, 1, 1, 1), ())
    assert entry.median_us == 960.0 and entry.samples_us == (900.0, 930.0, 960.0, 990.0, 1200.5)
    assert entry.device == LUT["device"]
    written = json.loads(runtime_lut.format_row(conv, entry.samples_us, str(entry.device)))
    kept = [text for text in LUT["op_args"] if "Y_scale" not in text and "ws_n" not in text]
    assert written == {**LUT, "op_args": kept}


def test_a_lut_row_in_nchw_and_a_depthwise_one() -> None:
    order = [text.replace("NHWC", "NCHW") for text in LUT["op_args"]]
    nchw = {**LUT, "op_args": order, "input_shapes": [[1, 3, 224, 200], [32, 3, 3, 3], [32]]}
    assert runtime_lut.parse_row(json.dumps(nchw)).shape == runtime_lut.parse_row(json.dumps(LUT)).shape
    groups = [*LUT["op_args"], 'name: "group"\ni: 32\n', 'name: "engine"\ns: "NNPACK"\n']
    row = {**LUT, "op_args": groups, "input_shapes": [[1, 7, 7, 32], [32, 3, 3, 1], [32]]}
    conv = runtime_lut.parse_row(json.dumps(row)).shape
    assert isinstance(conv, Conv) and conv.depthwise and conv.extra == ('name: "engine"\ns: "NNPACK"\n',)
    written = json.loads(runtime_lut.format_row(conv, LUT_TIMES, "x"))
    assert written["input_shapes"] == row["input_shapes"] and groups[-1] in written["op_args"]
    assert runtime_lut.parse_row(json.dumps(written)).shape == conv


LUT_TIMES = (1.0, 2.0, 3.0, 4.0, 5.0)


def lut(op: str, shapes: list[list[int]], *arguments: str) -> str:
    codes = [1] * len(shapes)
    return json.dumps({**LUT, "op_type": op, "op_args": arguments, "input_shapes": shapes, "input_dtypes": codes})


@pytest.mark.parametrize(
    ("line", "op"),
    [
        (lut("FC", [[2, 8], [4, 8], [4]]), DenseLayer),
        (lut("FC", [[2, 8], [4, 8]]), DenseLayer),
        (lut("Relu", [[1, 7, 7, 32]]), "nn.relu"),
        (lut("Add", [[1, 7, 7, 32], [1, 7, 7, 32]]), "add"),
        (lut("Softmax", [[1, 1000]]), "nn.softmax"),
        (lut("MaxPool", [[1, 9, 8, 32]], 'name: "kernel"\ni: 3\n', 'name: "stride"\ni: 2\n'), "nn.max_pool2d"),
        (lut("AveragePool", [[1, 9, 8, 32]], 'name: "global_pooling"\ni: 1\n'), "nn.avg_pool2d"),
    ],
)
def test_other_lut_rows_come_back(line: str, op: Any) -> None:
    shape = runtime_lut.parse_row(line).shape
    assert shape.op == op if isinstance(shape, Plain) else type(shape) is op
    assert runtime_lut.parse_row(runtime_lut.format_row(shape, LUT_TIMES, "x")).shape == shape


def test_arguments_of_caffe2() -> None:
    assert caffe2.parse_argument('name: "pads"\nints: 1\nints: 0\nints: 2\nints: 0\n') == ("pads", (1, 0, 2, 0))
    assert caffe2.parse_argument('name: "Y_scale"\nf: 0.5\n') == ("Y_scale", 0.5)
    assert caffe2.pads({"pad_t": 1, "pad_r": 2}) == (1, 0, 0, 2)
    assert caffe2.pair({"kernel_h": 1, "kernel_w": 7}, "kernel", 1) == (1, 7)
    assert caffe2.pair({"kernels": (1, 7)}, "kernel", 1) == (1, 7)
    with pytest.raises(ValueError, match="no argument"):
        caffe2.parse_argument("kernel 3")


@pytest.mark.parametrize(
    "line",
    [
        "{Regular,128,3,480,480,192,7,2} 30",
        "{Regular,128,3,480,480,192,7,2,1}",
        "{Pointwise,128,3,480,480,192,7,2,1} 3",
        "{Regular,128,3,480,480,192,7,2,3} 3",
        "{Regular,1,32,8,8,32,3,1,0} -3",
        "{Regular,1,32,8,8,32,3,1,0} nan",
        "{Regular,1,32,8,8,32,3,1,0} 0",
        "{Regular,1,32,8,8,32,3,1,0} x",
    ],
)
def test_what_is_no_tinynas_row(line: str) -> None:
    with pytest.raises(ValueError):
        tinynas.parse_row(line)


@pytest.mark.parametrize(
    "line",
    ["conv,0,0,1,3,640,640,8,1,3,1,2,1 2433", "conv,0,0,1,3\t1", "conv,0,2,1,3,640,640,8,1,3,1,2,1\t1"]
    + ["conv,0,0,1,3,640,640,8,1,3,1,2,1\t-5", "conv,a,0,1,3,640,640,8,1,3,1,2,1\t1"],
)
def test_what_is_no_paddle_row(line: str) -> None:
    with pytest.raises(ValueError):
        paddle.parse_row(line)
    with pytest.raises(ValueError, match="unit"):
        paddle.parse_header("op_type\tdevice\tms")


@pytest.mark.parametrize(
    "changes",
    [{"kernel_size": "x"}, {"stride": "0"}, {"padding": "full"}, {"padding": "-1"}, {"latency_time": "-2"}]
    + [{"input_h": "1.5"}],
)
def test_what_is_no_gsoc_row(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        gsoc.parse_row({**GSOC, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"input_dtypes": [4, 7, 2]},
        {"input_dtypes": [6, 7]},
        {"input_shapes": [[1, 224, 224, 3], [32, 3, 3, 5], [32]]},
        {"input_shapes": [[1, 224, -1, 3], [32, 3, 3, 3], [32]]},
        {"input_shapes": 3},
        {"op_args": ["kernel"]},
        {"op_args": ['name: "kernel"\ni: 5\n']},
        {"op_args": ['name: "order"\ns: "HWC"\n']},
        {"runtime_us_p50": -7},
        {"runtime_us_p50": None},
    ],
)
def test_what_is_no_lut_row(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        runtime_lut.parse_row(json.dumps({**LUT, **changes}))


def test_operators_without_a_counterpart_are_named() -> None:
    with pytest.raises(UnknownKindError, match="LSTM"):
        runtime_lut.parse_row(json.dumps({**LUT, "op_type": "LSTM"}))
    with pytest.raises(UnknownKindError, match="activation"):
        paddle.parse_row("activation,1,3,8,8\t5")
    for line in ("[]", "{}", "no"):
        with pytest.raises(ValueError):
            runtime_lut.parse_row(line)
