"""Checks whether an imported model computes the same as its own framework.

An importer that ignores an option or mistakes one operator for another creates a different model, and no other check
detects this. The outputs of a model are therefore compared once with those of its own framework. The result is stored
in the cache folder by the content of the model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler import cache
from op_profiler.building.agreement_values import SCALES, Difference, batches_of, dependence, depth_of, difference
from op_profiler.building.build import build_model, outputs_of
from op_profiler.building.build_cache import hand_over
from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_inputs import static_inputs
from op_profiler.building.requested_target import target_for
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import (
    OF_COMPARED_KINDS,
    Agreement,
    FrameworkReference,
    ImportedModel,
    NoReference,
)
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.weight_files import drop_copies
from op_profiler.errors import MeasureError, ModelError, OpProfilerError
from op_profiler.files import atomic_file
from op_profiler.frontends import FRONTENDS
from op_profiler.schedules.records import NONE
from op_profiler.targets.target import kind_of, resolve_target

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.imported_model import InputSpec

_FORMAT = 1
_MOST_DOUBTS = 3  # that are named
_DEPENDS_ENOUGH = 0.01
"""Relative change of the outputs between two batches of inputs below which larger inputs are tried."""


class OutputsDifferError(ModelError):
    """Raised if the outputs of an imported model differ from those of its own framework.

    Args:
        agreement: result of the comparison.
    """

    def __init__(self, message: str, agreement: Agreement) -> None:
        super().__init__(message)
        self.agreement = agreement


def with_agreement(
    request: BuildRequest,
    model: ImportedModel,
    given: Mapping[str, np.ndarray],
    announce: Callable[..., None],
    compared_kinds: set[str] | None = None,
) -> ImportedModel:
    """Compare a model with its own framework; return the model with the result, and without its reference, which may
    contain a second copy of the weights.

    Args:
        given: the user's inputs; empty for random ones.
        announce: called with the name of each stage before the stage begins.
        compared_kinds: kinds of nodes in models that were compared before; the kinds of this model are added. A model
            without new kinds is not compared. None: each model is compared.

    Raises:
        OutputsDifferError: the outputs differ, and the request does not accept that.
    """
    kept = _StoredAgreement(model)
    agreement = kept.read() if request.check_outputs != "always" else None
    kinds: frozenset[str] = frozenset()
    if compared_kinds is not None and model.reference is not None:
        kinds = model.reference.kinds
    if request.check_outputs == "never":
        agreement = agreement or Agreement()
    elif agreement is None and request.check_outputs == "once" and compared_kinds and kinds and kinds <= compared_kinds:
        agreement = Agreement(outputs_reference=OF_COMPARED_KINDS)
    elif agreement is None:
        announce(stage="comparing outputs")
        static_inputs(model, request)  # refuses a model of free sizes, whichever way it is measured
        try:
            agreement = _compared(request, model, given)
        except NoReference as error:
            agreement = Agreement(outputs_reference=str(error))
        except OutputsDifferError as error:
            kept.write(error.agreement, str(error))
            raise
        except (ModelError, MeasureError) as error:  # its operators may be measured one by one
            agreement = Agreement(outputs_reference=f"the model does not run as a whole ({error})")
        else:
            kept.write(agreement)
            if compared_kinds is not None:
                compared_kinds |= kinds
    elif agreement.outputs_agree is False:
        raise OutputsDifferError(kept.why(), agreement)
    warning = (f"this is another model: its {agreement}",) if agreement.outputs_agree is False else ()
    return dataclasses.replace(model, reference=None, agreement=agreement, notes=(*model.notes, *warning))


def _compared(request: BuildRequest, model: ImportedModel, given: Mapping[str, np.ndarray]) -> Agreement:
    reference = _reference(request, model)
    if reference is None:
        return Agreement(outputs_reference="no other framework has this model")
    names = reference.names_of(model.inputs)
    sized = _sized(request, model, reference, names)
    theirs_of = {ours: theirs for ours, theirs in names.items() if ours in given}
    batches, values = _runs(reference, sized, {theirs: given[ours] for ours, theirs in theirs_of.items()})
    drop_copies(model.params)
    ours = _Ours(request, names)
    found = ours.differences(model, batches, values)
    decided = [one for one in found if one.is_decided and one.shows]
    wrong = next((place for place, one in enumerate(found) if one.is_decided and not one.agrees), None)
    if wrong is not None:
        node = _first_node(reference, ours, batches)
        agreement = Agreement(False, found[wrong].error, reference.framework)
        raise OutputsDifferError(_sentence(model.name, reference, wrong, found[wrong], node), agreement)
    if not decided:
        why = "they hardly depend on the inputs" if any(one.is_decided for one in found) else "rounding decides them"
        return Agreement(outputs_reference=f"{why}, so {reference.framework} shows nothing")
    return Agreement(True, max(one.error for one in decided), reference.framework)


def _runs(
    reference: FrameworkReference, specs: Sequence[InputSpec], given: Mapping[str, np.ndarray]
) -> tuple[list[dict[str, np.ndarray]], list[list[np.ndarray]]]:
    """Return batches of inputs on which the outputs depend, and these outputs."""
    best, strongest = None, -1.0
    for scale in SCALES if any(spec.dtype.startswith("float") and spec.name not in given for spec in specs) else (1.0,):
        batches = batches_of(specs, given, scale)
        values = reference.outputs(batches)
        depends = dependence(values[0], values[1])
        if best is None or depends > strongest:  # not so where it is NaN
            best, strongest = (batches, values), depends
        if not depends < _DEPENDS_ENOUGH:
            break
    assert best is not None
    return best


def _reference(request: BuildRequest, model: ImportedModel) -> FrameworkReference | None:
    """Return the reference of a model; a model from the cache has none, so it is loaded again."""
    source = FRONTENDS.get(request.model.source)
    if model.reference is not None or not model.content_is_source or not source.has_framework(request.model):
        return model.reference
    return compiler_in_use().load_model(source, request.model).reference


def _sized(
    request: BuildRequest, model: ImportedModel, reference: FrameworkReference, names: Mapping[str, str]
) -> list[InputSpec]:
    """Return the reference's inputs in the sizes that are measured."""
    shapes = {names[spec.name]: spec.shape for spec in static_inputs(model, request)}
    sized = [dataclasses.replace(spec, shape=shapes.get(spec.name, spec.shape)) for spec in reference.inputs]
    open_ones = [spec.name for spec in sized if None in spec.shape]
    if open_ones:
        raise NoReference(f"the size of its input {open_ones[0]} is not known")
    return sized


class _Ours:
    """Runs a model as this project builds it, on this machine's processor.

    Args:
        names: names of the reference's inputs, by names of the imported model.
    """

    def __init__(self, request: BuildRequest, names: Mapping[str, str]) -> None:
        as_measured = request.on_host and request.target.strip() == "llvm" and request.precision == "float32"
        plain = BuildRequest(
            model=request.model,
            compiler=request.compiler,
            pipeline=request.pipeline,
            executor=request.executor,
            schedules=NONE,
        )
        self._as_measured = as_measured
        self._request = request if as_measured else plain
        self._names = names

    def differences(
        self, model: ImportedModel, batches: Sequence[Mapping[str, np.ndarray]], theirs: Sequence[Sequence[np.ndarray]]
    ) -> list[Difference]:
        """Return the difference of each output, the largest over all inputs.

        Args:
            batches, theirs: the four batches that `batches_of` returns, and the framework's outputs for each of them.
        """
        target = target_for(model, kind_of("llvm"), "float32", resolve_target("llvm"))
        built = build_model(self._request, model, target)
        if self._as_measured:
            hand_over(built)
        compiled = built.compiled
        tensors = [tensor for o in compiled.occurrences for tensor in (*o.operator.params, *o.operator.outputs)]
        types = {tensor.dtype for tensor in tensors}
        digits = next((name for name in ("bfloat16", "float16") if name in types), "float32")
        depth, quantized = depth_of(len(compiled.calls)), not types.isdisjoint(("int8", "uint8"))
        worst: list[Difference] = []
        for batch, expected, moved, other in zip(batches[:2], theirs[:2], theirs[2:], (theirs[1], theirs[0])):
            ours = outputs_of(
                compiled, target, {own: batch[name] for own, name in self._names.items() if name in batch}
            )
            if len(ours) != len(expected):
                return [Difference(why=f"is one of {len(ours)}, which are {len(expected)} in its own framework")]
            found = [
                difference(*four, depth=depth, digits=digits, quantized=quantized)
                for four in zip(ours, expected, moved, other)
            ]
            worst = [max(pair, key=_badness) for pair in zip(worst or found, found)]
        return worst


def _badness(one: Difference) -> tuple[bool, bool, float]:
    return bool(one.why), not one.agrees, one.error


def _first_node(reference: FrameworkReference, ours: _Ours, batches: Sequence[Mapping[str, np.ndarray]]) -> str:
    """Return the first node whose value differs; empty if that is unknown."""
    with contextlib.suppress(OpProfilerError, NoReference):
        opened = reference.opened(batches)
        if opened is not None:
            found = ours.differences(opened.model, batches, opened.outputs)
            return next((name for name, one in zip(opened.nodes, found) if one.is_decided and not one.agrees), "")
    return ""


def _sentence(name: str, reference: FrameworkReference, place: int, found: Difference, node: str) -> str:
    what = found.why or f"has an error of {found.error:.2g} of its size; rounding explains {found.allowed:.1g}"
    where = f". The first value that differs is that of {node}" if node else ""
    doubts = ", ".join(reference.doubts[:_MOST_DOUBTS])
    why = f". Python code that depends on values may be the reason: {doubts}" if doubts else ""
    return (
        f"{name} computes something else here than in {reference.framework}: its output {place} {what}{where}{why}. To "
        "measure it nevertheless: --check-outputs never"
    )


class _StoredAgreement:
    """Result of an earlier comparison, stored in the cache folder by the content of the model."""

    def __init__(self, model: ImportedModel) -> None:
        code = cache.code_digest("compilers", "frontends")
        parts = [_FORMAT, model.content, compiler_in_use().name, str(load_tvm().__version__), code]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
        self._is_kept = model.content_is_source and bool(model.content)
        self._path = cache.cache_folder() / "agreements" / f"{digest}.json"

    def read(self) -> Agreement | None:
        """Return the stored result; None if no result is stored, or if its file is damaged."""
        try:
            return Agreement(**self._content()["agreement"]) if self._is_kept else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def why(self) -> str:
        """Message with which the model was refused."""
        return str(self._content()["why"])

    def _content(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._path.read_text())
        return found

    def write(self, agreement: Agreement, why: str = "") -> None:
        """Store the result; if the disk is full, it is not stored."""
        if self._is_kept:
            with contextlib.suppress(OSError), atomic_file(self._path) as partial:
                partial.write_text(json.dumps({"agreement": dataclasses.asdict(agreement), "why": why}))
