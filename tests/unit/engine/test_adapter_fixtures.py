"""Valid adapters give PEFT's logits through their pages in the pool.

The logits come from transformers. Updates are added from the pool, where a step finds them.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cases import case, cases
from tests.models import ALL_TARGETS, random_adapter, tiny_llama
from tests.unit.engine.adapters import (
    Tensors,
    add_updates,
    base_weights,
    in_pool,
    peft_adapter,
    reader_of,
    rewrite,
)
from tests.unit.engine.oracle import PROMPTS, reference_logits, reference_model

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.targets import decoder_targets
from hostelry.engine.models.registry import load_spec


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tied"), num_hidden_layers=3)


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untied")
    return tiny_llama(folder, num_hidden_layers=3, tie_word_embeddings=False)


def check_against_peft(model_folder: Path, folder: Path) -> HostAdapter:
    """Logits equal PEFT's, and differ from the base model's."""
    adapter = reader_of(model_folder).read(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PEFT about ties
        peft = reference_model(model_folder, {"a": folder})
    base, ours = reference_model(model_folder), reference_model(model_folder)
    pool, index = in_pool(adapter)
    add_updates(ours, decoder_targets(load_spec(model_folder)), index, pool)
    largest_effect = 0.0
    for prompt in PROMPTS[:3]:
        expected = reference_logits(peft, prompt, "a")
        torch.testing.assert_close(
            reference_logits(ours, prompt, None), expected, rtol=1e-4, atol=1e-4
        )
        effect = (expected - reference_logits(base, prompt, None)).abs().max()
        largest_effect = max(largest_effect, float(effect))
    assert largest_effect > 1e-2
    return adapter


LINEAR = [
    pytest.param({"target_modules": list(ALL_TARGETS)}, id="all seven targets"),
    pytest.param({"target_modules": ["k_proj", "up_proj"], "r": 3}, id="an odd rank"),
    pytest.param({"target_modules": "all-linear", "r": 64}, id="all-linear, as high as allowed"),
    pytest.param(
        {"target_modules": r".*\.(1|2)\..*(q|down)_proj"}, id="a pattern of the whole path"
    ),
    pytest.param(
        {
            "target_modules": list(ALL_TARGETS),
            "rank_pattern": {"q_proj": 4, r".*\.1\.mlp\.up_proj": 2, "up_proj": 16},
            "alpha_pattern": {"layers.0.self_attn.q_proj": 30, "down_proj": 1},
            "use_rslora": True,
        },
        id="ranks and alphas by pattern, rank-stabilised",
    ),
    pytest.param(
        {"target_modules": ["q_proj", "o_proj"], "layers_to_transform": [0, 2]}, id="some layers"
    ),
    pytest.param(
        {
            "target_modules": ["q_proj", "model.layers.1.mlp.up_proj"],
            "layers_to_transform": [0],
        },
        id="a module named in full although its layer is not among those asked for",
    ),
    pytest.param(
        {"target_modules": list(ALL_TARGETS), "exclude_modules": ["up_proj", "o_proj"]},
        id="excluded names",
    ),
]

VOCABULARY = [
    pytest.param({"target_modules": ["embed_tokens"]}, id="the embedding"),
    pytest.param({"target_modules": ["lm_head"]}, id="the output projection"),
    pytest.param(
        {"target_modules": ["embed_tokens", "lm_head", *ALL_TARGETS], "use_rslora": True},
        id="both, and all seven, rank-stabilised",
    ),
    pytest.param(
        {
            "target_modules": ["embed_tokens", "lm_head", "v_proj"],
            "rank_pattern": {"embed_tokens": 3, "lm_head": 5},
            "alpha_pattern": {"lm_head": 40},
        },
        id="both with ranks and alphas of their own",
    ),
    pytest.param({"target_modules": r"lm_head|.*embed_tokens|.*q_proj"}, id="both by a pattern"),
    pytest.param(
        {"target_modules": ["lm_head", "q_proj"], "layers_to_transform": [1]},
        id="lm_head named in full beside one layer",
    ),
    pytest.param(
        {"target_modules": ["embed_tokens", "q_proj"], "exclude_modules": ["embed_tokens"]},
        id="the embedding excluded",
    ),
    pytest.param(
        {"target_modules": ["lm_head", "q_proj"], "ensure_weight_tying": True},
        id="lm_head with weight tying",
    ),
    pytest.param(
        {"target_modules": ["embed_tokens"], "ensure_weight_tying": True},
        id="the embedding with weight tying",
    ),
    pytest.param(
        {
            "target_modules": r"lm_head|.*q_proj",
            "ensure_weight_tying": True,
            "alpha_pattern": {"lm_head": 40},
        },
        id="weight tying by a pattern, with an alpha of lm_head's own",
    ),
    pytest.param(
        {"target_modules": "all-linear", "ensure_weight_tying": True},
        id="weight tying with nothing to tie",
    ),
]


@pytest.mark.parametrize("fields", [*LINEAR, *VOCABULARY])
def test_logits_equal_peft_on_tied_embeddings(
    fields: dict[str, Any], tied: Path, tmp_path: Path
) -> None:
    check_against_peft(tied, peft_adapter(tmp_path, tied, **fields))


@pytest.mark.parametrize("fields", VOCABULARY)
def test_logits_equal_peft_on_an_lm_head_of_its_own(
    fields: dict[str, Any], untied: Path, tmp_path: Path
) -> None:
    check_against_peft(untied, peft_adapter(tmp_path, untied, **fields))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_float_types_are_applied_as_they_are(dtype: str, tied: Path, tmp_path: Path) -> None:
    adapter = check_against_peft(tied, random_adapter(tmp_path, tied, 8, dtype=dtype))
    assert adapter.warnings == ()


def test_weights_from_a_bin_file(tied: Path, tmp_path: Path) -> None:
    check_against_peft(tied, random_adapter(tmp_path, tied, 8, file="adapter_model.bin"))


@cases(
    "overrides",
    case("as many key-value heads as heads", {"num_key_value_heads": 4}),
    case("a head dimension of its own", {"head_dim": 32}),
    case("biases", {"attention_bias": True, "mlp_bias": True}),
)
def test_on_other_shapes_of_base(overrides: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "model", **overrides)
    check_against_peft(folder, random_adapter(tmp_path / "adapter", folder, 8))


def as_saved(_: Tensors) -> None:
    """Change nothing."""


def without_a_layer(tensors: Tensors) -> None:
    for name in [it for it in tensors if ".layers.1." in it]:
        del tensors[name]


@cases(
    "fields, change, warned",
    case("the fields of PEFT 0.2 for one targeted module",
        {"fan_in_fan_out": True, "merge_weights": True, "enable_lora": None}, as_saved,
        ["fan_in_fan_out is True", "merge_weights is True"]),
    case("one merged module", {"enable_lora": [True]}, as_saved, ["enable_lora is [True]"]),
    case("listed modules of the vocabulary without tensors",
        {"target_modules": ["q_proj", "v_proj", "lm_head", "embed_tokens"]}, as_saved,
        ["there are no tensors of model.embed_tokens and 1 more modules"]),
    case("a layer without tensors", {}, without_a_layer,
        ["no tensors of model.layers.1.self_attn.q_proj and 1 more"]),
    case("a pattern that looks ahead, as LLaMA-Factory writes it",
        {"target_modules": r"^(?!.*visual).*(?:q_proj|v_proj).*"}, as_saved, []),
    case("a pattern that looks ahead in its midst, as ms-swift writes it",
        {"target_modules": r"^(model(?=\.).*\.(q_proj|v_proj))$"}, as_saved, []),
    case("patterns that look behind", {
            "target_modules": r".*(?<!k)_proj",
            "exclude_modules": r".*(?<=mlp)\..*|.*o_proj",
            "rank_pattern": {r"(?!q).*_proj": 8},
        }, as_saved, []),
)  # fmt: skip
def test_logits_equal_peft_where_it_warns(
    fields: dict[str, Any],
    change: Callable[[Tensors], None],
    warned: list[str],
    tied: Path,
    tmp_path: Path,
) -> None:
    folder = rewrite(random_adapter(tmp_path, tied, 8, ("q_proj", "v_proj"), **fields), change)
    warnings = check_against_peft(tied, folder).warnings
    assert len(warnings) == len(warned)
    for part, warning in zip(warned, warnings, strict=True):
        assert part in warning


def test_logits_equal_peft_with_saved_modules_that_are_the_bases(
    untied: Path, tmp_path: Path
) -> None:
    saved = ["lm_head", "embed_tokens"]
    folder = peft_adapter(tmp_path, untied, target_modules=["q_proj"], modules_to_save=saved)
    assert check_against_peft(untied, folder).warnings == ()
    wide = base_weights(untied)("lm_head") + 1
    rewrite(folder, lambda tensors: tensors.update({"base_model.model.lm_head.weight": wide}))
    with pytest.raises(AdapterError, match=r"lm_head.weight is not the base model's"):
        reader_of(untied).read(folder)
