"""A PostgreSQL server of this machine, for as long as it is needed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Server:
    """A server that listens on a socket in its own folder.

    Attributes:
        url: of its database.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self._folder = folder
        options = ("listen_addresses=", f"unix_socket_directories={folder}", *settings)
        self._options = " ".join(f"-c {option}" for option in options)
        self.url = f"postgresql://tester@/postgres?host={folder}"

    def make(self) -> None:
        """Its files."""
        self._run("initdb", "-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8", "--locale=C")

    def start(self) -> None:
        """Until it answers."""
        self._run("pg_ctl", "start", "-w", "-t", "600", "-l", str(self._folder / "log"), "-o", self._options)

    def stop(self, how: str = "fast") -> None:
        """Ends all connections."""
        self._run("pg_ctl", "stop", "-m", how)

    def _run(self, name: str, *words: str) -> None:
        command = [str(binaries()[-1] / name), "-D", str(self._folder / "data"), *words]
        subprocess.run(command, check=True, cwd=self._folder, stdout=subprocess.DEVNULL, **_owner())


def binaries() -> list[Path]:
    """Folders of the programs of every version that is installed."""
    return sorted(Path("/usr/lib/postgresql").glob("*/bin"))


def _owner() -> dict[str, Any]:
    return {"user": "postgres"} if os.getuid() == 0 else {}  # PostgreSQL refuses to run as root


@contextlib.contextmanager
def running(*settings: str) -> Iterator[Server]:
    """A new server, which is gone afterwards.

    Args:
        settings: NAME=VALUE each.
    """
    folder = Path(tempfile.mkdtemp(prefix="op-pg-", dir="/tmp"))
    try:
        if _owner():
            shutil.chown(folder, user="postgres")
        server = Server(folder, *settings)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
