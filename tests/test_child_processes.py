"""What processes that op-profiler starts do when it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from op_profiler.child_processes import python_path

_CHILD = """
from op_profiler.child_processes import end_with_parent
import time
end_with_parent()
print("alive", flush=True)
time.sleep(60)
"""
_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
print(child.pid, child.stdout.readline().decode().strip(), flush=True)
sys.stdin.read()
child.kill()
"""
_COMMAND = [sys.executable, "-c", _PARENT, _CHILD]
_ENVIRONMENT = {**os.environ, "PYTHONPATH": python_path()}


def test_a_child_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_ENVIRONMENT) as parent:
        assert parent.stdout is not None
        pid, said = parent.stdout.readline().split()
        assert said == b"alive"
        ended = os.pidfd_open(int(pid))
        parent.send_signal(signal.SIGKILL)
    with os.fdopen(ended, "rb") as handle:
        assert select.select([handle], [], [], 10)[0], "the child outlives its parent"


def test_a_child_of_process_1_lives() -> None:
    """In a container that runs nothing but us, we are process 1."""
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    try:
        subprocess.run([*apart, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no process can be process 1 here: {error}")
    found = subprocess.run([*apart, *_COMMAND], input=b"", capture_output=True, env=_ENVIRONMENT, check=True)
    assert found.stdout.split()[1:] == [b"alive"]
