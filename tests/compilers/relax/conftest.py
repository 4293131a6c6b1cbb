"""What stands in `inside` runs in a process that uses the compiler relax, which `test_inside.py` starts."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("OP_PROFILER_COMPILER") == "relax" else ["inside"]
