"""What a machine lacks for its GPU is named before a library of it fails to load."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from op_profiler.targets.cuda import tvm_build


def driver(cuda: int, devices: int = 1) -> Any:
    """In place of NVIDIA's; `cuda` as it answers it, 1000 times the major version and 10 times the minor one."""

    def put(pointer: Any, value: int) -> int:
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int))[0] = value
        return 0

    return SimpleNamespace(
        cuDriverGetVersion=lambda version: put(version, cuda),
        cuInit=lambda _: 0,
        cuDeviceGetCount=lambda count: put(count, devices),
    )


@pytest.mark.parametrize(
    ("cuda", "runtime", "lacking"),
    [
        (11080, "libcudart.so.12", ["NVIDIA's driver 525.60.13 or newer for CUDA 12: this one supports CUDA 11.8"]),
        (12000, "libcudart.so.12", []),
        (12090, "libcudart.so.13", ["NVIDIA's driver 580.65.06 or newer for CUDA 13: this one supports CUDA 12.9"]),
        (13000, "libcudart.so.13", []),
        (13000, "libcudart.so.12", []),
    ],
)
def test_a_driver_runs_its_cuda_and_older_ones(
    cuda: int, runtime: str, lacking: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tvm_build, "driver", lambda: driver(cuda))
    assert tvm_build.missing_gpu(runtime) == lacking


def test_a_driver_without_a_device_is_another_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_build, "driver", lambda: driver(12040, devices=0))
    assert "lists no GPU" in tvm_build.missing_gpu()[0]


@pytest.mark.parametrize(
    ("library", "symbol", "version", "there"),
    [
        ("libc.so.6", "__libc_start_main", "GLIBC_2.34", True),
        ("libc.so.6", "__libc_start_main", "GLIBC_99.0", False),
        ("libstdc++.so.6", "_ZSt21__glibcxx_assert_failPKciS0_S0_", "GLIBCXX_3.4.29", False),
        ("no-such-library.so.6", "printf", "GLIBC_2.34", False),
    ],
)
def test_versions_of_the_system_are_looked_up(library: str, symbol: str, version: str, there: bool) -> None:
    assert tvm_build._provides(library, symbol, version) == there


@pytest.mark.skipif(tvm_build.root() is None, reason="needs the TVM with CUDA")
def test_a_system_that_is_too_old_is_named_before_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader of libtvm.so would say: version `GLIBCXX_3.4.30' not found."""
    assert not [text for text in tvm_build.missing() if "GLIBC" in text]
    monkeypatch.setattr(tvm_build, "_provides", lambda library, symbol, version: version != "GLIBCXX_3.4.30")
    (lacking,) = [text for text in tvm_build.missing() if "GLIBC" in text]
    assert lacking.startswith("GLIBCXX_3.4.30 of libstdc++.so.6, which Ubuntu 22.04")
