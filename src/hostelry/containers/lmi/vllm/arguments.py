"""Our settings and a request's sampling as arguments of vLLM. Pure: plain values, no vLLM.

ours                                vLLM's SamplingParams
----------------------------------  ------------------------------------------------------
max_new_tokens                      max_tokens, at least 1: for 0, its token is dropped
seed                                seed, of 63 bits: for vLLM, -1 means no seed
the model's end tokens              stop_token_ids, unless ignore_eos. vLLM's own ignore_eos, which
                                    means the tokenizer's end token, is set without a structure
min_new_tokens                      min_tokens, at most max_tokens
num_logprobs, num_prompt_logprobs   logprobs, prompt_logprobs
structure                           structured_outputs, one of json, regex, grammar, choice
temperature above 0, below 0.01     refused: vLLM raises it to 0.01
SAME, except where named above      the field of the same name, meaning and range
any other field that is set         refused: only our own engine has it
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.base.json import decode
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.settings.ranks import Holding, RankChoice, choose_ranks
from hostelry.containers.lmi.vllm.sizes import Gpu, buffer_rank, count_adapters, memory_share
from hostelry.engine.config import PooledTask
from hostelry.engine.request import MAX_LOGPROBS, Request, SamplingParams, Structure
from hostelry.engine.sampling.json_schema import rewrite_json_schema, rewrite_structural_tag

DTYPES: Mapping[str, str] = {
    "auto": "auto", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
}  # fmt: skip
MAX_IMAGES = 8  # of a request, unless limit_mm_per_prompt says otherwise
CPU_CACHE_SHARE = 1 / 8  # of the memory, as our own engine's pool
LEAST_CACHE_BYTES = 64 << 20
GIVEN = frozenset(
    {
        "dtype", "weight_dtype", "max_batch_size", "max_batched_tokens", "max_model_len",
        "num_threads", "max_lora_rank", "max_loras", "max_waiting", "pool_bytes", "prefix_cache",
        "enforce_eager", "max_images",
        "enable_lora", "adapter_host_bytes", "adapter_cache_folder", "adapter_cache_bytes",
        "base_names", "tenants", "accelerators", "fuse_adapter", "pooled",
        "degree", "pipeline_parallel", "cpu_ranks", "tensor_parallel",
        "batch_by_device", "max_cpu_loras", "device_share", "vllm",
    }
)  # fmt: skip
EXTENSION = "hostelry.containers.lmi.vllm.worker_extension.AdapterCheck"
SAME = frozenset(
    {
        "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
        "presence_penalty", "frequency_penalty", "seed", "stop_token_ids", "ignore_eos",
        "num_logprobs", "logit_bias", "min_new_tokens", "structure",
    }
)  # fmt: skip
OF_REQUEST = frozenset(
    {
        "id", "prompt_token_ids", "sampling", "adapter", "tenant", "first_token_deadline_s",
        "num_prompt_logprobs", "images",
    }
)  # fmt: skip
LEAST_TEMPERATURE = 0.01
SEED_BITS = 2**63 - 1


def follow_choice(
    settings: EngineSettings, *, devices: int, cpus: int
) -> tuple[EngineSettings, RankChoice]:
    """The settings with the chosen ranks and stages. `devices` are the accelerators that vLLM sees.

    Raises ValueError if they are too few.
    """
    holding = Holding(
        reserved=settings.accelerators, devices=devices, cpus=cpus, cpu_ranks=settings.cpu_ranks
    )
    choice = choose_ranks(settings.degree, holding, pipeline=settings.pipeline_parallel)
    chosen = replace(settings, tensor_parallel=choice.ranks, pipeline_parallel=choice.stages)
    return chosen, choice


def engine_arguments(
    folder: str,
    settings: EngineSettings,
    *,
    gpu: Gpu | None,
    memory_bytes: int,
    width: int | None = None,
) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs for the model in `folder`, on CPUs or on this `gpu`.

    `memory_bytes` is the host's memory that this server may use, `width` the model's
    `adapter_width`. `settings` have the ranks of `follow_choice`. Code of the model's repository is
    never run. Raises ValueError for a setting that changes answers and that vLLM cannot follow.
    """
    on_cpu = gpu is None
    for given, defaults in ((settings, EngineSettings()), (settings.pooled, PooledTask())):
        for name in given.__struct_fields__:
            value = getattr(given, name)
            if name not in GIVEN and value != getattr(defaults, name):
                raise ValueError(
                    f"{name} is {value!r}, which is not passed to vLLM; use option.backend=hostelry"
                )
    if settings.fuse_adapter is not None:
        raise ValueError(
            f"fuse_adapter is {settings.fuse_adapter!r}, which is our own engine's; vLLM applies "
            "adapters unmerged: leave it out, or use option.backend=hostelry"
        )
    if settings.weight_dtype != "auto":
        raise ValueError(
            f"quantize is {settings.weight_dtype}, which is our own engine's; vLLM computes "
            "weights as stored: give a checkpoint of that format, or option.backend=hostelry"
        )
    arguments: dict[str, Any] = {
        "model": folder,
        "dtype": DTYPES[settings.dtype],
        "max_model_len": settings.max_model_len or -1,  # the most that the cache has room for
        "max_num_seqs": settings.max_batch_size,
        "max_num_batched_tokens": settings.max_batched_tokens,
        "enable_prefix_caching": settings.prefix_cache,
        "max_logprobs": MAX_LOGPROBS,
        "generation_config": "vllm",  # the request's values are complete
        "trust_remote_code": False,
        # Compilation for CPUs takes minutes at the start.
        "enforce_eager": on_cpu if settings.enforce_eager is None else settings.enforce_eager,
        "structured_outputs_config": {"backend": "xgrammar"},
        "worker_extension_cls": EXTENSION,
        "seed": 0,
        # Only images are passed on. The engine reserves memory for all inputs that it may get.
        "limit_mm_per_prompt": {
            "image": settings.max_images or MAX_IMAGES, "video": 0, "audio": 0,
        },
    }  # fmt: skip
    if settings.tensor_parallel * settings.pipeline_parallel > 1:
        arguments |= {
            "tensor_parallel_size": settings.tensor_parallel,
            "pipeline_parallel_size": settings.pipeline_parallel,
        }
    if gpu is not None:
        arguments["gpu_memory_utilization"] = memory_share(settings.device_share)
    if settings.pool_bytes or on_cpu:
        share = max(LEAST_CACHE_BYTES, int(memory_bytes * CPU_CACHE_SHARE))
        arguments["kv_cache_memory_bytes"] = settings.pool_bytes or share
    if settings.enable_lora:
        max_loras, max_cpu_loras = count_adapters(settings, width, gpu, memory_bytes)
        arguments |= {
            "enable_lora": True,
            "max_loras": max_loras,
            "max_cpu_loras": max_cpu_loras,
            "max_lora_rank": buffer_rank(settings.max_lora_rank),
        }
    return {**arguments, **limit_memory(settings)}


def limit_memory(settings: EngineSettings) -> dict[str, Any]:
    """The options that are passed on. A copy has no more than its share of a GPU."""
    passed = dict(settings.vllm)
    if "gpu_memory_utilization" in passed:
        passed["gpu_memory_utilization"] = min(
            passed["gpu_memory_utilization"], settings.device_share
        )
    return passed


def sampling_arguments(request: Request, end_token_ids: Sequence[int]) -> dict[str, Any]:
    """Arguments of vLLM's SamplingParams. `structured_outputs` are arguments of another class.

    Raises ValueError for a value that vLLM would replace by another, and for a field that it is not
    given.
    """
    sampling = request.sampling
    check_given(request, OF_REQUEST)
    check_given(sampling, SAME)
    if 0 < sampling.temperature < LEAST_TEMPERATURE:
        raise ValueError(
            f"temperature is {sampling.temperature}; vLLM raises values between 0 and "
            f"{LEAST_TEMPERATURE:g} to {LEAST_TEMPERATURE:g}: give 0 (greedy) or at least that"
        )
    max_tokens = max(1, sampling.max_new_tokens)
    return dict(  # noqa: C408 - named arguments
        max_tokens=max_tokens,
        min_tokens=min(sampling.min_new_tokens, max_tokens),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        seed=None if sampling.seed is None else sampling.seed & SEED_BITS,
        stop_token_ids=stop_token_ids(sampling, end_token_ids),
        ignore_eos=sampling.structure is None,
        logprobs=sampling.num_logprobs,
        prompt_logprobs=request.num_prompt_logprobs,
        logit_bias=dict(sampling.logit_bias) or None,
        structured_outputs=structure_arguments(sampling.structure),
        detokenize=False,
    )


def check_given(value: Request | SamplingParams, given: frozenset[str]) -> None:
    """Raise ValueError if a field that is not in `given` has another value than its default."""
    for field in msgspec.structs.fields(value):
        if field.name in given:
            continue
        made = field.default_factory
        default = field.default if made is msgspec.NODEFAULT else made()
        if getattr(value, field.name) != default:
            raise ValueError(f"{field.name} is not done with vLLM; use option.backend=hostelry")


def stop_token_ids(sampling: SamplingParams, end_token_ids: Sequence[int]) -> list[int]:
    """The tokens that end the request: its own, and the model's unless they are ignored."""
    ends = () if sampling.ignore_eos else end_token_ids
    return list(dict.fromkeys((*sampling.stop_token_ids, *ends)))


def structure_arguments(structure: Structure | None) -> dict[str, Any] | None:
    """Arguments of vLLM's StructuredOutputsParams. Raises ValueError as the schema's check does."""
    if structure is None:
        return None
    match structure.kind:
        case "json_object":
            return {"json_object": True}
        case "json_schema":
            return {"json": rewrite_json_schema(structure.text)}
        case "regex":
            return {"regex": structure.text}
        case "grammar":
            return {"grammar": structure.text}
        case "choice":
            try:
                return {"choice": decode(structure.text, list[str])}
            except msgspec.MsgspecError as error:
                raise ValueError(f"the choice is no JSON list of texts: {error}") from error
        case "structural_tag":
            return {"structural_tag": rewrite_structural_tag(structure.text)}
