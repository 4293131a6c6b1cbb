"""Sizes of a decoder, and the step that is measured."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import msgspec

from op_profiler.compilers.tvm_types import IRModule
from op_profiler.errors import ModelError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.transformers import has_small_sizes

_SMALL = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
}
"""Sizes for a name without a folder; the library's default is a model with seven billion weights."""
_USUAL_THETA = 10000.0
_STEP = "op_profiler_step"


@dataclasses.dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder of llama's structure.

    Attributes:
        head_size: number of values of a head.
        biased: whether queries, keys and values have biases.
        epsilon: epsilon of the norms.
        theta: base of the rotary embedding.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    biased: bool
    epsilon: float
    theta: float


@dataclasses.dataclass(frozen=True)
class DecoderStep:
    """One step of a decoder, which processes new tokens of each sequence; the earlier tokens are in the KV cache.

    Attributes:
        past: number of tokens of each sequence in the cache; 0 for a prefill of new sequences.
    """

    decoder: Decoder
    sequences: int
    tokens: int
    past: int

    @property
    def rows(self) -> int:
        """Return the number of new tokens of all sequences together."""
        return self.sequences * self.tokens

    @classmethod
    def of(cls, module: IRModule) -> DecoderStep | None:
        """Return the step for which a module was made; None for other models."""
        text = (module.attrs or {}).get(_STEP)
        return None if text is None else msgspec.json.decode(str(text), type=cls)

    def noted_on(self, module: Any) -> Any:
        """Return the module with this step stored in an attribute, from which `of` reads it."""
        return module.with_attr(_STEP, msgspec.json.encode(self).decode())


def requested_step(request: ModelRequest) -> DecoderStep:
    """Return the decoder step that a request names, with the sizes of its decoder.

    Raises:
        ModelError: the configuration lacks a size, or is not of a decoder of llama's structure.
    """
    tokens, past = request.sequence_length or 1, request.past or 0
    return DecoderStep(read_decoder(request.name, past + tokens), request.batch_size, tokens, past)


def read_decoder(name: str, tokens: int = 1) -> Decoder:
    """Return the sizes of a decoder.

    Args:
        name: a folder, whose ``config.json`` is read; or a type of models, for which small sizes are returned.
        tokens: number of tokens of a sequence at the end of the step.

    Raises:
        ModelError: a size is missing or wrong, or the decoder does not have llama's structure.
    """
    file = Path(name) / "config.json"
    try:
        small = has_small_sizes(name)
        found = {"model_type": name, **_SMALL} if small else json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{file} is not readable: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{file} holds no object of sizes")
    kind, scaling = found.get("model_type"), found.get("rope_scaling") or found.get("rope_parameters") or {}
    if found.get("hidden_act", "silu") != "silu":
        raise ModelError(f"{name}: decoders are measured with silu, not with {found['hidden_act']}")
    if not isinstance(scaling, dict) or scaling.get("rope_type", scaling.get("type", "default")) != "default":
        raise ModelError(f"{name}: decoders are measured with plain rotary embeddings; leave out rope_scaling")
    _check_structure(name, found, tokens)
    heads, hidden = _size(name, found, "num_attention_heads"), _size(name, found, "hidden_size")
    decoder = Decoder(
        layers=_size(name, found, "num_hidden_layers"),
        hidden=hidden,
        intermediate=_size(name, found, "intermediate_size"),
        heads=heads,
        kv_heads=_size(name, found, "num_key_value_heads", heads),
        head_size=_size(name, found, "head_dim", hidden // heads),
        vocabulary=_size(name, found, "vocab_size"),
        biased=kind == "qwen2",
        epsilon=_number(name, found, "rms_norm_eps", 1e-6),
        theta=_number(name, scaling if scaling.get("rope_theta") is not None else found, "rope_theta", _USUAL_THETA),
    )
    if heads % decoder.kv_heads or decoder.head_size % 2:
        raise ModelError(f"{name}: {heads} heads over {decoder.kv_heads} of keys, {decoder.head_size} values each")
    return decoder


def _check_structure(name: str, found: dict[str, Any], tokens: int) -> None:
    for field in ("attention_bias", "mlp_bias"):
        if found.get(field):
            raise ModelError(f"{name}: decoders are measured without {field}; leave it out")
    window = found.get("sliding_window") if found.get("use_sliding_window", True) else None
    if window is not None and _size(name, found, "sliding_window") < tokens:
        raise ModelError(
            f"{name}: decoders are measured without windows; give fewer tokens than its sliding_window of {window}, or "
            "leave that out"
        )


def _number(name: str, found: dict[str, Any], field: str, default: float) -> float:
    value = found.get(field)
    value = default if value is None else value
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ModelError(f"{name}: {field} is {value!r} in its config.json; a decoder needs a number above 0")
    return float(value)


def _size(name: str, found: dict[str, Any], field: str, default: int | None = None) -> int:
    value = found.get(field, default)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"{name}: {field} is {value!r} in its config.json; a decoder needs a number of 1 or more")
    return value
