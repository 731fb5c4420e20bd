"""Every option of the tables is done, refused or without effect, as docs/llm-options.md says."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests.cases import case, cases
from tests.llm_pages import DOCS, PAGES

from hostelry.containers.lmi.settings import config as config_module
from hostelry.containers.lmi.settings.config import ImageKind, LmiConfig, resolve_config
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.settings.option_rows import (
    LMI_OPTIONS,
    PROPERTIES,
    OptionFate,
    OptionRow,
)
from hostelry.containers.lmi.settings.option_table import OPTIONS, TGI_VARIABLES
from hostelry.containers.lmi.settings.options import (
    ALIASES,
    OVERWRITING,
    PLAIN_NAMES,
    TGI_NAMES,
    Options,
    Setting,
)
from hostelry.containers.lmi.settings.vllm_options import VLLM_OPTIONS

ODD = "zz9"


def resolve(
    text: str = "",
    env: Mapping[str, str] = MappingProxyType({}),
    image: ImageKind = ImageKind.LMI,
) -> LmiConfig:
    return resolve_config(env, text, (), Path("/model"), 4, image)


def every_row() -> Iterator[tuple[str, OptionRow, str, dict[str, str], ImageKind]]:
    for name, row in OPTIONS.items():
        yield f"option.{name}", row, f"option.{name}={ODD}", {}, ImageKind.LMI
        variable = f"SM_VLLM_{name.upper()}"
        if name in VLLM_OPTIONS:
            yield variable, row, "", {variable: ODD}, ImageKind.VLLM
    for name, row in PROPERTIES.items():
        yield name, row, f"{name}={ODD}", {}, ImageKind.LMI
    for name, row in TGI_VARIABLES.items():
        yield name, row, "", {name: ODD}, ImageKind.TGI


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_are_made_from_the_tables(page: str) -> None:
    written = (DOCS / page).read_text(encoding="utf-8")
    assert PAGES[page]() == written, "run: python -m tests.llm_pages"


def test_an_option_without_effect_gives_one_warning_with_its_reason() -> None:
    for name, row, text, env, image in every_row():
        if row.fate is OptionFate.NO_EFFECT:
            (warning,) = resolve(text, env, image).warnings
            assert warning.startswith(name)
            assert row.text in warning


def test_a_refused_option_ends_the_start_with_its_name_and_what_it_must_be() -> None:
    for name, row, text, env, image in every_row():
        if row.fate is OptionFate.REFUSED:
            with pytest.raises(ConfigurationError) as caught:
                resolve(text, env, image)
            assert str(caught.value).startswith(name)
            assert row.text in str(caught.value)


def test_values_that_ask_for_nothing_give_no_warning() -> None:
    for name, row in OPTIONS.items():
        if row.fate is not OptionFate.DONE:
            for value in row.same - {""}:
                assert resolve(f"option.{name}={value}").warnings == ()


def test_done_options_are_those_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()

    class Seen(dict[str, Setting]):
        def get(self, name: str, default: Any = None) -> Any:
            read.add(name)
            return default

    options = Options()
    options.settings = Seen()
    monkeypatch.setattr(config_module, "merge_options", lambda *_: options)
    resolve()
    done = {name for name, row in OPTIONS.items() if row.fate is OptionFate.DONE}
    done |= {"/" + name for name, row in PROPERTIES.items() if row.fate is OptionFate.DONE}
    assert read == done


def test_a_name_is_in_one_table_and_every_other_name_leads_to_one() -> None:
    assert not LMI_OPTIONS.keys() & VLLM_OPTIONS.keys()
    assert not OPTIONS.keys() & ALIASES.keys()
    assert not TGI_VARIABLES.keys() & TGI_NAMES.keys()
    for target in (*ALIASES.values(), *PLAIN_NAMES.values(), *OVERWRITING.values()):
        assert target in OPTIONS or target.removeprefix("/") in PROPERTIES
    for target in TGI_NAMES.values():
        name = target.partition("_")[2].lower()
        assert name in (OPTIONS if target.startswith("OPTION_") else PROPERTIES)


@cases(
    "text, env, message",
    case("a slip", "option.max_lora_ranks=8", {}, "did you mean max_lora_rank or"),
    case("of a variable", "", {"SM_VLLM_MAX_MODEL_LENGTH": "9"}, "max_model_len"),
    case("like no other", "option.xyzzy=1", {}, "is not a known option;"),
    case("a property", "max_request_siz=1", {}, "did you mean max_request_size?"),
    case("endless", "option." + "a" * 90_000 + "=1", {}, "not a known option"),
)
def test_an_option_outside_the_tables_is_named_or_refused(
    text: str, env: dict[str, str], message: str
) -> None:
    (warning,) = resolve(text, env).warnings
    assert message in warning
    with pytest.raises(ConfigurationError, match="not a known"):
        resolve(f"{text}\noption.strict_options=true", env)


def test_no_message_shows_a_secret() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve("option.api_key=hunter2")
    assert "hunter2" not in str(caught.value)
    held = resolve(env={"SM_VLLM_HF_TOKEN": "hunter2"})
    assert held.hf_token == "hunter2"
    assert "hunter2" not in repr(held)


def test_every_argument_of_vllm_is_in_the_tables() -> None:
    """The names of vLLM 0.32, on one line each of EngineArgs and FrontendArgs."""
    for name in VLLM_NAMES.split():
        assert name in OPTIONS or name in ALIASES, name


VLLM_NAMES = """
additional_config aggregate_engine_logging all2all_backend allow_credentials
allow_deprecated_quantization allowed_headers allowed_local_media_path allowed_media_domains
allowed_methods allowed_origins anthropic_disabled_thinking_effort api_key async_scheduling
attention_backend attention_config aux_output_config block_size chat_template
chat_template_content_format code_revision cohere_format cohere_is_reasoning_model
collect_detailed_traces compilation_config config_format convert cp_kv_cache_interleave_size
cpu_distributed_timeout_seconds cpu_offload_gb cpu_offload_params cudagraph_capture_sizes
cudagraph_metrics custom_histogram_buckets data_parallel_address data_parallel_backend
data_parallel_external_lb data_parallel_hybrid_lb data_parallel_multi_port_external_lb
data_parallel_rank data_parallel_rpc_port data_parallel_size data_parallel_size_local
data_parallel_start_rank data_parallel_supervisor_port dbo_decode_token_threshold
dbo_prefill_token_threshold dcp_comm_backend dcp_kv_cache_interleave_size dcp_q_replicate
decode_context_parallel_size default_chat_template_kwargs default_mm_loras device_ids
diffusion_config disable_access_log_for_endpoints disable_cascade_attn disable_chunked_mm_input
disable_custom_all_reduce disable_fastapi_docs disable_hybrid_kv_cache_manager disable_log_stats
disable_nccl_for_dp_synchronization disable_sliding_window disable_uvicorn_access_log
distributed_executor_backend distributed_timeout_seconds download_dir
dp_supervisor_probe_failure_threshold dp_supervisor_probe_interval_s dp_supervisor_probe_timeout_s
dp_sync_interval dtype ec_manager_config ec_transfer_config elastic_ep_max_dp_size
enable_auto_tool_choice enable_batch_sharded_sampling enable_chunked_prefill
enable_cumem_allocator enable_dbo enable_elastic_ep enable_ep_weight_filter enable_eplb
enable_expert_parallel enable_fault_tolerance enable_flash_late_interaction
enable_flashinfer_autotune enable_force_include_usage enable_hc_sp enable_layerwise_nvtx_tracing
enable_log_deltas enable_log_outputs enable_log_requests enable_logging_iteration_details
enable_lora enable_mamba_cache_stochastic_rounding enable_mamba_shared_prefix_checkpoint
enable_mfu_metrics enable_mixed_moe_lora_format enable_mm_embeds enable_mm_processor_stats
enable_moe_shared_loras enable_nccl_comm_suspend enable_offline_docs enable_per_request_metrics
enable_prefix_caching enable_prompt_embeds enable_prompt_tokens_details enable_request_id_headers
enable_return_routed_experts enable_scale_out enable_server_load_tracking enable_shm_tensor_arena
enable_sleep_mode enable_ssl_refresh enable_tokenizer_info_endpoint enable_tower_connector_lora
enable_trace_replay enforce_eager engram_config eplb_config exclude_tools_when_tool_choice_none
expert_placement_strategy fail_on_environ_validation fault_tolerance_config fingerprint_mode
fingerprint_value fully_sharded_loras gdn_prefill_backend generation_config gpu_memory_utilization
grpc_port h11_max_header_count h11_max_incomplete_event_size hf_config_path hf_overrides hf_token
host ignore_patterns interleave_mm_strings io_processor_plugin ir_op_priority jit_monitor_mode
jit_monitor_verbose kda_decode_backend kda_prefill_backend kernel_config kv_cache_dtype
kv_cache_dtype_skip_layers kv_cache_memory_bytes kv_cache_metrics kv_cache_metrics_sample
kv_events_config kv_offloading_backend kv_offloading_size kv_sharing_fast_prefill
kv_transfer_config language_model_only limit_mm_per_prompt linear_backend load_format
log_config_file log_error_stack log_level logging_config logits_processors logprobs_mode
long_prefill_token_threshold long_prefill_token_threshold_adaptive lora_dtype lora_modules
lora_target_modules mamba_backend mamba_block_size mamba_cache_dtype mamba_cache_mode
mamba_cache_philox_rounds mamba_config mamba_ssm_cache_dtype mamba_ssu_algorithm master_addr
master_port max_cpu_loras max_cudagraph_capture_size max_log_len max_logprobs max_lora_cls_labels
max_lora_rank max_loras max_model_len max_num_active_seqs max_num_batched_tokens
max_num_queued_reqs max_num_queued_tokens max_num_scheduled_tokens max_num_seqs
max_parallel_loading_workers media_io_kwargs middleware mm_device_do_normalize
mm_encoder_attn_backend mm_encoder_attn_dtype mm_encoder_fp8_scale_path
mm_encoder_fp8_scale_save_margin mm_encoder_fp8_scale_save_path mm_encoder_only mm_encoder_tp_mode
mm_hasher_algorithm mm_ipc_gpu_memory_gb mm_processor_cache_gb mm_processor_cache_type
mm_processor_device mm_processor_kwargs mm_shm_cache_max_object_size_mb mm_tensor_ipc model
model_class_overrides model_impl model_loader_extra_config model_weights moe_backend nnodes
node_rank num_gpu_blocks_override numa_bind numa_bind_cpus numa_bind_nodes offload_backend
offload_group_size offload_num_in_group offload_params offload_prefetch_step optimization_level
otlp_traces_endpoint override_generation_config per_request_spec_decode_metrics performance_mode
pipeline_parallel_size pooler_config port prefill_context_parallel_size prefill_schedule_interval
prefix_cache_retention_interval prefix_caching_hash_algo prefix_match_unit profiler_config
pt_load_map_location quantization quantization_config ray_workers_use_nsight reasoning_config
reasoning_parser reasoning_parser_plugin renderer_num_workers replayssm_buffer_len response_role
return_sampling_mask return_tokens_as_token_ids revision root_path runner
safetensors_load_strategy safetensors_prefetch_block_size safetensors_prefetch_num_threads
scheduler_cls scheduler_reserve_full_isl scheduling_policy seed served_model_name
show_hidden_metrics_for_version shutdown_timeout skip_mm_profiling skip_tokenizer_init
sleep_mode_offload_cudagraph sleep_preserve_parameter_names sparse_indexer_topk_backend
spec_method spec_model spec_tokens specialize_active_lora speculative_config
sse_keep_alive_interval ssl_ca_certs ssl_cert_reqs ssl_certfile ssl_ciphers ssl_keyfile
stream_interval structured_outputs_config swa_bounded_replay tensor_parallel_size tokenizer
tokenizer_mode tokenizer_revision tokens_only tool_call_parser tool_parser_plugin tool_server
tool_strict_level trust_remote_code trust_request_chat_template trust_request_mm_kwargs
ubatch_size uds use_fp64_gumbel use_replayssm use_tqdm_on_load uvicorn_log_level
video_pruning_method video_pruning_rate watermark watermark_config weight_transfer_config
worker_cls worker_extension_cls
"""
