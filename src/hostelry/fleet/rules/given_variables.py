"""Rules for the variables that a program gets from its container's Environment. Pure.

The creator of a model writes its Environment and its archive. A single variable that makes an
interpreter, a loader or a library search a folder is enough to run code from that folder.

    a built-in server                           -> the names in BUILT_IN
    an operator's command with `environment`    -> the names in its rule
    an operator's command without               -> all names except STEERING
    in every case                               -> none of PLATFORM_NAMES
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from hostelry.fleet.rules.devices import device_variables
from hostelry.fleet.rules.limits import THREAD_VARIABLES

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEVICE_VARIABLES = frozenset(device_variables(()))  # a copy sees only its own devices
# The agent sets the copy's ports and folders itself, and reads HOSTELRY_ISOLATION and the like
# (`find_left_out_names` in agent/orders.py). No rule passes these names on.
PLATFORM_NAMES = (
    *("SAGEMAKER_BIND_HOST", "SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_SAFE_PORT_RANGE", "HOSTELRY_*"),
    *DEVICE_VARIABLES,
)

# Names of the built-in servers -> why they are harmless. A star stands for any ending.
BUILT_IN: Mapping[tuple[str, ...], str] = {
    ("OPTION_*",): "LMI's options: parsed, bounded, and their paths kept to the model folder",
    ("SERVING_*",): "DJL Serving's settings: options, as in serving.properties",
    ("DRILL_*",): "what the drill server is to do",
    (
        "SAGEMAKER_BASE_DIR", "SAGEMAKER_BATCH", "SAGEMAKER_BATCH_STRATEGY",
        "SAGEMAKER_CONTAINER_LOG_LEVEL", "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT",
        "SAGEMAKER_ENABLE_STATEFUL_SESSIONS", "SAGEMAKER_ENV", "SAGEMAKER_HANDLER",
        "SAGEMAKER_INFERENCE_*", "SAGEMAKER_MAX_*", "SAGEMAKER_MODEL_SERVER_TIMEOUT",
        "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS", "SAGEMAKER_MODEL_SERVER_WORKERS",
        "SAGEMAKER_MULTI_MODEL", "SAGEMAKER_NUM_MODEL_WORKERS", "SAGEMAKER_PROGRAM",
        "SAGEMAKER_REGION", "SAGEMAKER_REQUIREMENTS",
        "SAGEMAKER_SESSIONS_*", "SAGEMAKER_STARTUP_TIMEOUT", "SAGEMAKER_SUBMIT_DIRECTORY",
        "SAGEMAKER_TS_*",
    ): "what SageMaker's SDK sets for every image: limits, which are parsed, and names of code "
    "that is not run here",
    ("SM_*",): "SageMaker's settings for vLLM and TGI: options, parsed and bounded as LMI's",
    ("TS_*", "MMS_*"): "settings of TorchServe and Multi Model Server, which run nowhere here",
    (
        "HF_MODEL_ID", "HF_REVISION", "HF_MODEL_REVISION", "HF_TASK", "HF_MODEL_QUANTIZE",
        "HF_MODEL_TRUST_REMOTE_CODE",
    ): "which model: an id, or a path that is kept to the model folder",
    (
        "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
    ): "the caller's own token, in the place of the operator's",
    (
        "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ENABLE_HF_TRANSFER",
        "HF_HUB_ETAG_TIMEOUT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
    ): "how the hub is called, not which one or with which token",
    (
        "ENABLE_CUDA_GRAPHS", "ENDPOINT_SERVER_TIMEOUT", "MAX_BATCH_PREFILL_TOKENS",
        "MAX_BATCH_SIZE", "MAX_BATCH_TOTAL_TOKENS", "MAX_CONCURRENT_REQUESTS", "MAX_INPUT_LENGTH",
        "MAX_INPUT_TOKENS", "MAX_TOTAL_TOKENS", "MESSAGES_API_ENABLED", "MODEL_CACHE_ROOT",
        "MODEL_LOADING_TIMEOUT", "MODEL_SERVER_TIMEOUT", "MODEL_SERVER_WORKERS", "NUM_SHARD",
        "PREDICT_TIMEOUT", "TENSOR_PARALLEL_DEGREE", "PIPELINE_PARALLEL_DEGREE", "DTYPE",
        "QUANTIZE", "SHARDED", "REVISION", "KV_CACHE_DTYPE", "TRUST_REMOTE_CODE", "ROPE_SCALING",
        "ROPE_FACTOR", "LORA_ADAPTERS", "PAYLOAD_LIMIT", "MAX_BEST_OF", "MAX_STOP_SEQUENCES",
        "MAX_TOP_N_TOKENS", "MAX_CLIENT_BATCH_SIZE", "MAX_WAITING_TOKENS", "WAITING_SERVED_RATIO",
        "CUDA_MEMORY_FRACTION", "SPECULATE", "CUDA_GRAPHS", "DISABLE_CUSTOM_KERNELS",
        "PREFIX_CACHING", "PREFILL_CHUNKING", "VALIDATION_WORKERS", "GRACEFUL_TERMINATION_TIMEOUT",
        "WATERMARK_GAMMA", "WATERMARK_DELTA", "DISABLE_GRAMMAR_SUPPORT", "ENABLE_PREFILL_LOGPROBS",
        "JSON_OUTPUT", "USAGE_STATS", "API_KEY", "TOKENIZER_CONFIG_PATH",
    ): "options of LMI and TGI under their older names: parsed, bounded, or refused",
    (
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
        "AWS_DEFAULT_REGION",
    ): "the caller's own keys; the operator's are not there",
    THREAD_VARIABLES: "threads, at most as many as the machine has CPUs",
}  # fmt: skip
BUILT_IN_NAMES = tuple(name for names in BUILT_IN for name in names)

# Names that steer programs -> their kind. For commands whose variables only their operator knows.
# Such a list is never complete. `environment` in the command's rule replaces it.
STEERING: Mapping[tuple[str, ...], str] = {
    (
        "BASH_*", "CDPATH", "DYLD_*", "GCONV_PATH", "GETCONF_DIR", "GLIBC_*", "HOSTALIASES",
        "IFS", "LD_*", "LOCALDOMAIN", "LOCPATH", "MALLOC_*", "NLSPATH", "PATH", "PS4",
        "RES_OPTIONS", "RESOLV_*", "SHELL", "SHELLOPTS", "TERMCAP", "TERMINFO*", "TZDIR",
    ): "the loader, the C library and the shell",
    (
        "CLASSPATH", "COMPlus_*", "CORECLR_*", "DJANGO_*", "DOTNET_*", "ERL_*", "FLASK_*", "GEM_*",
        "GUNICORN_*", "JAVA_*", "JDK_*", "JULIA_*", "LUA_*", "NODE_*", "NPM_*", "PERL*", "PHP*",
        "PIP_*", "PYTHON*", "RUBY*", "R_HOME", "R_LIBS*", "R_PROFILE*", "R_ENVIRON*",
        "UVICORN_*", "VIRTUAL_ENV", "_JAVA_*",
    ): "interpreters and what starts them",
    (
        "CC", "CUDA_*", "CXX", "GIT_*", "NCCL_*", "NVIDIA_*", "OMPI_*", "OPAL_*", "ORT_*", "PMIX_*",
        "TORCH*", "TRITON_*", "UCX_*", "VLLM_PLUGINS", "XLA_*",
    ): "libraries that load, compile or start what a variable names",
    (
        "CURL_*", "OPENSSL_*", "REQUESTS_CA_BUNDLE", "SSLKEYLOGFILE", "SSL_*",
    ): "which peers a connection trusts, and what can decrypt it",
    (
        "*_PROXY", "*_proxy", "AWS_CA_*", "AWS_CONFIG_FILE", "AWS_CONTAINER_*",
        "AWS_EC2_*", "AWS_ENDPOINT_URL*", "AWS_PROFILE", "AWS_ROLE_*",
        "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "HF_ENDPOINT",
        "HF_INFERENCE_ENDPOINT", "HUGGINGFACE_CO_STAGING",
    ): "where the operator's tokens and keys are sent, and which files are read for them",
    (
        "HF_ASSETS_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_MODULES_CACHE", "HF_TOKEN_PATH",
        "HF_XET_*", "HOME", "HUGGINGFACE_*", "TEMP", "TMP", "TMPDIR",
        "TRANSFORMERS_CACHE", "XDG_*",
    ): "the operator's folders",
}  # fmt: skip
STEERING_NAMES = tuple(name for names in STEERING for name in names)


def given_variables(
    environment: Mapping[str, str], passed: Sequence[str] | None, machine_cpus: int
) -> dict[str, str]:
    """The variables of a container's Environment that its program gets.

    `passed` are the allowed names, with a star for any ending, or `None` for an operator's command
    whose rule has no names. Thread counts are limited to `machine_cpus`.
    """
    given = {
        name: value
        for name, value in environment.items()
        if _may_pass(name, passed) and _can_pass(name, value)
    }
    threads = {
        name: str(min(int(given[name]), machine_cpus)) for name in THREAD_VARIABLES if name in given
    }
    return {**given, **threads}


def find_left_out(environment: Mapping[str, str], passed: Sequence[str] | None) -> tuple[str, ...]:
    """The names in a container's Environment that `given_variables` does not pass on."""
    return tuple(sorted(environment.keys() - given_variables(environment, passed, 1).keys()))


def left_out_note(names: Sequence[str]) -> str:
    """The note in a copy's log that variables are not passed on."""
    return f"the container's Environment may not set {', '.join(names)} here: left out"


def is_steering(name: str) -> bool:
    """Whether the variable is known to steer programs."""
    return is_among(name, STEERING_NAMES)


def _may_pass(name: str, passed: Sequence[str] | None) -> bool:
    if not VARIABLE.fullmatch(name) or is_among(name, PLATFORM_NAMES):
        return False
    return not is_steering(name) if passed is None else is_among(name, passed)


def _can_pass(name: str, value: str) -> bool:
    """Whether a program can be given the value."""
    if name in THREAD_VARIABLES:
        return value.isascii() and value.isdigit() and 0 < len(value) < 10 and int(value) > 0
    try:
        return b"\0" not in value.encode("utf-8")
    except UnicodeEncodeError:
        return False


def is_among(name: str, patterns: Iterable[str]) -> bool:
    """Whether the name is one of `patterns`, in which a star stands for any letters."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
