"""Lowering modules of torch, and comparing what comes of them with torch."""

from __future__ import annotations

from typing import Any


def lower(model: Any, *examples: Any) -> Any:
    from op_profiler.frontends.importers import torch as torch_importer

    names = [f"x{i}" for i in range(len(examples))]
    return torch_importer.lower(model, examples, name="m", source="file", input_names=names, batch_size=1)


def check(model: Any, run: Any, torch: Any, *examples: Any) -> Any:
    import numpy as np

    model.eval()
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*(e.clone() for e in examples)))
    lowered = lower(model, *examples)
    outputs = run(lowered, {f"x{i}": e.numpy() for i, e in enumerate(examples)})
    for output, reference in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, reference.numpy(), atol=1e-4, rtol=1e-4)
    return lowered


def agree(lowered: Any, *, agrees: bool = True, compiler: str = "relay") -> None:
    """The outputs of a lowered model are those of its own framework, or are found not to be; no test is lenient."""
    import pytest

    from op_profiler.building.agreement import OutputsDifferError, with_agreement
    from op_profiler.building.request import BuildRequest
    from op_profiler.frontends.frontend import ModelRequest

    request = BuildRequest(model=ModelRequest(source="file", name="m"), compiler=compiler, schedules="none")
    if agrees:
        assert with_agreement(request, lowered, {}, lambda **_: None).agreement.outputs_agree
        return
    with pytest.raises(OutputsDifferError, match="computes something else here"):
        with_agreement(request, lowered, {}, lambda **_: None)
