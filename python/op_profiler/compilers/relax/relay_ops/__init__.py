"""Relax counterparts of Relay's ops: a table for `compilers.relax.from_relay`."""

from __future__ import annotations

from op_profiler.compilers.relax.relay_ops.arithmetic import ARITHMETIC
from op_profiler.compilers.relax.relay_ops.convert import Convert
from op_profiler.compilers.relax.relay_ops.neural import NEURAL
from op_profiler.compilers.relax.relay_ops.pooling import POOLING
from op_profiler.compilers.relax.relay_ops.shapes import SHAPES

CONVERTERS: dict[str, Convert] = {**ARITHMETIC, **NEURAL, **POOLING, **SHAPES}
"""Converters by Relay's name of the op."""
