"""Stored explanations of operators on a page, or the command that creates them."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

import msgspec

from op_profiler.analysis.explain.explanation import OperatorExplanation
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.dataset.explanations import explanations_of
from op_profiler.report.page.document import ExplanationPart

if TYPE_CHECKING:
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.row import Model


def explained_of(dataset: Dataset, model_key: str) -> dict[str, ExplanationPart]:
    """Return the stored explanations of a model's operators, by workload key; explanations in the format of another
    version are left out."""
    found = {}
    for key, (at, plain) in explanations_of(dataset, model_key).items():
        with contextlib.suppress(msgspec.ValidationError):
            found[key] = ExplanationPart(at=at, found=msgspec.convert(plain, OperatorExplanation))
    return found


def how_to_explain(model: Model) -> str:
    """Return a text with the command that explains a model, or the reason why the model cannot be explained."""
    request = (model.recipe or {}).get("request", {})
    on_processor = model.target.split()[0] == "llvm" and model.executor == "default"
    compiler = request.get("compiler", DEFAULT_COMPILER)
    if not on_processor or model.precision != "float32" or compiler != DEFAULT_COMPILER:
        return (
            "`op-profiler explain` reads the machine code of float32 models on this machine's processor, under the "
            f"graph executor of {DEFAULT_COMPILER}. It cannot explain this model."
        )
    asked = request.get("model", {})
    options = {"--batchsize": model.batch_size, "--sequence-length": asked.get("sequence_length")}
    given = "".join(f" {name} {value}" for name, value in options.items() if value not in (None, 1))
    command = f"op-profiler explain {shlex.quote(f'{model.source}:{model.name}')}{given}"
    text = f"`{command}` measures it in less than a minute, and keeps it in the dataset. Then make this page again."
    if (model.recipe or {}).get("schedules"):
        text += " Give it the `--schedules` that the model was collected with, where these were others than usual."
    return text
