"""Sizes of what vLLM computes and keeps, by device and model."""

from pathlib import Path
from typing import Any

from tests.cases import case, cases

from hostelry.containers.lmi.settings.config import resolve_config
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.vllm.arguments import engine_arguments
from hostelry.containers.lmi.vllm.sizes import (
    GIB,
    Gpu,
    adapter_width,
    count_adapters,
    fit_steps,
    memory_share,
)

LLAMA_8B = {
    "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "intermediate_size": 14336,
}  # fmt: skip
LLAMA_70B = {
    "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8,
    "num_hidden_layers": 80, "intermediate_size": 28672,
}  # fmt: skip
SMOLLM2 = {
    "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3,
    "num_hidden_layers": 30, "intermediate_size": 1536,
}  # fmt: skip
T4, A10G = Gpu(name="Tesla T4", memory_bytes=15 * GIB), Gpu(name="A10G", memory_bytes=22 * GIB)
A100 = Gpu(name="NVIDIA A100-SXM4-80GB", memory_bytes=79 * GIB)
H100, H200 = Gpu(name="H100", memory_bytes=79 * GIB), Gpu(name="H200", memory_bytes=139 * GIB)
B200 = Gpu(name="B200", memory_bytes=178 * GIB)


@cases(
    "gpu, options, requests, tokens",
    case("CPUs: LMI's number", None, {}, 32, None),
    case("CPUs: the number of a vLLM batch", None, {"rolling_batch": "vllm"}, 256, None),
    case("a small GPU", T4, {}, 256, 2048),
    case("an A100", A100, {}, 256, 2048),
    case("an H100", H100, {}, 1024, 8192),
    case("an H200", H200, {"rolling_batch": "vllm"}, 1024, 8192),
    case("a B200", B200, {}, 1024, 16384),
    case("the option wins", H200, {"max_rolling_batch_size": "8"}, 8, 8192),
    case("by each of its names", H200, {"max_num_seqs": "9", "max_num_batched_tokens": "512"}, 9,
        512),
)  # fmt: skip
def test_requests_and_tokens_of_a_step(
    gpu: Gpu | None, options: dict[str, str], requests: int, tokens: int | None
) -> None:
    env = {f"OPTION_{name.upper()}": it for name, it in options.items()}
    settings = fit_steps(resolve_config(env, "", (), Path("/model"), 4).engine, gpu)
    arguments = engine_arguments("/model", settings, gpu=gpu, memory_bytes=GIB)
    assert (arguments["max_num_seqs"], arguments["max_num_batched_tokens"]) == (requests, tokens)


@cases(
    "share, expected",
    case("a server that has the GPU alone", 1.0, 0.9),
    case("two copies on a GPU", 0.5, 0.45),
    case("three copies on a GPU", 1 / 3, 0.3),
)
def test_the_share_of_a_gpu(share: float, expected: float) -> None:
    assert memory_share(share) == expected
    settings = EngineSettings(device_share=share)
    assert (
        engine_arguments("/m", settings, gpu=H100, memory_bytes=GIB)["gpu_memory_utilization"]
        == expected
    )
    chosen = EngineSettings(device_share=share, vllm={"gpu_memory_utilization": 0.2})
    assert (
        engine_arguments("/m", chosen, gpu=H100, memory_bytes=GIB)["gpu_memory_utilization"] == 0.2
    )
    assert "gpu_memory_utilization" not in engine_arguments(
        "/m", settings, gpu=None, memory_bytes=GIB
    )


@cases(
    "config, expected",
    case("Llama 3.1 8B", LLAMA_8B, 32 * (2 * 8192 + 2 * 5120 + 3 * 18432)),
    case("heads of another size", {**SMOLLM2, "head_dim": 128},
        30 * (2 * (576 + 1152) + 2 * (576 + 384) + 3 * 2112)),
    case("every head has its own keys", {**SMOLLM2, "num_key_value_heads": None},
        30 * (4 * 1152 + 3 * 2112)),
    case("a model that reads images", {"text_config": SMOLLM2},
        30 * (2 * 1152 + 2 * 768 + 3 * 2112)),
    case("a mixture of experts",
        {**SMOLLM2, "num_experts": 8, "moe_intermediate_size": 64},
        30 * (2 * 1152 + 2 * 768 + 8 * 3 * 640)),
    case("another kind of model", {"d_model": 768}, None),
    case("no number", {**SMOLLM2, "hidden_size": "576"}, None),
)  # fmt: skip
def test_the_width_of_an_adapter(config: dict[str, Any], expected: int | None) -> None:
    assert adapter_width(config) == expected


@cases(
    "settings, config, gpu, host_gib, slots, kept",
    case("8B on an H200", {}, LLAMA_8B, H200, 128, 64, 102),
    case("8B on an A10G", {}, LLAMA_8B, A10G, 32, 17, 25),
    case("a rank has the buffer of a larger one", {"max_lora_rank": 20}, LLAMA_8B, A10G, 32, 8, 20),
    case("large ranks", {"max_lora_rank": 256}, LLAMA_8B, A10G, 32, 1, 1),
    case("half of a GPU", {"device_share": 0.5}, LLAMA_8B, A10G, 32, 8, 25),
    case("70B on an H200", {}, LLAMA_70B, H200, 128, 22, 22),
    case("a small model on CPUs", {}, SMOLLM2, None, 2, 3, 13),
    case("a small model on many CPUs", {}, SMOLLM2, None, 64, 16, 439),
    case("8B on CPUs with little memory", {}, LLAMA_8B, None, 4, 1, 3),
    case("host memory by its option", {"adapter_host_bytes": GIB}, LLAMA_8B, A10G, 32, 17, 17),
    case("slots by their option", {"max_loras": 100}, LLAMA_8B, A10G, 32, 100, 100),
    case("both options", {"max_loras": 4, "max_cpu_loras": 9}, LLAMA_8B, A10G, 32, 4, 9),
    case("no more slots than adapters kept", {"max_cpu_loras": 2}, LLAMA_8B, A10G, 32, 2, 2),
    case("an unknown shape", {}, {}, A10G, 32, 4, 32),
)  # fmt: skip
def test_adapters_of_a_step_and_in_host_memory(
    settings: dict[str, Any],
    config: dict[str, Any],
    gpu: Gpu | None,
    host_gib: int,
    slots: int,
    kept: int,
) -> None:
    given = EngineSettings(**{"max_lora_rank": 16, "enable_lora": True, **settings})
    width = adapter_width(config)
    assert count_adapters(given, width, gpu, host_gib * GIB) == (slots, kept)
    made = engine_arguments("/m", given, gpu=gpu, memory_bytes=host_gib * GIB, width=width)
    assert (made["max_loras"], made["max_cpu_loras"]) == (slots, kept)
