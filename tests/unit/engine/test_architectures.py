"""Every architecture against transformers, and configurations that are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.cases import case, cases
from tests.models import tiny_gemma3, tiny_llama, tiny_mistral, tiny_qwen2, tiny_qwen3
from tests.unit.engine.paged_steps import (
    CPU,
    Driver,
    all_logits,
    edit_config,
    new_pool,
    reference,
    reference_rows,
    torch_decoder,
)

from hostelry.engine.models.registry import ARCHITECTURES, load_decoder, load_spec, parse_spec
from hostelry.engine.models.spec import UnsupportedModelError

Writer = Callable[..., Path]
TOLERANCE = 1e-4
PROMPTS = (tuple(range(20, 60)), (5, 9, 33, 12, 77, 120, 4), (61,), (150, 3, 3, 8))

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
SLIDING = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
UNTIED = {"tie_word_embeddings": False}


@cases(
    "writer, overrides",
    case("Llama with grouped queries and tied embeddings", tiny_llama, {}),
    case("Llama with its own output projection", tiny_llama, UNTIED),
    case("Llama with one key-value head", tiny_llama, {"num_key_value_heads": 1}),
    case("Llama without groups", tiny_llama, {"num_key_value_heads": 4}),
    case("Llama with a head dimension of its own", tiny_llama, {"head_dim": 24}),
    case("Llama with attention biases", tiny_llama, {"attention_bias": True}),
    case("Llama with mlp biases", tiny_llama, {"mlp_bias": True}),
    case("Llama with a large epsilon", tiny_llama, {"rms_norm_eps": 0.1}),
    case("Llama with llama3 rope", tiny_llama, {"rope_parameters": LLAMA3_ROPE}),
    case("Llama with linear rope", tiny_llama, {"rope_parameters": LINEAR_ROPE}),
    case("Mistral with a window shorter than the prompt", tiny_mistral, {}),
    case("Mistral that sees itself only", tiny_mistral, {"sliding_window": 1}),
    case("Mistral without a window", tiny_mistral, {"sliding_window": None}),
    case("Mistral, a wide window", tiny_mistral, {"sliding_window": 4096, **UNTIED}),
    case("Mistral with a head dimension", tiny_mistral, {"head_dim": 24}),
    case("Qwen2", tiny_qwen2, {}),
    case("Qwen2 with its own output projection", tiny_qwen2, UNTIED),
    case("Qwen2 whose second layer slides", tiny_qwen2, SLIDING),
    case("Qwen3", tiny_qwen3, {}),
    case("Qwen3 with biases", tiny_qwen3, {"attention_bias": True, **UNTIED}),
    case("Qwen3 whose second layer slides", tiny_qwen3, SLIDING),
    case("Gemma 3", tiny_gemma3, {}),
    case("Gemma 3, one in six", tiny_gemma3, {"layer_types": None, "num_hidden_layers": 7}),
    case("Gemma 3 with biases", tiny_gemma3, {"attention_bias": True}),
    case("Gemma 3 with its own output projection", tiny_gemma3, UNTIED),
    case(
        "Gemma 3 with ropes of its own",
        tiny_gemma3,
        {
            "rope_parameters": {
                "full_attention": LINEAR_ROPE,
                "sliding_attention": {"rope_type": "default", "rope_theta": 77.0},
            }
        },
    ),
)
def test_logits_equal_transformers(
    writer: Writer, overrides: dict[str, Any], tmp_path: Path
) -> None:
    folder = writer(tmp_path / "model", **overrides)
    spec = load_spec(folder)
    model = reference(folder)
    expected = [reference_rows(model, prompt) for prompt in PROMPTS]
    decoder = torch_decoder(folder, spec)
    pages = numpy.random.default_rng(1).permutation(32).tolist()
    for chunk in (64, 7):  # whole prompts in a step, and chunks that cross pages, with single rows
        driver = Driver(decoder, new_pool(spec, 32), pages)
        for prompt in PROMPTS:
            driver.add(prompt)
        for computed, wanted in zip(driver.finish(chunk), expected, strict=True):
            torch.testing.assert_close(computed, wanted, atol=TOLERANCE, rtol=1e-5)


def test_older_spellings_of_rope(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, rope_parameters=LLAMA3_ROPE)
    before = all_logits(folder)
    scaling = {key: value for key, value in LLAMA3_ROPE.items() if key != "rope_theta"}
    edit_config(folder, rope_parameters=None, rope_scaling=scaling, rope_theta=500000.0)
    assert torch.equal(all_logits(folder), before)
    scaling["type"] = scaling.pop("rope_type")
    edit_config(folder, rope_scaling=scaling)
    assert torch.equal(all_logits(folder), before)


def test_older_spellings_of_gemma(tmp_path: Path) -> None:
    """The files of google/gemma-3 have them, and transformers converts them."""
    folder = tiny_gemma3(tmp_path, num_hidden_layers=4, layer_types=None)
    edit_config(
        folder,
        rope_parameters=None,
        layer_types=None,
        rope_theta=1e5,
        rope_local_base_freq=77.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window_pattern=3,
        cache_implementation="hybrid",
    )
    spec = load_spec(folder)
    assert spec.layer_ropes == (1, 1, 0, 1)
    assert spec.windows == (16, 16, None, 16)
    assert [(it.theta, it.factor) for it in spec.ropes] == [(1e5, 8.0), (77.0, 1.0)]
    expected = reference_rows(reference(folder), PROMPTS[0])
    torch.testing.assert_close(all_logits(folder), expected, atol=TOLERANCE, rtol=1e-5)


def test_gemma_scales_embeddings_by_a_rounded_root(tmp_path: Path) -> None:
    folder = tiny_gemma3(tmp_path, hidden_size=40)
    spec = load_spec(folder)
    weights = {
        dtype: load_decoder(folder, spec, max_len=8, dtype=dtype, device=CPU)
        for dtype in (torch.float32, torch.bfloat16)
    }
    assert weights[torch.float32].embedding_scale == pytest.approx(40**0.5, rel=1e-7)
    assert weights[torch.bfloat16].embedding_scale == 6.3125


@cases(
    "writer, fields",
    case("Mistral", tiny_mistral, {"num_key_value_heads": 8, "num_attention_heads": 8}),
    case("Qwen2", tiny_qwen2, {"num_key_value_heads": 4}),
    case("Qwen3", tiny_qwen3, {"head_dim": 128}),
    case("Gemma 3", tiny_gemma3, {"head_dim": 256, "num_key_value_heads": 4}),
    case("Llama", tiny_llama, {"num_key_value_heads": 4}),
)
def test_absent_fields_have_the_defaults_of_transformers(
    writer: Writer, fields: dict[str, Any], tmp_path: Path
) -> None:
    from transformers import AutoConfig

    folder = writer(tmp_path, **fields)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    absent = [
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
        "rope_parameters",
        "tie_word_embeddings",
        "max_position_embeddings",
        "sliding_window",
        "layer_types",
        "query_pre_attn_scalar",
        "hidden_act",
        "hidden_activation",
    ]
    config = {key: value for key, value in config.items() if key not in absent}
    if writer is tiny_qwen2 or writer is tiny_qwen3:
        config["num_attention_heads"] = 32
        config["hidden_size"] = 64
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    spec, known = load_spec(folder), AutoConfig.from_pretrained(folder)
    head_dim = getattr(known, "head_dim", None) or known.hidden_size // known.num_attention_heads
    assert spec.num_kv_heads == known.num_key_value_heads
    assert spec.head_dim == head_dim
    assert spec.rms_norm_eps == known.rms_norm_eps
    assert spec.tie_embeddings == known.tie_word_embeddings
    assert spec.max_model_len == known.max_position_embeddings
    assert spec.attention_scale == getattr(known, "query_pre_attn_scalar", head_dim) ** -0.5
    ropes = known.rope_parameters
    expected = [ropes[it] for it in ("full_attention", "sliding_attention") if it in ropes]
    assert [it.theta for it in spec.ropes] == [it["rope_theta"] for it in expected or [ropes]]
    types = getattr(known, "layer_types", None) or ["sliding_attention"] * spec.num_layers
    window = getattr(known, "sliding_window", None)
    assert list(spec.windows) == [window if it == "sliding_attention" else None for it in types]


GOOD = {
    "model_type": "llama",
    "vocab_size": 10,
    "hidden_size": 16,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GEMMA = {**GOOD, "model_type": "gemma3_text"}
MISTRAL = {**GOOD, "model_type": "mistral", "num_attention_heads": 8}
QWEN = {**GOOD, "model_type": "qwen2", "num_key_value_heads": 2}


@cases(
    "config, fields, message",
    case("architecture", GOOD, {"architectures": ["MambaForCausalLM"]}, "MambaForC"),
    case("model type", GOOD, {"model_type": "mamba"}, "mamba is not supported"),
    case("no model type", GOOD, {"model_type": None}, "None is not supported"),
    case("no name", GOOD, {"architectures": [{}]}, "{} is not supported"),
    case(
        "a model that sees",
        GOOD,
        {"architectures": ["Gemma3ForConditionalGeneration"]},
        "Gemma3ForConditionalGeneration is not supported",
    ),
    case("activation", GOOD, {"hidden_act": "relu"}, "hidden_act relu is not"),
    case("a list", GOOD, {"hidden_act": ["silu"]}, "hidden_act .'silu'. is"),
    case("gptq", GOOD, {"quantization_config": {"quant_method": "gptq"}}, "gptq"),
    case("Granite", GOOD, {"logits_scaling": 8.0}, "logits_scaling 8.0 is not"),
    case("scaled", GOOD, {"embedding_multiplier": 12}, "embedding_multiplier 12"),
    case("experts", GOOD, {"num_local_experts": 8}, "num_local_experts 8"),
    case("partial", GOOD, {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    case("interleaved", GOOD, {"rope_interleaved": True}, "rope_interleaved True"),
    case("code of its own", GOOD, {"auto_map": {"A": "b.C"}}, "auto_map"),
    case("a Llama with a window", GOOD, {"sliding_window": 9}, "sliding_window 9"),
    case("no vocabulary size", GOOD, {"vocab_size": None}, "vocab_size is None"),
    case("a negative size", GOOD, {"hidden_size": -3}, "hidden_size is -3"),
    case("a size of true", GOOD, {"hidden_size": True}, "hidden_size is True"),
    case("text", GOOD, {"hidden_size": "64"}, "hidden_size is 64; it must"),
    case("uneven heads", GOOD, {"hidden_size": 15}, "15 is no multiple of num_att"),
    case("odd heads", GOOD, {"head_dim": 5}, "head_dim 5 is odd"),
    case("heads of text", GOOD, {"head_dim": "8"}, "head_dim is 8; it must"),
    case("uneven groups", GOOD, {"num_key_value_heads": 3}, "no multiple of"),
    case("a million layers", GOOD, {"num_hidden_layers": 10**6}, "at most 1000"),
    case("a huge vocabulary", GOOD, {"vocab_size": 10**12}, "at most 16777216"),
    case("no epsilon", GOOD, {"rms_norm_eps": 0}, "rms_norm_eps is 0"),
    case("nan", GOOD, {"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
    case("a worded flag", GOOD, {"attention_bias": "no"}, "attention_bias is no"),
    case("an unknown dtype", GOOD, {"dtype": "int4"}, "dtype int4"),
    case("a list of dtypes", GOOD, {"dtype": ["float32"]}, "dtype .'float32'."),
    case("an end in words", GOOD, {"eos_token_id": "</s>"}, "eos_token_id is </s>"),
    case("a negative end", GOOD, {"eos_token_id": [2, -1]}, "eos_token_id is"),
    case("rope text", GOOD, {"rope_scaling": "yarn"}, "rope_scaling is yarn; it"),
    case("yarn", GOOD, {"rope_scaling": {"type": "yarn"}}, "rope type yarn"),
    case("dynamic", GOOD, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "type dynamic"),
    case("no factor", GOOD, {"rope_scaling": {"type": "linear"}}, "rope factor is None"),
    case("minus", GOOD, {"rope_scaling": {"type": "linear", "factor": -1}}, "factor is -1"),
    case(
        "three ropes in one",
        GOOD,
        {"rope_scaling": {"rope_type": "default", "mrope_section": [1]}},
        r"rope mrope_section \[1\] is not supported",
    ),
    case(
        "a quarter turns",
        GOOD,
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
        "rope partial_rotary_factor 0.25",
    ),
    case(
        "no room between the frequencies",
        GOOD,
        {"rope_parameters": {**LLAMA3_ROPE, "high_freq_factor": 1.0}},
        "low_freq_factor 1.0 must be below high_freq_factor 1.0",
    ),
    case("no theta", GOOD, {"rope_theta": 0}, "rope_theta is 0"),
    case("a type", GOOD, {"layer_types": ["full_attention"]}, "must name 2 layers"),
    case("a mamba layer", GOOD, {"layer_types": ["mamba"] * 2}, "layer_types mamba is not"),
    case(
        "a sliding layer without a window",
        GOOD,
        {"layer_types": ["full_attention", "sliding_attention"]},
        "sliding_window is null or not used",
    ),
    case("a window of none", MISTRAL, {"sliding_window": 0}, "sliding_window is 0"),
    case(
        "Mistral with layers of two kinds",
        MISTRAL,
        {"layer_types": ["full_attention", "sliding_attention"]},
        "do not go with sliding_window 4096",
    ),
    case("Mistral biases", MISTRAL, {"attention_bias": True}, "attention_bias True"),
    case("minus layers", QWEN, {"max_window_layers": -1}, "max_window_layers is -1"),
    case(
        "Qwen2 whose window is switched off",
        QWEN,
        {"layer_types": ["sliding_attention"] * 2, "sliding_window": 8},
        "is null or not used",
    ),
    case("soft scores", GEMMA, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0"),
    case("soft logits", GEMMA, {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    case("both ways", GEMMA, {"use_bidirectional_attention": True}, "use_bidirectional"),
    case("exact", GEMMA, {"hidden_activation": "gelu"}, "hidden_activation gelu"),
    case("flat", GEMMA, {"rope_parameters": LLAMA3_ROPE}, "rope_parameters rope_type llama3"),
    case("by 0", GEMMA, {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
    case("no local window", GEMMA, {"sliding_window": None}, "is null or not used"),
)
def test_refused_configurations(
    config: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    num_kv_heads = {} if "num_key_value_heads" in config else {"num_key_value_heads": 2}
    parse_spec({**config, **num_kv_heads}, {})  # the rest is in order
    with pytest.raises(UnsupportedModelError, match=message):
        parse_spec({**config, **num_kv_heads, **fields}, {})


def test_harmless_fields_are_passed_over() -> None:
    harmless = {
        "_name_or_path": "somewhere",
        "transformers.js_config": {"a": 1},
        "unsloth_fixed": True,
        "pretraining_tp": 4,
        "attention_dropout": 0.1,
        "id2label": {"0": "a"},
        "rope_interleaved": False,
        "quantization_config": None,
        "pruned_heads": {},
        "logits_scaling": None,
    }
    assert parse_spec({**GOOD, **harmless}, {}) == parse_spec(GOOD, {})


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(UnsupportedModelError) as raised:
        parse_spec({**GOOD, "surprise": "x" * 10_000}, {})
    assert len(str(raised.value)) < 200


def test_end_tokens_come_from_the_generation_config_first() -> None:
    assert parse_spec({**GOOD, "eos_token_id": 2}, {}).eos_token_ids == (2,)
    assert parse_spec({**GOOD, "eos_token_id": 2}, {"eos_token_id": [7, 9]}).eos_token_ids == (7, 9)
    assert parse_spec(GOOD, {}).eos_token_ids == ()


def test_the_registry_knows_each_architecture_by_both_names() -> None:
    for name, architecture in ARCHITECTURES.items():
        config = {**GOOD, "num_key_value_heads": 2}
        by_name = parse_spec({**config, "architectures": [name]}, {})
        by_type = parse_spec({**config, "model_type": architecture.model_type}, {})
        assert by_name == by_type
        assert by_name.architecture == name
