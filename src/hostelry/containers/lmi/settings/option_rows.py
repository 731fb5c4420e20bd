"""Rows of options: LMI's, DJL Serving's under it, and this server's own.

Source: DJL Serving's LMI configuration guide and its properties of Python engines, vLLM, TRT-LLM.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.containers.lmi.settings.vllm_forms import Gib, Quantization

# Values that ask for nothing, for every option.
NOTHING_ASKED = frozenset({"", "false", "none", "null", "auto", "{}", "[]"})
ONE_PROCESS = "tensor_parallel_degree alone divides a model, over ranks on one machine"
OWN_MEMORY = "the engine plans its own memory"
NO_SPECULATION = "speculative decoding is for vLLM, by speculative_config"
TENSOR_RT = "it builds or tunes a TensorRT-LLM engine, and none is built here"
NEURON = "it compiles for Neuron devices, and none is used here"
NO_VECTORS = "vLLM only generates text here"
ONE_WORKER = "a model server has one worker, started with it"
NO_TIMEOUT = "predict_timeout bounds the time between two tokens"
NO_CACHE_SERVER = "no other server's KV cache is used"
OTHER_MODELS = "it is not for language models"

# Names of `entryPoint` that are handlers of LMI for generating language models.
OWN_HANDLERS = (
    "djl_python.huggingface",
    "djl_python.lmi_vllm.vllm_async_service",
    "djl_python.lmi_trtllm.trtllm_async_service",
    "djl_python.tensorrt_llm",
    "djl_python.lmi_dist",
    "djl_python.transformers_neuronx",
    "djl_python.deepspeed",
)


class OptionFate(Enum):
    """Treatment of an option's values."""

    DONE = "done"  # read, or checked to have a value that is done
    PASSED = "passed on"  # to vLLM's engine, once the value has the right form
    REFUSED = "refused"  # any value but those in `same` ends the start
    NO_EFFECT = "no effect"  # accepted with a warning: it cannot change an answer


class Treatment(msgspec.Struct, frozen=True):
    """What one engine does with an option.

    `text` says the effect of an option that is done or passed on, the value that a refused option
    must have, or why an option has no effect. `same` are the values (in lower case) that change
    nothing. Of an option that is passed on, `form` is the type of its values, `example` is one of
    them, and `argument` is vLLM's name if it is another name.
    """

    fate: OptionFate
    text: str
    same: frozenset[str] = NOTHING_ASKED
    form: Any = None
    example: str = ""
    argument: str = ""

    def asks_nothing(self, value: str) -> bool:
        """True if `value` changes nothing."""
        return value.strip().lower() in self.same


class OptionRow(msgspec.Struct, frozen=True):
    """What our own engine and vLLM do with one option."""

    ours: Treatment
    vllm: Treatment


Rows = Mapping[str, OptionRow]


def by_both(treatment: Treatment) -> OptionRow:
    """A row of an option that both engines treat alike."""
    return OptionRow(treatment, treatment)


def by_engine(*, ours: OptionRow, vllm: OptionRow) -> OptionRow:
    """A row with the treatments of two rows."""
    return OptionRow(ours.ours, vllm.vllm)


def done(text: str) -> OptionRow:
    """A row of an option that has an effect."""
    return by_both(Treatment(OptionFate.DONE, text))


def refused(text: str, *same: str) -> OptionRow:
    """A row of an option that must be as `text` says."""
    return by_both(Treatment(OptionFate.REFUSED, text, NOTHING_ASKED | frozenset(same)))


def without_effect(text: str, *same: str) -> OptionRow:
    """A row of an option that cannot change an answer, for the reason `text`."""
    return by_both(Treatment(OptionFate.NO_EFFECT, text, NOTHING_ASKED | frozenset(same)))


def always_on(text: str) -> OptionRow:
    """A row of a switch that is always on, for the reason `text`, so that it has no effect."""
    return by_both(Treatment(OptionFate.NO_EFFECT, text, NOTHING_ASKED - {"false"} | {"true"}))


def pass_on(
    text: str, form: Any, example: str, *, ours: OptionRow, argument: str = "", same: str = ""
) -> OptionRow:
    """A row of an option that vLLM gets. `ours` has the treatment by our own engine.

    False is a value like others. `same` are more values, between spaces, that vLLM does not get.
    """
    nothing = NOTHING_ASKED - {"false"} | frozenset(same.split())
    return OptionRow(
        ours.ours, Treatment(OptionFate.PASSED, text, nothing, form, example, argument)
    )


def each(names: str, row: OptionRow) -> dict[str, OptionRow]:
    """`row` for each of the names."""
    return dict.fromkeys(names.split(), row)


LMI_OPTIONS: Rows = {
    "engine": done("Python or MPI, which are the same here"),
    "model_id": done("the model: an id of the hub, or a folder inside the model folder"),
    "revision": done("the revision of a model of the hub"),
    "backend": done("the engine: auto, hostelry or vllm"),
    "rolling_batch": done(
        "vllm, trtllm and lmi-dist select the legacy dialect, vllm also its engine if installed"
    ),
    "async_mode": done("true contradicts a named rolling batch"),
    "entryPoint": done("one of LMI's own handlers for language models, or model.py"),
    "task": by_engine(
        ours=done(
            "auto, generate, text-generation, text-embedding, feature-extraction, embed, classify, "
            "text-classification, score, rerank"
        ),
        vllm=refused("auto or generate: " + NO_VECTORS, "generate", "text-generation"),
    ),
    "pooling": by_engine(
        ours=done("a pooling mode in place of the model files' own"),
        vllm=refused("left out: " + NO_VECTORS),
    ),
    "normalize": by_engine(
        ours=done("whether embeddings are divided by their length"),
        vllm=refused("left out: " + NO_VECTORS),
    ),
    "max_rolling_batch_size": by_engine(
        ours=done("requests in one step"),
        vllm=done("requests in one step. Default: by the device"),
    ),
    "max_rolling_batch_prefill_tokens": done("tokens in one step"),
    "dtype": done("the computing type: auto, fp32, bf16, fp16"),
    "quantize": pass_on(
        "the kind of quantization. Default: as the weights are stored", Quantization, "fp8",
        ours=refused(
            "int8, which needs native kernels on CPU, or left out: weights are then computed as "
            "they are stored", "int8"
        ),
        argument="quantization", same="false",
    ),
    "output_formatter": done("the form of answers to inputs"),
    "tgi_compat": done("answers to inputs in the form of TGI"),
    "tensor_parallel_degree": done(
        "the ranks that divide the model, one for each accelerator: a number or max. Default: the "
        "reserved accelerators. On CPUs one process computes"
    ),
    "pipeline_parallel_degree": by_engine(
        ours=refused("1", "1"), vllm=done("the stages of each rank")
    ),
    "enable_lora": done("adapters, and the routes that change them"),
    "max_loras": by_engine(
        ours=done("distinct adapters in one step. Default: no limit"),
        vllm=done("distinct adapters in one step. Default: as memory allows, at most 64"),
    ),
    "max_cpu_loras": by_engine(
        ours=done("adapters that may be pinned"),
        vllm=done("adapters in host memory. Default: as memory allows"),
    ),
    "max_lora_rank": done("the largest rank of an adapter"),
    "fuse_adapter": by_engine(
        ours=done("the adapter that is merged into a second set of weights"),
        vllm=refused("left out: adapters are applied unmerged"),
    ),
    "adapters": done("the folder of the model's own adapters, inside the model folder"),
    "model_loading_timeout": done("seconds until a start has failed"),
    "predict_timeout": done("seconds that an answer, or a stream's next token, may take"),
    "job_queue_size": done("requests that may wait while the batch is full"),
    "strict_fields": done("true refuses a request's field that is not known"),
    "strict_options": done("true refuses unknown options. Otherwise they give a warning"),
    "pool_bytes": by_engine(
        ours=done("the pool of pages for KV cache and adapters"),
        vllm=done("the KV cache"),
    ),
    "adapter_host_bytes": done("host memory of adapters"),
    "adapter_cache_bytes": by_engine(
        ours=done("disk for copies of remote adapters"),
        vllm=without_effect("copies of remote adapters are not kept on disk"),
    ),
    "tenants": done("policies of tenants"),
    "default_tenant": done("the policy of all other tenants"),
    "first_token_deadline_s": done("seconds until a request without a first token ends"),
    "bedrock_compat": refused("false: the Bedrock form is not written by this server"),
    "enable_venv": refused("false: requirements of the model folder are not installed"),
    "adapter_cache_dir": without_effect(
        "the operator names that folder: HOSTELRY_ADAPTER_CACHE_DIR"
    ),
    "trust_remote_code": without_effect("code from the model's repository is never run"),
    "max_output_size": without_effect("an answer is bounded by its tokens, and by the gateway"),
    "enable_streaming": without_effect(
        "a request's body or operation decides whether its answer is streamed"
    ),
    "chunked_read_timeout": without_effect(NO_TIMEOUT),
    "long_lora_scaling_factors": without_effect(
        "adapters are scaled as their own configuration says"
    ),
    "lora_extra_vocab_size": without_effect(
        "an adapter that adds tokens is refused when it is loaded"
    ),
    "cluster_size": without_effect(ONE_PROCESS, "1"),
    **each("batch_size max_dynamic_batch_size", without_effect("batching is continuous", "1")),
    **each("max_batch_delay max_rolling_batch", without_effect("batching is continuous")),
    "cpu_offload_gb_per_gpu": pass_on(
        "GiB of weights of each GPU that are in host memory", Gib, "2",
        ours=without_effect(OWN_MEMORY, "0"), argument="cpu_offload_gb",
    ),
    **each(
        "mpi_mode parallel_loading record_acceptance_rate waiting_steps use_passive_workers device "
        "device_map low_cpu_mem_usage pythonExecutable is_peft_model modelName",
        without_effect("this server loads and runs the model itself"),
    ),
    **each("lmcache_config_file lmcache_auto_config", without_effect(NO_CACHE_SERVER)),
    "enable_stateful_sessions": done("false refuses session requests and ids"),
    "sessions_expiration": done("seconds for which a session is open"),
    "sessions_path": without_effect(
        "sessions are in memory, and sessions of model.py in a folder of its process"
    ),
    **each("draft_model_tp_size spec_length speculative_length", without_effect(
        NO_SPECULATION, "0", "1"
    )),
    **each(
        "draft_model_id speculative_draft_model draft_model_compiled_path",
        without_effect(NO_SPECULATION),
    ),
    **each(
        "max_input_len max_output_len max_num_tokens max_num_sequences max_draft_len "
        "tokens_per_block kv_cache_free_gpu_mem_fraction batch_scheduler_policy "
        "enable_kv_cache_reuse enable_trt_overlap multi_block_mode use_custom_all_reduce "
        "use_fused_mlp use_fp num_engine_workers num_checkpoint_workers load_by_shard "
        "trtllm_checkpoint_path save_mp_checkpoint_path gpt_model_version "
        "baichuan_model_version chatglm_model_version logits_dtype multi_query_mode",
        without_effect(TENSOR_RT),
    ),
    **each(
        "rotary_base rotary_dim rotary_scaling_factor rotary_scaling_type q_format calib_size "
        "calib_batch_size awq_block_size awq_calib_size awq_format smoothquant_alpha "
        "smoothquant_per_channel smoothquant_per_token",
        refused("left out: " + TENSOR_RT + ", and the model would answer otherwise"),
    ),
    **each(
        "n_positions context_length_estimate compiled_graph_path optLevel unroll "
        "neuron_optimize_level group_query_attention collectives_layout attention_layout "
        "paged_attention enable_mixed_precision_accumulation enable_saturate_infinity "
        "load_split_model split fuse_qkv on_device_embedding",
        without_effect(NEURON),
    ),
    **each("load_in_8bit load_in_4bit", refused("false: weights are computed as they are stored")),
    **each("default_accept", without_effect(OTHER_MODELS, "true")),
    **each(
        "trust_insecure_model_files skops_trusted_types model_format handler extraFiles "
        "customOpLibrary mapLocation ortDevice",
        without_effect(OTHER_MODELS),
    ),
}  # fmt: skip

# Properties without the prefix `option.`, SERVING_* as variables.
PROPERTIES: Rows = {
    "bad_request_http_code": done("the status of a bad request in the legacy dialect"),
    "throttle_error_http_code": done("the status when the queue is full"),
    "wlm_error_http_code": done("the status while the model is not ready"),
    "timeout_http_code": done("the status of an answer that took too long"),
    "server_error_http_code": done("the status of a failure of the engine"),
    "max_request_size": done("bytes of the largest body"),
    **each("minWorkers maxWorkers", without_effect(ONE_WORKER, "1")),
    **each("min_workers max_workers", without_effect(ONE_WORKER, "1")),
    **each(
        "gpu.minWorkers gpu.maxWorkers cpu.minWorkers cpu.maxWorkers load_on_devices "
        "max_idle_time max_idle_seconds",
        without_effect(ONE_WORKER),
    ),
    **each("required_memory_mb reserved_memory_mb gpu.required_memory_mb gpu.reserved_memory_mb",
           without_effect(OWN_MEMORY)),
    "retry_threshold": without_effect("a request is never computed a second time"),
    **each(
        "log_request_metric metrics_aggregation prometheus",
        without_effect("metrics of single requests are not logged"),
    ),
    "chunked_read_timeout": without_effect(NO_TIMEOUT),
    **each(
        "inference_address management_address cluster_address",
        without_effect("the process that starts the server chooses its address"),
    ),
    **each(
        "load_models load_model model_store model_url_pattern wait_model_loading fail_fast",
        without_effect("the one model is loaded at the start, and a failure ends the server"),
    ),
    **each(
        "allow_multi_status health_check_override error_rate_wlm error_rate_server "
        "error_rate_model error_rate_any",
        without_effect("/ping answers by the state of model and engine"),
    ),
    **each(
        "number_of_netty_threads use_native_io io_ratio opts features version plugin_folder "
        "workflow_loader",
        without_effect("no Java front end runs here"),
    ),
    **each(
        "cors_allowed_origin cors_allowed_methods cors_allowed_headers keystore keystore_pass "
        "keystore_type certificate_file private_key_file",
        without_effect("clients and their browsers meet the gateway, not this server"),
    ),
    **each(
        "cache_batch cache_multitenant ddb_cache ddb_table_name memory_cache_capacity",
        without_effect("each answer is sent when it is ready, without polling"),
    ),
    "download_dir": without_effect("the operator's HF_HOME keeps downloads"),
    "request_id_header_key": done("the header with a request's id, in answers and logs"),
}  # fmt: skip
