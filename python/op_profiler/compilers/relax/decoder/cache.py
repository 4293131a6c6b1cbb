"""A paged KV cache that contains the past of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from op_profiler.compilers.relax.decoder import attention
from op_profiler.compilers.relax.decoder.step import DecoderStep
from op_profiler.compilers.tvm_build import load_tvm

_NORMAL_ROPE = 1  # before keys are appended
_PLAIN_ATTENTION = 0

Kernel = Callable[[str], Any]
"""Returns the function of an operator, given its name."""


def make_cache(step: DecoderStep, kernel: Kernel) -> Any:
    """Return a KV cache that already contains the earlier tokens of every sequence, with random values.

    Args:
        kernel: returns the kernels that the cache calls.
    """
    tvm = load_tvm()
    shape, one = tvm.runtime.ShapeTuple, step.decoder
    pages: list[Any] = []
    cache = _builtin("paged_attention_kv_cache_create")(
        _sizes(step),
        shape([0, one.layers]),
        *(one.heads, one.kv_heads, one.head_size, one.head_size),
        shape([_PLAIN_ATTENTION] * one.layers),
        False,  # its pages stay in this process
        *(_NORMAL_ROPE, 1.0, one.theta, None),
        tvm.runtime.empty((), "float32"),
        *_functions(kernel, lambda *shown: pages.append(shown[0])),
    )
    for number in range(step.sequences):
        _builtin("kv_state_add_sequence")(cache, number)
    if step.past:
        begin_step(cache, step.sequences, step.past)
        end_step(cache)
        values = (tvm.runtime.empty((one.layers, 1, one.kv_heads, one.head_size), "float32") for _ in range(2))
        _builtin("attention_kv_cache_debug_get_kv")(cache, 0, 0, 1, *values)
        _fill(pages)
    return cache


def begin_step(cache: Any, sequences: int, tokens: int) -> None:
    """Make room in the cache for this number of tokens of each sequence."""
    shape = load_tvm().runtime.ShapeTuple
    _builtin("kv_state_begin_forward")(cache, shape(range(sequences)), shape([tokens] * sequences))


def end_step(cache: Any) -> None:
    """End the step that `begin_step` began, so that the next one can begin."""
    _builtin("kv_state_end_forward")(cache)


def _sizes(step: DecoderStep) -> Any:
    """Return the number of sequences, of tokens, of tokens of a step and of tokens of a page, and no sliding window."""
    of_sequence = -(-(step.past + step.tokens) // attention.PAGE) * attention.PAGE
    total = step.sequences * of_sequence
    return load_tvm().runtime.ShapeTuple([step.sequences, total, total, attention.PAGE, 0])


def _functions(kernel: Kernel, show: Callable[..., Any]) -> list[Any]:
    """Return the functions that the cache calls, in the order of its arguments; functions for windows and trees of
    tokens are never called.

    Args:
        show: replaces the function that copies values of a layer out; it receives the pages.
    """

    def of_tir(name: str) -> list[Any]:
        return ["tirx", kernel(name)]

    past, decode = of_tir(attention.PREFILL_PAST), of_tir(attention.DECODE)
    copy = kernel(attention.COPY_PAGE)
    return [
        *(kernel(attention.APPEND), None),
        *(of_tir(attention.PREFILL), past, decode),
        *(past, decode),  # over a sliding window
        *(past, past),  # over trees of tokens
        [],  # of latent attention
        *([kernel(attention.MERGE)], kernel(attention.ROPE)),
        *(copy, load_tvm().runtime.convert(show), copy),
    ]


def _fill(pages: list[Any]) -> None:
    """Fill keys and values of all layers with random values, because new memory contains zeros or old values."""
    random = np.random.default_rng(0)
    for layer in pages:
        layer.copyfrom(random.standard_normal(tuple(layer.shape), dtype="float32"))


def _builtin(name: str) -> Any:
    return load_tvm().get_global_func(f"vm.builtin.{name}")
