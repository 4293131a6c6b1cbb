"""Code of the tutorials runs as it stands there."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from ..command_line import op_profiler

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


def test_lines_that_describe_layers_are_predicted(tmp_path: Path) -> None:
    lines = [
        line.strip() for line in (TUTORIALS / "predict.md").read_text().splitlines() if '"layers": [{"kind"' in line
    ]
    (tmp_path / "networks.txt").write_text("\n".join(lines))
    command = ("predict", "@networks.txt", "--device", "emeraldrapids", "--format", "json", "--quiet")
    done = op_profiler(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    narrow, wide = json.loads(done.stdout)
    assert (narrow["model"], wide["model"]) == ("narrow", "wide") and 0 < narrow["total_us"] < wide["total_us"]
