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
from op_profiler.prediction.sets import neusight
from op_profiler.prediction.sets.kernel_problem import DistantSpread, Ensemble, KernelPredictor, KernelSpread
from op_profiler.prediction.sets.kernels import Kernels, Processor
from op_profiler.prediction.sets.vendor_groups import copies
from op_profiler.shipped import shipped_vendor_kernels

COMPILER = "vendor"
"""Value of `DeviceName.compiler` for vendors' kernels."""
HALF_PRODUCT, HALF_BATCHED = "float16 product", "float16 batched product"
HALF_COPY = "float16 copy"
ELEMENT_WISE = "float32 element-wise"
Sizes = dict[str, str]
"""Columns of NeuSight's rows, or the ``bytes`` of a copy."""
_CONTENTS = "contents.json"
_NORM = ({"mean"}, {"variance"}, {"subtract", "rsqrt"})
"""Ops of the three operators that a layer norm is lowered to; each gets a third of the time of the vendor's kernel."""


@dataclasses.dataclass(frozen=True)
class VendorPredictor:
    """Estimates of kernels of vendors' libraries on one GPU.

    Attributes:
        device: the GPU.
        predictors: predictor of each group of operators, by the name of the group.
        sheets: data sheets of the GPU, by data type.
        least_bytes: by the name of a group, bytes that its smallest measured kernel moves. Smaller kernels have no
            estimate, except for copies and element-wise operators, whose time is then that of starting a kernel.
        correlation: always 1: no network was used in the fit, so errors of operators are not expected to cancel.
    """

    device: DeviceName
    predictors: Mapping[str, KernelPredictor]
    sheets: Mapping[str, Processor]
    least_bytes: Mapping[str, float]
    correlation: float = 1.0
    launching: None = None
    thread_counts: tuple[int, ...] = (0,)

    def sees_loops(self, query: Query) -> np.ndarray:
        """Return a mask that selects no entry: loops do not affect these estimates."""
        return np.zeros(len(query), dtype=bool)

    def predict(self, query: Query) -> OperatorPrediction:
        """Predict operators; those whose kind, size or data type was not published are unsupported."""
        found = np.full((3, len(query)), np.nan)
        described = list(zip(*_described(query)))
        half = any("dtype float16" in words for words, _ in described)
        kernels = [_kernel(words, features, half=half) for words, features in described]
        asked: dict[str, list[tuple[int, Sizes, float]]] = {}
        for at, (group, row, share) in enumerate(kernels):
            if group in self.predictors:
                asked.setdefault(group, []).append((at, row, share))
        for group, parts in asked.items():
            index, rows, shares = zip(*parts)
            table = self._table(group, list(rows))
            made = self.predictors[group].predict(table)
            times = np.stack([made.latency_us, made.low_us, made.high_us]) * shares
            is_too_small = (table.moved < self.least_bytes[group]) & (group not in (HALF_COPY, ELEMENT_WISE))
            found[:, index] = np.where(is_too_small, np.nan, times)
        known = np.isfinite(found[0])
        nothing = np.zeros(len(query), dtype=bool)
        latency, low, high = found
        return OperatorPrediction(latency, low, high, np.where(known, VENDOR, UNSUPPORTED), nothing, nothing)

    def _table(self, group: str, rows: list[Sizes]) -> Kernels:
        sheet = self.sheets[group.split()[0]]
        one = np.ones(len(rows))
        if group == HALF_COPY:
            moved = np.array([float(row["bytes"]) for row in rows])
            return copies(moved, [sheet], np.zeros(len(rows), dtype=np.int64), one)
        if group in (HALF_PRODUCT, HALF_BATCHED):
            sizes = np.array([[float(row[name]) for name in "BMNK"] for row in rows])
            if group == HALF_PRODUCT:
                sizes[:, 0] = 1
            return Kernels.of_products(sizes, [sheet], one, (2, 2, 2))
        return neusight.kernels([{**row, "Device": sheet.name, "Latency": "1"} for row in rows], [sheet])


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
    """Return the GPUs that `open_vendor` accepts. Raises DatasetError as `open_vendor` does."""
    return [_device(name) for name in load(shipped_vendor_kernels())[0]["gpus"]]


def _device(name: str) -> DeviceName:
    return DeviceName(name, "gpu", f"NVIDIA {name.upper()}", None, "cuda", compiler=COMPILER)


def save(
    path: Path,
    gpus: Mapping[str, Mapping[str, Processor]],
    predictors: Mapping[str, KernelPredictor],
    least_bytes: Mapping[str, float],
) -> None:
    """Write a file that `load` reads: a zip archive of a table of contents and arrays, without a pickle.

    Args:
        gpus: data sheets by name of the GPU and data type.
        predictors, least_bytes: see `VendorPredictor`.
    """
    groups: dict[str, Any] = {}
    members: dict[str, bytes] = {}
    for name, one in predictors.items():
        groups[name] = {
            "known": [dataclasses.asdict(processor) for processor in one.known],
            "limits": one.limits,
            "near": dataclasses.asdict(one.near),
            **{
                name: errors and dataclasses.asdict(errors)
                for name, errors in (("beyond", one.beyond), ("far", one.far))
            },
            "least_bytes": least_bytes[name],
            "regressors": len(one.ensemble.pooled),
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
                members = [f"{name} {number}.npz" for number in range(one["regressors"])]
                ensemble = Ensemble([Trees.from_bytes(archive.read(member)) for member in members], {})
                known = [Processor(**sheet) for sheet in one["known"]]
                limits = {int(kind): tuple(each) for kind, each in one["limits"].items()}
                near, beyond, far = KernelSpread(**one["near"]), _distant(one["beyond"]), _distant(one["far"])
                predictors[name] = KernelPredictor(ensemble, known, limits, near, beyond, far)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path} is no predictor of vendor kernels that can be read: {error}") from error
    return contents, predictors


def _distant(content: Mapping[str, Any] | None) -> DistantSpread | None:
    return None if content is None else DistantSpread(KernelSpread(**content["spread"]), content["distance"])


def _described(query: Query) -> tuple[list[frozenset[str]], list[dict[str, float]]]:
    """Return op names and data types of each entry, and its features, with sizes as exact integers."""
    words = [query.op_sets[number] for number in query.vocabulary]
    return words, [dict(zip(NAMES, row)) for row in query.features.astype(np.float64)]


def _kernel(words: frozenset[str], features: Mapping[str, float], *, half: bool) -> tuple[str, Sizes, float]:
    """Return the group of kernels of an operator, its sizes, and its share of the kernel's time.

    The group is empty if there is no such kernel.

    Args:
        half: whether the network has operators in float16. The network's other operators are then also estimated from
            the source of the float16 kernels, because NeuSight's times in float32 contain launches.
    """
    batch, rows, columns, depth = (str(size) for size in _sizes(features))
    product, flat = {"B": batch, "M": rows, "N": columns, "K": depth}, {"B": rows, "H": columns}
    dtypes = {word for word in words if word.startswith("dtype ")}
    is_norm = _is_of_norm(words, features)
    share = 1 / len(_NORM) if is_norm else 1.0
    if features["is_dense"] or features["is_batch_matmul"]:
        if "dtype float16" in dtypes:
            return HALF_PRODUCT if features["is_dense"] else HALF_BATCHED, product, 1.0
        name = "linear" if features["is_dense"] else "bmm"
        return "float32 product" if dtypes == {"dtype float32"} else "", {"OPName": name, **product}, 1.0
    moves = features["is_layout"] or features["is_take"]
    if moves or (half and (is_norm or features["is_elementwise"] or features["is_softmax"])):
        sizes = {"bytes": str(_moved(features, is_norm=is_norm))} if half else {"OPName": "relu", **flat}
        return HALF_COPY if half else ELEMENT_WISE, sizes, share
    if dtypes != {"dtype float32"}:
        return "", flat, 1.0
    if features["is_softmax"]:
        return "float32 softmax", {"OPName": "softmax", **flat}, 1.0
    if is_norm:
        return "float32 norm", {"OPName": "ln", "B": rows, "H": str(int(columns) * int(depth))}, share
    if features["is_elementwise"]:
        two = 2 ** features["input_bytes"] > 1.5 * 2 ** features["output_bytes"]
        name = "gelu" if "erf" in words else "tanh" if "tanh" in words else "add" if two else "relu"
        return ELEMENT_WISE, {"OPName": name, **flat}, 1.0
    return "", flat, 1.0


def _sizes(features: Mapping[str, float]) -> tuple[int, int, int, int]:
    batch, rows, columns, depth = (round(2 ** features[name]) for name in ("batch", "rows", "columns", "reduction"))
    return batch, rows, columns, depth


def _moved(features: Mapping[str, float], *, is_norm: bool) -> float:
    """Return the bytes of all inputs and outputs; for a look-up, its output read and written; for a norm, those of its
    whole kernel."""
    read, written = 2 ** features["input_bytes"], 2 ** features["output_bytes"]
    if is_norm:
        return 2 * max(read, written)
    return 2 * written if features["is_take"] else read + written


def _is_of_norm(words: frozenset[str], features: Mapping[str, float]) -> bool:
    """Return whether an operator is a part of a norm over the last axis."""
    names = {word for word in words if not word.startswith("dtype ")}
    if _NORM[2] <= names:
        return bool(features["is_elementwise"])
    return names in _NORM[:2] and features["last_out"] == 0 < features["reduction"]
