"""TVM's pool in a process in which nothing has run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from op_profiler.cores import usable_cores

_ONE_THEN_ALL = """
from op_profiler.cores import available_cores
from op_profiler.measure.threads import ThreadPool
pool = ThreadPool()
for threads in (1, len(available_cores()), 1):
    pool.use(threads)
    print(pool.effective_threads())
"""


@pytest.mark.skipif(usable_cores() < 2, reason="one core")
def test_a_pool_that_starts_with_one_thread_can_have_all() -> None:
    """What TVM gives is read back by `use`, which raises where it is another number."""
    ran = subprocess.run([sys.executable, "-c", _ONE_THEN_ALL], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["1", str(usable_cores()), "1"]
