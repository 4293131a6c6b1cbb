"""Small tables in formats of other projects, which come back from a dataset as they were."""

from __future__ import annotations

import json

from op_profiler.dataset.formats import gsoc

LUT = {
    "op_type": "Int8Conv",
    "op_args": [
        'name: "kernel"\ni: 3\n',
        'name: "order"\ns: "NHWC"\n',
        'name: "pad"\ni: 1\n',
        'name: "stride"\ni: 2\n',
    ],
    "input_shapes": [[1, 224, 224, 3], [32, 3, 3, 3], [32]],
    "input_dtypes": [6, 7, 2],
    **{f"runtime_us_p{p}": t for p, t in zip((0, 10, 50, 90, 100), (900.0, 930.0, 960.0, 990.0, 1200.5))},
    "device": "SM-G950U",
}
FC = LUT | {"op_type": "FC", "op_args": [], "input_shapes": [[1, 8], [4, 8]], "input_dtypes": [1, 1]}
TABLES = {
    "paddle": "op_type\tdevice\tus\nconv,0,0,1,3,640,640,8,1,3,1,2,1\t2433\nconv,1,1,1,8,64,60,8,8,3,1,1,1\t12.5\n",
    "gsoc": gsoc.HEADER + "\nnn_conv2d,3,32,112,112,16,2,same,1.5\nnn_conv2d,3,1,56,56,32,1,same,0.25\n",
    "runtime_lut": json.dumps(LUT) + "\n" + json.dumps(FC) + "\n",
}
