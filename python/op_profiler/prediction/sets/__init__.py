"""Measurements that others published: a reader for each set, and the methods that are evaluated on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.registry import Entry, Registry

if TYPE_CHECKING:
    from op_profiler.prediction.sets.public_set import PublicSet

_HERE = "op_profiler.prediction.sets"

SETS: Registry[PublicSet] = Registry(
    "public_sets",
    "public set",
    f"{_HERE}.public_set:PublicSet",
    {
        "neusight": Entry(f"{_HERE}.neusight:SET", "operators of PyTorch on eight GPUs, three of them held out"),
        "pipeweave": Entry(f"{_HERE}.pipeweave:SET", "FP8 matrix products on four GPUs, two of them held out"),
        "tophub": Entry(f"{_HERE}.tophub:SET", "tuned operators on five ARM processors; twenty are known of a new one"),
        "tlcbench": Entry(f"{_HERE}.tlcbench:SET", "schedules that AutoTVM tried on a Xeon and on a T4"),
        "help": Entry(f"{_HERE}.help_networks:SET", "networks of three search spaces; ten are known of a new device"),
        "ncnn": Entry(f"{_HERE}.ncnn:SET", "networks on 91 processors; ten are known of a new one"),
        "tinynas": Entry(f"{_HERE}.tinynas_v100:SET", "convolutions on a V100, with sizes held out"),
        "deepbench": Entry(f"{_HERE}.deepbench:SET", "convolutions on a V100, predicted from the set tinynas"),
        "aiconfigurator": Entry(f"{_HERE}.aiconfigurator:SET", "matrix products in TensorRT-LLM, with sizes held out"),
    },
)
