"""Adapters good and bad: PEFT's logits through the pages they lie in, or a refusal with its reason.

The logits are those of transformers with the updates added from the pool, where a step finds them.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.models import ALL_TARGETS, tiny_llama
from tests.unit.engine.oracle import PROMPTS, reference_logits, reference_model

from hostelry.engine.kernels.batch import AdapterIndex, Int64, WideRows
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.lora.base_identity import BaseIdentity
from hostelry.engine.lora.host_adapter import HostAdapter
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.targets import Targets, decoder_targets
from hostelry.engine.models.spec import load_spec

PAGE = PoolLayout(num_layers=3, num_kv_heads=2, head_dim=16, page_tokens=4, dtype=torch.float32)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tied"), num_hidden_layers=3)


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untied")
    return tiny_llama(folder, num_hidden_layers=3, tie_word_embeddings=False)


def base_weights(folder: Path) -> Callable[[str], torch.Tensor]:
    """The base's embedding and lm_head by path."""
    tensors = load_file(folder / "model.safetensors")
    embedding = tensors["model.embed_tokens.weight"]
    return lambda path: tensors.get(f"{path}.weight", embedding)


def reader_of(
    model_folder: Path,
    dtype: torch.dtype = torch.float32,
    identity: BaseIdentity | None = None,
    **rules: Any,
) -> AdapterReader:
    base = BaseModel(
        targets=decoder_targets(load_spec(model_folder)),
        identity=identity or BaseIdentity(),
        vocabulary=base_weights(model_folder),
    )
    form = PageForm(page_elements=PAGE.page_elements, dtype=dtype)
    return AdapterReader(base, AdapterRules(**rules), form)


def peft_adapter(folder: Path, model_folder: Path, **fields: Any) -> Path:
    """An adapter that PEFT itself made and saved, every weight random."""
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PEFT about ties, and about transformers
        model = get_peft_model(
            reference_model(model_folder),
            LoraConfig(**{"task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 12, **fields}),
        )
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
        model.save_pretrained(str(folder))
    return folder


def in_pool(adapter: HostAdapter) -> tuple[PoolTensor, AdapterIndex]:
    """The adapter in a pool of its own, in scattered pages."""
    numbers = [2 * page + 1 for page in reversed(range(adapter.layout.num_pages))]
    pool = PoolTensor(PAGE, max(numbers) + 1, torch.device("cpu"))
    pool.elements.fill_(float("nan"))
    adapter.write(pool, numbers)
    return pool, adapter.index(numbers)


def rows_at(pool: PoolTensor, offsets: Int64, width: int) -> torch.Tensor:
    return pool.elements[torch.from_numpy(offsets)[:, None] + torch.arange(width)]


def add_updates(model: Any, targets: Targets, index: AdapterIndex, pool: PoolTensor) -> None:
    """Add what the index says to every module's result."""

    def linear(number: int) -> Callable[[Any, tuple[torch.Tensor], torch.Tensor], torch.Tensor]:
        target = targets.linears[number]
        first = index.firsts_M[number]
        rows = slice(first, first + index.ranks_M[number])
        down_RI = rows_at(pool, index.down_offsets_R[rows], target.in_features)
        up_RO = rows_at(pool, index.up_offsets_R[rows], target.out_features)
        scale = float(index.scales_M[number])
        return lambda _, inputs, y: y + scale * (inputs[0] @ down_RI.T @ up_RO)

    for number, target in enumerate(targets.linears):
        if index.ranks_M[number]:
            model.get_submodule(target.path).register_forward_hook(linear(number))

    def wide(rows: WideRows) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = targets.lm_head.in_features
        return (
            rows_at(pool, rows.vocab_offsets_V, rows.rank),
            rows_at(pool, rows.hidden_offsets_R, hidden) * rows.scale,
        )

    if index.embedding is not None:
        vocab_VR, hidden_RH = wide(index.embedding)
        model.get_submodule(targets.embedding.path).register_forward_hook(
            lambda _, inputs, y: y + vocab_VR[inputs[0]] @ hidden_RH
        )
    if index.lm_head is not None:
        head_VR, head_RH = wide(index.lm_head)
        model.lm_head.register_forward_hook(
            lambda _, inputs, y: y + inputs[0] @ head_RH.T @ head_VR.T
        )


def check_against_peft(model_folder: Path, folder: Path) -> HostAdapter:
    """Logits equal PEFT's, and differ from the base model's."""
    adapter = reader_of(model_folder).read(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PEFT about ties
        peft = reference_model(model_folder, {"a": folder})
    base = reference_model(model_folder)
    ours = reference_model(model_folder)
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
