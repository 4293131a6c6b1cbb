"""Accuracy of a model in float16 or int8: compares its outputs with the outputs in float32, for the same inputs."""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.building.build import build_model, outputs_of
from op_profiler.building.request import BuildRequest
from op_profiler.cache import cache_folder
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.files import atomic_file
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.lowered_cache import original_model
from op_profiler.schedules.records import NONE
from op_profiler.targets.target import resolve_target

if TYPE_CHECKING:
    from op_profiler.frontends.frontend import ModelRequest


def accuracy_against_float32(
    build: BuildRequest,
    content: str,
    outputs: Sequence[np.ndarray],
    inputs: Mapping[str, np.ndarray],
    announce: Callable[..., None],
) -> dict[str, float | bool] | None:
    """Return the accuracy of a model's outputs against float32, as `accuracy_of` does.

    Returns None if the request is for float32 (the outputs are then stored as a reference), or if the models of this
    source already have the requested precision (`Frontend.has_precisions`).

    Args:
        content: content of the model (`ImportedModel.content`).
        outputs: outputs of a run with `inputs`.
        announce: called before a model in float32 is built.
    """
    if FRONTENDS.get(build.model.source).has_precisions:
        return None
    references = References(content, inputs)
    if build.precision == "float32":
        references.keep(outputs)
        return None
    announce(stage="comparing with float32")
    return accuracy_of(outputs, references.outputs(build.model))


def accuracy_of(outputs: Sequence[np.ndarray], reference: Sequence[np.ndarray]) -> dict[str, float | bool]:
    """Compare outputs with a reference, over all outputs, in float64; outputs of a softmax are compared as logits.

    Returns:
        ``relative_error``: norm of the difference over norm of the reference; ``largest_error``: largest difference
            over largest value of the reference; ``cosine``: cosine similarity; ``same_top1``: whether the index of the
            largest entry along the last axis of the first output is the same everywhere. If a value is not finite, the
            numbers are NaN and ``same_top1`` is missing.
    """
    pairs = [_comparable(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(outputs, reference)]
    ours = np.concatenate([a.ravel() for a, _ in pairs])
    theirs = np.concatenate([b.ravel() for _, b in pairs])
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return {"relative_error": float("nan"), "largest_error": float("nan"), "cosine": float("nan")}
    norms = float(np.linalg.norm(ours)), float(np.linalg.norm(theirs))
    difference = ours - theirs
    return {
        "relative_error": float(np.linalg.norm(difference)) / (norms[1] or 1.0),
        "largest_error": float(np.abs(difference).max(initial=0.0)) / (float(np.abs(theirs).max(initial=0.0)) or 1.0),
        "cosine": float(ours @ theirs) / (norms[0] * norms[1])
        if norms[0] and norms[1]
        else float(norms[0] == norms[1]),
        "same_top1": bool(np.array_equal(_top1(outputs[0]), _top1(reference[0]))),
    }


def _comparable(ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both arrays unchanged; if they are probabilities, return centred logits instead.

    Random weights give nearly equal probabilities, so a comparison of the probabilities would not show errors.
    """
    if theirs.ndim == 0 or theirs.shape[-1] < 2 or not all(map(_are_probabilities, (ours, theirs))):
        return ours, theirs
    logits = [np.log(p) for p in (ours, theirs)]
    return logits[0] - logits[0].mean(-1, keepdims=True), logits[1] - logits[1].mean(-1, keepdims=True)


def _are_probabilities(values: np.ndarray) -> bool:
    return bool((values > 0).all() and np.allclose(values.sum(-1), 1.0, atol=1e-2))


def _top1(output: np.ndarray) -> np.ndarray:
    return np.asarray(np.argmax(np.atleast_1d(output).astype(np.float64), axis=-1))


class References:
    """The stored outputs of one model in float32 for fixed inputs, so that it is built in float32 only once.

    The outputs are stored in the cache folder.
    """

    def __init__(self, model_fingerprint: str, inputs: Mapping[str, np.ndarray]) -> None:
        digest = hashlib.sha256(model_fingerprint.encode())
        compiler = compiler_in_use().name
        if compiler != DEFAULT_COMPILER:
            digest.update(compiler.encode())
        for name in sorted(inputs):
            digest.update(name.encode() + inputs[name].tobytes())
        self._path = cache_folder() / "outputs" / f"{digest.hexdigest()[:32]}.npz"
        self._inputs = inputs

    def keep(self, outputs: Sequence[np.ndarray]) -> None:
        """Store the outputs of a run in float32, unless outputs are stored already."""
        if not self._path.is_file():
            self._write(outputs)

    def outputs(self, model: ModelRequest) -> list[np.ndarray]:
        """Return the stored outputs in float32; if none are stored, compute them on this machine's processor."""
        try:
            with np.load(self._path, allow_pickle=False) as kept:
                return [kept[name] for name in kept.files]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            outputs = self._compute(model)
            self._write(outputs)  # also over a damaged file
            return outputs

    def _write(self, outputs: Sequence[np.ndarray]) -> None:
        """Store the outputs; if the cache folder cannot be written (for example, a full disk), nothing is stored."""
        with contextlib.suppress(OSError), atomic_file(self._path) as partial, partial.open("wb") as file:
            np.savez(file, *outputs)

    def _compute(self, model: ModelRequest) -> list[np.ndarray]:
        target = resolve_target("llvm")
        built = build_model(
            BuildRequest(model=model, compiler=compiler_in_use().name, schedules=NONE), original_model(model), target
        )
        return outputs_of(built.compiled, target, dict(self._inputs))
