"""LMI's configuration sources and what they amount to."""

import re
from pathlib import Path
from typing import Any

import pytest

from hostelry.containers.lmi.refusal import Surface
from hostelry.containers.lmi.settings.config import resolve_config
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.settings.options import parse_properties
from hostelry.engine.scheduler.tenants import TenantPolicy

MACHINE_CPUS = 4
SEED_ENV = {
    "OPTION_MODEL_ID": "TheBloke/Llama-2-7B-Chat-fp16",
    "OPTION_TRUST_REMOTE_CODE": "true",
    "OPTION_TENSOR_PARALLEL_DEGREE": "2",
    "OPTION_ROLLING_BATCH": "lmi-dist",
    "OPTION_MAX_ROLLING_BATCH_SIZE": "32",
    "OPTION_DTYPE": "fp16",
    "OPTION_ENABLE_LORA": "true",
    "OPTION_GPU_MEMORY_UTILIZATION": "0.8",
    "OPTION_MAX_LORA_RANK": "64",
    "OPTION_MAX_CPU_LORAS": "4",
}


def resolve(env: dict[str, str], properties: str = "", *names: str) -> Any:
    return resolve_config(env, properties, names, Path("/model"), MACHINE_CPUS)


@pytest.mark.parametrize(
    ("env", "properties", "field", "expected"),
    [
        pytest.param({}, "", "dtype", "auto", id="dtype is auto by default"),
        pytest.param({}, "", "max_batch_size", 32, id="32 requests a batch by default"),
        pytest.param({}, "", "enable_lora", False, id="adapters are off by default"),
        pytest.param({}, "", "max_lora_rank", 16, id="rank 16 is the largest by default"),
        pytest.param({}, "", "job_queue_size", 1000, id="1000 requests may wait by default"),
        pytest.param(
            {"OPTION_DTYPE": "fp32"}, "option.dtype=bf16", "dtype", "bf16",
            id="serving.properties comes before OPTION_*",
        ),
        pytest.param(
            {"OPTION_MODEL_ID": "a/b", "HF_MODEL_ID": "c/d"}, "", "model_id", "a/b",
            id="OPTION_* comes before HF_*",
        ),
        pytest.param({"HF_MODEL_ID": "c/d"}, "", "model_id", "c/d", id="HF_MODEL_ID is read"),
        pytest.param({"HF_REVISION": "v2"}, "", "revision", "v2", id="HF_REVISION is read"),
        pytest.param(
            {"MAX_BATCH_SIZE": "7"}, "", "max_batch_size", 7, id="names of TGI are translated"
        ),
        pytest.param(
            {"MAX_BATCH_SIZE": "7", "OPTION_MAX_ROLLING_BATCH_SIZE": "9"}, "",
            "max_batch_size", 9, id="a name of TGI yields to LMI's",
        ),
        pytest.param(
            {"MAX_BATCH_PREFILL_TOKENS": "512"}, "", "max_batched_tokens", 512,
            id="prefill tokens under TGI's name",
        ),
        pytest.param(
            {}, "option.max_num_batched_tokens=99", "max_batched_tokens", 99,
            id="the engine's own name is an alias",
        ),
        pytest.param({}, "job_queue_size=5", "job_queue_size", 5, id="unprefixed property"),
        pytest.param(
            {"SERVING_JOB_QUEUE_SIZE": "6"}, "", "job_queue_size", 6, id="SERVING_* variable"
        ),
        pytest.param(
            {"SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "9"}, "option.predict_timeout=5",
            "predict_timeout_s", 9, id="SageMaker's variables overwrite the file",
        ),
        pytest.param(
            {"SAGEMAKER_STARTUP_TIMEOUT": "90"}, "", "loading_timeout_s", 90,
            id="SageMaker's start-up time-out",
        ),
        pytest.param(
            {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "2"}, "", "max_request_bytes", 2 * 1024 * 1024,
            id="payload limit in megabytes",
        ),
        pytest.param(
            {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "2", "SAGEMAKER_MAX_REQUEST_SIZE": "77"}, "",
            "max_request_bytes", 77, id="the limit in bytes comes before megabytes",
        ),
        pytest.param(
            {}, "max_request_size=88", "max_request_bytes", 88, id="the server's own property"
        ),
        pytest.param({"OPTION_DTYPE": "half"}, "", "dtype", "fp16", id="long names of dtypes"),
        pytest.param({"HOSTELRY_CPUS": "2.3"}, "", "num_threads", 3, id="CPUs are rounded up"),
        pytest.param({"HOSTELRY_CPUS": "0.5"}, "", "num_threads", 1, id="at least one thread"),
        pytest.param(
            {"HOSTELRY_CPUS": "48"}, "", "num_threads", MACHINE_CPUS,
            id="no more threads than the machine has CPUs",
        ),
        pytest.param({}, "", "num_threads", None, id="the engine's choice without a reservation"),
        pytest.param({"HOSTELRY_CPUS": "0"}, "", "num_threads", None, id="nothing is reserved"),
        pytest.param(
            {"HOSTELRY_CPUS": "0", "OMP_NUM_THREADS": "1"}, "", "num_threads", 1,
            id="the threads that the agent chose",
        ),
        pytest.param(
            {"HOSTELRY_CPUS": "1", "OMP_NUM_THREADS": str(MACHINE_CPUS + 9)}, "", "num_threads",
            MACHINE_CPUS, id="the container's own word, and what the machine has",
        ),
        pytest.param(
            {"HOSTELRY_CPUS": "1", "OMP_NUM_THREADS": "2,1"}, "", "num_threads", 1,
            id="nested counts leave the reservation",
        ),
        pytest.param(
            {"HOSTELRY_ACCELERATORS": "0"}, "", "use_accelerators", False,
            id="without a reserved accelerator none is used",
        ),
        pytest.param(
            {"HOSTELRY_ACCELERATORS": "1"}, "", "use_accelerators", True,
            id="a reserved accelerator is used",
        ),
        pytest.param(
            {"OPTION_ROLLING_BATCH": "vllm"}, "", "dialect", Surface.LEGACY,
            id="a rolling batch speaks the legacy dialect",
        ),
        pytest.param(
            {"OPTION_ROLLING_BATCH": "auto"}, "", "dialect", Surface.ASYNC,
            id="auto becomes the async handler",
        ),
        pytest.param(
            {"OPTION_ROLLING_BATCH": "trtllm"}, "", "max_batch_size", 256,
            id="a named rolling batch holds 256",
        ),
        pytest.param(
            {"OPTION_SERVED_MODEL_NAME": "a, b", "HF_MODEL_ID": "c/d"}, "", "served",
            ("a", "b", "c/d"), id="every served name and the model id call the base",
        ),
        pytest.param({"OPTION_DTYPE": ""}, "", "dtype", "auto", id="an empty variable is unset"),
        pytest.param({}, "option.quantize=int8", "weight_dtype", "int8", id="weights of 8 bits"),
        pytest.param({}, "", "prefix_cache", True, id="prompts that begin alike are kept"),
        pytest.param(
            {"OPTION_ENABLE_PREFIX_CACHING": "false"}, "", "prefix_cache", False,
            id="prompts that begin alike are computed anew",
        ),
        pytest.param({}, "option.pool_bytes=99", "pool_bytes", 99, id="the pool's size"),
        pytest.param(
            {}, "option.adapter_host_bytes=0", "adapter_host_bytes", 0, id="no room for adapters"
        ),
        pytest.param(
            {"HOSTELRY_ADAPTER_CACHE_DIR": "/c"}, "", "adapter_cache_dir", Path("/c"),
            id="a disk cache",
        ),
        pytest.param(
            {"OPTION_ADAPTER_CACHE_DIR": "/b"}, "option.adapter_cache_dir=/c", "adapter_cache_dir",
            None, id="whose folder is not the model author's to choose",
        ),
        pytest.param(
            {"HOSTELRY_ARTIFACT_HF_MODEL_ID": "/a"}, "", "artifact_folders", ("/a",),
            id="an artifact that was fetched for it",
        ),
        pytest.param(
            {}, "option.first_token_deadline_s=2.5", "first_token_deadline_s", 2.5,
            id="a deadline for all",
        ),
        pytest.param(
            {"OPTION_TENANTS": '{"a": {"weight": 2, "max_queued": 3}}'}, "", "tenants",
            {"a": TenantPolicy(weight=2, max_queued=3)}, id="a tenant's policy",
        ),
        pytest.param(
            {}, 'option.default_tenant={"tokens_per_s": 50, "burst_s": 1}', "default_tenant",
            TenantPolicy(tokens_per_s=50, burst_s=1), id="the policy of everyone else",
        ),
    ],
)  # fmt: skip
def test_settings(env: dict[str, str], properties: str, field: str, expected: Any) -> None:
    assert getattr(resolve(env, properties), field) == expected


def test_the_settings_of_an_old_multi_adapter_deployment_are_met() -> None:
    settings = resolve(SEED_ENV)
    assert (settings.dialect, settings.dtype) == (Surface.LEGACY, "fp16")
    assert settings.enable_lora
    assert (settings.max_lora_rank, settings.max_cpu_loras) == (64, 4)
    text = "\n".join(settings.warnings)
    assert "OPTION_TENSOR_PARALLEL_DEGREE=2" in text
    assert "lmi-dist" in text


@pytest.mark.parametrize(
    ("env", "properties", "message"),
    [
        pytest.param(
            {"OPTION_FROBNICATE": "1"}, "", "OPTION_FROBNICATE is not a known option",
            id="unknown option",
        ),
        pytest.param({}, "option.x.y=1", "option.x.y", id="unknown option in the file"),
        pytest.param({}, "colour=red", "colour is not a known property", id="unknown property"),
        pytest.param({}, "a line of prose", "'a line of prose'", id="a line that is no pair"),
        pytest.param({"SM_NUM_GPUS": "4"}, "", "SM_NUM_GPUS=4", id="more than one accelerator"),
        pytest.param({}, "batch_size=8", "batching is continuous", id="dynamic batching"),
        pytest.param(
            {"SERVING_BATCH_SIZE": "4"}, "", "SERVING_BATCH_SIZE=4", id="under its variable"
        ),
        *(
            pytest.param({}, line, f"{line} has no effect: ", id=line)
            for line in (
                "option.max_batch_delay=50", "option.max_output_size=1000",
                "option.chunked_read_timeout=60", "chunked_read_timeout=60",
                "option.adapter_cache_dir=/c",
                "option.load_format=dummy", "option.gpu_memory_utilization=1",
                "option.enable_chunked_prefill=false",
                "option.speculative_length=4", "option.draft_model_id=a/b",
                "option.draft_model_tp_size=2", "option.lora_extra_vocab_size=256",
                "option.long_lora_scaling_factors=1", "option.fully_sharded_loras=true",
                "option.cpu_offload_gb_per_gpu=1", "option.swap_space=4", "option.block_size=1",
                "option.enable_streaming=true", "option.mpi_mode=true",
                "option.parallel_loading=true",
                "option.record_acceptance_rate=true",
                "option.sessions_path=/x",
                "minWorkers=2", "gpu.maxWorkers=1", "required_memory_mb=1", "retry_threshold=1",
            )
        ),
    ],
)  # fmt: skip
def test_options_without_effect_give_a_warning(
    env: dict[str, str], properties: str, message: str
) -> None:
    (warning,) = resolve(env, properties).warnings
    assert message in warning


@pytest.mark.parametrize(
    ("env", "eager"),
    [
        pytest.param({}, None, id="left to the engine"),
        pytest.param({"OPTION_ENFORCE_EAGER": "False"}, False, id="compiled"),
        pytest.param({"ENABLE_CUDA_GRAPHS": "true"}, False, id="compiled, by LMI's old name"),
        pytest.param({"SM_VLLM_ENFORCE_EAGER": "true"}, True, id="never compiled"),
    ],
)
def test_compilation_is_the_operators_choice(env: dict[str, str], eager: bool | None) -> None:
    assert resolve(env, "").enforce_eager is eager


def test_a_plain_configuration_has_no_warnings() -> None:
    env = {"OPTION_TENSOR_PARALLEL_DEGREE": "max", "OPTION_MODEL_ID": "a/b", "PATH": "/bin"}
    properties = "engine=Python\nminWorkers=1\noption.enable_lora=true\n"
    assert resolve(env, properties).warnings == ()


@pytest.mark.parametrize(
    "line",
    [
        "option.quantize=none", "option.dtype=auto", "batch_size=1", "option.swap_space=0",
        "option.load_format=safetensors", "option.enforce_eager=true", "option.adapters=adapters",
        "option.enable_chunked_prefill=true", "option.quantize=int8",
        "option.fully_sharded_loras=false", "option.kv_cache_dtype=auto", "option.max_loras=4",
        "option.chat_template_content_format=string", "max_request_size=9", "maxWorkers=1",
        "option.trust_remote_code=false", "option.enable_stateful_sessions=false",
    ],
)  # fmt: skip
def test_what_asks_for_what_is_done_anyway_has_no_warning(line: str) -> None:
    assert resolve({}, line).warnings == ()


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        pytest.param("adapters", "adapters", id="the default by name"),
        pytest.param("loras/mine/", "loras/mine", id="a folder further in"),
        pytest.param("/opt/ml/model/loras", "loras", id="as a path in a container"),
    ],
)
def test_the_folder_of_adapters(value: str, folder: str) -> None:
    settings = resolve({"OPTION_ADAPTERS": value})
    assert (str(settings.adapters), settings.warnings) == (folder, ())


@pytest.mark.parametrize(
    ("env", "properties", "names", "message"),
    [
        pytest.param(
            {"OPTION_DTYPE": "int3"}, "", (), "OPTION_DTYPE is 'int3'; it must be one of auto",
            id="dtype that does not exist",
        ),
        pytest.param(
            {}, "option.max_model_len=many", (), "option.max_model_len is 'many'", id="no number"
        ),
        pytest.param({}, "option.max_lora_rank=-1", (), "at least 1", id="negative rank"),
        pytest.param({}, "option.max_loras=²", (), "whole number", id="a digit that is no number"),
        pytest.param({}, "option.enable_lora=yes", (), "true, false", id="neither true nor false"),
        pytest.param({}, "option.rolling_batch=fast", (), "lmi-dist", id="unknown rolling batch"),
        pytest.param({}, "option.task=translate", (), "generate", id="a task that is not served"),
        pytest.param({}, "engine=MXNet", (), "engine is 'MXNet'", id="an engine that is gone"),
        pytest.param(
            {}, "option.rolling_batch=vllm\noption.async_mode=true", (), "async_mode",
            id="rolling batch and async mode",
        ),
        pytest.param(
            {}, "option.entryPoint=model.py", (), "custom code", id="an entry point of one's own"
        ),
        pytest.param({}, "", ("model.py",), "model.py", id="custom code in the model folder"),
        pytest.param({}, "option.bedrock_compat=true", (), "Bedrock", id="a form not written here"),
        pytest.param({"HOSTELRY_CPUS": "few"}, "", (), "HOSTELRY_CPUS", id="CPUs in words"),
        pytest.param({"HOSTELRY_CPUS": "nan"}, "", (), "0 or more", id="CPUs that are no number"),
        pytest.param(
            {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, "", (), "SAGEMAKER_MAX_PAYLOAD_IN_MB",
            id="a payload limit of nothing",
        ),
        pytest.param(
            {}, "option.max_loras=8\noption.max_cpu_loras=4", (), "at least 8",
            id="fewer adapters kept than used at once",
        ),
        pytest.param({}, "option.tenants={", (), "truncated", id="tenants cut off"),
        pytest.param({}, "option.tenants=[1]", (), "Expected `object`", id="tenants as a list"),
        pytest.param({}, 'option.tenants={"a":7}', (), "$[...]", id="a policy that is a number"),
        pytest.param(
            {}, 'option.tenants={"a":{"wait":1}}', (), "unknown field `wait`", id="no such quota"
        ),
        pytest.param(
            {}, 'option.tenants={"a":{"weight":-1}}', (), "weight is -1", id="a negative weight"
        ),
        pytest.param(
            {}, 'option.tenants={"a":{"max_queued":0}}', (), "of tenant 'a'", id="a queue of none"
        ),
        pytest.param({}, 'option.tenants={"":{}}', (), "cannot be a tenant", id="an empty name"),
        pytest.param(
            {}, "option.tenants=" + "[" * 100_000, (), "option.tenants is", id="endless nesting"
        ),
        pytest.param({}, "option.default_tenant=x", (), "option.default_tenant is", id="in words"),
        pytest.param(
            {}, "option.first_token_deadline_s=nan", (), "greater than 0", id="no deadline"
        ),
        pytest.param({}, "option.max_loras=" + "9" * 5000, (), "at most", id="endless digits"),
        pytest.param({"OMP_NUM_THREADS": "9" * 5000}, "", (), "at most", id="endless threads"),
        pytest.param({}, "option.pool_bytes=9007199254740992", (), "at most", id="too large"),
        pytest.param(
            {"SAGEMAKER_MAX_REQUEST_SIZE": "\u00b2"}, "", (), "a whole number", id="a small two"
        ),
        pytest.param(
            {"HOSTELRY_ADAPTER_CACHE_DIR": "c"}, "", (), "absolute", id="a cache somewhere"
        ),
        pytest.param({}, "option.output_formatter=xml", (), "jsonlines", id="unknown formatter"),
        pytest.param({}, "option.adapters=../x", (), "inside the model", id="adapters outside"),
        pytest.param({}, "option.adapters=/srv/x", (), "inside the model", id="adapters elsewhere"),
        pytest.param(
            {}, "option.chat_template_content_format=openai", (), "auto or string",
            id="contents in parts for the template",
        ),
    ],
)  # fmt: skip
def test_an_impossible_setting_names_key_value_and_choices(
    env: dict[str, str], properties: str, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        resolve(env, properties, *names)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        pytest.param("a=1\nb = 2 \n", {"a": "1", "b": "2"}, id="pairs, trimmed"),
        pytest.param("a: 1\nb=x:y\n", {"a": "1", "b": "x:y"}, id="the first mark cuts"),
        pytest.param("# no\n! no\n\na=1", {"a": "1"}, id="comments and blanks"),
        pytest.param("a=1\na=2", {"a": "2"}, id="the last one wins"),
        pytest.param("a=x\\\n  y\nb=1", {"a": "xy", "b": "1"}, id="a backslash joins lines"),
        pytest.param("\ufeffa=1\r\nb=2\r\n", {"a": "1", "b": "2"}, id="written on Windows"),
        pytest.param("a=x\\", {"a": "x"}, id="a backslash at the very end"),
    ],
)
def test_properties(text: str, pairs: dict[str, str]) -> None:
    warnings: list[str] = []
    assert parse_properties(text, warnings) == pairs
    assert warnings == []
