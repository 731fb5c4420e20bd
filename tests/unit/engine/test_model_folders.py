"""Weights read from a folder, or a refusal that names the file or tensor."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.cases import case, cases
from tests.models import tiny_llama
from tests.unit.engine.paged_steps import CPU, all_logits, edit_config

from hostelry.engine.models.registry import load_decoder, load_spec
from hostelry.engine.models.spec import UnsupportedModelError


@pytest.fixture(scope="module")
def whole_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(whole_model: Path, tmp_path: Path) -> Path:
    for path in whole_model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def load(folder: Path) -> None:
    weights = load_decoder(folder, load_spec(folder), max_len=8, dtype=torch.float32, device=CPU)
    for index in range(weights.num_layers):
        weights.layer(index)


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return act


def change(name: str, act: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        changed = act(tensors.pop(name))
        if changed is not None:
            tensors[name] = changed
        save_file(tensors, folder / "model.safetensors")

    return apply


def configure(**fields: Any) -> Callable[[Path], None]:
    return lambda folder: edit_config(folder, **fields)


def wrong_index(content: bytes) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_bytes(content)

    return act


@cases(
    "damage, message",
    case("no configuration", remove("config.json"), r"holds no config\.json"),
    case("a configuration cut short", write("config.json", b"{"), "is not JSON"),
    case("deep nesting", write("config.json", b"[" * 99_999), "is not JSON"),
    case("a list", write("config.json", b"[]"), "no JSON object"),
    case("not UTF-8", write("config.json", b"\xff\xfe{}"), "is not JSON"),
    case("a number", write("generation_config.json", b"1"), "generation_config"),
    case("no weights", remove("model.safetensors"), "holds neither"),
    case("damaged weights", write("model.safetensors", b"nonsense" * 9), "cannot be read"),
    case(
        "integer weights",
        change("model.norm.weight", lambda it: it.to(torch.int32)),
        r"model\.norm\.weight has dtype I32",
    ),
    case(
        "eight bits",
        change("model.norm.weight", lambda it: it.to(torch.float8_e4m3fn)),
        "has dtype F8_E4M3",
    ),
    case(
        "a missing tensor",
        change("model.layers.1.mlp.up_proj.weight", lambda it: None),
        r"model\.layers\.1\.mlp\.up_proj\.weight is missing",
    ),
    case(
        "a turned tensor",
        change("model.layers.1.mlp.up_proj.weight", lambda it: it.T.contiguous()),
        r"has shape \(64, 112\)",
    ),
    case("a layer less", configure(num_hidden_layers=3), r"layers\.2\..* is missing"),
    case("a layer too many", configure(num_hidden_layers=1), "9 unexpected tensors"),
    case("a width", configure(intermediate_size=96), r"has shape \(112, 64\)"),
    case("untied", configure(tie_word_embeddings=False), "lm_head.weight is missing"),
    case("no biases", configure(attention_bias=True), "q_proj.bias is missing"),
    case("an index without a map", wrong_index(b"{}"), "has no weight_map"),
    case(
        "an index that leads outside",
        wrong_index(b'{"weight_map": {"a": "../../secret"}}'),
        "which is no file",
    ),
)
def test_refused_folders(damage: Callable[[Path], None], message: str, folder: Path) -> None:
    damage(folder)
    with pytest.raises(UnsupportedModelError, match=message):
        load(folder)


def test_tensors_that_say_nothing_new_are_left_out(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    before = all_logits(folder)
    save_file(tensors, folder / "model.safetensors")
    assert torch.equal(all_logits(folder), before)


def test_shards_are_read_through_their_index(folder: Path) -> None:
    before = all_logits(folder)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"model-{number}.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map.update(dict.fromkeys(part, file))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(all_logits(folder), before)
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(
        UnsupportedModelError, match=r"names model-1\.safetensors, which is no file"
    ):
        load(folder)


def test_a_folder_replaced_while_it_is_read(folder: Path, tmp_path: Path) -> None:
    weights = load_decoder(folder, load_spec(folder), max_len=8, dtype=torch.float32, device=CPU)
    weights.layer(0)
    other = tiny_llama(tmp_path / "other", intermediate_size=96)
    (other / "model.safetensors").rename(folder / "model.safetensors")
    with pytest.raises(UnsupportedModelError, match="was replaced while"):
        weights.layer(1)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match="cannot be read"):
        weights.layer(1)


def test_weights_are_mapped_and_only_norms_and_biases_are_widened(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, dtype="bfloat16", attention_bias=True)
    spec = load_spec(folder)
    assert spec.dtype == "bf16"
    weights = load_decoder(folder, spec, max_len=8, dtype=torch.bfloat16, device=CPU)
    layer = weights.layer(0)
    stored = load_file(folder / "model.safetensors")
    assert torch.equal(layer.down.weight_OI, stored["model.layers.0.mlp.down_proj.weight"])
    assert layer.qkv.weight_OI.dtype is torch.bfloat16
    assert layer.qkv.bias_O is not None
    assert layer.qkv.bias_O.dtype is torch.float32
    assert layer.input_norm_H.dtype is torch.float32
    assert weights.lm_head_VH is weights.embedding_VH
    assert weights.ropes[0].cos_PD.shape == (8, 8)
    assert weights.ropes[0].cos_PD.dtype is torch.float32
