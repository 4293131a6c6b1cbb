"""`VendorPredictor`: estimates of operators as kernels of vendors' libraries, from times that others published.

`collector/ship_vendor.py` fits it; the file is included with the package.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from op_profiler.errors import DatasetError, UnknownNameError
from op_profiler.files import whole_file
from op_profiler.prediction.latency.devices import DeviceName
from op_profiler.prediction.latency.features import NAMES
from op_profiler.prediction.latency.operator_predictor import UNSUPPORTED, VENDOR, OperatorPrediction
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.trees import Trees
from op_profiler.prediction.sets import aiconfigurator, neusight
from op_profiler.prediction.sets.kernel_problem import Ensemble, KernelPredictor, KernelSpread
from op_profiler.prediction.sets.kernels import Kernels, Processor
from op_profiler.shipped import shipped_vendor_kernels

COMPILER = "vendor"
"""Stands in a `DeviceName` where others have the compiler of their kernels."""
HALF_PRODUCT = "float16 product"
_CONTENTS = "contents.json"
_NORM = ({"mean"}, {"variance"}, {"subtract", "rsqrt"})
"""Ops of the three operators that a layer norm is lowered to; each gets a third of the time of the vendor's kernel."""


@dataclasses.dataclass(frozen=True)
class VendorPredictor:
    """Estimates of kernels of vendors' libraries on one GPU.

    Attributes:
        device: the GPU.
        predictors: by the name of a group of operators.
        sheets: data sheets of the GPU, by data type.
        least_bytes: bytes that the smallest measured kernel of a group moves; smaller ones have no estimate.
        correlation: 1, because no network of the sets was used: errors of operators are not expected to cancel.
    """

    device: DeviceName
    predictors: Mapping[str, KernelPredictor]
    sheets: Mapping[str, Processor]
    least_bytes: Mapping[str, float]
    correlation: float = 1.0
    launching: None = None
    thread_counts: tuple[int, ...] = (0,)

    def sees_loops(self, query: Query) -> np.ndarray:
        """Return the mask of entries whose loops matter: none."""
        return np.zeros(len(query), dtype=bool)

    def predict(self, query: Query) -> OperatorPrediction:
        """Predict operators; those whose kind, size or data type the sets lack are unsupported."""
        found = np.full((3, len(query)), np.nan)
        asked: dict[str, list[tuple[int, dict[str, str], float]]] = {}
        for at, (group, row, share) in enumerate(map(_kernel, *_described(query))):
            if group in self.predictors:
                asked.setdefault(group, []).append((at, row, share))
        for group, kernels in asked.items():
            index, rows, shares = zip(*kernels)
            table = self._table(group, list(rows))
            made = self.predictors[group].predict(table)
            times = np.stack([made.latency_us, made.low_us, made.high_us]) * shares
            found[:, index] = np.where(table.moved < self.least_bytes[group], np.nan, times)
        known = np.isfinite(found[0])
        nothing = np.zeros(len(query), dtype=bool)
        latency, low, high = found
        return OperatorPrediction(latency, low, high, np.where(known, VENDOR, UNSUPPORTED), nothing, nothing)

    def _table(self, group: str, rows: list[dict[str, str]]) -> Kernels:
        if group != HALF_PRODUCT:
            sheet = self.sheets["float32"]
            return neusight.kernels([{**row, "Device": sheet.name, "Latency": "1"} for row in rows], [sheet])
        columns = {name.lower(): np.array([float(row[name]) for row in rows]) for name in "MNK"}
        columns |= {"latency": np.ones(len(rows)), "gemm_dtype": np.array(["bfloat16"] * len(rows))}
        return aiconfigurator.kernels(columns, [self.sheets["float16"]])


def open_vendor(device: str | None) -> VendorPredictor:
    """Return the included predictor for a GPU.

    Args:
        device: its short name, such as ``h200``.

    Raises:
        UnknownNameError: the predictor has no such GPU.
        DatasetError: the included file is missing or damaged.
    """
    contents, predictors = load(shipped_vendor_kernels())
    if device is None or device.lower() not in contents["gpus"]:
        raise UnknownNameError("device of --kernels vendor", device or "", list(contents["gpus"]))
    sheets = {dtype: Processor(**sheet) for dtype, sheet in contents["gpus"][device.lower()].items()}
    usable = {name: one for name, one in predictors.items() if name.split()[0] in sheets}
    least = {name: one["least_bytes"] for name, one in contents["groups"].items()}
    return VendorPredictor(_device(device.lower()), usable, sheets, least)


def vendor_devices() -> list[DeviceName]:
    """Return the GPUs that `open_vendor` has; raises the same errors."""
    return [_device(name) for name in load(shipped_vendor_kernels())[0]["gpus"]]


def _device(name: str) -> DeviceName:
    return DeviceName(name, "gpu", f"NVIDIA {name.upper()}", None, "cuda", compiler=COMPILER)


def save(
    path: Path,
    gpus: Mapping[str, Mapping[str, Processor]],
    predictors: Mapping[str, KernelPredictor],
    least_bytes: Mapping[str, float],
) -> None:
    """Write a file that `load` reads: a zip archive of a table of contents and arrays, without a pickle."""
    groups: dict[str, Any] = {}
    members: dict[str, bytes] = {}
    for name, one in predictors.items():
        groups[name] = {
            "known": [dataclasses.asdict(processor) for processor in one.known],
            "near": dataclasses.asdict(one.near),
            "far": None if one.far is None else dataclasses.asdict(one.far),
            "farthest": one.farthest,
            "least_bytes": least_bytes[name],
        }
        members |= {f"{name} {number}.npz": model.to_bytes() for number, model in enumerate(one.ensemble.pooled)}
    sheets = {name: {dtype: dataclasses.asdict(one) for dtype, one in gpu.items()} for name, gpu in gpus.items()}
    with whole_file(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr(_CONTENTS, json.dumps({"gpus": sheets, "groups": groups}, indent=1))
        for name, content in members.items():
            archive.writestr(name, content)


def load(path: Path) -> tuple[dict[str, Any], dict[str, KernelPredictor]]:
    """Return the table of contents and the predictors by the name of their group.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            contents = json.loads(archive.read(_CONTENTS))
            predictors = {}
            for name, one in contents["groups"].items():
                members = sorted(member for member in archive.namelist() if member.startswith(f"{name} "))
                ensemble = Ensemble([Trees.from_bytes(archive.read(member)) for member in members], {})
                known = [Processor(**sheet) for sheet in one["known"]]
                far = None if one["far"] is None else KernelSpread(**one["far"])
                predictors[name] = KernelPredictor(ensemble, known, KernelSpread(**one["near"]), far, one["farthest"])
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path} is no predictor of vendor kernels that can be read: {error}") from error
    return contents, predictors


def _described(query: Query) -> tuple[list[frozenset[str]], list[dict[str, float]]]:
    """Op names and data types of each entry, and its features, whose sizes are exact again."""
    words = [query.op_sets[number] for number in query.vocabulary]
    return words, [dict(zip(NAMES, row)) for row in query.features.astype(np.float64)]


def _kernel(words: frozenset[str], features: Mapping[str, float]) -> tuple[str, dict[str, str], float]:
    """Group, row of NeuSight's columns, and share of that kernel's time, of an operator; an empty group if there is no
    such kernel."""
    rows, columns, depth, batch = (
        str(round(2 ** features[name])) for name in ("rows", "columns", "reduction", "batch")
    )
    product = {"B": batch, "M": rows, "N": columns, "K": depth}
    flat = {"B": rows, "H": columns}
    if "dtype float16" in words:
        return (HALF_PRODUCT if features["is_dense"] else ""), product, 1.0
    if {word for word in words if word.startswith("dtype ")} != {"dtype float32"}:
        return "", flat, 1.0
    if features["is_dense"] or features["is_batch_matmul"]:
        return "float32 product", {"OPName": "linear" if features["is_dense"] else "bmm", **product}, 1.0
    if features["is_softmax"]:
        return "float32 softmax", {"OPName": "softmax", **flat}, 1.0
    if _is_of_norm(words, features):
        return "float32 norm", {"OPName": "ln", "B": rows, "H": str(int(columns) * int(depth))}, 1 / len(_NORM)
    if features["is_elementwise"]:
        two = 2 ** features["input_bytes"] > 1.5 * 2 ** features["output_bytes"]
        name = "gelu" if "erf" in words else "tanh" if "tanh" in words else "add" if two else "relu"
        return "float32 element-wise", {"OPName": name, **flat}, 1.0
    return "", flat, 1.0


def _is_of_norm(words: frozenset[str], features: Mapping[str, float]) -> bool:
    """Whether an operator is a part of a norm over the last axis."""
    names = {word for word in words if not word.startswith("dtype ")}
    if _NORM[2] <= names:
        return bool(features["is_elementwise"])
    return names in _NORM[:2] and features["last_out"] == 0 < features["reduction"]
