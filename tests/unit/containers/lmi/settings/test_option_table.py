"""Every option of the tables is done, refused or without effect, as docs/llm-options.md says."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from tests.cases import case, cases
from tests.llm_pages import DOCS, PAGES

from hostelry.containers.lmi.settings import config as config_module
from hostelry.containers.lmi.settings.config import ImageKind, LmiConfig, resolve_config
from hostelry.containers.lmi.settings.engine_terms import Backend
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.settings.option_rows import (
    LMI_OPTIONS,
    NOTHING_ASKED,
    PROPERTIES,
    OptionFate,
    OptionRow,
    Treatment,
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
from hostelry.containers.lmi.settings.vllm_forms import Path as PathForm
from hostelry.containers.lmi.settings.vllm_forms import read_form
from hostelry.containers.lmi.settings.vllm_options import VLLM_OPTIONS
from hostelry.containers.lmi.vllm.arguments import engine_arguments
from hostelry.containers.lmi.vllm.sizes import Gpu

ODD = "zz9"
H100 = Gpu(name="NVIDIA H100", memory_bytes=80 << 30)


def resolve(
    text: str = "",
    env: Mapping[str, str] = MappingProxyType({}),
    image: ImageKind = ImageKind.LMI,
) -> LmiConfig:
    return resolve_config(env, text, (), Path("/model"), 4, image)


# Values of options that one engine does, whose form is checked for both.
SAMPLES = {
    "option.task": "embed", "option.pooling": "mean", "option.normalize": "true",
    "option.fuse_adapter": "es\noption.enable_lora=true", "option.adapter_cache_bytes": "5",
    "option.enforce_eager": "false", "option.limit_mm_per_prompt": "image=2",
    "option.allowed_media_domains": "a.example", "option.pipeline_parallel_degree": "2",
}  # fmt: skip
ENGINES = (Backend.HOSTELRY, Backend.VLLM)


class Given(NamedTuple):
    """A way to give one option the value ODD, or a value that vLLM takes."""

    name: str
    treatment: Treatment
    engine: Backend
    text: str
    env: dict[str, str]
    image: ImageKind

    @property
    def sample(self) -> str:
        return SAMPLES.get(self.name.lower().replace("sm_vllm_", "option."), ODD)

    def resolve(self, value: str | None = None) -> LmiConfig:
        value = value or self.sample
        env = dict.fromkeys(self.env, value)
        chosen = {"OPTION_BACKEND": self.engine.value}
        return resolve(self.text.replace(ODD, value), {**chosen, **env}, self.image)


def every_treatment(fate: OptionFate) -> Iterator[Given]:
    for engine in ENGINES:
        for name, row, text, env, image in every_row():
            treatment = row.vllm if engine is Backend.VLLM else row.ours
            given = Given(name, treatment, engine, text, env, image)
            # The value false leaves out the variable of a vLLM image.
            is_left_out = env and "false" in (given.sample, treatment.example)
            if treatment.fate is fate and name != "option.backend" and not is_left_out:
                yield given


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
    for given in every_treatment(OptionFate.NO_EFFECT):
        (warning,) = given.resolve().find_warnings(given.engine)
        assert warning.startswith(given.name)
        assert given.treatment.text in warning


def test_a_refused_option_ends_the_start_with_its_name_and_what_it_must_be() -> None:
    for given in every_treatment(OptionFate.REFUSED):
        with pytest.raises(ConfigurationError) as caught:
            given.resolve()
        assert str(caught.value).startswith(given.name)
        assert given.treatment.text in str(caught.value)


def test_an_option_that_is_passed_on_reaches_vllm_and_only_in_the_right_form() -> None:
    for given in every_treatment(OptionFate.PASSED):
        treatment = given.treatment
        argument = treatment.argument or given.name.lower().rpartition("option.")[2].removeprefix(
            "sm_vllm_"
        )
        config = given.resolve(treatment.example)
        assert config.find_warnings(Backend.VLLM) == ()
        made = engine_arguments("/model", config.engine, gpu=H100, memory_bytes=1 << 30)
        assert made[argument] == read_form(treatment.example, treatment.form), given
        if treatment.form is not PathForm:
            with pytest.raises(ConfigurationError, match=given.name):
                given.resolve("zz9!")


def test_values_that_ask_for_nothing_are_not_passed_on_and_give_no_warning() -> None:
    for name, row in OPTIONS.items():
        for engine, treatment in zip(ENGINES, (row.ours, row.vllm), strict=True):
            if OptionFate.DONE not in (row.ours.fate, row.vllm.fate):
                for value in treatment.same - {""}:
                    dtype = (
                        value if name == "kv_cache_dtype" and value not in NOTHING_ASKED else "auto"
                    )
                    config = resolve(
                        f"option.{name}={value}\noption.backend={engine.value}\n"
                        f"option.dtype={dtype}"
                    )
                    assert config.find_warnings(engine) == ()
                    assert not config.engine.vllm


def test_options_are_read_if_an_engine_does_them_or_gets_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: set[str] = set()

    class Seen(dict[str, Setting]):
        def get(self, name: str, default: Any = None) -> Any:
            read.add(name)
            return default

    options = Options()
    options.settings = Seen()
    monkeypatch.setattr(config_module, "merge_options", lambda *_: options)
    resolve()
    fates = {OptionFate.DONE, OptionFate.PASSED}
    known = {**OPTIONS, **{"/" + name: row for name, row in PROPERTIES.items()}}
    assert read == {name for name, row in known.items() if {row.ours.fate, row.vllm.fate} & fates}


@cases(
    "text, refused_by, message",
    case("a cache of 8 bits is vLLM's", "option.kv_cache_dtype=fp8", Backend.HOSTELRY,
        "it must be auto, or the computing type"),
    case("weights of 8 bits are ours", "option.quantize=int8", Backend.VLLM, "left out"),
    case("other quantized weights are vLLM's", "option.quantize=awq", Backend.HOSTELRY, "int8"),
    case("vectors are ours", "option.task=embed", Backend.VLLM, "vLLM only generates text here"),
    case("a merged adapter is ours", "option.enable_lora=true\noption.fuse_adapter=es",
        Backend.VLLM, "adapters are applied unmerged"),
)  # fmt: skip
def test_an_option_that_one_engine_follows(text: str, refused_by: Backend, message: str) -> None:
    terms = resolve(text).terms
    (refusal,) = terms.of(refused_by).refusals
    assert message in refusal
    (other,) = set(ENGINES) - {refused_by}
    assert terms.of(other).refusals == ()
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        resolve(f"{text}\noption.backend={refused_by.value}")


@cases(
    "text, message",
    case("a share above one", "option.gpu_memory_utilization=1.5",
        "Expected `float` <= 1.0; it is the share of each GPU's memory"),
    case("a kind of quantization that does not exist", "option.quantize=int3", "must be one of"),
    case("a module for the compiler", 'option.compilation_config={"backend": "os.system"}',
        "unknown field `backend`"),
    case("a method that runs code", 'option.speculative_config={"method": "custom_class"}',
        "Invalid enum value 'custom_class'"),
    case("code of a draft model", 'option.speculative_config={"trust_remote_code": true}',
        "unknown field `trust_remote_code`"),
    case("a cache server", "option.kv_offloading_backend=lmcache", "must be one of"),
    case("a name with a path", "option.attention_backend=../x", "matching regex"),
    case("no object", "option.compilation_config=3", "Expected `object`"),
    case("endless nesting", "option.eplb_config=" + "[" * 100_000, "option.eplb_config"),
    case("two options of different engines", "option.kv_cache_dtype=fp8\noption.quantize=int8",
        "with our own engine it must be auto, or the computing type; option.quantize"),
)  # fmt: skip
def test_a_value_that_no_engine_takes_ends_the_start(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        resolve(text)


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
    (warning,) = resolve(text, env).terms.warnings
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
