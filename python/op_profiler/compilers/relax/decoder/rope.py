"""Rotary embedding of a step's tokens, in a separate module because TVM's parser reads its source.

TVM's function computes a power, a cosine and a sine for each value of each head. They are the same for all heads, and
for both halves of a head, so they are computed here once per token.
"""

from __future__ import annotations

import functools
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.schedule import Schedule

SCHEDULE = Schedule("rope.relax", factors=Factors(parallel="token", compute_at="token"))


@functools.lru_cache(maxsize=1)
def rope(theta: float, heads: int, kv_heads: int, size: int) -> Any:
    """Return a replacement of TVM's `llama_rope_with_position_map`, in float32 and without scaling.

    Args:
        theta: base of the frequencies.
        size: size of a head, even.

    Returns:
        ``tvm.tirx.PrimFunc``. Inputs: qkv (tokens, heads + 2 * kv_heads, size), positions (tokens,). Outputs: q
        (tokens, heads, size), k and v (tokens, kv_heads, size). Last argument: 1 to embed q and k, 0 to copy them.
    """
    load_tvm()
    from tvm.script import tirx as T

    half, keys, values = size // 2, heads + kv_heads, heads + 2 * kv_heads

    @T.prim_func(private=True, s_tir=True)
    def rope(
        qkv_handle: T.handle,
        positions_handle: T.handle,
        q_handle: T.handle,
        k_handle: T.handle,
        v_handle: T.handle,
        embeds: T.int64,
    ) -> None:
        T.func_attr({"tirx.noalias": True})
        tokens = T.int32()
        offset = T.int32()
        qkv = T.match_buffer(qkv_handle, (tokens, values, size), "float32")
        positions = T.match_buffer(positions_handle, (tokens,), "int32", elem_offset=offset)
        q = T.match_buffer(q_handle, (tokens, heads, size), "float32")
        k = T.match_buffer(k_handle, (tokens, kv_heads, size), "float32")
        v = T.match_buffer(v_handle, (tokens, kv_heads, size), "float32")
        for token in T.parallel(tokens):
            with T.sblock("token"):
                at = T.axis.spatial(tokens, token)
                cosine = T.sblock_alloc_buffer((half,), "float32")
                sine = T.sblock_alloc_buffer((half,), "float32")
                for d in T.serial(half):
                    sine[d] = T.if_then_else(
                        embeds > 0,
                        T.Cast("float32", positions[at])
                        / T.pow(T.float32(theta), T.Cast("float32", 2 * d) / T.float32(size)),
                        T.float32(0),
                    )
                    cosine[d] = T.cos(sine[d])
                    sine[d] = T.sin(sine[d])
                for head in T.serial(heads):
                    for d in T.vectorized(half):
                        q[at, head, d] = cosine[d] * qkv[at, head, d] - sine[d] * qkv[at, head, d + half]
                        q[at, head, d + half] = cosine[d] * qkv[at, head, d + half] + sine[d] * qkv[at, head, d]
                for head in T.serial(heads, keys):
                    for d in T.vectorized(half):
                        k[at, head - heads, d] = cosine[d] * qkv[at, head, d] - sine[d] * qkv[at, head, d + half]
                        k[at, head - heads, d + half] = cosine[d] * qkv[at, head, d + half] + sine[d] * qkv[at, head, d]
                for head in T.serial(kv_heads):
                    for d in T.vectorized(size):
                        v[at, head, d] = qkv[at, keys + head, d]

    return rope.with_attr("tirx.is_scheduled", True)
