"""Identity and description of this machine, read from the operating system."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import threading
from pathlib import Path
from typing import Any

import msgspec
import psutil

from op_profiler.cache import cache_folder
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import llvm_version, load_tvm
from op_profiler.compilers.tvm_types import Target
from op_profiler.cores import text_in, usable_cores
from op_profiler.files import atomic_file
from op_profiler.measure.caches import cache_bytes
from op_profiler.measure.measurement import Device

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container", "/.singularity.d")
_CONTAINER_VARIABLES = ("KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "container")


def describe_host(target: Target) -> Device:
    """Describe the processor of this machine as the device of an llvm target.

    Args:
        target: `tvm.target.Target` that the code is compiled for.
    """
    cpu = _cpu_info()
    caches = _cache_sizes()
    frequency = psutil.cpu_freq()
    return Device(
        kind=str(target.kind.name),
        target=str(target),
        processor=str(cpu.get("brand_raw") or platform.processor() or platform.machine()),
        cores=usable_cores(),
        clock_mhz=float(frequency.current) if frequency and frequency.current else None,
        l1_bytes=caches.get(1),
        l2_bytes=caches.get(2),
        l3_bytes=caches.get(3),
        memory_bytes=int(psutil.virtual_memory().total),
        compiler=compiler_in_use().name,
        tvm_version=str(load_tvm().__version__),
        llvm_version=llvm_version(),
        host_fingerprint=host_fingerprint(),
        machine_id=host_id(),
        properties={
            "machine": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "logical_cores": psutil.cpu_count(logical=True),
            "physical_cores": psutil.cpu_count(logical=False),
            "governor": text_in("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            "family_model_stepping": [cpu.get("family"), cpu.get("model"), cpu.get("stepping")],
            "hypervisor": "hypervisor" in cpu.get("flags", []),
            "flags": cpu.get("flags", []),
        },
    )


def processor_features() -> tuple[str, ...]:
    """Return the names of the processor's instruction-set extensions, as the operating system reports them."""
    return tuple(_cpu_info().get("flags", ()))


def ask_ahead() -> None:
    """Start py-cpuinfo in the background, because its query takes most of a second, and cache the result."""
    threading.Thread(target=_cpu_info, daemon=True).start()


@functools.cache
def _cpu_info() -> dict[str, Any]:
    """Return the result of py-cpuinfo, which measures the clock for a second; it is cached until the next boot."""
    file = kept_until_boot()
    with contextlib.suppress(OSError, ValueError):
        kept: dict[str, Any] = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        return kept
    import cpuinfo

    names = ("brand_raw", "family", "model", "stepping", "flags")
    fields = {name: value for name, value in cpuinfo.get_cpu_info().items() if name in names}
    with contextlib.suppress(OSError), atomic_file(file) as partial:
        partial.write_text(json.dumps(fields))
    return fields


def kept_until_boot(of: str = "") -> Path:
    """Return the path of a file in the cache folder for properties of this processor that are slow to determine and may
    change at a boot.

    Args:
        of: text of everything else that the properties depend on; another text gives another file.
    """
    depends = " ".join(filter(None, (host_fingerprint(), _boot_id(), of)))
    return cache_folder() / "processor" / f"{hashlib.sha256(depends.encode()).hexdigest()[:16]}.json"


def processor_name() -> str:
    """Return name, family and model of this machine's processor, without importing TVM; schedule records are stored
    under this name."""
    fields = dict(line.split(":", 1) for line in _processor_line().splitlines() if ":" in line)
    named = {name.strip(): value.strip() for name, value in fields.items()}
    words = [named.get("model name") or platform.machine()]
    words += [f"{name} {named[name]}" for name in ("CPU implementer", "CPU part") if name in named]
    if "cpu family" in named:
        words.append(f"family {named['cpu family']} model {named.get('model', '')}")
    return " ".join(words)


@functools.cache
def host_fingerprint() -> str:
    """Return a digest (16 hex digits) of the processor, its cores and caches: equal on machines of one hardware model.

    Neither host names nor serial numbers are included. Fast enough for a process that only looks up stored results.
    """
    identity = [platform.machine(), _processor_line(), str(usable_cores()), repr(sorted(_cache_sizes().items()))]
    return hashlib.sha256("\n".join(identity).encode()).hexdigest()[:16]


@functools.cache
def host_id() -> str:
    """Return 16 hex digits that distinguish this host from others of the same hardware model.

    The first available of these is used:

    - ``OP_PROFILER_HOST_ID``, set by the user;
    - the operating system's machine-id, which survives boots (man 5 machine-id recommends to hash it). It is not used
      in a container, where it belongs to the image (the same on every host) or to the container (another one each
      time);
    - the kernel's boot_id: containers of one host share it, two hosts never have the same, and a boot changes it;
    - the host's name.
    """
    named = os.environ.get("OP_PROFILER_HOST_ID")
    installed = "" if _in_container() else next(filter(None, map(text_in, _MACHINE_IDS)), "")
    identity = named or installed or _boot_id() or platform.node()
    return hashlib.sha256(f"op_profiler {identity}".encode()).hexdigest()[:16]


def _in_container() -> bool:
    """Return whether this process has another root folder than its host (Docker, Podman, Kubernetes, Apptainer,
    nspawn)."""
    if any(map(os.path.exists, _CONTAINER_FILES)) or any(name in os.environ for name in _CONTAINER_VARIABLES):
        return True
    mounts = [line.split() for line in text_in("/proc/self/mounts").splitlines()]
    return any(kind in ("overlay", "fuse.fuse-overlayfs") for _, place, kind, *_ in mounts if place == "/")


def _processor_line() -> str:
    wanted = ("model name", "cpu family", "model\t", "stepping", "CPU part", "CPU implementer")
    text = text_in("/proc/cpuinfo") or platform.processor()
    first = text.split("\n\n")[0]
    return "\n".join(line for line in first.splitlines() if line.startswith(wanted))


def _cache_sizes() -> dict[int, int]:
    """Return the bytes of the data caches of core 0 by level."""
    sizes: dict[int, int] = {}
    if not _CACHES.is_dir():
        return sizes
    for index in _CACHES.glob("index*"):
        if text_in(index / "type") == "Instruction":
            continue
        level, size = text_in(index / "level"), text_in(index / "size")
        if level and size:
            sizes[int(level)] = cache_bytes(size)
    return sizes


def _boot_id() -> str:
    return text_in("/proc/sys/kernel/random/boot_id")
