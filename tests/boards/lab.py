"""Emulated PYNQ boards (Cortex-A9 under qemu-user) behind a real tracker. Their times mean nothing.

python tests/boards/lab.py [BOARDS]      starts a tracker and boards, prints the port, and stays until interrupted
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEEDED = ("arm-linux-gnueabihf-g++", "qemu-arm", "make")
PACKAGES = "gcc-arm-linux-gnueabihf g++-arm-linux-gnueabihf qemu-user make"
KEY = "pynq"


def missing_tools() -> list[str]:
    return [tool for tool in NEEDED if shutil.which(tool) is None]


class BoardProcess:
    """One emulated board.

    Args:
        kernel_seconds: that each kernel takes longer, by waiting; None for a board that does not wait.

    Attributes:
        files: its own, by path without the leading slash, in place of this machine's, from its next start on.
    """

    def __init__(self, build: Path, folder: Path, tracker_port: int, kernel_seconds: float | None = None) -> None:
        self._speed = {} if kernel_seconds is None else {"KERNEL_MICROSECONDS": str(round(kernel_seconds * 1e6))}
        self._command = ["qemu-arm", "-cpu", "cortex-a9", str(build / "rpc_server"), "127.0.0.1"]
        self._folder = folder
        self._tracker_port = tracker_port
        self.files: dict[str, str] = {}
        self.port = free_port()
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Switch it on."""
        command = [*self._command, str(self.port), "127.0.0.1", str(self._tracker_port), KEY, str(self._folder)]
        environment = os.environ | {"QEMU_LD_PREFIX": str(self._root()), "TVM_NUM_THREADS": "2", **self._speed}
        with (self._folder.parent / f"{self._folder.name}.log").open("a") as log:
            self._process = subprocess.Popen(command, env=environment, stderr=log, stdout=log, start_new_session=True)
        wait_for_port(self.port, self._process)

    def _root(self) -> Path:
        """Where the emulator looks for a file before it looks on this machine."""
        libraries = Path("/usr/arm-linux-gnueabihf")
        if not self.files:
            return libraries
        root = Path(tempfile.mkdtemp(dir=self._folder))
        for path in libraries.iterdir():
            (root / path.name).symlink_to(path)
        for name, text in self.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    def kill(self) -> None:
        """Pull the plug: the server and its session end at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Off, if it is on."""
        if self._process.poll() is None:
            self.kill()


class Lab:
    """A tracker and the boards that were asked for."""

    def __init__(self, build: Path, folder: Path) -> None:
        self._build, self._folder = build, folder
        self.port = free_port()
        self.boards: list[BoardProcess] = []
        command = [sys.executable, "-m", "tvm.exec.rpc_tracker", "--host=127.0.0.1", f"--port={self.port}"]
        self._tracker = subprocess.Popen(
            [*command, f"--port-end={self.port + 1}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_for_port(self.port, self._tracker)

    def board(self, kernel_seconds: float | None = None) -> BoardProcess:
        """One more board, which the tracker offers."""
        folder = self._folder / f"board{len(list(self._folder.glob('board*')))}"
        folder.mkdir()
        self.boards.append(BoardProcess(self._build, folder, self.port, kernel_seconds))
        if self.port:  # else it is a server without a tracker
            self.wait_until_offered(self.boards[-1].address)
        return self.boards[-1]

    def wait_until_offered(self, address: str, seconds: float = 600.0) -> None:
        """Until the tracker lists a board, and all of them as free: it tells how many are, not which."""
        from op_profiler.targets.remote.rpc import list_machines

        end = time.monotonic() + seconds
        while time.monotonic() < end:
            listed = list_machines("127.0.0.1", self.port)
            if address in {machine.address for machine in listed} and all(machine.free for machine in listed):
                return
            time.sleep(0.1)
        raise TimeoutError(f"the tracker does not offer {address} after {seconds:g} s")

    def clear(self, seconds: float = 600.0) -> None:
        """All boards off, and forgotten by the tracker."""
        from op_profiler.targets.remote.rpc import list_machines

        for board in self.boards:
            board.stop()
        self.boards = []
        end = time.monotonic() + seconds
        while list_machines("127.0.0.1", self.port):
            if time.monotonic() > end:
                raise TimeoutError(f"the tracker lists boards that are off after {seconds:g} s")
            time.sleep(0.05)

    def stop(self) -> None:
        """Everything off; the tracker leaves a child behind when only it is stopped."""
        for board in self.boards:
            board.stop()
        os.killpg(self._tracker.pid, signal.SIGKILL)
        self._tracker.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 600.0) -> None:
    """Until the process listens there."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode} before it listened on port {port}")
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port} after {seconds:g} s")


def built_board() -> Path:
    """A folder with the runtime and the server, in the user's cache folder. Where nobody has compiled these sources
    before it takes half a minute."""
    import platformdirs
    import tvm

    from op_profiler.files import atomic_folder

    package = Path(tvm.__file__).parent
    digest = hashlib.sha256(tvm.__version__.encode() + subprocess.check_output([NEEDED[0], "--version"]))
    ours = [HERE / "Makefile", HERE / "rpc_server.cc", *HERE.glob("shim/**/*.h")]
    for source in (*sorted(ours), *sorted(path for path in (package / "src/runtime").rglob("*") if path.is_file())):
        digest.update(source.read_bytes())
    kept = platformdirs.user_cache_path("op_profiler_tests") / f"board-{digest.hexdigest()[:16]}"
    if not kept.is_dir():
        with atomic_folder(kept) as partial:
            command = ["make", "-s", "-f", str(HERE / "Makefile"), f"HERE={HERE}", f"TVM={package}", f"BUILD={partial}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"the board's runtime could not be built:\n{done.stderr}")
    return kept


def main() -> None:
    """Boards to try things on by hand."""
    with tempfile.TemporaryDirectory(prefix="op_profiler-boards-") as folder:
        lab = Lab(built_board(), Path(folder))
        try:
            for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
                lab.board()
            print(f"--target pynq --host 127.0.0.1 --port {lab.port}", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            print("off")
        finally:
            lab.stop()


if __name__ == "__main__":
    main()
