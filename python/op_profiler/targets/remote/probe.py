"""Describes a machine behind RPC, from its own files, which a function sent to it reads.

TVM's runtime does not report properties of its host. The sent function calls the C library's open and read.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.remote_model import PROBE_ARGUMENT_BYTES, PROBE_TEXT_BYTES
from op_profiler.compilers.tvm_build import llvm_version, load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, RemoteSession, RuntimeModule, Target
from op_profiler.measure.measurement import Device
from op_profiler.targets.llvm.identity import host_id

_CACHES = "/sys/devices/system/cpu/cpu0/cache/index{}/{}"
_SENSORS = tuple(f"/sys/class/hwmon/hwmon{i}/energy1_input" for i in range(4))
_KIND = ("model name", "Processor", "Hardware", "CPU implementer", "CPU part")
_SERIAL = "/sys/firmware/devicetree/base/serial-number"
_CARD = "/sys/block/mmcblk0/device/cid"  # written by the maker of the card, so that copies of a card differ in it
_COMPILERS = {
    "arm": ("arm-linux-gnueabihf-g++", "arm-linux-gnueabihf-gcc"),
    "aarch64": ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc"),
    "x86_64": ("g++", "clang++"),
}


def cross_compiler(target: Target) -> str | None:
    """Return a compiler on PATH that links for a target; None if PATH has no such compiler, so that the remote machine
    has to link."""
    triple = str(target.attrs.get("mtriple", "") or "x86_64")
    family = triple.split("-")[0]
    family = "arm" if family.startswith("armv") or family == "arm" else family
    return next(filter(None, map(shutil.which, _COMPILERS.get(family, ()))), None)


_sent = itertools.count()


def upload(session: RemoteSession, library: RuntimeModule, target: Target) -> RuntimeModule:
    """Send a compiled module to the remote machine and load it there, under a unique name, because loading a second
    module of the same name crashes."""
    tools = compiler_in_use().linking
    cc, tar = (importlib.import_module(f"{tools}.{name}") for name in ("cc", "tar"))
    compiler = cross_compiler(target)
    name = f"op_profiler_{os.getpid()}_{next(_sent)}"
    with tempfile.TemporaryDirectory(prefix="op_profiler-") as folder:
        path = Path(folder) / (f"{name}.so" if compiler else f"{name}.tar")
        library.export_library(str(path), fcompile=cc.cross_compiler(compiler) if compiler else tar.tar)
        session.upload(str(path))
        return session.load_module(path.name)


class Probe:
    """Reads text files of the machine behind a session, and sets the variable that limits its threads."""

    def __init__(self, session: RemoteSession, target: Target) -> None:
        self._device = session.device("cpu", 0)
        self._compiler = compiler_in_use()
        library = upload(session, self._compiler.probe_code(target), target)
        self._read = library.get_function("op_profiler_read")
        self._set = library.get_function("op_profiler_set")

    def _text(self, text: str) -> DeviceArray:
        """Return a C string on the machine."""
        encoded = np.zeros(PROBE_ARGUMENT_BYTES, "uint8")
        encoded[: len(text)] = list(text.encode())
        return self._array(encoded)

    def _array(self, values: np.ndarray) -> DeviceArray:
        return self._compiler.array_on(values, self._device)

    def limit_threads(self, count: int) -> None:
        """Limit the threads of the session's pool, also when TVM's profiler creates the pool again."""
        self._set(self._text(str(count)), self._array(np.zeros(1, "int32")))

    def read(self, path: str) -> str:
        """Return the file's first 16 KiB; empty if it cannot be read."""
        text = self._array(np.zeros(PROBE_TEXT_BYTES, "uint8"))
        count = self._array(np.zeros(1, "int32"))
        self._read(self._text(path), text, count)
        length = int(count.numpy()[0])
        return bytes(text.numpy()[:length]).decode(errors="replace").strip() if length > 0 else ""

    def energy_sensor(self) -> str | None:
        """Return the path of the first energy counter (microjoules) of Linux's hwmon interface; None if none exists."""
        return next((path for path in _SENSORS if self.read(path).isdecimal()), None)


def describe_board(kind: str, target: Target, address: str, key: str, files: Probe) -> Device:
    """Describe a machine behind RPC by its own files, which `files` reads; unknown properties are None."""
    cpu = files.read("/proc/cpuinfo")
    fields = {a.strip(): b.strip() for a, _, b in (line.partition(":") for line in cpu.splitlines()) if b}
    model = files.read("/sys/firmware/devicetree/base/model").rstrip("\0")
    online = files.read("/sys/devices/system/cpu/online")
    clock = files.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
    memory = files.read("/proc/meminfo").partition("MemTotal:")[2].split()
    caches = _caches(files)
    system = files.read("/proc/version")
    sensor = files.energy_sensor()
    return Device(
        kind=kind,
        target=str(target),
        processor=fields.get("model name") or fields.get("Processor") or fields.get("Hardware") or key,
        cores=_count(online),
        clock_mhz=float(clock) / 1e3 if clock.isdecimal() else None,
        l1_bytes=caches.get(1),
        l2_bytes=caches.get(2),
        l3_bytes=caches.get(3),
        memory_bytes=int(memory[0]) * 1024 if memory else None,
        compiler=compiler_in_use().name,
        tvm_version=str(load_tvm().__version__),
        llvm_version=llvm_version(),
        host_fingerprint=_hash(
            key, model, online, *(fields.get(name, "") for name in _KIND), str(sorted(caches.items()))
        ),
        machine_id=_hash(system, *_serials(fields, files, address)),
        properties={
            "board": model or None,
            "address": address,
            "key": key,
            "system": system,
            "energy": sensor or "no energy counter under /sys/class/hwmon",
        },
    )


def _serials(fields: dict[str, str], files: Probe, address: str) -> list[str]:
    """Return what distinguishes the board from all others: its serial number, otherwise its network address and other
    unique properties.

    Boards of one kind run copies of one memory card, including the machine-id, and some makers use zeros as the serial
    number. Addresses repeat in different networks, so a board in such a network is identified by its memory card,
    otherwise by the machine that connects to it.
    """
    candidates = [fields.get("Serial", ""), files.read(_SERIAL).rstrip("\0")]
    serials = [serial for serial in candidates if serial.strip("0")]
    if serials:
        return serials
    network = files.read("/sys/class/net/eth0/address")
    return [address, files.read("/etc/machine-id"), network, files.read(_CARD) or f"behind {host_id()}"]


def _hash(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def _count(ranges: str) -> int | None:
    """Return the number of cores in a list: ``0-1,4`` is three. None if the text is not such a list."""
    total = 0
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            return None
        total += int(last or first) - int(first) + 1
    return total or None


def _caches(files: Probe) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for index in range(4):
        level, size = files.read(_CACHES.format(index, "level")), files.read(_CACHES.format(index, "size"))
        if level.isdecimal() and size[:-1].isdecimal() and files.read(_CACHES.format(index, "type")) != "Instruction":
            sizes[int(level)] = int(size[:-1]) * {"K": 1024, "M": 1024**2}.get(size[-1], 1)
    return sizes
