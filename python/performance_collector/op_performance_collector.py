"""The older path of the collector: runs ``collector/op_performance_collector.py``."""

from __future__ import annotations

import runpy
from pathlib import Path

if __name__ == "__main__":
    script = Path(__file__).resolve().parents[2] / "collector" / "op_performance_collector.py"
    runpy.run_path(str(script), run_name="__main__")
