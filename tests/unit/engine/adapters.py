"""Adapters for tests: readers of tiny models, adapters by PEFT, and updates read from a pool."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.unit.engine.oracle import reference_model

from hostelry.engine.kernels.batch import AdapterIndex, Int64, WideRows
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.lora.config import BaseIdentity
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.targets import TargetModules, decoder_targets
from hostelry.engine.models.registry import load_spec

Tensors = dict[str, torch.Tensor]

PAGE = PoolLayout(num_layers=3, num_kv_heads=2, head_dim=16, page_tokens=4, dtype=torch.float32)


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
    """An adapter that PEFT has made and saved. All its weights are random."""
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT warns about ties and about transformers
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
    """The adapter in a separate pool, in scattered pages."""
    numbers = [2 * page + 1 for page in reversed(range(adapter.layout.num_pages))]
    pool = PoolTensor(PAGE, max(numbers) + 1, torch.device("cpu"))
    pool.elements.fill_(float("nan"))
    adapter.write(pool, numbers)
    return pool, adapter.index(numbers)


def rows_at(pool: PoolTensor, offsets: Int64, width: int) -> torch.Tensor:
    return pool.elements[torch.from_numpy(offsets)[:, None] + torch.arange(width)]


def add_updates(model: Any, targets: TargetModules, index: AdapterIndex, pool: PoolTensor) -> None:
    """Add the adapters' updates, found by the index, to the result of every module."""

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


def rewrite(folder: Path, damage: Callable[[Tensors], None]) -> Path:
    """The adapter's folder, with tensors changed by `damage`."""
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    damage(tensors)
    save_file(tensors, path)
    return folder


def check_refused(
    model_folder: Path, folder: Path, message: str, dtype: torch.dtype = torch.float32, **rules: Any
) -> None:
    """Assert that reading the adapter raises AdapterError with a matching message."""
    with pytest.raises(AdapterError, match=message):
        reader_of(model_folder, dtype, **rules).read(folder)
