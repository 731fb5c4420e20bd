"""Adapters: PEFT's logits, or a refusal that names the field."""

import json
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.models import ALL_TARGETS, random_adapter, tiny_llama
from tests.unit.engine.oracle import PROMPTS, Logits, reference_logits, reference_model

from hostelry.engine.engine import AdapterError, Engine, EngineConfig

CONFIG = EngineConfig(dtype="fp32", kv_cache_bytes=1 << 20, num_threads=1)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"), num_hidden_layers=3)


@pytest.fixture(scope="module")
def loaded_engine(model_folder: Path) -> Engine:
    return Engine.load(model_folder, CONFIG)


@pytest.fixture
def engine(loaded_engine: Engine) -> Iterator[Engine]:
    yield loaded_engine
    for summary in loaded_engine.adapters:
        loaded_engine.unload_adapter(summary.name)


def peft_adapter(folder: Path, model_folder: Path, **fields: Any) -> Path:
    """An adapter that PEFT itself made and saved, every weight random."""
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PEFT about transformers
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


def check_against_peft(engine: Engine, model_folder: Path, folder: Path) -> None:
    """Logits equal PEFT's, and differ from the base model's."""
    engine.load_adapter("a", folder)
    model = reference_model(model_folder, {"a": folder})
    logits = Logits.of(engine)
    largest_effect = 0.0
    for prompt in PROMPTS[:3]:
        expected = reference_logits(model, prompt, "a")
        torch.testing.assert_close(logits.after(prompt, "a"), expected, rtol=1e-4, atol=1e-4)
        base = reference_logits(model, prompt, None)
        torch.testing.assert_close(logits.after(prompt), base, rtol=1e-4, atol=1e-4)
        largest_effect = max(largest_effect, float((expected - base).abs().max()))
    assert largest_effect > 1e-2


@pytest.mark.parametrize(
    "fields",
    [
        *(pytest.param({"target_modules": [name]}, id=f"{name} alone") for name in ALL_TARGETS),
        pytest.param({"target_modules": list(ALL_TARGETS)}, id="all seven targets"),
        pytest.param({"target_modules": ["k_proj", "up_proj"], "r": 3}, id="an odd rank"),
        pytest.param({"target_modules": list(ALL_TARGETS), "r": 64}, id="as high as allowed"),
        pytest.param({"target_modules": "all-linear"}, id="all-linear, written out"),
        pytest.param(
            {"target_modules": r".*\.(1|2)\..*(q|down)_proj"}, id="a pattern of the whole path"
        ),
        pytest.param(
            {"target_modules": r"(?:.*?(?:self_attn|mlp).*?(?:q_proj|up_proj).*?)|(?:lm[_]nose)"},
            id="a pattern as fine-tuning tools write it",
        ),
        pytest.param(
            {"target_modules": ["self_attn.v_proj", "model.layers.1.mlp.up_proj"]},
            id="parts of paths",
        ),
        pytest.param(
            {"target_modules": ["q_proj", "v_proj"], "use_rslora": True}, id="rank-stabilised scale"
        ),
        pytest.param(
            {
                "target_modules": list(ALL_TARGETS),
                "rank_pattern": {"q_proj": 4, r".*\.1\.mlp\.up_proj": 2, "up_proj": 16},
                "alpha_pattern": {"layers.0.self_attn.q_proj": 30, "down_proj": 1},
            },
            id="ranks and alphas by pattern, the first match first",
        ),
        pytest.param(
            {
                "target_modules": list(ALL_TARGETS),
                "use_rslora": True,
                "rank_pattern": {"model.layers.2.self_attn.k_proj": 5},
                "alpha_pattern": {"^model.layers.2.self_attn.k_proj": 7},
            },
            id="rank-stabilised scale of the module's own rank",
        ),
        pytest.param(
            {"target_modules": ["q_proj", "o_proj"], "layers_to_transform": [0, 2]},
            id="some layers",
        ),
        pytest.param(
            {"target_modules": ["o_proj"], "layers_to_transform": 1, "layers_pattern": "layers"},
            id="one layer by its pattern",
        ),
        pytest.param(
            {"target_modules": list(ALL_TARGETS), "exclude_modules": ["up_proj", "o_proj"]},
            id="excluded names",
        ),
        pytest.param(
            {"target_modules": "all-linear", "exclude_modules": r".*mlp.*"},
            id="an excluded pattern",
        ),
        pytest.param({"target_modules": ["q_proj"], "lora_dropout": 0.5}, id="dropout at training"),
        pytest.param({"target_modules": ["q_proj"], "lora_alpha": 0.5}, id="a small alpha"),
        pytest.param(
            {"target_modules": ["q_proj"], "init_lora_weights": "gaussian"}, id="a gaussian start"
        ),
    ],
)
def test_logits_equal_peft(
    fields: dict[str, Any], engine: Engine, model_folder: Path, tmp_path: Path
) -> None:
    check_against_peft(engine, model_folder, peft_adapter(tmp_path, model_folder, **fields))


def test_all_linear_in_the_file_means_the_layers_linear_modules(
    engine: Engine, model_folder: Path, tmp_path: Path
) -> None:
    folder = random_adapter(tmp_path, model_folder, 4, target_modules="ALL-linear")
    check_against_peft(engine, model_folder, folder)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_widened_exactly(
    dtype: str, engine: Engine, model_folder: Path, tmp_path: Path
) -> None:
    check_against_peft(engine, model_folder, random_adapter(tmp_path, model_folder, 8, dtype=dtype))


def test_weights_from_a_bin_file(engine: Engine, model_folder: Path, tmp_path: Path) -> None:
    folder = random_adapter(tmp_path, model_folder, 8, file="adapter_model.bin")
    check_against_peft(engine, model_folder, folder)


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({"num_key_value_heads": 4}, id="as many key-value heads as heads"),
        pytest.param({"head_dim": 32}, id="a head dimension of its own"),
        pytest.param({"attention_bias": True, "mlp_bias": True}, id="biases"),
        pytest.param({"tie_word_embeddings": False}, id="an output projection of its own"),
    ],
)
def test_on_other_shapes_of_base(overrides: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "model", **overrides)
    adapter = random_adapter(tmp_path / "adapter", folder, 8)
    check_against_peft(Engine.load(folder, CONFIG), folder, adapter)


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
        pytest.param("fan_in_fan_out", True, "fan_in_fan_out is True", id="transposed weights"),
        pytest.param(
            "modules_to_save", ["lm_head"], r"modules_to_save is \['lm_head'\]", id="whole modules"
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
        pytest.param("lora_alpha", 1e60, "times its scale is not finite", id="a scale too large"),
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
            "target_modules", ["nowhere"], "which names no linear module", id="targets not there"
        ),
        pytest.param(
            "target_modules",
            ["q_proj", "lm_head"],
            "target_modules includes lm_head",
            id="the output projection",
        ),
        pytest.param(
            "target_modules",
            ["q_proj", "embed_tokens"],
            "target_modules includes model.embed_tokens",
            id="the embedding",
        ),
        pytest.param("target_modules", "(", "no valid pattern", id="a target pattern cut short"),
        pytest.param("target_modules", "x" * 5000, "5000 characters", id="an endless pattern"),
        pytest.param(
            "target_modules",
            "(a+)+$",
            "repeats a group that repeats",
            id="a pattern that could match for hours",
        ),
        pytest.param(
            "target_modules",
            ".*" * 30 + "x",
            "30 open-ended repeats",
            id="a pattern with too many ways to match",
        ),
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
    ],
)
def test_refused_fields(
    field: str, value: object, message: str, engine: Engine, model_folder: Path, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {field: value}
    folder = random_adapter(tmp_path, model_folder, 8, **fields)
    with pytest.raises(AdapterError, match=message):
        engine.load_adapter("a", folder)
    assert engine.adapters == []


def test_layers_with_a_pattern_are_refused_as_by_peft(
    engine: Engine, model_folder: Path, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"target_modules": ".*q_proj", "layers_to_transform": [0]}
    with pytest.raises(AdapterError, match="layers_to_transform needs target_modules to be a list"):
        engine.load_adapter("a", random_adapter(tmp_path, model_folder, 8, **fields))


Q_UP = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"


def without(tensors: dict[str, torch.Tensor]) -> None:
    del tensors[Q_UP]


def extra(tensors: dict[str, torch.Tensor]) -> None:
    tensors["base_model.model.lm_head.weight"] = torch.zeros(2)


def transposed(tensors: dict[str, torch.Tensor]) -> None:
    tensors[Q_UP] = tensors[Q_UP].T.contiguous()


def nan(tensors: dict[str, torch.Tensor]) -> None:
    tensors[Q_UP][3, 3] = float("nan")


def infinite(tensors: dict[str, torch.Tensor]) -> None:
    tensors[Q_UP][3, 3] = float("inf")


def integers(tensors: dict[str, torch.Tensor]) -> None:
    tensors[Q_UP] = tensors[Q_UP].to(torch.int32)


def zeros(tensors: dict[str, torch.Tensor]) -> None:
    for name in tensors:
        if "lora_B" in name:
            tensors[name] = torch.zeros_like(tensors[name])


def other_prefix(tensors: dict[str, torch.Tensor]) -> None:
    for name in list(tensors):
        tensors["language_model." + name] = tensors.pop(name)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(without, "q_proj.lora_B.weight is missing", id="a missing tensor"),
        pytest.param(extra, "lm_head.weight, which no targeted module", id="an unused tensor"),
        pytest.param(transposed, r"has shape \(8, 64\)", id="a transposed tensor"),
        pytest.param(nan, "holds nan or inf", id="not a number"),
        pytest.param(infinite, "holds nan or inf", id="infinity"),
        pytest.param(integers, "has dtype torch.int32", id="integers"),
        pytest.param(zeros, "has no effect", id="no effect at all"),
        pytest.param(other_prefix, "is missing", id="names of another wrapper"),
    ],
)
def test_refused_tensors(
    damage: Callable[[dict[str, torch.Tensor]], None],
    message: str,
    engine: Engine,
    model_folder: Path,
    tmp_path: Path,
) -> None:
    folder = random_adapter(tmp_path, model_folder, 8)
    tensors = load_file(folder / "adapter_model.safetensors")
    damage(tensors)
    save_file(tensors, folder / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match=message):
        engine.load_adapter("a", folder)
    assert engine.adapters == []


def test_an_adapter_without_effect_is_allowed_if_asked_for(
    model_folder: Path, tmp_path: Path
) -> None:
    folder = random_adapter(tmp_path, model_folder, 8, std=0.0)
    config = EngineConfig(
        dtype="fp32", kv_cache_bytes=1 << 20, allow_zero_effect_adapters=True, num_threads=1
    )
    engine = Engine.load(model_folder, config)
    engine.load_adapter("a", folder)
    logits = Logits.of(engine)
    assert torch.equal(logits.after(PROMPTS[0], "a"), logits.after(PROMPTS[0]))


class Hostile:
    """Runs code when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.trace,))


def hostile_bin(folder: Path) -> None:
    with (folder / "adapter_model.bin").open("wb") as file:
        pickle.dump({"a": Hostile(folder / "ran")}, file, protocol=2)


def hostile_zip(folder: Path) -> None:
    torch.save({"a": Hostile(folder / "ran")}, folder / "adapter_model.bin")


def list_bin(folder: Path) -> None:
    torch.save([1, 2], folder / "adapter_model.bin")


def garbage(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00nonsense")

    return write


def text(name: str, content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(content, encoding="utf-8")

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        pytest.param(lambda _: None, "there is neither", id="no weights"),
        pytest.param(hostile_bin, "code in it is never run", id="a pickle with code"),
        pytest.param(hostile_zip, "code in it is never run", id="a zipped pickle with code"),
        pytest.param(list_bin, "holds no table of tensors", id="a pickled list"),
        pytest.param(garbage("adapter_model.bin"), "adapter_model.bin", id="a damaged bin"),
        pytest.param(
            garbage("adapter_model.safetensors"), "cannot be read", id="damaged safetensors"
        ),
        pytest.param(
            text("adapter_config.json", "{"), "is not JSON", id="a configuration cut short"
        ),
        pytest.param(text("adapter_config.json", "[]"), "no JSON object", id="a list of fields"),
    ],
)
def test_refused_files(
    write: Callable[[Path], None],
    message: str,
    engine: Engine,
    model_folder: Path,
    tmp_path: Path,
) -> None:
    folder = random_adapter(tmp_path, model_folder, 8)
    (folder / "adapter_model.safetensors").unlink()
    write(folder)
    with pytest.raises(AdapterError, match=message):
        engine.load_adapter("a", folder)
    assert not (folder / "ran").exists()


def test_a_folder_without_configuration(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"there is no adapter_config\.json"):
        engine.load_adapter("a", tmp_path)


def test_the_summary_names_what_was_loaded(
    engine: Engine, model_folder: Path, tmp_path: Path
) -> None:
    folder = random_adapter(tmp_path, model_folder, 4, targets=("v_proj", "q_proj"))
    summary = engine.load_adapter("a", folder)
    assert (summary.name, summary.rank) == ("a", 4)
    assert summary.target_modules == ("q_proj", "v_proj")
    assert summary.num_parameters == 3 * 4 * (64 + 64 + 64 + 32)
    assert engine.load_adapter("b", folder).content_id == summary.content_id
    fields = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**fields, "lora_alpha": 3}))
    assert engine.load_adapter("c", folder).content_id != summary.content_id
