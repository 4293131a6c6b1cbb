"""Ctrl-C: one sentence and exit code 130, wherever it arrives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from op_profiler.compilers.interrupts import StoppedError, interrupts_wait, stop_if_interrupted

_INTERRUPTED_IN_A_CALLBACK = """
import os, signal, sys
from op_profiler.cli import main
from op_profiler.compilers.relay.layers import Layers

def number(layers, call):  # TVM calls it back while it visits a module
    if calls.pop():
        os.kill(os.getpid(), signal.SIGINT)
    calls.append(False)
    return before(layers, call)

signal.signal(signal.SIGINT, signal.default_int_handler)
calls = [True]
before, Layers._number = Layers._number, number
sys.argv[0] = "op-profiler"
main()
"""
_KEPT = "interrupted; stored measurements are kept, the same command resumes"


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Jobs in the background of a shell ignore the signal, and so may these tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["schedule", "mlp"], "interrupted"),
        (["sample", "--count", "5", "--threads", "1", "--db", "sqlite:///s.db"], _KEPT),
    ],
)
def test_one_sentence_while_a_model_is_lowered(command: list[str], said: str, tmp_path: Path) -> None:
    line = [sys.executable, "-c", _INTERRUPTED_IN_A_CALLBACK, *command]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, said)
    assert "Traceback" not in done.stderr and "error" not in done.stderr


def test_an_interrupt_comes_behind_the_block_whatever_it_raises() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_wait():
        with interrupts_wait():
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(StoppedError):
            stop_if_interrupted()
        raise ValueError("what TVM made of it")
    stop_if_interrupted()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_does_not_wait() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_wait():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_leave_signals_alone() -> None:
    found = []

    def look() -> None:
        with interrupts_wait():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
