"""Small configurations of transformers' model types: two layers, a thousand words, and fewer channels where the default
configuration has hundreds of millions of weights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from op_profiler.frontends.transformers import _library

MOST_WEIGHTS = 60_000_000
SEQUENCE = 16  # tokens; scans over a sequence are unrolled
_LAYERS, _WORDS, _EXPERTS, _CHOSEN = 2, 1000, 4, 2
_LAYER_FIELD = re.compile(r"(^|_)(layers?|depths?|blocks?|n_layer|num_hidden_groups)$")
_EXPERT_FIELD = re.compile(r"(^|_)(experts|n_routed_experts|moe_num_experts)$")
_CHOSEN_FIELD = re.compile(r"experts_per_tok|(^|_)top_?k($|_)|_topk($|_)|topk_group")
_WIDTH_FIELD = re.compile(
    r"(^|_)(hidden|embed|embedding|ffn|intermediate|inner|head|state|latent|conv|feature|output|projection|mlp|model)?_?"
    r"(dim|size|width|channels)s?$|^(d_model|d_ff|d_kv|d_inner|n_embd|n_inner)$"
)
_HEADS_FIELD = re.compile(r"(^|_)n?_?heads?(_kv)?$")
_HEAD_WIDTH_FIELD = re.compile(r"head_dim|head_size|d_kv")
_OTHER_FIELD = re.compile(
    r"vocab|rope|rotary|patch|kernel|stride|image|window|chunk|codebook|position|norm|index|feature_layer|num_channels|"
    r"conv_layer|tubelet|sample|batch|memory|pool|beam|group|type"
)
_DERIVED = ("out_features", "out_indices", "stage_names", "per_layer_config", "layer_types", "torch_dtype", "dtype")
"""Fields that follow from the number of layers, which the library fills in again, and types of the weights."""


class NoSmallConfigurationError(Exception):
    """Raised if the library builds no small model of a type; the message is the library's."""


def write_small(kind: str, folder: Path) -> int:
    """Write config.json of a small model of a type; return its number of weights.

    Raises:
        NoSmallConfigurationError: no configuration that was tried gives a model of at most `MOST_WEIGHTS` that torch
            runs.
    """
    import torch

    library = _library()
    try:
        default = library.AutoConfig.for_model(kind)
    except Exception as error:  # the default configuration needs fields
        raise NoSmallConfigurationError(str(error)[:200]) from error
    reason: object = "none"
    for config in _smaller(default.to_dict()):
        try:
            read = type(default).from_dict(config)
            with torch.device("meta"):
                model = library.AutoModel.from_config(read)
        except Exception as error:  # each type checks its fields in its own way
            reason = error
            continue
        weights = sum(one.numel() for one in model.parameters())
        if weights > MOST_WEIGHTS:
            reason = f"{weights / 1e6:.0f} million weights"
            continue
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**read.to_dict(), "model_type": kind}))
        reason = _why_not(folder)
        if not reason:
            return weights
    raise NoSmallConfigurationError(" ".join(str(reason).split())[:200])


def _why_not(folder: Path) -> str:
    """Return why torch does not run a small model; empty if it does, or if op_profiler does not know its inputs."""
    import torch

    from op_profiler.errors import ModelError
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.zoo import transformers as zoo

    request = ModelRequest(source="transformers", name=str(folder))
    reason = ""
    try:
        model, _ = zoo.build(str(folder), folder=True)
        inputs = zoo.inputs_of(model, request, SEQUENCE)
    except ModelError:
        return ""
    for given in filter(None, (inputs, zoo.without_image(inputs))):
        try:
            with torch.no_grad():
                model(**{name: one.tensor for name, one in given.items()})
        except Exception as error:  # whatever the model's code raises
            reason = str(error) or type(error).__name__
            if "required positional argument" in reason:
                return ""
        else:
            return ""
    return reason


def _smaller(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for divisor in (1, 2, 4, 8, 16):
        for left_out in ((), _DERIVED):
            for fewer_heads in (True, False) if divisor > 1 else (False,):
                yield _reduced(config, _Sizes(divisor, fewer_heads, left_out))


class _Sizes(NamedTuple):
    """How a configuration is made smaller.

    Attributes:
        divisor: of widths.
        fewer_heads: divide the number of heads, and keep the width of a head; else the opposite.
        left_out: fields that the library fills in again.
    """

    divisor: int
    fewer_heads: bool
    left_out: tuple[str, ...]


def _reduced(config: Mapping[str, Any], sizes: _Sizes) -> dict[str, Any]:
    found = {name: _field(name, value, sizes) for name, value in config.items() if name not in sizes.left_out}
    before = {value for name, value in config.items() if isinstance(value, int) and found.get(name) == _LAYERS < value}
    for name, value in found.items():
        if isinstance(value, list) and len(value) in before:  # one entry a layer
            found[name] = value[:_LAYERS]
    words = found.get("vocab_size")
    words = words if isinstance(words, int) else _WORDS
    for name, value in found.items():
        if name.endswith(("_token_id", "_token_index")) and isinstance(value, int) and value >= _WORDS:
            words -= 1  # no two of them are equal
            found[name] = words
    return found


def _field(name: str, value: Any, sizes: _Sizes) -> Any:
    if isinstance(value, dict) and ("model_type" in value or name.endswith("_config")):
        return _reduced(value, sizes)
    if isinstance(value, list) and value and all(type(one) is int for one in value):
        smaller = [_field(name, one, sizes) for one in value]
        is_whole = all(one % sizes.divisor == 0 for one in value) or bool(_LAYER_FIELD.search(name))
        return smaller if is_whole else value
    if type(value) is not int:
        return value
    if _CHOSEN_FIELD.search(name):
        return min(value, _CHOSEN)
    if name in ("vocab_size", "vocabulary_size"):
        return min(value, _WORDS)
    if _OTHER_FIELD.search(name):
        return value
    if _LAYER_FIELD.search(name):
        return min(value, _LAYERS)
    if _EXPERT_FIELD.search(name):
        return min(value, _EXPERTS)
    is_divided = _HEADS_FIELD.search(name) if sizes.fewer_heads else _HEAD_WIDTH_FIELD.search(name)
    is_kept = _HEAD_WIDTH_FIELD.search(name) if sizes.fewer_heads else None
    if (is_divided or _WIDTH_FIELD.search(name)) and not is_kept and value > sizes.divisor:
        return value // sizes.divisor if value % sizes.divisor == 0 else value
    return value
