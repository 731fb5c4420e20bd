"""LMI's sources of configuration, and the resulting settings."""

import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.containers.lmi.refusal import Surface
from hostelry.containers.lmi.settings.config import LmiConfig, resolve_config
from hostelry.containers.lmi.settings.engine_terms import Backend
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


def ours(config: LmiConfig) -> tuple[str, ...]:
    return config.find_warnings(Backend.HOSTELRY)


def resolve(env: dict[str, str], properties: str = "", *names: str) -> Any:
    return resolve_config(env, properties, names, Path("/model"), MACHINE_CPUS)


@cases(
    "env, properties, field, expected",
    case("dtype is auto by default", {}, "", "dtype", "auto"),
    case("32 requests a batch by default", {}, "", "max_batch_size", 32),
    case("adapters are off by default", {}, "", "enable_lora", False),
    case("rank 16 is the largest by default", {}, "", "max_lora_rank", 16),
    case("1000 requests may wait by default", {}, "", "job_queue_size", 1000),
    case("serving.properties comes before OPTION_*", {"OPTION_DTYPE": "fp32"}, "option.dtype=bf16",
        "dtype", "bf16"),
    case("OPTION_* comes before HF_*", {"OPTION_MODEL_ID": "a/b", "HF_MODEL_ID": "c/d"}, "",
        "model_id", "a/b"),
    case("HF_MODEL_ID is read", {"HF_MODEL_ID": "c/d"}, "", "model_id", "c/d"),
    case("HF_REVISION is read", {"HF_REVISION": "v2"}, "", "revision", "v2"),
    case("names of TGI are translated", {"MAX_BATCH_SIZE": "7"}, "", "max_batch_size", 7),
    case("a name of TGI yields to LMI's",
        {"MAX_BATCH_SIZE": "7", "OPTION_MAX_ROLLING_BATCH_SIZE": "9"}, "", "max_batch_size", 9),
    case("prefill tokens under TGI's name", {"MAX_BATCH_PREFILL_TOKENS": "512"}, "",
        "max_batched_tokens", 512),
    case("the engine's own name is an alias", {}, "option.max_num_batched_tokens=99",
        "max_batched_tokens", 99),
    case("unprefixed property", {}, "job_queue_size=5", "job_queue_size", 5),
    case("SERVING_* variable", {"SERVING_JOB_QUEUE_SIZE": "6"}, "", "job_queue_size", 6),
    case("SageMaker's variables overwrite the file",
        {"SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "9"}, "option.predict_timeout=5",
        "predict_timeout_s", 9),
    case("SageMaker's start-up time-out", {"SAGEMAKER_STARTUP_TIMEOUT": "90"}, "",
        "loading_timeout_s", 90),
    case("payload limit in megabytes", {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "2"}, "",
        "max_request_bytes", 2 * 1024 * 1024),
    case("the limit in bytes comes before megabytes",
        {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "2", "SAGEMAKER_MAX_REQUEST_SIZE": "77"}, "",
        "max_request_bytes", 77),
    case("the server's own property", {}, "max_request_size=88", "max_request_bytes", 88),
    case("long names of dtypes", {"OPTION_DTYPE": "half"}, "", "dtype", "fp16"),
    case("CPUs are rounded up", {"HOSTELRY_CPUS": "2.3"}, "", "num_threads", 3),
    case("at least one thread", {"HOSTELRY_CPUS": "0.5"}, "", "num_threads", 1),
    case("no more threads than the machine has CPUs", {"HOSTELRY_CPUS": "48"}, "", "num_threads",
        MACHINE_CPUS),
    case("the engine's choice without a reservation", {}, "", "num_threads", None),
    case("nothing is reserved", {"HOSTELRY_CPUS": "0"}, "", "num_threads", None),
    case("the threads that the agent chose", {"HOSTELRY_CPUS": "0", "OMP_NUM_THREADS": "1"}, "",
        "num_threads", 1),
    case("the container's own word, and what the machine has",
        {"HOSTELRY_CPUS": "1", "OMP_NUM_THREADS": str(MACHINE_CPUS + 9)}, "", "num_threads",
        MACHINE_CPUS),
    case("nested counts leave the reservation", {"HOSTELRY_CPUS": "1", "OMP_NUM_THREADS": "2,1"},
        "", "num_threads", 1),
    case("without a reserved accelerator none is used", {"HOSTELRY_ACCELERATORS": "0"}, "",
        "use_accelerators", False),
    case("ranks of each reserved accelerator", {}, "option.tensor_parallel_degree=max", "degree",
        "max"),
    case("ranks as TGI's variables name them", {"SM_NUM_GPUS": "4"}, "", "degree", 4),
    case("ranks as vLLM's images name them", {"SM_VLLM_TENSOR_PARALLEL_SIZE": "4"}, "", "degree",
        4),
    case("ranks of no number", {"OPTION_TENSOR_PARALLEL_DEGREE": "auto"}, "", "degree", None),
    case("ranks on CPUs if the operator says so", {"HOSTELRY_CPU_RANKS": "1"}, "", "cpu_ranks",
        True),
    case("no option makes ranks on CPUs", {"OPTION_CPU_RANKS": "1"}, "option.cpu_ranks=1",
        "cpu_ranks", False),
    case("a reserved accelerator is used", {"HOSTELRY_ACCELERATORS": "1"}, "", "use_accelerators",
        True),
    case("a rolling batch speaks the legacy dialect", {"OPTION_ROLLING_BATCH": "vllm"}, "",
        "dialect", Surface.LEGACY),
    case("auto becomes the async handler", {"OPTION_ROLLING_BATCH": "auto"}, "", "dialect",
        Surface.ASYNC),
    case("a named rolling batch holds 256", {"OPTION_ROLLING_BATCH": "trtllm"}, "",
        "max_batch_size", 256),
    case("every served name and the model id call the base",
        {"OPTION_SERVED_MODEL_NAME": "a, b", "HF_MODEL_ID": "c/d"}, "", "served",
        ("a", "b", "c/d")),
    case("an empty variable is unset", {"OPTION_DTYPE": ""}, "", "dtype", "auto"),
    case("weights of 8 bits", {}, "option.quantize=int8", "weight_dtype", "int8"),
    case("prompts that begin alike are kept", {}, "", "prefix_cache", True),
    case("prompts that begin alike are computed anew", {"OPTION_ENABLE_PREFIX_CACHING": "false"},
        "", "prefix_cache", False),
    case("the pool's size", {}, "option.pool_bytes=99", "pool_bytes", 99),
    case("room for adapters", {}, "option.adapter_host_bytes=9", "adapter_host_bytes", 9),
    case("a disk cache", {"HOSTELRY_ADAPTER_CACHE_DIR": "/c"}, "",
        "adapter_cache_folder", Path("/c")),
    case("whose folder is not the model author's to choose", {"OPTION_ADAPTER_CACHE_DIR": "/b"},
        "option.adapter_cache_dir=/c", "adapter_cache_folder", None),
    case("an artifact that was fetched for it", {"HOSTELRY_ARTIFACT_HF_MODEL_ID": "/a"}, "",
        "artifact_folders", ("/a",)),
    case("a deadline for all", {}, "option.first_token_deadline_s=2.5", "first_token_deadline_s",
        2.5),
    case("a tenant's policy", {"OPTION_TENANTS": '{"a": {"weight": 2, "max_queued": 3}}'}, "",
        "tenants.table", {"a": TenantPolicy(weight=2, max_queued=3)}),
    case("the policy of everyone else", {},
        'option.default_tenant={"tokens_per_s": 50, "burst_s": 1}', "tenants.default",
        TenantPolicy(tokens_per_s=50, burst_s=1)),
)  # fmt: skip
def test_settings(env: dict[str, str], properties: str, field: str, expected: Any) -> None:
    config = resolve(env, properties)
    assert attrgetter(field)(config if hasattr(config, field) else config.engine) == expected


def test_the_settings_of_an_old_multi_adapter_deployment_are_met() -> None:
    settings = resolve(SEED_ENV)
    assert (settings.dialect, settings.engine.dtype) == (Surface.LEGACY, "fp16")
    assert settings.engine.enable_lora
    assert (settings.engine.max_lora_rank, settings.max_cpu_loras) == (64, 4)
    text = "\n".join(ours(settings))
    assert settings.engine.degree == 2
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
        pytest.param(
            {"OPTION_CLUSTER_SIZE": "4"}, "", "OPTION_CLUSTER_SIZE=4", id="more than one machine"
        ),
        pytest.param({}, "batch_size=8", "batching is continuous", id="dynamic batching"),
        pytest.param(
            {"SERVING_BATCH_SIZE": "4"}, "", "SERVING_BATCH_SIZE=4", id="under its variable"
        ),
        *(
            pytest.param({}, line, f"{line} has no effect", id=line)
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
    (warning,) = ours(resolve(env, properties))
    assert message in warning


@cases(
    "env, eager",
    case("left to the engine", {}, None),
    case("compiled", {"OPTION_ENFORCE_EAGER": "False"}, False),
    case("compiled, by LMI's old name", {"ENABLE_CUDA_GRAPHS": "true"}, False),
    case("never compiled", {"SM_VLLM_ENFORCE_EAGER": "true"}, True),
)
def test_compilation_is_the_operators_choice(env: dict[str, str], eager: bool | None) -> None:
    assert resolve(env, "").engine.enforce_eager is eager


def test_a_plain_configuration_has_no_warnings() -> None:
    env = {"OPTION_TENSOR_PARALLEL_DEGREE": "max", "OPTION_MODEL_ID": "a/b", "PATH": "/bin"}
    properties = "engine=Python\nminWorkers=1\noption.enable_lora=true\n"
    assert ours(resolve(env, properties)) == ()


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
    assert ours(resolve({}, line)) == ()


@cases(
    "value, folder",
    case("the default by name", "adapters", "adapters"),
    case("a folder further in", "loras/mine/", "loras/mine"),
    case("as a path in a container", "/opt/ml/model/loras", "loras"),
)
def test_the_folder_of_adapters(value: str, folder: str) -> None:
    settings = resolve({"OPTION_ADAPTERS": value})
    assert (str(settings.adapters), ours(settings)) == (folder, ())


@cases(
    "env, properties, names, message",
    case("dtype that does not exist", {"OPTION_DTYPE": "int3"}, "", (),
        "OPTION_DTYPE is 'int3'; it must be one of auto"),
    case("no number", {}, "option.max_model_len=many", (), "option.max_model_len is 'many'"),
    case("no ranks", {"SM_NUM_GPUS": "0"}, "", (), "SM_NUM_GPUS is '0'"),
    case("negative rank", {}, "option.max_lora_rank=-1", (), "at least 1"),
    case("a digit that is no number", {}, "option.max_loras=²", (), "whole number"),
    case("neither true nor false", {}, "option.enable_lora=yes", (), "true, false"),
    case("unknown rolling batch", {}, "option.rolling_batch=fast", (), "lmi-dist"),
    case("a task that is not served", {}, "option.task=translate", (), "generate"),
    case("an engine that is gone", {}, "engine=MXNet", (), "engine is 'MXNet'"),
    case("rolling batch and async mode", {}, "option.rolling_batch=vllm\noption.async_mode=true",
        (), "async_mode"),
    case("an entry point of one's own", {}, "option.entryPoint=model.py", (), "custom code"),
    case("custom code in the model folder", {}, "", ("model.py",), "model.py"),
    case("a form not written here", {}, "option.bedrock_compat=true", (), "Bedrock"),
    case("CPUs in words", {"HOSTELRY_CPUS": "few"}, "", (), "HOSTELRY_CPUS"),
    case("CPUs that are no number", {"HOSTELRY_CPUS": "nan"}, "", (), "0 or more"),
    case("a payload limit of nothing", {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, "", (),
        "SAGEMAKER_MAX_PAYLOAD_IN_MB"),
    case("fewer adapters kept than used at once", {}, "option.max_loras=8\noption.max_cpu_loras=4",
        (), "at least 8"),
    case("tenants cut off", {}, "option.tenants={", (), "truncated"),
    case("tenants as a list", {}, "option.tenants=[1]", (), "Expected `object`"),
    case("a policy that is a number", {}, 'option.tenants={"a":7}', (), "$[...]"),
    case("no such quota", {}, 'option.tenants={"a":{"wait":1}}', (), "unknown field `wait`"),
    case("a negative weight", {}, 'option.tenants={"a":{"weight":-1}}', (), "weight is -1"),
    case("a queue of none", {}, 'option.tenants={"a":{"max_queued":0}}', (), "of tenant 'a'"),
    case("an empty name", {}, 'option.tenants={"":{}}', (), "cannot be a tenant"),
    case("endless nesting", {}, "option.tenants=" + "[" * 100_000, (), "option.tenants is"),
    case("in words", {}, "option.default_tenant=x", (), "option.default_tenant is"),
    case("no deadline", {}, "option.first_token_deadline_s=nan", (), "greater than 0"),
    case("endless digits", {}, "option.max_loras=" + "9" * 5000, (), "at most"),
    case("endless threads", {"OMP_NUM_THREADS": "9" * 5000}, "", (), "at most"),
    case("too large", {}, "option.pool_bytes=9007199254740992", (), "at most"),
    case("no host memory", {}, "option.adapter_host_bytes=0", (), "at least 1"),
    case("a small two", {"SAGEMAKER_MAX_REQUEST_SIZE": "\u00b2"}, "", (), "a whole number"),
    case("a cache somewhere", {"HOSTELRY_ADAPTER_CACHE_DIR": "c"}, "", (), "absolute"),
    case("unknown formatter", {}, "option.output_formatter=xml", (), "jsonlines"),
    case("adapters outside", {}, "option.adapters=../x", (), "inside the model"),
    case("adapters elsewhere", {}, "option.adapters=/srv/x", (), "inside the model"),
    case("contents in parts for the template", {}, "option.chat_template_content_format=openai", (),
        "auto or string"),
)  # fmt: skip
def test_an_impossible_setting_names_key_value_and_choices(
    env: dict[str, str], properties: str, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        resolve(env, properties, *names)


@cases(
    "text, pairs",
    case("pairs, trimmed", "a=1\nb = 2 \n", {"a": "1", "b": "2"}),
    case("the first mark cuts", "a: 1\nb=x:y\n", {"a": "1", "b": "x:y"}),
    case("comments and blanks", "# no\n! no\n\na=1", {"a": "1"}),
    case("the last one wins", "a=1\na=2", {"a": "2"}),
    case("a backslash joins lines", "a=x\\\n  y\nb=1", {"a": "xy", "b": "1"}),
    case("written on Windows", "\ufeffa=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
    case("a backslash at the very end", "a=x\\", {"a": "x"}),
)
def test_properties(text: str, pairs: dict[str, str]) -> None:
    warnings: list[str] = []
    assert parse_properties(text, warnings) == pairs
    assert warnings == []
