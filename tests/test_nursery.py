"""What forks the tests' processes (`nursery.py`, `zygote.py`): nothing goes from one to the next, none is left."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from .nursery import ZYGOTES, Forked

PATIENCE_SECONDS = 300.0
SLEEP = "import time; time.sleep(3600)"
ASKS = f"""
import sys
import time

sys.path.append({str(Path(__file__).parent)!r})
from nursery import Forked

process = Forked({SLEEP!r}, ["-c"], {{0: 0, 1: 1, 2: 2}})
print(process.pid, flush=True)
time.sleep(3600)
"""


def printed(code: str, folder: Path, environment: Mapping[str, str]) -> str:
    with (folder / "printed").open("wb") as out, open(os.devnull, "rb") as nothing:
        files = {0: nothing.fileno(), 1: out.fileno(), 2: out.fileno()}
        process = Forked(code, ["-c"], files, folder=folder, environment=environment)
        assert process.wait(PATIENCE_SECONDS) == 0
    return (folder / "printed").read_text()


def has_ended(ending: int) -> bool:
    return bool(select.select([ending], [], [], PATIENCE_SECONDS)[0])


def test_a_process_leaves_nothing_to_the_next_one(tmp_path: Path) -> None:
    leaves = "import os, op_profiler; os.environ['LEFT'] = '1'; op_profiler.left = 1; os.chdir('/'); print('left')"
    assert printed(leaves, tmp_path, {"GIVEN": "1"}) == "left\n"
    tells = "import os, op_profiler; print(*sorted(os.environ), hasattr(op_profiler, 'left'), os.getcwd())"
    assert printed(tells, tmp_path, {"OWN": "1"}) == f"OWN TVM_NUM_THREADS False {tmp_path.resolve()}\n"


def test_a_process_ends_with_the_one_that_asked_for_it() -> None:
    asking = subprocess.Popen([sys.executable, "-c", ASKS], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert asking.stdout is not None
    with asking.stdout:
        ending = os.pidfd_open(int(asking.stdout.readline()))
        asking.kill()
        asking.wait()
    assert has_ended(ending)
    os.close(ending)


def test_a_process_that_nobody_waits_for_any_longer_ends() -> None:
    with open(os.devnull, "rb") as nothing:
        process = Forked(SLEEP, ["-c"], {0: nothing.fileno()})
    ending = os.pidfd_open(process.pid)
    with pytest.raises(TimeoutError):
        process.wait(0.01)
    assert has_ended(ending)
    os.close(ending)


def test_why_no_process_is_forked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "relay"))
        listening.listen()
    (tmp_path / "relay.log").write_text("ImportError: there is no tvm")
    monkeypatch.setenv(ZYGOTES, str(tmp_path))
    with pytest.raises(ConnectionError, match="ImportError: there is no tvm"):
        Forked(SLEEP, ["-c"], {0: 0})
