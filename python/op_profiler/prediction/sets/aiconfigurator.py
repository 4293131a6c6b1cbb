"""aiconfigurator-core 0.12.0: products of matrices in TensorRT-LLM on GPUs of data centres"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from op_profiler.prediction.sets.kernel_problem import KernelProblem
from op_profiler.prediction.sets.kernels import Kernels, Processor
from op_profiler.prediction.sets.public_set import PublicSet, Published, Reading

_SYSTEMS = "aiconfigurator_core/systems"
TABLES = {
    "h100_sxm": "trtllm/1.3.0rc20",
    "h200_sxm": "trtllm/1.3.0rc20",
    "a100_sxm": "trtllm/1.0.0",
}
_UNITS = {"h100_sxm": (132, 50e6), "h200_sxm": (132, 50e6), "a100_sxm": (108, 40e6)}
"""Multiprocessors and bytes of the second-level cache, by NVIDIA's data sheets; the set does not contain them."""
_BYTES = {
    "bfloat16": (2.0, 2.0),
    "fp8": (1.0, 1.0),
    "fp8_block": (1.0, 1.0),
    "sq": (1.0, 1.0),
    "int8_wo": (2.0, 1.0),
    "int4_wo": (2.0, 0.5),
}
"""Bytes of an element of the input and of an element of the weights, by data type."""
_SHARE = 0.1  # share of the sites that is held out
_PUBLISHED = Published(3.63, "median", "one site at a time, other tables")
_MS = 1e3  # microseconds


def processors_of(text: str, name: str, units: int, cache_bytes: float) -> list[Processor]:
    """Return the data sheet of a processor for each data type that the set contains.

    Args:
        text: content of the YAML file of a system, from which the peaks are read.
        name: name of the system.
        units: number of multiprocessors.
        cache_bytes: size of the second-level cache.
    """
    peak = {key: float(value) for key, value in re.findall(r"^\s+(\w+): ([\d.e+]+)", text, re.MULTILINE)}
    wide = peak["bfloat16_tc_flops"]
    narrow = {"fp8": "fp8_tc_flops", "fp8_block": "fp8_tc_flops", "sq": "int8_tc_flops"}
    flops = {dtype: peak.get(narrow.get(dtype, ""), wide) for dtype in _BYTES}
    bytes_per_us = peak["mem_bw"] / 1e6
    return [Processor(f"{name} {dtype}", flops[dtype] / 1e6, bytes_per_us, units, cache_bytes) for dtype in _BYTES]


def kernels(columns: dict[str, np.ndarray], processors: list[Processor]) -> Kernels:
    """Return matrix products from the columns gemm_dtype, m, n, k and latency (milliseconds)."""
    rows, wide, depth = (columns[name].astype(np.float64) for name in "mnk")
    kind = np.array([list(_BYTES).index(dtype) for dtype in columns["gemm_dtype"]])
    inputs, weights = np.array(list(_BYTES.values()))[kind].T
    sizes = np.stack([np.ones(len(rows)), rows, wide, depth], axis=1)
    times = columns["latency"] * _MS
    return Kernels.of_products(sizes, processors, times, (inputs, weights, 2), kind=kind, processor=kind)


def read_columns(folder: Path, system: str, table: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the columns `names` of a table, such as ``gemm/gemm``, by name."""
    import pyarrow.parquet

    kind, name = table.split("/")
    path = folder / _SYSTEMS / f"data/{system}/{kind}/{TABLES[system]}/{name}_perf.parquet"
    read = pyarrow.parquet.read_table(path, columns=list(names))
    return {name: read[name].to_numpy() for name in names}


def read_processors(folder: Path, system: str) -> list[Processor]:
    """Return the data sheets of one system, by data type; the first is that of bfloat16."""
    text = (folder / _SYSTEMS / f"{system}.yaml").read_text(encoding="utf-8")
    return processors_of(text, system, *_UNITS[system])


def read_table(folder: Path, system: str, reading: Reading) -> Kernels:
    """Return the matrix products of a system; count the unused rows of its table in `reading`."""
    columns = read_columns(folder, system, "gemm/gemm", ("gemm_dtype", "m", "n", "k", "latency"))
    known = np.isin(columns["gemm_dtype"].astype(str), list(_BYTES)) & (columns["latency"] > 0)
    reading.skipped["no time, or another data type"] += int((~known).sum())
    return kernels({name: column[known] for name, column in columns.items()}, read_processors(folder, system))


def read_batched_products(folder: Path, system: str) -> Kernels:
    """Return the batched products of latent attention in bfloat16, whose weights per head are 128 by 512 or 512 by
    128."""
    names = ("op_name", "bmm_dtype", "num_tokens", "num_heads", "latency")
    columns = read_columns(folder, system, "mla_bmm/mla_bmm", names)
    kept = columns["bmm_dtype"].astype(str) == "bfloat16"
    first = columns["op_name"][kept].astype(str) == "mla_gen_pre"
    heads, tokens = (columns[name][kept].astype(np.float64) for name in ("num_heads", "num_tokens"))
    sizes = np.stack([heads, tokens, np.where(first, 512.0, 128.0), np.where(first, 128.0, 512.0)], axis=1)
    times = columns["latency"][kept] * _MS
    return Kernels.of_products(sizes, read_processors(folder, system)[:1], times, (2, 2, 2))


def held_out_sites(table: Kernels, seed: int) -> np.ndarray:
    """Return a mask of the rows of a random tenth of the sites.

    A site is a shape (n, k) of the weights with all rows m, as in aiconfigurator's own folds
    (`docs/design/perf_interp_design.md` of aiconfigurator: "drop an entire (n,k) shape, predict from neighbours").
    aiconfigurator drops one site at a time, from the tables of sglang 0.5.10 and vLLM 0.19.0 on H100 and GB200, which
    its wheel no longer contains. This function drops a tenth of all sites at once, with all data types; the prediction
    is then no easier.
    """
    sites, site = np.unique(table.sizes[:, 2:], axis=0, return_inverse=True)
    hidden: np.ndarray = (np.random.default_rng(seed).random(len(sites)) < _SHARE)[site.ravel()]
    return hidden


def _read(folder: Path, seed: int) -> Reading:
    reading = Reading()
    for system in TABLES:
        table = read_table(folder, system, reading)
        hidden = held_out_sites(table, seed)
        task = KernelProblem(table.where(~hidden), seed)
        of = "a tenth of the sites: weights of one size, with all their rows and data types"
        reading.splits.append(task.split(f"GEMM site, {system}", table.where(hidden), of, _PUBLISHED))
    return reading


SET = PublicSet(
    about=__doc__,
    fetch="pip download --no-deps aiconfigurator-core==0.12.0 && unzip -d aiconfigurator aiconfigurator_core-0.12.0-*",
    licence="Apache-2.0",
    needs=tuple(f"{_SYSTEMS}/{system}.yaml" for system in TABLES),
    read=_read,
)
