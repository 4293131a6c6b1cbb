"""One measurement at a time on a machine: real processes that wait for each other, die and are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from op_profiler.child_processes import COMMAND, public_command
from op_profiler.measure.turns import compiling, measuring
from op_profiler.targets.target import locks_of

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys
from op_profiler.measure.turns import compiling, measuring
say = lambda text: print(text, flush=True)
with compiling(say) if "compile" in sys.argv else measuring(["processor"], say):
    print("mine", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OP_PROFILER_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    return tmp_path / "locks"


@pytest.fixture
def holder(locks: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that measures until it is ended."""
    process = started(stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "mine\n"
    yield process
    process.kill()
    process.wait()


def started(*words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """A process that measures, or compiles, for as long as its input lasts."""
    return subprocess.Popen([sys.executable, "-c", HOLD, *words], stdin=stdin, stdout=subprocess.PIPE, text=True)


def compiler() -> subprocess.Popen[str]:
    """A process that compiles until it is told not to."""
    process = started("compile", stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "mine\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.communicate()
    assert process.returncode == 0


def test_the_second_waits_and_says_for_whom(holder: subprocess.Popen[str]) -> None:
    second = started()
    assert second.stdout is not None
    told = second.stdout.readline()
    assert told.startswith(f"waiting: process {holder.pid} (-c), since ") and "this machine's processor" in told
    assert second.poll() is None
    holder.send_signal(signal.SIGKILL)  # a dead process holds nothing
    assert second.stdout.read() == "mine\n" and second.wait() == 0


def test_nothing_is_said_of_a_process_of_the_same_command(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMAND, public_command())
    first, ended = compiler(), compiler()
    end(ended)  # its entry in the lock's file goes with it
    second = started()
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1)
    end(first)
    assert second.communicate()[0] == "mine\n" and second.returncode == 0


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--db=postgresql://me:s3:c/r?t@host/times", "--db=postgresql://me@host/times"),
        ("postgresql://me@host/times?password=s3cret", "postgresql://me@host/times"),
        ("postgresql://:s3cret@host:5432/times", "postgresql://@host:5432/times"),
        ("https://example.org/net.onnx?key=s3cret", "https://example.org/net.onnx"),
        ("tcp://127.0.0.1:8786", "tcp://127.0.0.1:8786"),
    ],
)
def test_passwords_are_told_to_nobody(locks: Path, word: str, told: str) -> None:
    """Not to who waits, and not to who reads the file, then or afterwards."""
    process = started("--db", word, stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "mine\n"
    file = locks / "op_profiler-processor.lock"
    assert f" --db {told}), since " in file.read_text()
    end(process)
    assert file.read_text() == ""


def test_waiting_can_be_interrupted(holder: subprocess.Popen[str]) -> None:
    second = started()
    assert second.stdout is not None and second.stdout.readline().startswith("waiting")
    second.send_signal(signal.SIGINT)
    assert second.wait() != 0
    assert holder.poll() is None


def test_what_a_dead_process_left_behind_blocks_nobody(locks: Path) -> None:
    locks.mkdir()
    (locks / "op_profiler-processor.lock").write_text("process 1 (of yesterday)")
    said: list[str] = []
    with measuring(["processor"], said.append), measuring(["processor"], said.append):  # one process, twice
        text = (locks / "op_profiler-processor.lock").read_text()
        assert text.startswith(f"process {os.getpid()} (") and "yesterday" not in text
        waiting = started()
        assert waiting.stdout is not None and waiting.stdout.readline().startswith("waiting")
    assert waiting.stdout.read() == "mine\n"
    waiting.wait()
    assert said == []


def test_who_compiles_waits_for_who_measures(holder: subprocess.Popen[str]) -> None:
    second = started("compile")
    assert second.stdout is not None
    told = second.stdout.readline()
    assert told.startswith(f"waiting: process {holder.pid} (-c), since ") and "measures on this machine" in told
    holder.kill()
    assert second.stdout.read() == "mine\n" and second.wait() == 0


def test_several_compile_at_once_and_who_measures_waits_for_all(locks: Path) -> None:
    first, second = compiler(), compiler()
    third = started()
    assert third.stdout is not None
    told = third.stdout.readline()
    assert told.startswith(f"waiting: process {second.pid} (-c compile), since ") and "compiles on this" in told
    end(second)
    assert third.stdout.readline() == "waiting: another process works on this machine's processor\n"
    assert third.poll() is None
    end(first)
    assert third.stdout.read() == "mine\n" and third.wait() == 0


def test_who_measures_compiles_without_waiting(locks: Path) -> None:
    said: list[str] = []
    with measuring(["processor"], said.append), compiling(said.append):
        text = (locks / "op_profiler-processor.lock").read_text()
    assert said == [] and text.endswith(", measures")


def test_another_machine_part_is_another_lock(holder: subprocess.Popen[str]) -> None:
    said: list[str] = []
    with measuring(["GPU-8a7b"], said.append):
        assert said == []
    assert locks_of(["llvm -mcpu=skylake", "pynq"]) == ["processor"] and locks_of(["pynq"]) == []


def test_a_lock_of_another_user_is_respected(locks: Path) -> None:
    """Only its owner may write to it; everybody may still lock it."""
    locks.mkdir()
    path = locks / "op_profiler-processor.lock"
    path.write_text("")
    path.chmod(0o444)
    locks.chmod(0o755)
    with measuring(["processor"]):
        waiting = started()
        assert waiting.stdout is not None and waiting.stdout.readline().startswith("waiting")
    assert waiting.stdout.read() == "mine\n"
    waiting.wait()


def test_a_collection_waits_says_so_and_can_be_interrupted(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    script = ROOT / "collector" / "op_performance_collector.py"
    words = ["--modelname=mlp", "--threads=1", "--db", f"sqlite:///{tmp_path}/x.db"]
    process = subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if "waiting" in line:
            break
    assert f"waiting: process {holder.pid} (-c)" in said
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == 130
    assert holder.poll() is None
