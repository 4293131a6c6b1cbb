"""The kernels of attention over a paged KV cache: TVM's functions, and the operator that each computes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.relax import pipeline
from op_profiler.compilers.relax.decoder import rope
from op_profiler.compilers.relax.decoder.step import Decoder, DecoderStep
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule, Target
from op_profiler.operators.describe import Description
from op_profiler.operators.operator import TensorSpec
from op_profiler.schedules.schedule import Schedule

ROPE, APPEND = "attention.rope", "attention.append"
DECODE, PREFILL, PREFILL_PAST, MERGE = (
    "attention.decode",
    "attention.prefill",
    "attention.prefill_past",
    "attention.merge",
)
COPY_PAGE = "copy_page"
"""Kernel for sequences that share pages; no step calls it."""
PAGE = 16
"""Number of tokens of a page; it is a constant in TVM's kernels."""


@functools.lru_cache(maxsize=1)
def kernels(one: Decoder) -> Any:
    """Return a module with the unscheduled TIR functions of a decoder's attention, each under its `symbol`.

    TVM parses them from Python source, which takes half of the build time of a step. The module is therefore cached and
    shared by all steps of the decoder.
    """
    tvm = load_tvm()
    from tvm.relax.frontend.nn.llm import kv_cache

    dtype = "float32"
    shape = (one.kv_heads, one.heads, one.head_size)
    unscaled: dict[str, Any] = {}
    made = {
        ROPE: kv_cache.llama_rope_with_position_map(
            one.theta, 1.0, one.head_size, one.heads, one.kv_heads, dtype, unscaled
        ),
        APPEND: kv_cache._kv_cache_transpose_append(one.kv_heads, one.head_size, dtype),
        PREFILL: kv_cache._attention_prefill_ragged_cpu(*shape, one.head_size, dtype, unscaled),
        PREFILL_PAST: kv_cache._attention_prefill_cpu(*shape, dtype, False, unscaled),
        DECODE: kv_cache._attention_decode_cpu(*shape, dtype, False, unscaled),
        MERGE: kv_cache._merge_state_inplace_cpu(dtype),
        COPY_PAGE: kv_cache._copy_single_page_cpu(one.kv_heads, PAGE, one.head_size, dtype),
    }
    return tvm.IRModule({symbol(name): made[name].with_attr("global_symbol", symbol(name)) for name in made})


def scheduled(one: Decoder, target: Target) -> tuple[IRModule, dict[str, Schedule]]:
    """Return the module of `kernels` with op_profiler's rotary embedding and default schedules, and the schedule of
    each function by its symbol."""
    tvm, place = load_tvm(), symbol(ROPE)
    own = rope.rope(one.theta, one.heads, one.kv_heads, one.head_size).with_attr("global_symbol", place)
    functions = {name.name_hint: function for name, function in kernels(one).functions_items()}
    made, schedules = pipeline.scheduled(tvm.IRModule(functions | {place: own}), target)
    return made, schedules | {place: rope.SCHEDULE}


def symbol(name: str) -> str:
    """Return the name of the library's function for the attention operator `name`."""
    return name.replace(".", "_")


def calls(step: DecoderStep) -> list[Occurrence]:
    """Return the calls of attention kernels that a step makes in each layer, in order."""
    if step.tokens == 1:
        names = [ROPE, APPEND, DECODE]
    else:
        names = [ROPE, PREFILL, *([PREFILL_PAST, MERGE] if step.past else []), APPEND]
    return [_occurrence(name, step) for name in names]


def _occurrence(name: str, step: DecoderStep) -> Occurrence:
    """Return the call of a kernel; only the pages that it reads or writes are counted, without the tables of pages."""
    one, rows = step.decoder, step.rows
    kv, query = _heads(rows, one.kv_heads, one.head_size), _heads(rows, one.heads, one.head_size)
    state = [query, TensorSpec((rows, one.heads), "float32")]
    held = step.past + (1 if name == DECODE else 0)
    pages = TensorSpec((step.sequences, held, 2, one.kv_heads, one.head_size), "float32")
    reads, writes = {
        ROPE: ([_heads(rows, one.heads + 2 * one.kv_heads, one.head_size)], [query, kv, kv]),
        APPEND: ([kv, kv], [TensorSpec((rows, 2, one.kv_heads, one.head_size), "float32")]),
        PREFILL: ([query, kv, kv], state),
        PREFILL_PAST: ([query, pages], state),
        DECODE: ([query, pages], state),
        MERGE: ([*state, *state], state),
    }[name]
    attrs: dict[str, Any] = {"sequences": step.sequences}
    if name in (DECODE, PREFILL_PAST):
        attrs["past"] = step.past
    return _described(name, attrs, reads, writes)


def _heads(rows: int, heads: int, size: int) -> TensorSpec:
    return TensorSpec((rows, heads, size), "float32")


def _described(
    name: str, attrs: dict[str, Any], reads: Sequence[TensorSpec], writes: Sequence[TensorSpec]
) -> Occurrence:
    constant = (False,) * len(reads)
    description = Description([[tensor] for tensor in reads], constant)
    description.op(name, attrs, description.names, reads, writes)
    return Occurrence(description.operator(writes), name, None, constant, description.anchor_signature())
