"""Running commands over malformed inputs, and what has to hold for all of them."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from ..command_line import op_profiler

DOCUMENTED = (0, 1, 2, 3, 4, 5)
MARKER = "code-was-run"
# What most of these commands need, and what those with models need beside it. Each fork of all that costs its time.
_LIBRARIES = ("pandas", "pyarrow.parquet", "scipy.stats", "sklearn.ensemble", "xgboost")
READERS = ("onnx", "tflite", "torch", "torch.export", "transformers", "transformers.models.bert.modeling_bert")
Done = subprocess.CompletedProcess[str]
_LOG = re.compile(r"the worker's log: (\S+)")


def asks_for_slow(config: pytest.Config) -> bool:
    """Whether slow cases are to be made: there are more of them than of all other tests, and each process of the tests
    would make them only to leave them out."""
    return config.getoption("markexpr") != "not slow"


class Commands:
    """Runs commands one by one, each in a process of its own.

    Args:
        readers: packages that read models, if they will.
    """

    def __init__(self, readers: Sequence[str] = ()) -> None:
        self._libraries = (*_LIBRARIES, *readers)

    def run(self, folder: Path, *arguments: str) -> Done:
        """One command line of ``op-profiler``."""
        changes = {"COLUMNS": "4000", "NO_COLOR": "1", "TVM_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
        return op_profiler(*arguments, folder=folder, environment=changes, libraries=self._libraries)

    def check(
        self,
        folder: Path,
        *arguments: str,
        written: Collection[str] = (),
        codes: Collection[int] = DOCUMENTED,
    ) -> Done:
        """Run a command in a folder with malformed files.

        Args:
            written: names of files that it may change, where it ends with 0 or 1; all others stay as they are.
            codes: what it may end with.
        """
        before = digests(folder)
        done = self.run(folder, *arguments)
        said = done.stdout + done.stderr
        assert done.returncode in codes, str(done)
        assert "Traceback (most recent call last)" not in said + _worker_log(done), str(done)
        assert done.returncode == 0 or said.strip(), f"it does not say why: {done}"
        after = digests(folder)
        allowed = set(written) if done.returncode in (0, 1) else set()
        changed = {name for name, digest in before.items() if after.get(name) != digest} - allowed
        assert not changed, f"{changed} changed: {done}"
        assert not any(MARKER in name for name in after), f"code was run: {done}"
        return done


def _worker_log(done: Done) -> str:
    """What the worker processes wrote; their logs are removed."""
    text = ""
    for name in _LOG.findall(done.stderr.replace("\n", "")):
        if Path(name).is_file():
            text += Path(name).read_text(errors="replace")
            Path(name).unlink()
    return text


def digests(folder: Path) -> dict[str, str]:
    """Of every file below a folder, by its path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
