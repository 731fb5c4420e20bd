"""Arguments of vLLM's engine and of `vllm serve`, under their own names.

Arguments that LMI has under another name are in `options.ALIASES`. Those that vLLM gets as they are
given are in `passed_options`.
Source: vLLM 0.32, EngineArgs, AsyncEngineArgs and FrontendArgs, and some names of older versions.
"""

from hostelry.containers.lmi.settings.option_rows import (
    NO_CACHE_SERVER,
    NO_SPECULATION,
    ONE_PROCESS,
    OWN_MEMORY,
    Rows,
    always_on,
    by_engine,
    done,
    each,
    refused,
    without_effect,
)
from hostelry.containers.lmi.settings.passed_options import (
    DENSE_ONLY,
    KERNELS,
    NO_STATE_SPACE,
    OWN_STEPS,
    PASSED_OPTIONS,
    TEXT_ONLY,
)

LOADING = "weights are read from the model's safetensors files"
WATCHING = "it is for logs, metrics and traces"
GATEWAY = "clients meet the gateway, not this server"
NO_CODE = "code of the model's author is not run in this server"

MODEL_ARGUMENTS: Rows = {
    "max_model_len": done("the most tokens of a request, prompt and answer together"),
    "served_model_name": done("the model's names, by commas, spaces or as a JSON list. Answers "
                              "have the first"),
    "enable_prefix_caching": done("pages of prompts that begin alike are kept"),
    "seed": done("seeds of requests that give none are drawn from it, in order of arrival"),
    "max_logprobs": done("the most alternatives of a token that a request may ask for"),
    "hf_overrides": done("a JSON object whose members replace members of config.json"),
    "rope_scaling": done("a JSON object in the place of config.json's"),
    "rope_theta": done("a number in the place of config.json's"),
    "hf_token": done("the token to fetch the model with"),
    "generation_config": done("where defaults of sampling come from: auto, vllm, or a folder "
                              "inside the model folder"),
    "override_generation_config": done("a JSON object of defaults of sampling"),
    "load_format": without_effect(LOADING, "safetensors"),
    "config_format": without_effect("the model folder's config.json is read", "hf"),
    "enforce_eager": by_engine(
        ours=always_on(KERNELS),
        vllm=done(
            "false compiles the model at the start, true never does. Default: it compiles on GPUs"
        ),
    ),
    "code_revision": without_effect("code of a model's repository is never run"),
    "runner": refused("auto or generate", "generate"),
    "convert": refused("auto or none: this server generates text"),
    "pooler_config": refused("left out: this server generates text"),
    "tokenizer": refused(
        "left out: the model folder's tokenizer is used. Put its files there"
    ),
    "tokenizer_mode": refused("auto or hf: the model folder's tokenizer.json is read", "hf",
                              "fast"),
    "tokenizer_revision": refused("left out: the tokenizer is of the model's own revision"),
    "skip_tokenizer_init": refused("false: answers are text"),
    "hf_config_path": refused("left out: the model folder's config.json is used. hf_overrides "
                              "replaces its members"),
    "model_class_overrides": refused("left out: " + NO_CODE),
    "logits_processors": refused("left out: " + NO_CODE),
    "logprobs_mode": refused("raw_logprobs: of the model's own distribution, before penalties and "
                             "temperature", "raw_logprobs"),
    "disable_sliding_window": refused(
        "false: a max_model_len of the window's size gives the answers that it would"
    ),
    "quantization_config": refused("left out: weights are computed as they are stored"),
    "enable_return_routed_experts": refused("false: answers carry no routes of experts"),
    "return_sampling_mask": refused("false: answers carry no mask of tokens"),
    "watermark_config": refused("left out: answers are not watermarked"),
    "diffusion_config": refused("left out: no diffusion model is served"),
    "aux_output_config": refused("left out: answers carry nothing else"),
    "attention_config": without_effect(KERNELS),
    "engram_config": refused("left out: no model with such tables is served"),
    "additional_config": refused("left out: this engine has no other settings"),
    "enable_prompt_embeds": without_effect("prompts as embeddings are refused by request"),
    "enable_trace_replay": without_effect("a request with such tokens is refused"),
    "structured_outputs_config": without_effect(
        "one backend compiles structures, and each answer matches its structure"
    ),
    **each(
        "worker_cls worker_extension_cls scheduler_cls io_processor_plugin "
        "reasoning_parser_plugin tool_parser_plugin middleware",
        refused("left out: " + NO_CODE),
    ),
}  # fmt: skip

ADAPTER_ARGUMENTS: Rows = {
    "lora_modules": done("adapters of the start: NAME=PATH by spaces, or JSON objects with name "
                         "and path. A path is inside the model folder, or an id of the hub"),
    "lora_target_modules": refused("left out: every module that an adapter names is applied"),
    "default_mm_loras": without_effect(TEXT_ONLY),
    "enable_tower_connector_lora": without_effect(TEXT_ONLY),
    "max_lora_cls_labels": without_effect("no classifying adapter is loaded"),
}  # fmt: skip

MACHINE_ARGUMENTS: Rows = {
    **each(
        "tensor_parallel_size_local distributed_executor_backend worker_use_ray nnodes node_rank "
        "master_addr master_port distributed_timeout_seconds cpu_distributed_timeout_seconds "
        "numa_bind numa_bind_nodes numa_bind_cpus device_ids ray_workers_use_nsight "
        "enable_shm_tensor_arena max_parallel_loading_workers "
        "prefill_context_parallel_size decode_context_parallel_size dcp_comm_backend "
        "dcp_q_replicate dcp_kv_cache_interleave_size cp_kv_cache_interleave_size "
        "data_parallel_size data_parallel_rank data_parallel_start_rank data_parallel_size_local "
        "data_parallel_address data_parallel_rpc_port data_parallel_hybrid_lb "
        "data_parallel_external_lb data_parallel_multi_port_external_lb data_parallel_backend "
        "enable_hc_sp enable_batch_sharded_sampling enable_elastic_ep elastic_ep_max_dp_size "
        "enable_dbo ubatch_size dbo_decode_token_threshold dp_sync_interval "
        "dbo_prefill_token_threshold disable_nccl_for_dp_synchronization enable_nccl_comm_suspend "
        "fault_tolerance_config enable_fault_tolerance api_server_count headless "
        "data_parallel_supervisor_port dp_supervisor_probe_interval_s "
        "dp_supervisor_probe_timeout_s dp_supervisor_probe_failure_threshold",
        without_effect(ONE_PROCESS, "1", "0", "mp"),
    ),
    **each(
        "num_redundant_experts eplb_window_size eplb_step_interval eplb_log_balancedness",
        without_effect(DENSE_ONLY),
    ),
    **each(
        "device_memory_utilization enable_sleep_mode sleep_mode_offload_cudagraph "
        "sleep_preserve_parameter_names enable_cumem_allocator swa_bounded_replay "
        "calculate_kv_scales num_lookahead_slots preemption_mode",
        without_effect(OWN_MEMORY),
    ),
    "swap_space": without_effect(OWN_MEMORY, "0"),
    **each("kv_transfer_config kv_events_config ec_transfer_config ec_manager_config",
           without_effect(NO_CACHE_SERVER)),
    **each(
        "max_seq_len_to_capture ir_op_priority sparse_indexer_topk_backend kernel_config "
        "kda_decode_backend",
        without_effect(KERNELS),
    ),
    **each(
        "mamba_config enable_mamba_shared_prefix_checkpoint replayssm_buffer_len use_replayssm "
        "mamba_backend "
        "mamba_ssu_algorithm enable_mamba_cache_stochastic_rounding mamba_cache_philox_rounds",
        without_effect(NO_STATE_SPACE),
    ),
    **each(
        "max_num_partial_prefills max_long_partial_prefills long_prefill_token_threshold_adaptive "
        "max_num_active_seqs prefill_schedule_interval scheduler_delay_factor num_scheduler_steps",
        without_effect(OWN_STEPS, "1"),
    ),
    **each("max_num_queued_reqs max_num_queued_tokens",
           without_effect("job_queue_size bounds the requests that wait")),
    **each("speculative_model num_speculative_tokens per_request_spec_decode_metrics",
           without_effect(NO_SPECULATION)),
    **each(
        "download_dir safetensors_prefetch_num_threads "
        "safetensors_prefetch_block_size model_loader_extra_config ignore_patterns "
        "use_tqdm_on_load pt_load_map_location model_weights weight_transfer_config",
        without_effect(LOADING),
    ),
}  # fmt: skip

MEDIA_ARGUMENTS: Rows = each(
    "language_model_only enable_mm_embeds interleave_mm_strings "
    "media_io_kwargs mm_processor_kwargs mm_processor_cache_type "
    "mm_hasher_algorithm mm_shm_cache_max_object_size_mb mm_encoder_only "
    "mm_encoder_attn_backend mm_encoder_attn_dtype mm_encoder_fp8_scale_path "
    "mm_encoder_fp8_scale_save_path mm_encoder_fp8_scale_save_margin renderer_num_workers "
    "video_pruning_rate video_pruning_method mm_tensor_ipc mm_processor_device "
    "mm_ipc_gpu_memory_gb mm_device_do_normalize "
    "allowed_local_media_path trust_request_mm_kwargs disable_mm_preprocessor_cache",
    without_effect(TEXT_ONLY),
) | {
    "limit_mm_per_prompt": by_engine(
        ours=without_effect(TEXT_ONLY),
        vllm=done('the most images of a request, {"image": 2}'),
    ),
    "allowed_media_domains": by_engine(
        ours=without_effect(TEXT_ONLY),
        vllm=done("which of the operator's hosts (HOSTELRY_MEDIA_DOMAINS) images may come from"),
    ),
}

FRONTEND_ARGUMENTS: Rows = {
    "chat_template": done("the template's text, or its file inside the model folder"),
    "chat_template_content_format": refused(
        "auto or string: the template is given each content as one text", "string"
    ),
    "default_chat_template_kwargs": done(
        "a JSON object: variables of the chat template. A request's variables win"
    ),
    "trust_request_chat_template": done("true allows requests to have a template"),
    "response_role": refused("assistant, the role of every answer", "assistant"),
    "return_tokens_as_token_ids": refused("false: tokens in log-probabilities are texts"),
    "enable_force_include_usage": refused(
        "false: a request asks for it with stream_options.include_usage"
    ),
    "enable_prompt_tokens_details": refused("false: usage counts tokens without details"),
    "enable_per_request_metrics": refused("false: answers carry no times"),
    "fingerprint_mode": refused(
        "left out, or none: answers carry no system_fingerprint", "full", "hash"
    ),
    "fingerprint_value": refused("left out: answers carry no system_fingerprint"),
    "api_key": refused("left out: keys of clients are the gateway's"),
    "tool_server": refused("left out: no tools are run here"),
    "tokens_only": refused("false: requests and answers are text"),
    "config": refused("left out: give each argument as a separate variable"),
    "enable_auto_tool_choice": done("false: calls only where a request forces them"),
    "tool_call_parser": done("how the model writes calls. Default: by its template"),
    "exclude_tools_when_tool_choice_none": refused("false: the template always gets the tools"),
    "tool_strict_level": refused("left out: a tool's own strict is honoured"),
    "enable_reasoning": done("false: reasoning stays in the content"),
    "reasoning_parser": done("how the model writes reasoning. Default: by its template"),
    "reasoning_config": refused("left out: reasoning_parser names the marks"),
    **each("cohere_is_reasoning_model cohere_format anthropic_disabled_thinking_effort",
           without_effect("routes of Cohere and Anthropic are not served", "true", "cmd4")),
    **each("enable_scale_out enable_tokenizer_info_endpoint enable_server_load_tracking "
           "enable_offline_docs disable_fastapi_docs enable_flash_late_interaction",
           without_effect("that route is not served")),
    "sse_keep_alive_interval": without_effect("streams carry tokens only", "0"),
    "enable_request_id_headers": without_effect("the gateway names requests"),
    "shutdown_timeout": without_effect("requests in flight have 8 s to finish", "0"),
    "fail_on_environ_validation": without_effect("strict_options refuses unknown options"),
    **each("host port grpc_port uds",
           without_effect("the process that starts the server chooses its address")),
    **each(
        "allow_credentials allowed_origins allowed_methods allowed_headers ssl_keyfile "
        "ssl_certfile ssl_ca_certs enable_ssl_refresh ssl_cert_reqs ssl_ciphers root_path "
        "h11_max_incomplete_event_size h11_max_header_count",
        without_effect(GATEWAY),
    ),
    **each(
        "disable_log_stats disable_log_requests enable_log_requests aggregate_engine_logging "
        "show_hidden_metrics_for_version otlp_traces_endpoint collect_detailed_traces "
        "kv_cache_metrics kv_cache_metrics_sample custom_histogram_buckets cudagraph_metrics "
        "enable_layerwise_nvtx_tracing enable_mfu_metrics enable_logging_iteration_details "
        "jit_monitor_mode jit_monitor_verbose enable_mm_processor_stats profiler_config "
        "logging_config log_level log_config_file max_log_len enable_log_outputs "
        "enable_log_deltas log_error_stack uvicorn_log_level disable_uvicorn_access_log "
        "disable_access_log_for_endpoints",
        without_effect(WATCHING, "true"),
    ),
}  # fmt: skip

VLLM_OPTIONS: Rows = {
    **PASSED_OPTIONS,
    **MODEL_ARGUMENTS,
    **ADAPTER_ARGUMENTS,
    **MACHINE_ARGUMENTS,
    **MEDIA_ARGUMENTS,
    **FRONTEND_ARGUMENTS,
}
