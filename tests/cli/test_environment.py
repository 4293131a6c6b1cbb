"""Homes that cannot be written, and standard streams that are closed, full or not read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from op_profiler.compilers.relax import tvm_package

from ..hurry import hurried_path

_COMMAND = (
    'exec "$0" -c "import sys; from op_profiler.cli import main; sys.argv[0] = \'op-profiler\'; sys.exit(main())"'
)
_RELAX = pytest.mark.skipif(tvm_package.version() is None, reason="the TVM of Relax is not installed")
_UNKNOWN_USER = 54321
_AS_UNKNOWN_USER = ["setpriv", f"--reuid={_UNKNOWN_USER}", f"--regid={_UNKNOWN_USER}", "--clear-groups"]
_AS_UNKNOWN_USER += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]  # Python may lie in root's home


def _run(
    arguments: str, folder: Path, environment: dict[str, str | None] | None = None, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a command line of a shell: whether Python starts with these streams and this home is what is tested."""
    variables = {**os.environ, "PYTHONPATH": hurried_path(), "OP_PROFILER_LOCKS": str(folder), **(environment or {})}
    line = [*prefix, "bash", "-c", f"{_COMMAND} {arguments}", sys.executable]
    given = {name: value for name, value in variables.items() if value is not None}
    return subprocess.run(line, cwd=folder, env=given, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(
    ("command", "compiler", "cache"),
    [
        ("predict mlp", "relay", "cache"),
        ("corun mlp --rounds 2", "relay", None),
        ("collect --modelname mlp --threads 1 --db sqlite:///runs.db", "relay", None),
        pytest.param("collect --modelname mlp --threads 1 --dry-run", "relax", "cache", marks=_RELAX),
    ],
)
def test_a_home_that_cannot_be_written_is_no_obstacle(
    command: str, compiler: str, cache: str | None, tmp_path: Path
) -> None:
    """Nothing can be made below a file, by no user."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    homes: dict[str, str | None] = {
        "HOME": str(tmp_path / "file" / "home"),
        "XDG_CACHE_HOME": None,
        "TEST_DATA_ROOT_PATH": None,
    }
    used: dict[str, str | None] = {
        "TMPDIR": str(tmp_path / "tmp"),
        "OP_PROFILER_CACHE": cache and str(tmp_path / cache),
    }
    done = _run(f"{command} --compiler {compiler}", tmp_path, homes | used)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / cache if cache else tmp_path / "tmp" / f"op_profiler-{os.getuid()}"
    assert (folder / "tvm").is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_a_user_without_a_home_is_no_obstacle(tmp_path: Path) -> None:
    """As in a container with an arbitrary user id: there is neither ``HOME`` nor an entry for the user."""
    folder = tmp_path / "own"
    folder.mkdir()
    os.chown(folder, _UNKNOWN_USER, _UNKNOWN_USER)
    missing: dict[str, str | None] = dict.fromkeys(
        ("HOME", "XDG_CACHE_HOME", "OP_PROFILER_CACHE", "TEST_DATA_ROOT_PATH")
    )
    done = _run("predict mlp", folder, {"TMPDIR": str(folder), **missing}, _AS_UNKNOWN_USER)
    assert done.returncode == 0, done.stderr
    assert (folder / f"op_profiler-{_UNKNOWN_USER}").is_dir()


def test_a_temporary_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / f"op_profiler-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    done = _run(
        "cache", tmp_path, {"HOME": str(tmp_path / "file" / "home"), "TMPDIR": str(tmp_path), "OP_PROFILER_CACHE": None}
    )
    assert done.returncode == 5 and "OP_PROFILER_CACHE" in done.stderr and "Traceback" not in done.stderr


_FULL = "error: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("models >&-", 0, ""),
        ("--help >&-", 0, ""),
        ("predict mlp >&- 2>&- <&-", 0, ""),
        ("models | head -1 >/dev/null; exit ${PIPESTATUS[0]}", 0, ""),
        ("models >/dev/full", 5, _FULL),
        ("--help >/dev/full", 5, _FULL),
        ("predict mlp --quiet >/dev/full", 5, _FULL),
        ("predict nosuch >/dev/full 2>/dev/full", 2, ""),
        ("predict nosuch 2>&-", 2, ""),
    ],
)
def test_a_stream_that_cannot_be_written_is_no_traceback(command: str, code: int, said: str, tmp_path: Path) -> None:
    done = _run(command, tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == said or (said and done.stderr.endswith(said) and "Traceback" not in done.stderr)


_FROM_BELOW = """
import os, subprocess, sys
from op_profiler.cli import output
output.protect_streams()
with output.native_output_in_log():
    print("first", file=sys.stderr)
    os.write(2, b"[04:00:00] tvm/src/runtime/threading_backend.cc:338: Warning: more than two frequencies\\n")
    subprocess.run(["sh", "-c", "echo from a library >&2"], check=True)
    (log,) = (name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("op_profiler-stderr"))
    print(len(open(os.path.join(os.environ["TMPDIR"], log)).readlines()), file=sys.stderr)
os.write(2, b"second\\n")
print("third", file=sys.stderr)
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_libraries_print_from_below_is_not_among_our_lines(unbuffered: str, tmp_path: Path) -> None:
    paths = {"PYTHONPATH": hurried_path(), "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-c", _FROM_BELOW]
    done = subprocess.run(command, env={**os.environ, **paths}, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["first", "2", "second", "third"]
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_kills_the_process_is_seen(tmp_path: Path) -> None:
    crash = "import os\nfrom op_profiler.cli import output\noutput.protect_streams()\n"
    crash += "with output.native_output_in_log():\n    os.write(2, b'LLVM ERROR: no such type\\n')\n    os.abort()\n"
    paths = {"PYTHONPATH": hurried_path(), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", crash], env={**os.environ, **paths}, capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT and "Fatal Python error: Aborted" in done.stderr
    (log,) = tmp_path.iterdir()
    assert log.read_text() == "LLVM ERROR: no such type\n"


def test_what_was_measured_is_stored_where_its_tables_cannot_be_printed(tmp_path: Path) -> None:
    done = _run("collect --modelname mlp --threads 1 --db sqlite:///runs.db --summary-json s.json >/dev/full", tmp_path)
    assert done.returncode == 5 and done.stderr.endswith(_FULL)
    assert (tmp_path / "runs.db").is_file() and (tmp_path / "s.json").stat().st_size > 1000
