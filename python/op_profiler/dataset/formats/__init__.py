"""File formats for import and export, one module each; only these modules convert units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.registry import Entry, Registry

if TYPE_CHECKING:
    from op_profiler.dataset.formats.format import Format

SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl"}
"""Formats by file extension. Files in formats that are not listed may have any extension."""

_HERE = "op_profiler.dataset.formats"

FORMATS: Registry[Format] = Registry(
    "formats",
    "format",
    f"{_HERE}.format:Format",
    {
        "parquet": Entry(f"{_HERE}.parquet:FORMAT", "the flat table in Parquet, with a description of each column"),
        "csv": Entry(f"{_HERE}.csv:FORMAT", "the flat table in CSV"),
        "jsonl": Entry(f"{_HERE}.jsonl:FORMAT", "the flat table as JSON, one object per line"),
        "tinynas": Entry(f"{_HERE}.tinynas:FORMAT", "the convolution library of TinyNAS"),
        "runtime_lut": Entry(f"{_HERE}.runtime_lut:FORMAT", "look-up tables of Caffe2's operators"),
        "autotvm": Entry(f"{_HERE}.autotvm:FORMAT", "logs of AutoTVM"),
        "paddle": Entry(f"{_HERE}.paddle:FORMAT", "latency tables of Paddle"),
        "chrome_trace": Entry(f"{_HERE}.chrome_trace:FORMAT", "one run of a model, for Perfetto; only written"),
        "model_explorer": Entry(
            f"{_HERE}.model_explorer:FORMAT", "times of nodes, for Google's Model Explorer; only written"
        ),
        "gsoc": Entry(f"{_HERE}.gsoc:FORMAT", "tables of the TFLite latency estimator (GSoC)"),
    },
)
