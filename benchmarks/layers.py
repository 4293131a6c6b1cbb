"""How much of the time of a model is attributed to the layers of the user's model?

The script collects models of torchvision and transformers, ONNX files exported by torch, and a TFLite file of the
package mediapipe. The time of a kernel is attributed if the layer of its anchor is known.

    python benchmarks/layers.py [MODEL ...] [--keep FILE]        (ten minutes; the first time the models are built)

Goal: 95 % of the time of each of these models.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import at_least, collect, every, run_of, store

if TYPE_CHECKING:
    from common import Tables

MODELS = (
    "local:resnet18",
    "local:mobilenet_v2",
    "local:squeezenet1_1",
    "local:vit_b_16",
    "transformers:bert",
    "transformers:distilbert",
    "transformers:gpt2",
    "onnx:resnet18",
    "onnx:squeezenet1_1",
    "tflite:face_landmark",
)
_GOAL = 0.95


def _exported(name: str, folder: Path) -> Path:
    """A model of torchvision as an ONNX file."""
    from op_profiler.frontends.importers.torch import load_torch, load_torchvision
    from op_profiler.lean_imports import quiet

    torch = load_torch()
    model = getattr(load_torchvision().models, name)(weights=None).eval()
    path = folder / f"{name}.onnx"
    with quiet():
        torch.onnx.export(model, (torch.randn(1, 3, 224, 224),), str(path), opset_version=17, dynamo=False)
    return path


def _shipped_by_mediapipe(name: str) -> Path:
    spec = importlib.util.find_spec("mediapipe")
    assert spec is not None and spec.origin, "pip install mediapipe==0.10.14, which brings .tflite files"
    return next(Path(spec.origin).parent.glob(f"modules/*/{name}.tflite"))


def measure(model: str) -> dict[str, Any]:
    """Share of the time that is attributed, and how many layers and kernels it went to."""
    source, _, name = model.partition(":")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if source == "onnx":
            source, name = "file", str(_exported(name, folder))
        elif source == "tflite":
            name = str(_shipped_by_mediapipe(name))
        words = ["--modelsource", source, "--modelname", name, "--threads", "1", "--db", f"sqlite:///{folder}/a.db"]
        _, (entry,) = collect(words, folder)
    layers = entry["layers"]
    return {
        "attributed_percent": round(100 * entry["attributed_to_layers"], 2),
        "layers": sum(1 for one in layers if one["layer"]),
        "kernels": sum(one["calls"] for one in layers),
        "kernels_not_known": sum(one["calls"] for one in layers if not one["layer"]),
        "slowest_layer": next(one["layer"] for one in layers if one["layer"]),
        "its_share_percent": round(100 * next(one["share"] for one in layers if one["layer"]), 1),
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    A model without a row counts as unknown.
    """
    shares = {row["model"]: row["attributed_percent"] for row in tables.get("models", ())}
    return every(at_least(shares.get(model), 100 * _GOAL) for model in MODELS)


def main() -> None:
    run = run_of(__file__, __doc__, measure, MODELS)
    rows = []
    for found in run.found:
        rows.append({"model": found.name} | found.result)
        print(f"{found.name:28}", found.result, flush=True)
    shares = [row["attributed_percent"] for row in rows]
    enough = sum(share >= 100 * _GOAL for share in shares)
    headline = f"at least {min(shares)} % of the time is attributed to layers; {enough} of {len(rows)} reach the goal"
    store(__file__, headline, {"models": rows}, whole=run.whole and len(rows) == len(MODELS))


if __name__ == "__main__":
    main()
