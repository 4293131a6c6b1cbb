"""Running commands over malformed inputs, and what has to hold for all of them."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTED = (0, 1, 2, 3, 4, 5)
MARKER = "code-was-run"
_PATIENCE_SECONDS = 600.0  # no command needs a tenth of it, also where others use the machine
_HEAVY = ("sklearn.ensemble", "xgboost", "onnx", "tflite", "torch", "torch.export")
_LOG = re.compile(r"the worker's log: (\S+)")


@dataclasses.dataclass(frozen=True)
class Done:
    """How a command ended.

    Attributes:
        code: None where it did not end in time, less than 0 for a signal.
    """

    arguments: tuple[str, ...]
    code: int | None
    out: str
    err: str

    def __str__(self) -> str:
        return f"{' '.join(self.arguments)!r} ended with {self.code}\n{self.out[-2000:]}\n{self.err[-4000:]}"


class Commands:
    """Runs commands one by one, each in a process of its own.

    Args:
        environment: beside this process's own.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        heavy = [name for name in _HEAVY if importlib.util.find_spec(name.partition(".")[0]) is not None]
        self._zygote = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py")), *heavy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment, "PYTHONPATH": str(ROOT / "python")},
            text=True,
        )

    def close(self) -> None:
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait()

    def run(self, folder: Path, *arguments: str) -> Done:
        """One command line of ``op-profiler``."""
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        with tempfile.TemporaryDirectory() as outputs:
            out, err = Path(outputs, "out"), Path(outputs, "err")
            order: dict[str, Any] = {"arguments": arguments, "folder": str(folder), "environment": self._environment}
            order |= {"out": str(out), "err": str(err), "seconds": _PATIENCE_SECONDS}
            self._zygote.stdin.write(json.dumps(order) + "\n")
            self._zygote.stdin.flush()
            code = json.loads(self._zygote.stdout.readline())
            return Done(arguments, code, *(file.read_text(errors="replace") for file in (out, err)))

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
        assert done.code is not None, f"it does not end: {done}"
        assert done.code in codes, str(done)
        assert "Traceback (most recent call last)" not in done.out + done.err + _worker_log(done), str(done)
        assert done.code == 0 or done.err.strip() or done.out.strip(), f"it does not say why: {done}"
        after = digests(folder)
        allowed = set(written) if done.code in (0, 1) else set()
        changed = {name for name, digest in before.items() if after.get(name) != digest} - allowed
        assert not changed, f"{changed} changed: {done}"
        assert not any(MARKER in name for name in after), f"code was run: {done}"
        return done


def _worker_log(done: Done) -> str:
    """What the worker processes wrote; their logs are removed."""
    text = ""
    for name in _LOG.findall(done.err.replace("\n", "")):
        if Path(name).is_file():
            text += Path(name).read_text(errors="replace")
            Path(name).unlink()
    return text


def digests(folder: Path) -> dict[str, str]:
    """Of every file below a folder, by its path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
