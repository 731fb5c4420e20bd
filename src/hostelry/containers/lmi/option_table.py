"""LMI's option names and what becomes of each here."""

from collections.abc import Mapping
from dataclasses import dataclass

ONE_PROCESS = "the model runs in one process; answers are the same"
UNQUANTIZED = "weights are computed as they are stored, not quantized at load"
NOT_NEEDED = "has no meaning for this engine; answers are the same"
NO_SPECULATION = "speculative decoding is not done; answers are the same"
NO_REMOTE_CODE = "code from the model's repository is never run"

# Option name -> empty where it is honoured (or is a name only), else why it changes nothing.
ACCEPTED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "engine", "model_id", "revision", "rolling_batch", "async_mode", "entryPoint",
            "max_rolling_batch_size", "max_rolling_batch_prefill_tokens", "dtype",
            "max_model_len", "served_model_name", "output_formatter", "tgi_compat",
            "bedrock_compat", "task", "chat_template", "enable_lora", "max_loras",
            "max_lora_rank", "max_cpu_loras", "model_loading_timeout", "predict_timeout",
            "job_queue_size", "enable_streaming", "batch_size", "max_batch_delay", "adapters",
            "pipeline_parallel_degree", "mpi_mode", "lora_extra_vocab_size",
            "chat_template_content_format", "fully_sharded_loras", "disable_sliding_window",
            "parallel_loading", "record_acceptance_rate", "gpu_memory_utilization",
            "enforce_eager", "enable_prefix_caching", "enable_chunked_prefill",
            "max_output_size", "chunked_read_timeout", "load_format", "enable_venv",
            "disable_log_stats", "disable_log_requests", "seed",
        ),
        "",
    ),
    "trust_remote_code": NO_REMOTE_CODE,
    "tensor_parallel_degree": ONE_PROCESS,
    "quantize": UNQUANTIZED,
    "kv_cache_dtype": NOT_NEEDED,
    "lora_dtype": NOT_NEEDED,
    "long_lora_scaling_factors": NOT_NEEDED,
    "cpu_offload_gb_per_gpu": NOT_NEEDED,
    "swap_space": NOT_NEEDED,
    "block_size": NOT_NEEDED,
    "lmcache_config_file": NOT_NEEDED,
    "lmcache_auto_config": NOT_NEEDED,
    "enable_stateful_sessions": "stateful sessions are not kept by this version",
    "sessions_path": NOT_NEEDED,
    "sessions_expiration": NOT_NEEDED,
    "enable_auto_tool_choice": "tool calls are refused by this version",
    "tool_call_parser": "tool calls are refused by this version",
    "enable_reasoning": "reasoning is not split from the answer by this version",
    "reasoning_parser": "reasoning is not split from the answer by this version",
    "draft_model_id": NO_SPECULATION,
    "spec_length": NO_SPECULATION,
    "speculative_draft_model": NO_SPECULATION,
    "speculative_config": NO_SPECULATION,
    "speculative_length": NO_SPECULATION,
    "draft_model_tp_size": NO_SPECULATION,
}  # fmt: skip

# Properties without the prefix that configure DJL's own workers and codes.
PASSIVE_PROPERTIES = frozenset(
    {
        "minWorkers", "maxWorkers", "gpu.minWorkers", "gpu.maxWorkers", "cpu.minWorkers",
        "cpu.maxWorkers", "load_on_devices", "max_idle_time", "required_memory_mb",
        "reserved_memory_mb", "retry_threshold", "log_request_metric", "metrics_aggregation",
        "bad_request_http_code", "throttle_error_http_code", "wlm_error_http_code",
        "timeout_http_code", "server_error_http_code", "max_request_size", "chunked_read_timeout",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limit:
    """Values of an option without effect on answers, and what to say about any other."""

    harmless: tuple[str, ...]
    allowed: str


REFUSED: Mapping[str, Limit] = {
    "bedrock_compat": Limit(("false",), "false; the Bedrock form is not written by this server"),
    "pipeline_parallel_degree": Limit(("1",), "1"),
    "enable_venv": Limit(("false",), "false; requirements of the model folder are not installed"),
}
