"""A step of a decoder as a module of Relax, with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relax.decoder.step import DecoderStep, requested_step
from op_profiler.compilers.relax.layers import LayerVariables
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.transformers import has_small_sizes

ATTENTION = "vm.builtin.attention_kv_cache_attention_with_fused_qkv"
"""Takes the cache, the number of the layer, the scale of the scores and the tokens' heads; returns the attention
outputs."""
STEP = "step"
"""Name of the function that calls ``main`` between the cache's begin and end calls, and then restores the cache."""
_COPIES = 3  # of the weights at once
_CACHES = 2  # of which each has keys and values (`library.load_step`)
_DEVIATION = 0.02
_NOTE = "its weights are random"
_SMALL_NOTE = "it has the sizes of a small model; a folder with a config.json of transformers gives others"


def load_step(request: ModelRequest) -> ImportedModel:
    """Return the requested step of a decoder as a Relax model with random weights.

    Raises:
        ModelError: the configuration is not of a decoder of llama's structure, or the model exceeds the memory.
    """
    step = requested_step(request)
    _check_memory(request.name, step)
    inputs = (InputSpec("tokens", (step.rows,), "int32", high=step.decoder.vocabulary),)
    notes = (_NOTE, _SMALL_NOTE) if has_small_sizes(request.name) else (_NOTE,)
    return ImportedModel(
        request.name, request.source, step.noted_on(_Builder(step).module()), {}, inputs, request.batch_size, notes
    )


def _check_memory(name: str, step: DecoderStep) -> None:
    decoder = step.decoder
    heads = (decoder.heads * 2 + decoder.kv_heads * 2) * decoder.head_size
    of_layer = decoder.hidden * (heads + 3 * decoder.intermediate)
    needed = 4 * (decoder.layers * of_layer + 2 * decoder.vocabulary * decoder.hidden)
    of_token = 4 * 2 * decoder.layers * decoder.kv_heads * decoder.head_size
    caches = _CACHES * of_token * step.sequences * (step.past + step.tokens)
    available = psutil.virtual_memory().available
    if _COPIES * needed + caches > available:
        raise ModelError(
            f"{name} has {needed / 1e9:.1f} GB of weights, and compiling it takes about {_COPIES} times that; its "
            f"caches of keys and values take {caches / 1e9:.1f} GB. {available / 1e9:.1f} GB of memory are free. Give "
            "fewer --past or --batchsize, or a folder whose config.json is smaller."
        )


class _Builder:
    """Creates the functions of one step."""

    def __init__(self, step: DecoderStep) -> None:
        self._step, self._decoder = step, step.decoder
        self._random = np.random.default_rng(0)
        self._relax = load_tvm().relax
        self._op = self._relax.op
        self._builder = self._relax.BlockBuilder()
        self._variables = LayerVariables()

    def module(self) -> Any:
        relax, builder = self._relax, self._builder
        tokens, cache = self._inputs()
        with builder.function("main", [tokens, cache]):
            with builder.dataflow():
                table = self._weight(self._decoder.vocabulary, self._decoder.hidden)
                data = self._emit("model.embed_tokens", self._op.take(table, tokens, 0))
                for layer in range(self._decoder.layers):
                    data = self._layer(layer, data, cache)
                normed = self._norm("model.norm", self._last(data))
                output = builder.emit_output(self._product("lm_head", normed, self._decoder.vocabulary))
            builder.emit_func_output(output)
        main = builder.get().get_global_var("main")
        tokens, cache = self._inputs()
        sequences = range(self._step.sequences)
        with builder.function(STEP, [tokens, cache], pure=False):
            lengths = relax.ShapeExpr([self._step.tokens for _ in sequences])
            self._builtin("kv_state_begin_forward", cache, relax.ShapeExpr(list(sequences)), lengths)
            answer = builder.emit(relax.Call(main, [tokens, cache]))
            self._builtin("kv_state_end_forward", cache)
            for number in sequences:
                self._builtin("kv_state_popn", cache, relax.prim_value(number), relax.prim_value(self._step.tokens))
            builder.emit_func_output(answer)
        return self._variables.noted_on(builder.get())

    def _inputs(self) -> tuple[Any, Any]:
        relax = self._relax
        return relax.Var("tokens", relax.TensorType((self._step.rows,), "int32")), relax.Var("cache", relax.AnyType())

    def _builtin(self, name: str, *arguments: Any) -> None:
        relax = self._relax
        function = relax.ExternFunc(f"vm.builtin.{name}")
        self._builder.emit(relax.Call(function, list(arguments), ty_args=[relax.AnyType()]))

    def _emit(self, layer: str, value: Any) -> Any:
        """Emit a value; layers have the names of transformers' modules."""
        return self._builder.emit(value, self._variables.name((layer,)))

    def _weight(self, *shape: int) -> Any:
        return self._relax.const((self._random.standard_normal(shape, dtype="float32") * _DEVIATION).astype("float32"))

    def _product(self, layer: str, data: Any, columns: int) -> Any:
        return self._emit(layer, self._op.matmul(data, self._weight(int(data.ty.shape[1]), columns)))

    def _norm(self, layer: str, data: Any) -> Any:
        scale = self._relax.const(np.ones(self._decoder.hidden, dtype="float32"))
        return self._emit(layer, self._op.nn.rms_norm(data, scale, axes=[-1], epsilon=self._decoder.epsilon))

    def _layer(self, number: int, data: Any, cache: Any) -> Any:
        relax, op, sizes, rows = self._relax, self._op, self._decoder, self._step.rows
        heads = sizes.heads + 2 * sizes.kv_heads
        layer = f"model.layers.{number}"
        attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
        normed = self._norm(f"{layer}.input_layernorm", data)
        projected = self._product(attention, normed, heads * sizes.head_size)
        if sizes.biased:
            projected = self._emit(attention, op.add(projected, self._weight(heads * sizes.head_size)))
        split = self._emit(attention, op.reshape(projected, (rows, heads, sizes.head_size)))
        scale = relax.prim_value(float(sizes.head_size**-0.5))
        made = relax.TensorType((rows, sizes.heads, sizes.head_size), "float32")
        call = relax.call_dps_packed(ATTENTION, [cache, relax.prim_value(number), scale, split], out_ty=made)
        attended = self._emit(attention, call)
        joined = self._emit(attention, op.reshape(attended, (rows, sizes.heads * sizes.head_size)))
        data = self._emit(layer, op.add(data, self._product(f"{attention}.o_proj", joined, sizes.hidden)))
        normed = self._norm(f"{layer}.post_attention_layernorm", data)
        gate = self._product(f"{mlp}.gate_proj", normed, sizes.intermediate)
        active = self._emit(f"{mlp}.act_fn", op.nn.silu(gate))
        inner = self._emit(mlp, op.multiply(active, self._product(f"{mlp}.up_proj", normed, sizes.intermediate)))
        return self._emit(layer, op.add(data, self._product(f"{mlp}.down_proj", inner, sizes.hidden)))

    def _last(self, data: Any) -> Any:
        """Return the last token of each sequence, because only its successor is computed."""
        tokens, rows = self._step.tokens, self._step.rows
        if tokens == 1:
            return data
        last = self._op.strided_slice(data, axes=[0], begin=[tokens - 1], end=[rows], strides=[tokens])
        return self._emit("model", last)
