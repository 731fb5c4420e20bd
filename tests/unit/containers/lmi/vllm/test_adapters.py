"""Adapters for vLLM: exact in its form, or refused."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.cases import case, cases
from tests.models import random_adapter, tiny_llama

from hostelry.containers.lmi.vllm.adapters import (
    AdapterPreparer,
    base_files,
    base_linears,
    is_base_weight,
)
from hostelry.containers.lmi.vllm.worker_extension import AdapterCheck
from hostelry.engine.lora.config import BaseIdentity
from hostelry.engine.lora.errors import AdapterError


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("base") / "model")


def preparer(base: Path, place: Path) -> AdapterPreparer:
    return AdapterPreparer(
        linears=base_linears(base),
        is_base_weight=partial(is_base_weight, base_files(base)),
        identity=BaseIdentity(names=("model",)),
        max_rank=16,
        place=place,
        fetchers={},
    )


def updates(folder: Path, get_scale: Any) -> dict[str, torch.Tensor]:
    """B A times its scale, by module, in double precision."""
    tensors = load_file(folder / "adapter_model.safetensors")
    paths = {it.rsplit(".lora_", 1)[0] for it in tensors}
    return {
        path: get_scale(path, tensors[f"{path}.lora_A.weight"].shape[0])
        * (tensors[f"{path}.lora_B.weight"].double() @ tensors[f"{path}.lora_A.weight"].double())
        for path in paths
    }


@cases(
    "fields, scale",
    case("alpha over rank", {"lora_alpha": 32}, lambda _, rank: 32 / rank),
    case("rsLoRA", {"lora_alpha": 32, "use_rslora": True}, lambda _, rank: 32 / rank**0.5),
    case(
        "alpha by module",
        {"lora_alpha": 8, "alpha_pattern": {"q_proj": 24}},
        lambda path, rank: (24 if path.endswith("q_proj") else 8) / rank,
    ),
)
def test_vllms_form_computes_the_same(
    base: Path, tmp_path: Path, fields: dict[str, Any], scale: Any
) -> None:
    source = random_adapter(tmp_path / "given", base, 8, ("q_proj", "down_proj"), **fields)
    prepared = preparer(base, tmp_path).prepare(str(source))
    config = json.loads((prepared.folder / "adapter_config.json").read_text())
    assert config["r"] == config["lora_alpha"] == prepared.rank == 8
    assert not config.keys() & {"use_rslora", "rank_pattern", "alpha_pattern"}
    found, expected = updates(prepared.folder, lambda *_: 1), updates(source, scale)
    assert found.keys() == expected.keys()
    for path, update in found.items():
        torch.testing.assert_close(update, expected[path], rtol=1e-4, atol=1e-6)


def test_modules_of_other_ranks_are_padded_with_zeros(base: Path, tmp_path: Path) -> None:
    wide = random_adapter(tmp_path / "wide", base, 8, ("q_proj",), rank_pattern={"v_proj": 4})
    narrow = random_adapter(tmp_path / "narrow", base, 4, ("v_proj",))
    tensors = {**load_file(wide / "adapter_model.safetensors")}
    tensors |= load_file(narrow / "adapter_model.safetensors")
    save_file(tensors, wide / "adapter_model.safetensors")
    config = json.loads((wide / "adapter_config.json").read_text())
    config["target_modules"] = ["q_proj", "v_proj"]
    (wide / "adapter_config.json").write_text(json.dumps(config))
    prepared = preparer(base, tmp_path).prepare(str(wide))
    found = updates(prepared.folder, lambda *_: 1)
    expected = updates(wide, lambda _, rank: 16 / rank)
    for path, update in found.items():
        torch.testing.assert_close(update, expected[path], rtol=1e-4, atol=1e-6)


@cases(
    "rank, targets, fields, text",
    case("a field not applied", 8, ["q_proj"], {"use_dora": True}, "use_dora"),
    case("a rank too large", 32, ["q_proj"], {}, "max_lora_rank is 16"),
    case(
        "one is missing that PEFT starts at random",
        8,
        ["q_proj"],
        {"target_modules": ["q_proj", "k_proj"], "init_lora_weights": False},
        "no tensors of .*k_proj",
    ),
    case("whole modules", 8, ["q_proj"], {"modules_to_save": ["lm_head"]}, "modules_to_save"),
    case("one more", 8, ["q_proj", "k_proj"], {"target_modules": ["q_proj"]}, "no targeted"),
    case("another rank than it says", 8, ["q_proj"], {"r": 4}, "shape"),
    case("zeros", 8, ["q_proj"], {"std": 0.0}, "no effect"),
    case("no numbers", 8, ["q_proj"], {"std": float("nan")}, "nan"),
)
def test_refused(
    base: Path, tmp_path: Path, rank: int, targets: list[str], fields: dict[str, Any], text: str
) -> None:
    source = random_adapter(tmp_path / "given", base, rank, targets, **fields)
    with pytest.raises(AdapterError, match=text):
        preparer(base, tmp_path).prepare(str(source))
    assert [it.name for it in tmp_path.iterdir()] == ["given"]


def test_an_adapter_of_another_model_class_is_refused_by_its_paths(
    base: Path, tmp_path: Path
) -> None:
    source = random_adapter(tmp_path / "given", base, 8, ["q_proj"])
    linears = {f"language_model.{path}": it for path, it in base_linears(base).items()}
    reader = preparer(base, tmp_path)
    other = AdapterPreparer(
        linears=linears,
        is_base_weight=reader.is_base_weight,
        identity=reader.identity,
        max_rank=16,
        place=tmp_path,
        fetchers={},
    )
    with pytest.raises(AdapterError, match="no linear module model"):
        other.prepare(str(source))


def test_the_same_content_has_the_same_version(base: Path, tmp_path: Path) -> None:
    one, same, other = (
        preparer(base, tmp_path).prepare(
            str(random_adapter(tmp_path / name, base, 8, ["q_proj"], seed=seed))
        )
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert one.content_id == same.content_id != other.content_id


def test_what_peft_warns_of_is_a_warning(base: Path, tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "fan_in_fan_out": True,
        "target_modules": ["q_proj", "k_proj"],
        "modules_to_save": ["embed_tokens"],
    }
    source = random_adapter(tmp_path / "given", base, 8, ("q_proj",), **fields)
    file = source / "adapter_model.safetensors"
    copy = load_file(base / "model.safetensors")["model.embed_tokens.weight"]
    name = "base_model.model.model.embed_tokens.weight"
    save_file({**load_file(file), name: copy.double()}, file)
    warnings = preparer(base, tmp_path).prepare(str(source)).warnings
    assert [it.split(",")[0] for it in warnings] == [
        "fan_in_fan_out is True",
        "there are no tensors of model.layers.0.self_attn.k_proj and 1 more modules",
    ]
    save_file({**load_file(file), name: copy + 1}, file)
    with pytest.raises(AdapterError, match="modules_to_save names 'embed_tokens'"):
        preparer(base, tmp_path).prepare(str(source))


class PunicaWrapperCPU:
    """As vLLM's, whose kernels take -1 for the last slot."""

    token_lora_indices = torch.tensor([0, -1, 1])

    def add_shrink(self, y: Any, x: torch.Tensor, a: torch.Tensor, scale: float) -> None:
        for each in y:
            each[:] = scale * x * a[self.token_lora_indices]


class PunicaWrapperGPU(PunicaWrapperCPU):
    """One whose kernels skip -1."""


def extended(wrapper: Any) -> AdapterCheck:
    check = AdapterCheck()
    manager = SimpleNamespace(punica_wrapper_mapping={"one": wrapper, "other": wrapper})
    lora_manager = SimpleNamespace(_adapter_manager=manager)
    check.model_runner = SimpleNamespace(lora_manager=lora_manager)
    return check


@cases(
    "wrapper, base",
    case("on CPUs the base is spared", PunicaWrapperCPU(), 0.0),
    case("elsewhere vLLM's own kernels run as they are", PunicaWrapperGPU(), 6.0),
)
def test_rows_of_the_base_get_nothing_of_an_adapter(wrapper: Any, base: float) -> None:
    check = extended(wrapper)
    for _ in range(2):
        check.spare_base_rows()
    y = (torch.ones(3, 2),)
    wrapper.add_shrink(y, torch.ones(3, 2), torch.tensor([[1.0], [3.0]]), 2.0)
    assert y[0][:, 0].tolist() == [2.0, base, 6.0]
