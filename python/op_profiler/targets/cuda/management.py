"""Clocks, power, energy and driver of a GPU, from NVIDIA's management library (NVML)."""

from __future__ import annotations

import ctypes
from typing import Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.cores import available_cores
from op_profiler.errors import MeasureError
from op_profiler.targets.cuda.load import GpuMeter


class NoNvml:
    """A stand-in for `Nvml` whose methods return None; used for a GPU of another machine."""

    def clock_mhz(self, which: str, *, maximum: bool = False) -> float | None:
        """Return None."""
        return None

    def driver(self) -> str | None:
        """Return None."""
        return None

    def energy_mj(self) -> float | None:
        """Return None."""
        return None


class Nvml(NoNvml):
    """NVIDIA's management library. Cloud machines often forbid some queries; the methods for these then return None."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._library: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(_bus_id())
            self._library = pynvml
        except Exception:  # noqa: BLE001 - not installed, no permission, no such device: all mean "unknown"
            self._handle = None

    def ask(self, question: str, *arguments: Any) -> Any | None:
        """Return the result of ``nvmlDeviceGet<question>``; None if NVML is missing or rejects the call."""
        if self._handle is None:
            return None
        try:
            return getattr(self._library, f"nvmlDeviceGet{question}")(self._handle, *arguments)
        except self._library.NVMLError:
            return None

    def clock_mhz(self, which: str, *, maximum: bool = False) -> float | None:
        """Return the present or the maximum clock of ``SM`` or ``MEM`` in MHz; None if NVML does not report it."""
        if self._handle is None:
            return None
        clock = getattr(self._library, f"NVML_CLOCK_{which}")
        return self.ask("MaxClockInfo" if maximum else "ClockInfo", clock)

    def driver(self) -> str | None:
        """Return the version of NVIDIA's driver, such as ``550.54.15``; None without NVML."""
        return None if self._handle is None else str(self._library.nvmlSystemGetDriverVersion())

    def energy_mj(self) -> float | None:
        """Return the energy since the driver was loaded, millijoules; None if the GPU does not count it."""
        answer = self.ask("TotalEnergyConsumption")
        return None if answer is None else float(answer)

    def conditions(self) -> dict[str, Any] | None:
        """Return the present clocks, temperature and power, as far as NVML reports them, and the reasons that limit the
        clock."""
        if self._handle is None:
            return None
        power_mw = self.ask("PowerUsage")
        found = {
            "sm_clock_mhz": self.clock_mhz("SM"),
            "memory_clock_mhz": self.clock_mhz("MEM"),
            "temperature_c": self.ask("Temperature", self._library.NVML_TEMPERATURE_GPU),
            "power_w": None if power_mw is None else power_mw / 1e3,
            "held_back_by": _reasons(self.ask("CurrentClocksEventReasons")),
        }
        return {name: value for name, value in found.items() if value is not None}

    def meter(self) -> GpuMeter:
        """Return a meter of the GPU's background load."""
        return GpuMeter(self._library, self._handle, available_cores())

    def close(self) -> None:
        """Shut the library down; later calls return None."""
        if self._handle is not None:
            self._library.nvmlShutdown()
            self._handle = None


_HOLDS_BACK = {
    0x4: "power cap",
    0x8: "slowdown by hardware",
    0x10: "boosts together with other GPUs",
    0x20: "slowdown by heat",
    0x40: "slowdown by heat, in hardware",
    0x80: "slowdown by the power supply",
}
"""NVML's clock event reasons that limit the clock against the user's intention. An idle GPU and requested clocks are
not among them."""


def _reasons(bits: int | None) -> list[str] | None:
    return None if bits is None else [name for bit, name in _HOLDS_BACK.items() if bits & bit]


def _bus_id() -> bytes:
    """Return the bus id of the first GPU that this process can use."""
    text = ctypes.create_string_buffer(32)
    if ctypes.CDLL(compiler_in_use().cuda_runtime).cudaDeviceGetPCIBusId(text, 32, 0):
        raise MeasureError("CUDA does not report the bus address of the GPU")
    return text.value
