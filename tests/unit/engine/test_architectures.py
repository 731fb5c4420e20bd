"""Every architecture against transformers, and configurations that are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
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


@pytest.mark.parametrize(
    ("writer", "overrides"),
    [
        pytest.param(tiny_llama, {}, id="Llama with grouped queries and tied embeddings"),
        pytest.param(tiny_llama, UNTIED, id="Llama with its own output projection"),
        pytest.param(tiny_llama, {"num_key_value_heads": 1}, id="Llama with one key-value head"),
        pytest.param(tiny_llama, {"num_key_value_heads": 4}, id="Llama without groups"),
        pytest.param(tiny_llama, {"head_dim": 24}, id="Llama with a head dimension of its own"),
        pytest.param(tiny_llama, {"attention_bias": True}, id="Llama with attention biases"),
        pytest.param(tiny_llama, {"mlp_bias": True}, id="Llama with mlp biases"),
        pytest.param(tiny_llama, {"rms_norm_eps": 0.1}, id="Llama with a large epsilon"),
        pytest.param(tiny_llama, {"rope_parameters": LLAMA3_ROPE}, id="Llama with llama3 rope"),
        pytest.param(tiny_llama, {"rope_parameters": LINEAR_ROPE}, id="Llama with linear rope"),
        pytest.param(tiny_mistral, {}, id="Mistral with a window shorter than the prompt"),
        pytest.param(tiny_mistral, {"sliding_window": 1}, id="Mistral that sees itself only"),
        pytest.param(tiny_mistral, {"sliding_window": None}, id="Mistral without a window"),
        pytest.param(tiny_mistral, {"sliding_window": 4096, **UNTIED}, id="Mistral, a wide window"),
        pytest.param(tiny_mistral, {"head_dim": 24}, id="Mistral with a head dimension"),
        pytest.param(tiny_qwen2, {}, id="Qwen2"),
        pytest.param(tiny_qwen2, UNTIED, id="Qwen2 with its own output projection"),
        pytest.param(tiny_qwen2, SLIDING, id="Qwen2 whose second layer slides"),
        pytest.param(tiny_qwen3, {}, id="Qwen3"),
        pytest.param(tiny_qwen3, {"attention_bias": True, **UNTIED}, id="Qwen3 with biases"),
        pytest.param(tiny_qwen3, SLIDING, id="Qwen3 whose second layer slides"),
        pytest.param(tiny_gemma3, {}, id="Gemma 3"),
        pytest.param(
            tiny_gemma3, {"layer_types": None, "num_hidden_layers": 7}, id="Gemma 3, one in six"
        ),
        pytest.param(tiny_gemma3, {"attention_bias": True}, id="Gemma 3 with biases"),
        pytest.param(tiny_gemma3, UNTIED, id="Gemma 3 with its own output projection"),
        pytest.param(
            tiny_gemma3,
            {
                "rope_parameters": {
                    "full_attention": LINEAR_ROPE,
                    "sliding_attention": {"rope_type": "default", "rope_theta": 77.0},
                }
            },
            id="Gemma 3 with ropes of its own",
        ),
    ],
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
    for chunk in (64, 7):  # whole prompts in a step; chunks that straddle pages, then single rows
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
    """As the files of google/gemma-3 are written, and what transformers makes of them."""
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


@pytest.mark.parametrize(
    ("writer", "fields"),
    [
        pytest.param(
            tiny_mistral, {"num_key_value_heads": 8, "num_attention_heads": 8}, id="Mistral"
        ),
        pytest.param(tiny_qwen2, {"num_key_value_heads": 4}, id="Qwen2"),
        pytest.param(tiny_qwen3, {"head_dim": 128}, id="Qwen3"),
        pytest.param(tiny_gemma3, {"head_dim": 256, "num_key_value_heads": 4}, id="Gemma 3"),
        pytest.param(tiny_llama, {"num_key_value_heads": 4}, id="Llama"),
    ],
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


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        pytest.param(GOOD, {"architectures": ["MambaForCausalLM"]}, "MambaForC", id="architecture"),
        pytest.param(GOOD, {"model_type": "mamba"}, "mamba is not supported", id="model type"),
        pytest.param(GOOD, {"model_type": None}, "None is not supported", id="no model type"),
        pytest.param(GOOD, {"architectures": [{}]}, "{} is not supported", id="no name"),
        pytest.param(
            GOOD,
            {"architectures": ["Gemma3ForConditionalGeneration"]},
            "Gemma3ForConditionalGeneration is not supported",
            id="a model that sees",
        ),
        pytest.param(GOOD, {"hidden_act": "relu"}, "hidden_act relu is not", id="activation"),
        pytest.param(GOOD, {"hidden_act": ["silu"]}, "hidden_act .'silu'. is", id="a list"),
        pytest.param(GOOD, {"quantization_config": {"quant_method": "gptq"}}, "gptq", id="gptq"),
        pytest.param(GOOD, {"logits_scaling": 8.0}, "logits_scaling 8.0 is not", id="Granite"),
        pytest.param(GOOD, {"embedding_multiplier": 12}, "embedding_multiplier 12", id="scaled"),
        pytest.param(GOOD, {"num_local_experts": 8}, "num_local_experts 8", id="experts"),
        pytest.param(GOOD, {"partial_rotary_factor": 0.5}, "partial_rotary_factor", id="partial"),
        pytest.param(GOOD, {"rope_interleaved": True}, "rope_interleaved True", id="interleaved"),
        pytest.param(GOOD, {"auto_map": {"A": "b.C"}}, "auto_map", id="code of its own"),
        pytest.param(GOOD, {"sliding_window": 9}, "sliding_window 9", id="a Llama with a window"),
        pytest.param(GOOD, {"vocab_size": None}, "vocab_size is None", id="no vocabulary size"),
        pytest.param(GOOD, {"hidden_size": -3}, "hidden_size is -3", id="a negative size"),
        pytest.param(GOOD, {"hidden_size": True}, "hidden_size is True", id="a size of true"),
        pytest.param(GOOD, {"hidden_size": "64"}, "hidden_size is 64; it must", id="text"),
        pytest.param(GOOD, {"hidden_size": 15}, "15 is no multiple of num_att", id="uneven heads"),
        pytest.param(GOOD, {"head_dim": 5}, "head_dim 5 is odd", id="odd heads"),
        pytest.param(GOOD, {"head_dim": "8"}, "head_dim is 8; it must", id="heads of text"),
        pytest.param(GOOD, {"num_key_value_heads": 3}, "no multiple of", id="uneven groups"),
        pytest.param(GOOD, {"num_hidden_layers": 10**6}, "at most 1000", id="a million layers"),
        pytest.param(GOOD, {"vocab_size": 10**12}, "at most 16777216", id="a huge vocabulary"),
        pytest.param(GOOD, {"rms_norm_eps": 0}, "rms_norm_eps is 0", id="no epsilon"),
        pytest.param(GOOD, {"rms_norm_eps": float("nan")}, "rms_norm_eps is nan", id="nan"),
        pytest.param(GOOD, {"attention_bias": "no"}, "attention_bias is no", id="a worded flag"),
        pytest.param(GOOD, {"dtype": "int4"}, "dtype int4", id="an unknown dtype"),
        pytest.param(GOOD, {"dtype": ["float32"]}, "dtype .'float32'.", id="a list of dtypes"),
        pytest.param(GOOD, {"eos_token_id": "</s>"}, "eos_token_id is </s>", id="an end in words"),
        pytest.param(GOOD, {"eos_token_id": [2, -1]}, "eos_token_id is", id="a negative end"),
        pytest.param(GOOD, {"rope_scaling": "yarn"}, "rope_scaling is yarn; it", id="rope text"),
        pytest.param(GOOD, {"rope_scaling": {"type": "yarn"}}, "rope type yarn", id="yarn"),
        pytest.param(
            GOOD, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "type dynamic", id="dynamic"
        ),
        pytest.param(
            GOOD, {"rope_scaling": {"type": "linear"}}, "rope factor is None", id="no factor"
        ),
        pytest.param(
            GOOD, {"rope_scaling": {"type": "linear", "factor": -1}}, "factor is -1", id="minus"
        ),
        pytest.param(
            GOOD,
            {"rope_scaling": {"rope_type": "default", "mrope_section": [1]}},
            r"rope mrope_section \[1\] is not supported",
            id="three ropes in one",
        ),
        pytest.param(
            GOOD,
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
            "rope partial_rotary_factor 0.25",
            id="a quarter turns",
        ),
        pytest.param(
            GOOD,
            {"rope_parameters": {**LLAMA3_ROPE, "high_freq_factor": 1.0}},
            "low_freq_factor 1.0 must be below high_freq_factor 1.0",
            id="no room between the frequencies",
        ),
        pytest.param(GOOD, {"rope_theta": 0}, "rope_theta is 0", id="no theta"),
        pytest.param(GOOD, {"layer_types": ["full_attention"]}, "must name 2 layers", id="a type"),
        pytest.param(
            GOOD, {"layer_types": ["mamba"] * 2}, "layer_types mamba is not", id="a mamba layer"
        ),
        pytest.param(
            GOOD,
            {"layer_types": ["full_attention", "sliding_attention"]},
            "sliding_window is null or not used",
            id="a sliding layer without a window",
        ),
        pytest.param(MISTRAL, {"sliding_window": 0}, "sliding_window is 0", id="a window of none"),
        pytest.param(
            MISTRAL,
            {"layer_types": ["full_attention", "sliding_attention"]},
            "do not go with sliding_window 4096",
            id="Mistral with layers of two kinds",
        ),
        pytest.param(MISTRAL, {"attention_bias": True}, "attention_bias True", id="Mistral biases"),
        pytest.param(QWEN, {"max_window_layers": -1}, "max_window_layers is -1", id="minus layers"),
        pytest.param(
            QWEN,
            {"layer_types": ["sliding_attention"] * 2, "sliding_window": 8},
            "is null or not used",
            id="Qwen2 whose window is switched off",
        ),
        pytest.param(
            GEMMA, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0", id="soft scores"
        ),
        pytest.param(
            GEMMA, {"final_logit_softcapping": 30.0}, "final_logit_softcapping", id="soft logits"
        ),
        pytest.param(
            GEMMA, {"use_bidirectional_attention": True}, "use_bidirectional", id="both ways"
        ),
        pytest.param(GEMMA, {"hidden_activation": "gelu"}, "hidden_activation gelu", id="exact"),
        pytest.param(
            GEMMA, {"rope_parameters": LLAMA3_ROPE}, "rope_parameters rope_type llama3", id="flat"
        ),
        pytest.param(GEMMA, {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0", id="by 0"),
        pytest.param(GEMMA, {"sliding_window": None}, "is null or not used", id="no local window"),
    ],
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
