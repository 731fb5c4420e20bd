"""Bad adapters: refused, or a warning, with the field or tensor and the value."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cases import case, cases
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.adapters import (
    PAGE,
    Tensors,
    check_refused,
    peft_adapter,
    reader_of,
    rewrite,
)

from hostelry.engine.lora.config import BaseIdentity
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.targets import decoder_targets
from hostelry.engine.models.registry import load_spec


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tied"), num_hidden_layers=3)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        pytest.param("peft_type", "LOHA", "peft_type is 'LOHA'", id="another method"),
        pytest.param("peft_type", None, "peft_type is None", id="no method"),
        pytest.param("task_type", "SEQ_CLS", "task_type is 'SEQ_CLS'", id="a classifier"),
        pytest.param("bias", "all", "bias is 'all'", id="trained biases"),
        pytest.param("use_dora", True, "use_dora is True", id="DoRA"),
        pytest.param("use_qalora", True, "use_qalora is True", id="QA-LoRA"),
        pytest.param("use_bdlora", {"a": 1}, "use_bdlora is", id="BD-LoRA"),
        pytest.param("lora_bias", True, "lora_bias is True", id="a bias of B"),
        pytest.param(
            "modules_to_save", ["lm_head"], "modules_to_save names 'lm_head'", id="whole modules"
        ),
        pytest.param("modules_to_save", "lm_head", "must be a pattern or", id="no list of modules"),
        pytest.param(
            "modules_to_save", ["q_proj"], "modules_to_save names 'q_proj'", id="saved and targeted"
        ),
        pytest.param("layer_replication", [[0, 2]], "layer_replication is", id="replicated layers"),
        pytest.param(
            "trainable_token_indices", [1], "trainable_token_indices is", id="trained tokens"
        ),
        pytest.param("target_parameters", ["a"], "target_parameters is", id="bare parameters"),
        pytest.param(
            "alora_invocation_tokens", [5], "alora_invocation_tokens is", id="activated LoRA"
        ),
        pytest.param("arrow_config", {"k": 1}, "arrow_config is", id="arrow routing"),
        pytest.param("velora_config", {"k": 1}, "velora_config is", id="velora"),
        pytest.param("kasa_config", {"k": 1}, "kasa_config is", id="kasa"),
        pytest.param("monteclora_config", {"k": 1}, "monteclora_config is", id="monteclora"),
        pytest.param("megatron_config", {"k": 1}, "megatron_config is", id="megatron"),
        pytest.param(
            "use_future", "yes", "use_future is 'yes'; this field is unknown", id="a later field"
        ),
        *(
            pytest.param("init_lora_weights", init, f"init_lora_weights is '{init}'", id=init)
            for init in ("pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga")
        ),
        pytest.param("r", 65, "r is 65 at .*; max_lora_rank is 64", id="a rank above the limit"),
        pytest.param("r", 0, "r is 0", id="rank 0"),
        pytest.param("r", "8", "r is '8'", id="a rank of text"),
        pytest.param("r", True, "r is True", id="a rank of truth"),
        pytest.param("r", 16, "has shape .*; r and the base", id="another rank than the weights'"),
        pytest.param("lora_alpha", "big", "lora_alpha is 'big'", id="an alpha of text"),
        pytest.param("lora_alpha", float("inf"), "lora_alpha is inf", id="an infinite alpha"),
        pytest.param("lora_alpha", 10**400, "lora_alpha is 1000", id="an alpha beyond every float"),
        pytest.param(
            "lora_alpha", float("nan"), "lora_alpha is nan", id="an alpha that is no number"
        ),
        pytest.param(
            "lora_alpha", 1e60, "the scale of .* 1.25e.59; that is no fp32", id="a scale too large"
        ),
        pytest.param("use_rslora", "no", "use_rslora is 'no'", id="a flag of text"),
        pytest.param("rank_pattern", [1], "rank_pattern is", id="a pattern table that is a list"),
        pytest.param(
            "rank_pattern", {"q_proj": 0}, r"rank_pattern\['q_proj'\] is 0", id="a pattern's rank 0"
        ),
        pytest.param(
            "rank_pattern", {"(q": 1}, "rank_pattern holds '\\(q'", id="a pattern cut short"
        ),
        pytest.param(
            "alpha_pattern", {"x": None}, r"alpha_pattern\['x'\] is None", id="an alpha of nothing"
        ),
        pytest.param("target_modules", None, "target_modules is empty", id="no targets"),
        pytest.param(
            "target_modules", [], "target_modules is empty", id="an empty list of targets"
        ),
        pytest.param("target_modules", 5, "target_modules is 5", id="targets that are a number"),
        pytest.param(
            "target_modules", ["nowhere"], "which names no module", id="targets not there"
        ),
        pytest.param("target_modules", "(", "no valid pattern", id="a target pattern cut short"),
        pytest.param("target_modules", "x" * 5000, "5000 characters", id="an endless pattern"),
        pytest.param(
            "target_modules",
            "(?:[a-z0-9._]?){40}!",
            "which names no module",
            id="a pattern that could match for hours",
        ),
        pytest.param(
            "target_modules",
            "(?:(?=.*(?=.*(?=.*(?=.*(?=.*(?=.*!)))))).)*",
            "takes more than 4000000 steps to match",
            id="a pattern that looks ahead of what it looks ahead of",
        ),
        pytest.param(
            "target_modules", "(?!a)(?i:q)", "subpattern, beside looking", id="flags in a group"
        ),
        pytest.param("target_modules", "(?i)(?!a)q", "flags, beside looking", id="flags of all"),
        pytest.param(
            "target_modules", "(?!a)(?>q+)", "atomic group, beside looking", id="no way back"
        ),
        pytest.param(
            "target_modules",
            "(?!a)" + "(" * 45 + ")" * 45,
            "more than 40 groups in groups",
            id="groups in groups beside looking around",
        ),
        pytest.param(
            "target_modules", r"(.)\1", "cannot be matched in linear time", id="a back reference"
        ),
        pytest.param(
            "exclude_modules",
            "[[:alpha:]]",
            "is not supported",
            id="a class to RE2 alone",
        ),
        pytest.param("target_modules", "a{,3}", "is not supported", id="a repeat to Python alone"),
        pytest.param(
            "target_modules", "(a{900}){900}", "in linear time", id="a pattern that unfolds"
        ),
        pytest.param(
            "rank_pattern", {"(?i)q": 1}, "no valid pattern", id="flags that PEFT's form forbids"
        ),
        pytest.param(
            "rank_pattern",
            {f"{number}a{{900}}": 1 for number in range(400)},
            "instructions; at most 200000",
            id="patterns that are large together",
        ),
        pytest.param("lora_alpha", 10**400, "it must be a number", id="an alpha beyond all floats"),
        pytest.param("r", 10**400, "max_lora_rank is 64", id="a rank beyond all floats"),
        pytest.param("layers_to_transform", [0] * 10_001, "10001 entries", id="too many layers"),
        pytest.param(
            "target_modules", ["q_proj"], "which no targeted module uses", id="tensors left over"
        ),
        pytest.param(
            "exclude_modules", ["q_proj"], "which no targeted module uses", id="excluded weights"
        ),
        pytest.param(
            "layers_pattern", "layers", "without layers_to_transform", id="a lone pattern"
        ),
        pytest.param("layers_to_transform", ["a"], "layers_to_transform is", id="layers of text"),
        pytest.param("ensure_weight_tying", 1, "ensure_weight_tying is 1", id="a flag of a number"),
        pytest.param(
            "base_model_name_or_path", 3, "base_model_name_or_path is 3", id="a base of a number"
        ),
        pytest.param(
            "target_modules",
            ["q_proj"] * 10_001,
            "target_modules has 10001 entries",
            id="too many names",
        ),
        pytest.param(
            "rank_pattern",
            {f"x{number}": 1 for number in range(2001)},
            "rank_pattern has 2001 entries",
            id="too many patterns",
        ),
    ],
)
def test_refused_fields(
    field: str, value: object, message: str, tied: Path, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {field: value}
    check_refused(tied, random_adapter(tmp_path, tied, 8, **fields), message)


def test_missing_modules_that_peft_starts_at_random_are_refused(tied: Path, tmp_path: Path) -> None:
    for value in (False, None):
        folder = random_adapter(tmp_path / f"{value}", tied, 8, init_lora_weights=value)
        check_refused(tied, rewrite(folder, without_any), "there are no tensors of model.layers.1.")


def test_layers_with_a_pattern_are_refused_as_by_peft(tied: Path, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"target_modules": ".*q_proj", "layers_to_transform": [0]}
    folder = random_adapter(tmp_path, tied, 8, **fields)
    check_refused(tied, folder, "layers_to_transform needs target_modules to be a list")


Q_DOWN = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"
Q_UP = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"


def without(tensors: Tensors) -> None:
    del tensors[Q_UP]


def without_any(tensors: Tensors) -> None:
    del tensors[Q_UP], tensors[Q_DOWN]


def extra(tensors: Tensors) -> None:
    tensors["base_model.model.model.norm.weight"] = torch.zeros(2)


def transposed(tensors: Tensors) -> None:
    tensors[Q_UP] = tensors[Q_UP].T.contiguous()


def flat(tensors: Tensors) -> None:
    tensors[Q_UP] = tensors[Q_UP].flatten()


def nan(tensors: Tensors) -> None:
    tensors[Q_UP][3, 3] = float("nan")


def infinite(tensors: Tensors) -> None:
    tensors[Q_DOWN][3, 3] = float("-inf")


def integers(tensors: Tensors) -> None:
    tensors[Q_UP] = tensors[Q_UP].to(torch.int32)


def eighths(tensors: Tensors) -> None:
    tensors[Q_UP] = tensors[Q_UP].to(torch.float8_e4m3fn)


def huge(tensors: Tensors) -> None:
    tensors[Q_UP][3, 3] = 1e38


def zeros(tensors: Tensors) -> None:
    for name in tensors:
        if "lora_B" in name:
            tensors[name] = torch.zeros_like(tensors[name])


def zeros_in_turn(tensors: Tensors) -> None:
    for number, name in enumerate(sorted(tensors)):  # A of one module, B of the next
        if (number // 2) % 2 == number % 2:
            tensors[name] = torch.zeros_like(tensors[name])


def other_prefix(tensors: Tensors) -> None:
    for name in list(tensors):
        tensors["language_model." + name] = tensors.pop(name)


def other_lm_head(tensors: Tensors) -> None:
    tensors["base_model.model.lm_head.base_layer.weight"] = torch.ones(199, 64)


def wider_embedding(tensors: Tensors) -> None:
    tensors["base_model.model.model.embed_tokens.weight"] = torch.ones(203, 64)


@cases(
    "damage, message",
    case("a missing tensor", without, "q_proj.lora_B.weight is missing"),
    case("an unused tensor", extra, "norm.weight, which no targeted module"),
    case("a transposed tensor", transposed, r"has shape \(8, 64\)"),
    case("a tensor without rows", flat, r"has shape \(512,\)"),
    case("not a number", nan, "q_proj.lora_B.weight holds nan or inf"),
    case("infinity", infinite, "q_proj.lora_A.weight holds nan or inf"),
    case("integers", integers, "has dtype I32; it must be a float"),
    case("floats of one byte", eighths, "has dtype F8_E4M3; it must be a float"),
    case("no effect at all", zeros, "has no effect"),
    case("A or B zero everywhere", zeros_in_turn, "has no effect"),
    case("names of another wrapper", other_prefix, "is missing"),
    case(
        "another output projection",
        other_lm_head,
        "lm_head.base_layer.weight is not the base model's",
    ),
    case("added tokens", wider_embedding, "embed_tokens.weight is not the base model's"),
)
def test_refused_tensors(
    damage: Callable[[Tensors], None], message: str, tied: Path, tmp_path: Path
) -> None:
    check_refused(tied, rewrite(random_adapter(tmp_path, tied, 8), damage), message)


def test_a_number_too_large_for_the_models_dtype(tied: Path, tmp_path: Path) -> None:
    folder = rewrite(random_adapter(tmp_path, tied, 8), huge)
    assert reader_of(tied).read(folder).warnings == ()
    assert reader_of(tied, torch.bfloat16).read(folder).layout.num_pages
    check_refused(
        tied, folder, "lora_B.weight holds 1e.38, too large for torch.float16", torch.float16
    )


def test_rounding_is_a_warning(tied: Path, tmp_path: Path) -> None:
    rounded = random_adapter(tmp_path / "rounded", tied, 8)
    (warning,) = reader_of(tied, torch.bfloat16).read(rounded).warnings
    assert "rounded from float32 to bfloat16" in warning
    exact = random_adapter(tmp_path / "exact", tied, 8, dtype="bfloat16")
    rewrite(exact, lambda tensors: tensors.update({k: v.float() for k, v in tensors.items()}))
    assert reader_of(tied, torch.bfloat16).read(exact).warnings == ()


def test_copies_of_the_base_are_refused_where_the_base_is_not_at_hand(
    tied: Path, tmp_path: Path
) -> None:
    folder = peft_adapter(tmp_path, tied, target_modules=["lm_head"])
    base = BaseModel(targets=decoder_targets(load_spec(tied)))
    form = PageForm(page_elements=PAGE.page_elements, dtype=torch.float32)
    with pytest.raises(AdapterError, match=r"lm_head.base_layer.weight is not the base model's"):
        AdapterReader(base, AdapterRules(), form).read(folder)


def test_copies_of_the_base_are_compared_as_they_are_computed_with(
    tied: Path, tmp_path: Path
) -> None:
    folder = peft_adapter(tmp_path, tied, target_modules=["lm_head"])
    name = "base_model.model.lm_head.base_layer.weight"
    rewrite(folder, lambda tensors: tensors.update({name: tensors[name].bfloat16()}))
    check_refused(tied, folder, "lm_head.base_layer.weight is not the base model's")
    assert reader_of(tied, torch.bfloat16).read(folder).layout.num_pages


def test_ties_that_peft_would_break_are_refused(tied: Path, tmp_path: Path) -> None:
    folder = peft_adapter(
        tmp_path, tied, target_modules=["lm_head", "q_proj"], ensure_weight_tying=True
    )
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))

    def configured(**fields: Any) -> None:
        text = json.dumps({**config, **fields})
        (folder / "adapter_config.json").write_text(text, encoding="utf-8")

    configured(rank_pattern={"lm_head": 4})
    check_refused(
        tied, folder, "r is 8 at model.embed_tokens and 4 at lm_head; ensure_weight_tying"
    )
    configured(exclude_modules=["embed_tokens"])
    check_refused(tied, folder, "exclude_modules includes model.embed_tokens")
    configured()
    name = "base_model.model.lm_head.lora_A.weight"
    rewrite(folder, lambda tensors: tensors.update({name: tensors[name] + 1}))
    check_refused(tied, folder, "lm_head.lora_A.weight differs from that of model.embed_tokens")


def test_an_adapter_without_effect_is_allowed_if_asked_for(tied: Path, tmp_path: Path) -> None:
    folder = random_adapter(tmp_path, tied, 8, std=0.0)
    check_refused(tied, folder, "has no effect")
    adapter = reader_of(tied, allow_zero_effect=True).read(folder)
    assert not adapter.image.elements.any()


def test_a_scale_of_zero_has_no_effect(tied: Path, tmp_path: Path) -> None:
    check_refused(tied, random_adapter(tmp_path / "0", tied, 8, lora_alpha=0), "has no effect")
    check_refused(
        tied, random_adapter(tmp_path / "tiny", tied, 8, lora_alpha=1e-60), "has no effect"
    )


def test_the_rank_limit_is_that_of_the_rules(tied: Path, tmp_path: Path) -> None:
    folder = random_adapter(tmp_path, tied, 16)
    assert reader_of(tied, max_rank=16).read(folder).summary.rank == 16
    check_refused(tied, folder, "r is 16 at model.layers.0.*; max_lora_rank is 15", max_rank=15)


BASE = BaseIdentity(names=("org/Tiny-Llama", "/models/tiny"), revision="v1")


@cases(
    "fields, warned, strict",
    case("the same", {"base_model_name_or_path": "org/Tiny-Llama"}, "", ""),
    case("the folder", {"base_model_name_or_path": "/models/tiny"}, "", ""),
    case(
        "the same under another roof",
        {"base_model_name_or_path": "/home/me/tiny-llama/"},
        "",
        "is '/home/me/tiny-llama/'; this base model is 'org/Tiny-Llama' or '/models/tiny'",
    ),
    case("no base named", {}, "", "base_model_name_or_path is None"),
    case(
        "another",
        {"base_model_name_or_path": "org/other"},
        "is 'org/other'; this base model is 'org/Tiny-Llama' or '/models/tiny'",
        "is 'org/other'",
    ),
    case(
        "another revision",
        {"base_model_name_or_path": "org/Tiny-Llama", "revision": "v2"},
        "revision is 'v2'; this base model's is 'v1'",
        "revision is 'v2'",
    ),
)
def test_another_base_is_a_warning_or_where_asked_for_a_refusal(
    fields: dict[str, Any], warned: str, strict: str, tied: Path, tmp_path: Path
) -> None:
    folder = random_adapter(tmp_path, tied, 4, **fields)
    warnings = reader_of(tied, identity=BASE).read(folder).warnings
    assert warned in " ".join(warnings)
    assert bool(warnings) == bool(warned)
    if strict:
        with pytest.raises(AdapterError, match=strict):
            reader_of(tied, identity=BASE, strict_base=True).read(folder)
    else:
        assert reader_of(tied, identity=BASE, strict_base=True).read(folder).warnings == ()


def test_a_base_of_unknown_name_warns_of_nothing(tied: Path, tmp_path: Path) -> None:
    folder = random_adapter(tmp_path, tied, 4, base_model_name_or_path="org/other")
    assert reader_of(tied).read(folder).warnings == ()
