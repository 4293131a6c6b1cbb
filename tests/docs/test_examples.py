"""Code of the tutorials runs as it stands there."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"


def test_a_search_asks_about_a_thousand_networks_at_once() -> None:
    text = (TUTORIALS / "predict.md").read_text()
    start = text.index("    from op_profiler import Predictor\n    from op_profiler.operators.kinds.described")
    lines = text[start:].splitlines()
    end = next(at for at, line in enumerate(lines) if line and not line.startswith("    "))
    names: dict[str, Any] = {}
    exec(textwrap.dedent("\n".join(lines[:end])), names)
    found = names["predictions"]
    assert len(found) == 1000 and len({one.network.name for one in found}) == 1000
    assert not any(one.unsupported for one in found)
    assert 0 < names["best"].total_us < max(one.total_us for one in found)
