"""Creates a transformers model and example inputs for it. Imports torch and transformers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
import transformers

from op_profiler.errors import ModelError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.input_shapes import batch_of, shapes_by_name
from op_profiler.frontends.zoo.classifiers import RANDOM_WEIGHTS

_COPIES = 3  # of the weights at once: torch's, those of the Relay module, those of the compiled library
_DEVIATION = 0.02  # as transformers initializes most of its matrices
_WAVE_SAMPLES, _FRAMES = 16000, 100  # one second of speech
_BINS = ("feature_projection_input_dim", "input_feat_per_channel", "num_mel_bins")
_MAIN_INPUTS = ("input_ids", "pixel_values", "input_values", "input_features")
_CODECS = ("upsampling_ratios", "downsampling_ratios")
"""Configuration fields: names for the number of values of a frame (`_BINS`), and fields that only codecs have."""


class Input(NamedTuple):
    """Example of one input; for token ids, `high` is the first id that is too large: the size of the vocabulary."""

    tensor: Any
    high: int = 2


def build(name: str, *, folder: bool) -> tuple[Any, tuple[str, ...]]:
    """Create a model; return it and notes on its weights.

    Args:
        name: model type, ``t5-encoder``, ``t5-decoder``, or a checkpoint folder.
        folder: whether `name` is a folder.

    Raises:
        ModelError: the weights would not fit into memory.
    """
    part = name.removeprefix("t5-") if name in ("t5-encoder", "t5-decoder") else ("encoder" if name == "t5" else None)
    if folder:
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    else:
        config = transformers.AutoConfig.for_model("t5" if part else name)
    config.use_cache = False
    _check_memory(name, config)
    options = {"attn_implementation": "eager"}  # the plain operators; the fused ones have no counterpart in Relay
    weights = [f for pattern in ("*.safetensors", "*.bin") for f in Path(name).glob(pattern)] if folder else []
    if weights:
        # a .bin is a pickle; weights_only reads it with an unpickler of torch's that knows nothing but tensors
        safe = {"local_files_only": True, "trust_remote_code": False, "weights_only": True}
        return transformers.AutoModel.from_pretrained(name, config=config, **safe, **options).eval(), ()
    if part:
        model = transformers.T5Model._from_config(config, **options).eval()
        return (model.encoder if part == "encoder" else model.decoder), (RANDOM_WEIGHTS,)
    model = transformers.AutoModel.from_config(config, **options).eval()
    _fill_matrices_of_zeros(model)
    return model, (RANDOM_WEIGHTS,)


def _fill_matrices_of_zeros(model: Any) -> None:
    """Give random values to matrices that a type begins its training with as zeros: a router of zeros would choose
    among experts with equal scores, and outputs behind a layer of zeros would not depend on what is before it."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1 and weight.is_floating_point() and not weight.any():
                weight.normal_(std=_DEVIATION, generator=generator)


def _check_memory(name: str, config: Any) -> None:
    """Check the size of the weights without creating them: default configurations of large models have tens of
    gigabytes."""
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    needed = sum(p.numel() * p.element_size() for p in model.parameters())
    available = psutil.virtual_memory().available
    if _COPIES * needed > available:
        raise ModelError(
            f"{name} has {needed / 1e9:.1f} GB of weights; lowering and compiling it takes about {_COPIES} times that, "
            f"and {available / 1e9:.1f} GB of memory are free. Give a folder whose config.json is smaller."
        )


def inputs_of(model: Any, request: ModelRequest, sequence: int) -> dict[str, Input]:
    """Return example inputs by the name of the model's argument, in order.

    Args:
        sequence: number of tokens of each sequence, unless the request gives shapes.

    Raises:
        ModelError: the model has an unknown argument.
    """
    usual = _input_shapes(model, request.batch_size, sequence)
    given = shapes_by_name(request, tuple(usual))
    if given:
        batch_of(request, next(iter(given.values())))
    generator = torch.Generator().manual_seed(0)
    made = {}
    for name, (shape, high) in usual.items():
        shape = given.get(name, shape)
        if high:
            made[name] = Input(torch.randint(0, high, shape, generator=generator), high)
        else:
            made[name] = Input(torch.randn(shape, generator=generator))
    return made


def without_image(inputs: Mapping[str, Input]) -> dict[str, Input]:
    """Return the inputs of the text part of a model that reads text and images; an empty dict for other models.

    Some of these models reject an image without special tokens for its parts, or without its size in patches.
    """
    if "pixel_values" not in inputs or next(iter(inputs)) != "input_ids":
        return {}
    return {name: one for name, one in inputs.items() if name != "pixel_values"}


def shortened(sequence: int, model: Any) -> int:
    """Return the length of a sequence, or the number of positions in the configuration if that is smaller."""
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return min(sequence, most) if isinstance(most, int) and most > 0 else sequence


def _input_shapes(model: Any, batch: int, sequence: int) -> dict[str, tuple[tuple[int, ...], int]]:
    """Return the shape of each argument, and the size of the vocabulary for token ids, 0 for other arguments."""
    config, text = model.config, model.config.get_text_config()
    tokens = (batch, sequence), _words(text)
    takes = inspect.signature(model.forward).parameters
    main = next((name for name in (model.main_input_name, *_MAIN_INPUTS) if name in takes), model.main_input_name)
    shapes: dict[str, tuple[tuple[int, ...], int]] = {}
    if main == "input_ids" and tokens[1]:
        shapes["input_ids"] = tokens
        if "pixel_values" in takes and hasattr(config, "vision_config") and hasattr(config, "text_config"):
            shapes["pixel_values"] = _image(config, batch), 0
    elif main == "pixel_values":
        shapes["pixel_values"] = _image(config, batch), 0
    elif main == "input_values":
        shapes["input_values"] = _wave(config, batch), 0
    elif main == "input_features" and (frames := _frames(config, batch)):
        shapes["input_features"] = frames, 0
    else:
        raise ModelError(
            f"the inputs of {type(model).__name__} ({main}) are not known; write a function that returns the module "
            "and example inputs, and give it as --modelsource file --modelname package.module:function"
        )
    if "input_ids" in takes and takes["input_ids"].default is inspect.Parameter.empty and tokens[1]:
        shapes["input_ids"] = tokens
    is_part = getattr(model, "is_decoder", False) and "encoder_hidden_states" in takes
    if config.is_encoder_decoder and "decoder_input_ids" in takes:
        shapes["decoder_input_ids"] = tokens
    elif is_part and type(model).__name__ == "T5Stack":
        shapes["encoder_hidden_states"] = (batch, sequence, config.d_model), 0
    return shapes


def _words(config: Any) -> int:
    """Return the size of the vocabulary; for canine, which accepts any character, the number of hash buckets; 0 if the
    configuration has neither."""
    found = (getattr(config, name, None) for name in ("vocab_size", "num_hash_buckets"))
    return int(next((size for size in found if size), 0))


def _wave(config: Any, batch: int) -> tuple[int, ...]:
    """Return the shape of ``input_values``: of raw sound, or of a spectrogram if the model expects one."""
    if hasattr(config, "frequency_stride"):
        return batch, config.max_length, config.num_mel_bins
    if any(hasattr(config, name) for name in _CODECS):
        return batch, getattr(config, "audio_channels", 1), _WAVE_SAMPLES
    return batch, _WAVE_SAMPLES


def _frames(config: Any, batch: int) -> tuple[int, ...]:
    """Return the shape of a spectrogram; empty if its size is unknown."""
    if hasattr(config, "num_mel_bins") and hasattr(config, "max_source_positions"):
        return batch, config.num_mel_bins, 2 * config.max_source_positions
    parts = [config, *(getattr(config, name, None) for name in config.sub_configs)]
    bins = next((getattr(part, name) for part in parts for name in _BINS if hasattr(part, name)), 0)
    return (batch, _FRAMES, bins) if bins else ()


def _image(config: Any, batch: int) -> tuple[int, ...]:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or getattr(config, "image_size", None) or 224
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    frames = (config.num_frames,) if hasattr(config, "num_frames") else ()  # of a film
    return (batch, *frames, getattr(vision, "num_channels", 3), height, width)
