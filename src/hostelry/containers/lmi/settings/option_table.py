"""LMI's option names and the treatment of each."""

from collections.abc import Mapping
from dataclasses import dataclass

# Options that have an effect, or are checked to have the only supported value.
HONOURED = frozenset(
    {
        "engine", "model_id", "revision", "rolling_batch", "async_mode", "entryPoint", "task",
        "max_rolling_batch_size", "max_rolling_batch_prefill_tokens", "dtype", "max_model_len",
        "served_model_name", "output_formatter", "tgi_compat", "chat_template", "enable_lora",
        "max_loras", "max_lora_rank", "max_cpu_loras", "adapters", "model_loading_timeout",
        "predict_timeout", "job_queue_size", "enable_prefix_caching", "pool_bytes",
        "adapter_host_bytes", "adapter_cache_bytes", "tenants",
        "default_tenant", "first_token_deadline_s",
        "bedrock_compat", "pipeline_parallel_degree", "enable_venv",
        "chat_template_content_format",
    }
)  # fmt: skip

CONTINUOUS = "batching is continuous"
ONE_PROCESS = "the model runs in one process; answers are the same"
OWN_MEMORY = "this engine plans its own memory; answers are the same"
STREAMS = "a request's body or operation decides whether its answer is streamed"
NOT_NEEDED = "this engine knows no such setting; answers are the same"
NO_SPECULATION = "speculative decoding is not done; answers are the same"
NO_SESSIONS = "sessions are refused"
NO_TOOLS = "tool calls are refused"
NO_REASONING = "reasoning is not split from the answer"
ONE_WORKER = "a model server has one worker, started with it"
NO_TIMEOUT = "predict_timeout bounds the time between two tokens"

# Option name -> why it has no effect.
WITHOUT_EFFECT: Mapping[str, str] = {
    "adapter_cache_dir": "the operator names that folder: HOSTELRY_ADAPTER_CACHE_DIR",
    "trust_remote_code": "code from the model's repository is never run",
    "quantize": "only int8 is done; weights are computed as they are stored",
    "load_format": "weights are read from the model's safetensors files",
    "seed": "a request without a seed draws one of its own",
    "max_output_size": "an answer is bounded by its tokens, and by the gateway",
    "enable_streaming": STREAMS,
    "chunked_read_timeout": NO_TIMEOUT,
    "enforce_eager": "the model always runs eagerly",
    "enable_chunked_prefill": "long prompts are always computed in chunks; answers are the same",
    "long_lora_scaling_factors": "adapters are scaled as their own configuration says",
    "fully_sharded_loras": ONE_PROCESS,
    "tensor_parallel_degree": ONE_PROCESS,
    **dict.fromkeys(("batch_size", "max_batch_delay"), CONTINUOUS),
    **dict.fromkeys(
        ("gpu_memory_utilization", "cpu_offload_gb_per_gpu", "swap_space", "block_size"), OWN_MEMORY
    ),
    **dict.fromkeys(
        (
            "kv_cache_dtype", "lora_dtype", "lmcache_config_file", "lmcache_auto_config",
            "mpi_mode", "parallel_loading", "record_acceptance_rate", "disable_log_stats",
            "disable_log_requests", "disable_sliding_window", "lora_extra_vocab_size",
        ),
        NOT_NEEDED,
    ),
    **dict.fromkeys(
        ("enable_stateful_sessions", "sessions_path", "sessions_expiration"), NO_SESSIONS
    ),
    **dict.fromkeys(("enable_auto_tool_choice", "tool_call_parser"), NO_TOOLS),
    **dict.fromkeys(("enable_reasoning", "reasoning_parser"), NO_REASONING),
    **dict.fromkeys(
        (
            "draft_model_id", "spec_length", "speculative_draft_model", "speculative_config",
            "speculative_length", "draft_model_tp_size",
        ),
        NO_SPECULATION,
    ),
}  # fmt: skip

# Option name -> values that ask for the present behaviour. Every other option: NOTHING_ASKED.
NOTHING_ASKED = frozenset({"false", "none", "auto"})
SAME: Mapping[str, frozenset[str]] = {
    "quantize": frozenset({"int8", "none", "false", "auto"}),
    "tensor_parallel_degree": frozenset({"1", "max", "auto"}),
    "draft_model_tp_size": frozenset({"1"}),
    "batch_size": frozenset({"1"}),
    "cpu_offload_gb_per_gpu": frozenset({"0"}),
    "swap_space": frozenset({"0"}),
    "spec_length": frozenset({"0"}),
    "speculative_length": frozenset({"0"}),
    "load_format": frozenset({"auto", "safetensors"}),
    "seed": frozenset(),
    "enforce_eager": frozenset({"true"}),
    "enable_chunked_prefill": frozenset({"true"}),
    "minWorkers": frozenset({"1"}),
    "maxWorkers": frozenset({"1"}),
}

# Properties without the prefix that have an effect.
HONOURED_PROPERTIES = frozenset(
    {
        "bad_request_http_code", "throttle_error_http_code", "wlm_error_http_code",
        "timeout_http_code", "server_error_http_code", "max_request_size",
    }
)  # fmt: skip

# Properties without the prefix that configure DJL's own workers -> why they have no effect.
PROPERTIES_WITHOUT_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "minWorkers", "maxWorkers", "gpu.minWorkers", "gpu.maxWorkers", "cpu.minWorkers",
            "cpu.maxWorkers", "load_on_devices", "max_idle_time",
        ),
        ONE_WORKER,
    ),
    **dict.fromkeys(("required_memory_mb", "reserved_memory_mb"), OWN_MEMORY),
    "retry_threshold": "a request is never computed a second time",
    "log_request_metric": "metrics of single requests are not logged",
    "metrics_aggregation": "metrics of single requests are not logged",
    "chunked_read_timeout": NO_TIMEOUT,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RefusedValue:
    """Accepted values of an option, and the message about any other."""

    harmless: tuple[str, ...]
    allowed: str


REFUSED: Mapping[str, RefusedValue] = {
    "bedrock_compat": RefusedValue(
        ("false",), "false; the Bedrock form is not written by this server"
    ),
    "pipeline_parallel_degree": RefusedValue(("1",), "1"),
    "enable_venv": RefusedValue(
        ("false",), "false; requirements of the model folder are not installed"
    ),
    "chat_template_content_format": RefusedValue(
        ("auto", "string"), "auto or string; the template is given each content as one text"
    ),
}


def effect_missing(name: str, value: str) -> str | None:
    """The reason why an option (or property, with a slash before its name) has no effect.

    None for options that have one, for values that ask for the present behaviour, and for unknown
    names.
    """
    plain = name.removeprefix("/")
    table = PROPERTIES_WITHOUT_EFFECT if name.startswith("/") else WITHOUT_EFFECT
    return None if value.lower() in SAME.get(plain, NOTHING_ASKED) else table.get(plain)


def is_known(name: str) -> bool:
    """Whether LMI has the option, or the property where the name begins with a slash."""
    if name.startswith("/"):
        return name[1:] in HONOURED_PROPERTIES or name[1:] in PROPERTIES_WITHOUT_EFFECT
    return name in HONOURED or name in WITHOUT_EFFECT
