"""Predictor files: a zip archive of arrays, models of scikit-learn in skops' format, and a table of contents.

No pickle is loaded: arrays are loaded with ``allow_pickle=False``, and a skops file may contain only types that skops
trusts by default. Every member is checked against its digest in the table of contents, and its size is checked before
it is unpacked; so are the members of nested archives.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import op_profiler
from op_profiler.cache import cache_folder
from op_profiler.errors import DatasetError, OpProfilerError
from op_profiler.files import whole_file
from op_profiler.prediction.latency import PREDICTORS
from op_profiler.prediction.latency.base import Base
from op_profiler.prediction.latency.correction import Correction
from op_profiler.prediction.latency.coverage import Coverage
from op_profiler.prediction.latency.devices import DeviceName
from op_profiler.prediction.latency.features import NAMES
from op_profiler.prediction.latency.gaussian_process import GaussianProcess
from op_profiler.prediction.latency.interpolation import Interpolation
from op_profiler.prediction.latency.intervals import Spread
from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.launch_model import COSTS, LaunchModel
from op_profiler.prediction.latency.launched import NAMES as LAUNCHED
from op_profiler.prediction.latency.launching import Launching
from op_profiler.prediction.latency.loop_columns import NAMES as LOOP_COLUMN_NAMES
from op_profiler.prediction.latency.operator_predictor import MeasuredTimes, OperatorPredictor
from op_profiler.prediction.latency.query import SETTING_NAMES, Query, unknown_loops
from op_profiler.prediction.latency.regression import BoostedTrees, Regressor
from op_profiler.prediction.latency.roofline import Roofline
from op_profiler.prediction.latency.traffic import NAMES as LOOP_NAMES
from op_profiler.targets.target import kind_of

_FORMAT = "op_profiler predictor"
_VERSION = 14
_CONTENTS = "contents.json"
_LARGEST_CONTENTS_BYTES = 1 << 24
_LARGEST_BYTES = 1 << 30
"""Limit of the unpacked size of all members together, and of each nested archive."""


def save(predictor: OperatorPredictor, path: Path) -> None:
    """Write a predictor to a file. Raises the errors of `whole_file` if the file cannot be written."""
    contents, members, arrays = _parts(predictor)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # the stubs type every keyword as allow_pickle
    members["arrays.npz"] = buffer.getvalue()
    contents["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in members.items()}
    with whole_file(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_CONTENTS, json.dumps(contents, indent=1))
        for name, content in members.items():
            archive.writestr(name, content)


def digest(predictor: OperatorPredictor) -> str:
    """Return a digest (16 hex digits) of everything that determines the predictions."""
    contents, members, arrays = _parts(predictor)
    found = hashlib.sha256(json.dumps(contents).encode())
    for name, content in members.items():
        found.update(name.encode() + content)
    for name, array in arrays.items():
        found.update(f"{name} {np.shape(array)}".encode() + np.asarray(array).tobytes())
    return found.hexdigest()[:16]


def _parts(predictor: OperatorPredictor) -> tuple[dict[str, Any], dict[str, bytes], dict[str, np.ndarray]]:
    """Return a predictor as plain values, its models by file name, and its arrays by name."""
    members: dict[str, bytes] = {}
    for number, model in enumerate(predictor.models):
        members[f"model{number}{model.suffix}"] = model.to_bytes()
    if predictor.spread.scale is not None:
        members["scale.npz"] = predictor.spread.scale.to_bytes()
    arrays: dict[str, np.ndarray] = {
        "interpolated_families": predictor.interpolated_families,
        **{f"roofline_{f.name}": getattr(predictor.roofline, f.name) for f in dataclasses.fields(Roofline)},
        **{f"kernels_{f.name}": getattr(predictor.base.kernels, f.name) for f in _kernel_fields(predictor)},
        **{f"measured_{f.name}": getattr(predictor.measured, f.name) for f in dataclasses.fields(MeasuredTimes)},
        **_correction_arrays(predictor.base.correction),
    }
    op_sets: list[list[str]] = []
    if predictor.interpolation is not None:
        query, families, target = predictor.interpolation.learned
        op_sets = [sorted(words) for words in query.op_sets]
        arrays |= {f"points_{name}": getattr(query, name) for name in _POINTS}
        arrays |= {"points_families": families, "points_target": target}
    contents = {
        "format": _FORMAT,
        "version": _VERSION,
        "columns": _columns_of(predictor.device),
        "device": dataclasses.asdict(predictor.device),
        "choice": predictor.choice,
        "coverage": dataclasses.asdict(predictor.coverage),
        "op_sets": op_sets,
        **{name: getattr(predictor.spread, name) for name in _OF_SPREAD},
        "vector_ratio": predictor.base.vector_ratio,
        "correlation": predictor.correlation,
        "usual_traffic_bytes": predictor.median_traffic_bytes,
        "fingerprint": predictor.fingerprint,
        "launching": None if predictor.launching is None else dataclasses.asdict(predictor.launching),
        "versions": _versions(),
    }
    return contents, members, arrays


def load(path: Path) -> OperatorPredictor:
    """Read a predictor from a file.

    Raises:
        DatasetError: the file is missing, damaged, or was not written by this version of op_profiler.
        MissingPackageError: the predictor has regressions of a package that is not installed.
    """
    with _open(path) as archive:
        contents = _contents(archive, path)
        _check_sizes(archive)
        members = {name: _member(archive, name, digest, path) for name, digest in contents["sha256"].items()}
        found = _predictor(contents, members)
        if len(found.models) != found.base.models_of(found.method):  # else those with and without loops are mixed up
            raise _version_error(path)
        found.check()
    return found


def device_in(path: Path) -> DeviceName:
    """Return the device of a stored predictor without reading the rest of the file.

    Raises:
        DatasetError: as for `load`.
    """
    with _open(path) as archive:
        return DeviceName(**_contents(archive, path)["device"])


@contextlib.contextmanager
def _open(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a predictor for reading; errors of the block that are not from this package become a DatasetError."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except OpProfilerError:
        raise
    except Exception as error:  # each library raises other errors for damaged content
        raise DatasetError(f"{path} is no predictor that can be read: {error or type(error).__name__}") from error


def kept(name: str, make: Callable[[], OperatorPredictor], note: Callable[[str], None]) -> OperatorPredictor:
    """Return the predictor with this name from the cache folder; if it is missing or unreadable, create and store it.

    Args:
        name: name of the file; predictors that differ must have different names.
        note: called with the reason if the predictor cannot be stored.
    """
    path = cache_folder() / "predictors" / f"{name}.zip"
    try:
        return load(path)
    except DatasetError:
        pass  # missing, damaged, or of an older version
    predictor = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(predictor, path)
    except (OSError, OpProfilerError) as error:
        note(f"the predictor is not kept: {error}")
    return predictor


_OF_SPREAD = ("quantiles", "typical_above_bound", "bound_width", "fastest")
_PROCESS = ("variances", "noise", "coefficients")
_POINTS = tuple(
    field.name for field in dataclasses.fields(Query) if field.name not in ("loops", "op_sets", "form", "forms")
)


def _columns_of(device: DeviceName) -> list[str]:
    """Return the names of the columns that regressions are trained on."""
    of_loops = (*LAUNCHED, *COSTS) if kind_of(device.target).on_gpu else (*LOOP_NAMES, *LOOP_COLUMN_NAMES)
    return [*NAMES, *SETTING_NAMES, *of_loops]


def _contents(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    if archive.getinfo(_CONTENTS).file_size > _LARGEST_CONTENTS_BYTES:
        raise ValueError(f"{_CONTENTS} is too large for a predictor")
    found = json.loads(archive.read(_CONTENTS))
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise DatasetError(f"{path} is no predictor of op_profiler")
    if found.get("version") != _VERSION or found.get("columns") != _columns_of(DeviceName(**found["device"])):
        raise _version_error(path)
    return found


def _version_error(path: Path) -> DatasetError:
    return DatasetError(
        f"{path} is from another version of op_profiler, which described operators differently; fit it again: "
        "op-profiler predict --db ... (or leave out --predictor)"
    )


def _check_sizes(archive: zipfile.ZipFile) -> None:
    """Reject archives whose unpacked size is larger than any predictor; unpacking stops at the checked sizes."""
    if sum(member.file_size for member in archive.infolist()) > _LARGEST_BYTES:
        raise ValueError("it is too large for a predictor")


def _member(archive: zipfile.ZipFile, name: str, digest: str, path: Path) -> bytes:
    content = archive.read(name)
    if hashlib.sha256(content).hexdigest() != digest:
        raise DatasetError(f"{path} is damaged: {name} is not what it was when it was written")
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as inner:
            _check_sizes(inner)
    return content


def _predictor(contents: dict[str, Any], members: dict[str, bytes]) -> OperatorPredictor:
    with np.load(io.BytesIO(members["arrays.npz"]), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    interpolation = None
    if "points_target" in arrays:
        points = {name: arrays[f"points_{name}"] for name in _POINTS}
        op_sets = tuple(frozenset(words) for words in contents["op_sets"])
        count = len(points["keys"])  # interpolation uses no attributes
        form = np.zeros(count, dtype=np.intp)
        query = Query(**points, loops=unknown_loops(count), op_sets=op_sets, form=form, forms=(("",),))
        interpolation = Interpolation(query, arrays["points_families"], arrays["points_target"])
    scale = BoostedTrees.from_bytes(members["scale.npz"]) if "scale.npz" in members else None
    spread = Spread(scale, **{name: contents[name] for name in _OF_SPREAD})
    return OperatorPredictor(
        device=DeviceName(**contents["device"]),
        choice=contents["choice"],
        base=_base(arrays, contents["vector_ratio"]),
        measured=MeasuredTimes(**{f.name: arrays[f"measured_{f.name}"] for f in dataclasses.fields(MeasuredTimes)}),
        models=_models(contents["choice"], members),
        interpolation=interpolation,
        interpolated_families=arrays["interpolated_families"],
        coverage=Coverage(**contents["coverage"]),
        spread=spread,
        correlation=contents["correlation"],
        median_traffic_bytes=contents["usual_traffic_bytes"],
        fingerprint=contents["fingerprint"],
        launching=Launching(**contents["launching"]) if contents.get("launching") else None,
    )


def _kernel_fields(predictor: OperatorPredictor) -> tuple[dataclasses.Field[Any], ...]:
    return () if predictor.base.kernels is None else dataclasses.fields(predictor.base.kernels)


def _base(arrays: dict[str, np.ndarray], vector_ratio: float) -> Base:
    roofline = Roofline(**{f.name: arrays[f"roofline_{f.name}"] for f in dataclasses.fields(Roofline)})
    kernels: KernelModel | LaunchModel | None = None
    if "kernels_threads" in arrays:
        kernels = KernelModel(**{f.name: arrays[f"kernels_{f.name}"] for f in dataclasses.fields(KernelModel)})
    elif "kernels_multiprocessors" in arrays:
        kernels = LaunchModel(**{f.name: arrays[f"kernels_{f.name}"] for f in dataclasses.fields(LaunchModel)})
    return Base(roofline, kernels, _correction(arrays), vector_ratio)


def _correction_arrays(correction: Correction | None) -> dict[str, np.ndarray]:
    """Return the arrays of a correction by name; empty without a correction."""
    if correction is None:
        return {}
    found = {
        "correction_ratio": np.array(correction.ratio),
        "correction_loop_spreads": correction.loop_spreads,
    }
    for name, process in (("looped", correction.looped), ("plain", correction.plain)):
        if process is not None:
            found |= {f"correction_{name}_{part}": getattr(process, part) for part in _PROCESS}
            found |= {f"correction_{name}_places_{n:02}": places for n, places in enumerate(process.places)}
    return found


def _correction(arrays: dict[str, np.ndarray]) -> Correction | None:
    """Return the correction whose arrays `_correction_arrays` returned."""
    if "correction_ratio" not in arrays:
        return None

    def process(name: str) -> GaussianProcess:
        start = f"correction_{name}_"
        places = (arrays[key] for key in sorted(arrays) if key.startswith(f"{start}places_"))
        return GaussianProcess(tuple(places), **{part: arrays[start + part] for part in _PROCESS})

    looped, plain = (process(name) if f"correction_{name}_noise" in arrays else None for name in ("looped", "plain"))
    return Correction(float(arrays["correction_ratio"]), looped, plain, arrays["correction_loop_spreads"])


def _models(choice: str, members: dict[str, bytes]) -> list[Regressor]:
    if choice not in PREDICTORS:
        raise ValueError("it is of no known kind")
    names = sorted(name for name in members if name.startswith("model"))
    kinds: dict[str, type[Regressor]] = {kind.suffix: kind for kind in PREDICTORS.get(choice).regressor_types}
    return [kinds[Path(name).suffix].from_bytes(members[name]) for name in names]


def _versions() -> dict[str, str]:
    found = {"op_profiler": op_profiler.__version__, "numpy": np.__version__}
    for name in ("xgboost-cpu", "xgboost", "scikit-learn"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
