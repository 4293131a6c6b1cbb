"""Steps of decoders: the kernels of their attention by themselves, and what they compute."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.relax.decoder import attention
from op_profiler.compilers.relax.decoder.model import load_step
from op_profiler.compilers.relax.decoder.step import read_decoder
from op_profiler.compilers.relax.relax_compiler import RELAX
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.errors import ModelError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.targets.target import resolve_target
from op_profiler.testing.compiler import NO_RECORDS

SIZES: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SIZES))
    return tmp_path


def step_of(folder: Path, tokens: int, past: int, sequences: int = 1) -> tuple[Any, Any]:
    """What a step is built into, and its kernels, which ran once."""
    load_tvm()
    target = resolve_target("llvm")
    request = ModelRequest(
        source="transformers", name=str(folder), sequence_length=tokens, past=past, batch_size=sequences
    )
    built = RELAX.build(load_step(request), target, NO_RECORDS)
    inputs = {"tokens": np.arange(tokens * sequences, dtype="int32") % SIZES["vocab_size"]}
    return built, RELAX.load(built.compiled, runtime_device(target), inputs)


def softmax(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def attended(query: np.ndarray, keys: np.ndarray, values: np.ndarray, hidden: int) -> np.ndarray:
    """What tokens (n, heads, size) see of keys (m, kv_heads, size), of which the last `hidden` stand behind the first
    token, one less behind the next."""
    group = query.shape[1] // keys.shape[1]
    scores = np.einsum("nhd,mhd->hnm", query, np.repeat(keys, group, 1)) / np.sqrt(query.shape[2])
    n, m = scores.shape[1:]
    for token in range(n):
        scores[:, token, m - max(hidden - token, 0) :] = -np.inf
    return np.asarray(np.einsum("hnm,mhd->nhd", softmax(scores), np.repeat(values, group, 1)))


def run_again(kernels: Any, label: str) -> tuple[list[np.ndarray], np.ndarray]:
    """What the first call of a kernel reads now, since layers share their buffers, and what it makes of that."""
    call = next(call for call in kernels if call.label == label)
    arrays = [array.numpy() for array in call.arrays]
    assert call.run()
    return arrays, call.arrays[-2].numpy()


def past_of(pages: np.ndarray, table: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values of a sequence whose pages the table names."""
    held = pages[table].transpose(0, 3, 1, 2, 4).reshape(-1, 2, *pages.shape[2:3], pages.shape[4])[:tokens]
    return held[:, 0], held[:, 1]


def test_a_decode_reads_its_past_and_its_kernels_add_up_to_the_step(folder: Path) -> None:
    built, loaded = step_of(folder, tokens=1, past=20, sequences=3)
    labels = loaded.labels
    assert labels == [one.label for one in built.compiled.occurrences]
    assert RELAX.fuse(lambda: built.compiled.occurrences, resolve_target("llvm"), NO_RECORDS).asked <= built.asked
    assert labels.count(attention.ROPE) == labels.count(attention.APPEND) == labels.count(attention.DECODE) == 2
    (query, pages, first, table, *_), seen = run_again(loaded.kernels, attention.DECODE)
    for number in range(3):
        keys, values = past_of(pages, table[first[number] : first[number + 1]], 21)
        assert np.abs(keys[:20]).mean() > 0.5  # the past is random, not the zeros of new memory
        expected = attended(query[number : number + 1], keys, values, 0)
        np.testing.assert_allclose(seen[number : number + 1], expected, atol=1e-5)
    loaded.run_model()
    (answer,) = loaded.output_arrays()
    np.testing.assert_allclose(list(loaded.kernel_outputs())[-1], answer, atol=1e-5)
    assert all(call.error() is None for call in loaded.kernels)
    times = loaded.walk("model", [True] * len(labels))
    assert len(times) == len(labels) and np.isfinite(times).all() and loaded.time_model() > 0
    decode = built.compiled.by_label[attention.DECODE].operator
    assert decode.attrs == ({"sequences": 3, "past": 20},) and decode.inputs[1].shape == (3, 21, 2, 2, 8)
    assert decode.flops == 3 * 21 * 4 * 4 * 8 and built.schedules[decode.key].template == "tvm.relax"


def test_a_prefill_sees_what_stands_in_front_of_each_token(folder: Path) -> None:
    _, loaded = step_of(folder, tokens=6, past=0)
    assert attention.DECODE not in loaded.labels
    (query, _, keys, values, *_), seen = run_again(loaded.kernels, attention.PREFILL)
    np.testing.assert_allclose(seen, attended(query, keys, values, 5), atol=1e-5)
    (answer,) = loaded.output_arrays()
    assert answer.shape == (1, SIZES["vocab_size"])  # what follows the last token


@pytest.mark.slow  # the two above, at once
def test_several_tokens_after_a_past_merge_what_they_see_of_both(folder: Path) -> None:
    _, loaded = step_of(folder, tokens=3, past=20)
    assert attention.PREFILL_PAST in loaded.labels and attention.MERGE in loaded.labels
    (query, _, pages, _, table, *_), seen = run_again(loaded.kernels, attention.PREFILL_PAST)
    keys, values = past_of(pages, table, 20)
    np.testing.assert_allclose(seen, attended(query, keys, values, 0), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_key_value_heads": 3}, "4 heads over 3"),
        ({"hidden_act": "gelu"}, "silu"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"sliding_window": 16}, "sliding_window of 16"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"rope_theta": [1]}, "rope_theta"),
    ],
)
def test_what_is_no_decoder_of_this_structure_is_refused(folder: Path, changes: dict[str, Any], told: str) -> None:
    (folder / "config.json").write_text(json.dumps(SIZES | changes))
    with pytest.raises(ModelError, match=told):
        read_decoder(str(folder), tokens=17)


def test_a_folder_is_what_its_configuration_says_whatever_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = {"sliding_window": 16, "use_sliding_window": False, "rope_parameters": {"rope_theta": 5e5}}
    (folder / "llama").mkdir()
    (folder / "llama" / "config.json").write_text(json.dumps(SIZES | rest))
    assert read_decoder("llama").hidden > SIZES["hidden_size"]
    monkeypatch.chdir(folder)
    found = read_decoder("llama", tokens=17)
    assert (found.hidden, found.biased, found.theta) == (SIZES["hidden_size"], True, 5e5)


def test_a_cache_that_memory_does_not_hold_is_refused(folder: Path) -> None:
    request = ModelRequest(source="transformers", name=str(folder), sequence_length=1, past=10**12)
    with pytest.raises(ModelError, match="fewer --past"):
        load_step(request)


@pytest.mark.parametrize("embeds", [0, 1])
def test_the_rotary_embedding_is_that_of_tvm(embeds: int) -> None:
    tvm = load_tvm()
    decoder = dataclasses.replace(read_decoder("qwen2", tokens=5), heads=6, kv_heads=2, head_size=10, theta=5e3)
    target, name = resolve_target("llvm"), attention.symbol(attention.ROPE)
    ours, schedules = attention.scheduled(decoder, target)
    assert schedules[name].template == "rope.relax"
    random, made = np.random.default_rng(0), []
    qkv = random.standard_normal((5, 10, 10)).astype("float32")
    positions = np.array([0, 1, 7, 300, 3000], dtype="int32")
    for kernels in (ours, attention.kernels(decoder)):
        function = tvm.compile(tvm.IRModule({name: kernels[name]}), target).mod.get_function(name, True)
        outputs = [tvm.runtime.empty((5, heads, 10), "float32") for heads in (6, 2, 2)]
        function(tvm.runtime.tensor(qkv), tvm.runtime.tensor(positions), *outputs, embeds)
        made.append([output.numpy() for output in outputs])
    for found, expected in zip(*made, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_array_equal(made[0][2], qkv[:, 8:])
    assert np.array_equal(made[0][0], qkv[:, :6]) == (not embeds)
