"""Options that vLLM's engine gets, under vLLM's names.

Each is typed, and none can run code, open a port or name a file outside the model folder.
Source: vLLM 0.32, EngineArgs.
"""

from typing import Literal

from hostelry.containers.lmi.settings.option_rows import (
    NO_SPECULATION,
    ONE_PROCESS,
    OWN_MEMORY,
    Rows,
    always_on,
    pass_on,
    refused,
    without_effect,
)
from hostelry.containers.lmi.settings.vllm_forms import (
    Balancing,
    CacheDtype,
    Compilation,
    Count,
    Counts,
    Flag,
    Gib,
    Headroom,
    Name,
    Names,
    Path,
    Share,
    Size,
    Speculation,
    SpeculationMethod,
)

TEXT_ONLY = "models read text only, or images with vLLM. Other parts are refused"
DENSE_ONLY = "our own engine reads no mixtures of experts, and vLLM uses its defaults"
NO_STATE_SPACE = "our own engine reads no state-space models, and vLLM uses its defaults"
KERNELS = "the engine chooses its own kernels"
OWN_STEPS = "the engine plans its own steps"
COMPUTING_TYPES = "fp32 float32 float fp16 float16 half bf16 bfloat16"

OUR_MEMORY = without_effect(OWN_MEMORY)
OUR_KERNELS = without_effect(KERNELS)
OUR_STEPS = without_effect(OWN_STEPS, "1", "fcfs")
OUR_EXPERTS = without_effect(DENSE_ONLY)
OUR_LACK = without_effect(NO_SPECULATION)

MEMORY: Rows = {
    "gpu_memory_utilization": pass_on(
        "the share of each GPU's memory. Default: 0.9, divided among the copies on the GPU",
        Share, "0.45", ours=OUR_MEMORY,
    ),
    "kv_cache_memory_bytes": pass_on(
        "the KV cache, before pool_bytes", Count, "1073741824", ours=OUR_MEMORY
    ),
    "kv_cache_dtype": pass_on(
        "the type of keys and values. Default: the computing type", CacheDtype, "fp8",
        ours=refused("auto, or the computing type", *COMPUTING_TYPES.split()),
        same="false " + COMPUTING_TYPES,
    ),
    "kv_cache_dtype_skip_layers": pass_on(
        "layers whose keys and values have the computing type", Names, "0,1", ours=OUR_MEMORY
    ),
    "block_size": pass_on("tokens of a block of the cache", Count, "32", ours=OUR_MEMORY),
    "num_gpu_blocks_override": pass_on("blocks of the cache", Count, "512", ours=OUR_MEMORY),
    "prefix_caching_hash_algo": pass_on(
        "the hash of cached prompts", Literal["sha256", "sha256_cbor"], "sha256_cbor",
        ours=OUR_MEMORY,
    ),
    "prefix_cache_retention_interval": pass_on(
        "which blocks of cached prompts are kept", Count, "64", ours=OUR_MEMORY
    ),
    "prefix_match_unit": pass_on(
        "tokens by which prompts are compared", Count, "64", ours=OUR_MEMORY
    ),
    "disable_hybrid_kv_cache_manager": pass_on(
        "all layers keep as many keys", Flag, "true", ours=OUR_MEMORY
    ),
    "kv_sharing_fast_prefill": pass_on(
        "layers that share keys skip parts of prompts", Flag, "true", ours=OUR_MEMORY
    ),
    "offload_backend": pass_on(
        "how weights are kept in host memory", Literal["uva", "prefetch"], "uva", ours=OUR_MEMORY
    ),
    "cpu_offload_params": pass_on(
        "which weights are kept in host memory", Names, "down_proj", ours=OUR_MEMORY
    ),
    "offload_group_size": pass_on("layers of a group to offload", Size, "8", ours=OUR_MEMORY),
    "offload_num_in_group": pass_on("offloaded layers of a group", Count, "1", ours=OUR_MEMORY),
    "offload_prefetch_step": pass_on("layers to fetch ahead", Size, "1", ours=OUR_MEMORY),
    "offload_params": pass_on("which weights are fetched", Names, "down_proj", ours=OUR_MEMORY),
    "kv_offloading_size": pass_on("GiB of host memory for the cache", Gib, "4", ours=OUR_MEMORY),
    "kv_offloading_backend": pass_on(
        "how the cache is kept in host memory", Literal["native"], "native", ours=OUR_MEMORY
    ),
}  # fmt: skip

COMPUTING: Rows = {
    "allow_deprecated_quantization": pass_on(
        "true allows kinds of quantization that vLLM will drop", Flag, "true",
        ours=refused("false: weights are computed as they are stored"),
    ),
    "model_impl": pass_on(
        "vllm, or transformers: whose implementation of the model computes",
        Literal["vllm", "transformers"], "transformers",
        ours=without_effect("our own engine has one implementation of each model", "vllm"),
    ),
    "attention_backend": pass_on("kernels of attention", Name, "FLASH_ATTN", ours=OUR_KERNELS),
    "linear_backend": pass_on("kernels of products", Name, "cutlass", ours=OUR_KERNELS),
    "disable_cascade_attn": without_effect("no engine has cascade attention"),
    "compilation_config": pass_on(
        "a JSON object: how the model is compiled", Compilation, '{"cudagraph_mode": "PIECEWISE"}',
        ours=OUR_KERNELS,
    ),
    "cudagraph_capture_sizes": pass_on("batches of CUDA graphs", Counts, "1,2,4", ours=OUR_KERNELS),
    "max_cudagraph_capture_size": pass_on(
        "the largest batch of CUDA graphs", Size, "256", ours=OUR_KERNELS
    ),
    "optimization_level": pass_on(
        "0 starts fastest, 3 computes fastest", Literal[0, 1, 2, 3], "1", ours=OUR_KERNELS
    ),
    "performance_mode": pass_on(
        "balanced, interactivity or throughput",
        Literal["balanced", "interactivity", "throughput"], "throughput", ours=OUR_KERNELS,
    ),
    "enable_flashinfer_autotune": pass_on(
        "true measures kernels at the start", Flag, "true", ours=OUR_KERNELS
    ),
    "gdn_prefill_backend": pass_on(
        "kernels of gated delta nets", Literal["flashinfer", "triton", "cutedsl"], "triton",
        ours=OUR_KERNELS,
    ),
    "kda_prefill_backend": pass_on(
        "kernels of Kimi's attention", Literal["triton", "flashkda"], "triton", ours=OUR_KERNELS
    ),
    "use_fp64_gumbel": pass_on(
        "true draws tokens in 64 bits", Flag, "true",
        ours=without_effect("draws come from the same distribution"),
    ),
    "disable_custom_all_reduce": pass_on(
        "true sums over GPUs by NCCL", Flag, "true", ours=without_effect(ONE_PROCESS)
    ),
    "mamba_cache_dtype": pass_on(
        "the type of cached states", Name, "float32", ours=without_effect(NO_STATE_SPACE)
    ),
    "mamba_ssm_cache_dtype": pass_on(
        "the type of state-space states", Name, "float32", ours=without_effect(NO_STATE_SPACE)
    ),
    "mamba_block_size": pass_on(
        "tokens of a block of states", Count, "128", ours=without_effect(NO_STATE_SPACE)
    ),
    "mamba_cache_mode": pass_on(
        "which states are cached", Literal["all", "align", "none"], "align",
        ours=without_effect(NO_STATE_SPACE),
    ),
    "safetensors_load_strategy": pass_on(
        "how files of weights are read", Literal["lazy", "eager", "prefetch"], "eager",
        ours=without_effect("weights are read from the model's safetensors files"),
    ),
}  # fmt: skip

STEPS: Rows = {
    "enable_chunked_prefill": pass_on(
        "false computes each prompt in one step", Flag, "false",
        ours=always_on("long prompts are always computed in chunks"),
    ),
    "async_scheduling": pass_on(
        "true plans a step while the last one computes", Flag, "false", ours=OUR_STEPS
    ),
    "scheduling_policy": pass_on(
        "fcfs or priority. All requests have the same priority", Literal["fcfs", "priority"],
        "priority", ours=OUR_STEPS,
    ),
    "max_num_scheduled_tokens": pass_on("planned tokens of a step", Count, "512", ours=OUR_STEPS),
    "long_prefill_token_threshold": pass_on(
        "tokens of a long prompt in a step", Size, "256", ours=OUR_STEPS
    ),
    "scheduler_reserve_full_isl": pass_on(
        "false starts a prompt before the cache has room for all of it", Flag, "false",
        ours=OUR_STEPS,
    ),
    "watermark": pass_on(
        "the share of the cache that new requests leave free", Headroom, "0.05", ours=OUR_STEPS
    ),
    "stream_interval": pass_on("tokens that are sent together", Count, "4", ours=OUR_STEPS),
    "speculative_config": pass_on(
        "a JSON object: how tokens are guessed. Its model is a folder inside the model folder",
        Speculation, '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}',
        ours=OUR_LACK,
    ),
    "spec_method": pass_on("how tokens are guessed", SpeculationMethod, "ngram", ours=OUR_LACK),
    "spec_model": pass_on(
        "the guessing model: a folder inside the model folder", Path, "draft", ours=OUR_LACK
    ),
    "spec_tokens": pass_on("guessed tokens", Count, "3", ours=OUR_LACK),
}  # fmt: skip

EXPERTS_AND_ADAPTERS: Rows = {
    "enable_expert_parallel": pass_on(
        "true divides experts, not their weights, over GPUs", Flag, "true", ours=OUR_EXPERTS
    ),
    "enable_ep_weight_filter": pass_on(
        "true skips weights of other ranks' experts", Flag, "true", ours=OUR_EXPERTS
    ),
    "moe_backend": pass_on("kernels of experts", Name, "triton", ours=OUR_EXPERTS),
    "all2all_backend": pass_on("exchange of experts", Name, "naive", ours=OUR_EXPERTS),
    "enable_eplb": pass_on("true balances experts over GPUs", Flag, "true", ours=OUR_EXPERTS),
    "eplb_config": pass_on(
        "a JSON object: how experts are balanced", Balancing, '{"window_size": 1000}',
        ours=OUR_EXPERTS,
    ),
    "expert_placement_strategy": pass_on(
        "the order of experts over GPUs", Literal["linear", "round_robin"], "round_robin",
        ours=OUR_EXPERTS,
    ),
    "fully_sharded_loras": pass_on(
        "true divides both halves of adapters over GPUs", Flag, "true",
        ours=without_effect("ranks divide adapters as their engine does"),
    ),
    "lora_dtype": pass_on(
        "the type of adapters. Default: the computing type", Literal["float16", "bfloat16"],
        "bfloat16", ours=without_effect("adapters are computed in the computing type"),
    ),
    "enable_mixed_moe_lora_format": pass_on(
        "true accepts two forms of adapters of experts", Flag, "true", ours=OUR_EXPERTS
    ),
    "enable_moe_shared_loras": pass_on(
        "true accepts adapters that experts share", Flag, "true", ours=OUR_EXPERTS
    ),
    "specialize_active_lora": pass_on(
        "true makes CUDA graphs for numbers of adapters", Flag, "true", ours=OUR_KERNELS
    ),
    "mm_processor_cache_gb": pass_on(
        "GiB of processed images that are kept", Gib, "1", ours=without_effect(TEXT_ONLY)
    ),
    "skip_mm_profiling": pass_on(
        "true reserves no memory for images", Flag, "true", ours=without_effect(TEXT_ONLY)
    ),
    "mm_encoder_tp_mode": pass_on(
        "weights, or data: the parts that GPUs divide for images",
        Literal["weights", "data"], "data", ours=without_effect(TEXT_ONLY),
    ),
    "disable_chunked_mm_input": pass_on(
        "true computes an image in one step", Flag, "true", ours=without_effect(TEXT_ONLY)
    ),
}  # fmt: skip

PASSED_OPTIONS: Rows = {**MEMORY, **COMPUTING, **STEPS, **EXPERTS_AND_ADAPTERS}
