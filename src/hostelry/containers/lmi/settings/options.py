"""Merge of LMI's configuration sources into one mapping of option names to values. Pure.

The first source of an option wins: serving.properties, OPTION_*, SERVING_*, SM_VLLM_*, HF_* and the
other plain names, names of older servers. SageMaker's own variables overwrite all sources.
Source: DJL Serving's LMI configuration guide, and the entry point of AWS's vLLM images.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

PREFIX = "option."

# Option names whose environment form is not just lower case.
SPELLINGS: Mapping[str, str] = {"entrypoint": "entryPoint"}

# Keys of serving.properties that are options without the prefix.
UNPREFIXED = frozenset(
    {"engine", "job_queue_size", "batch_size", "max_dynamic_batch_size", "max_batch_delay"}
)

ALIASES: Mapping[str, str] = {
    "max_num_batched_tokens": "max_rolling_batch_prefill_tokens",
    "max_num_seqs": "max_rolling_batch_size",
    "quantization": "quantize",
    "cpu_offload_gb": "cpu_offload_gb_per_gpu",
    "model": "model_id",
    "tensor_parallel_size": "tensor_parallel_degree",
    "pipeline_parallel_size": "pipeline_parallel_degree",
    "entry_point": "entryPoint",
}

# Environment variables that are read when no source of higher precedence set the option.
PLAIN_NAMES: Mapping[str, str] = {
    "HF_MODEL_ID": "model_id",
    "HF_REVISION": "revision",
    "HF_MODEL_TRUST_REMOTE_CODE": "trust_remote_code",
    "TENSOR_PARALLEL_DEGREE": "tensor_parallel_degree",
    "PIPELINE_PARALLEL_DEGREE": "pipeline_parallel_degree",
    "MODEL_LOADING_TIMEOUT": "model_loading_timeout",
    "PREDICT_TIMEOUT": "predict_timeout",
    "HF_MODEL_QUANTIZE": "quantize",
    "SM_NUM_GPUS": "tensor_parallel_degree",
    "MAX_CONCURRENT_REQUESTS": "job_queue_size",
    "MAX_BATCH_PREFILL_TOKENS": "max_rolling_batch_prefill_tokens",
    "MAX_BATCH_SIZE": "max_rolling_batch_size",
}

# Environment variables that overwrite the option, or the property with a slash.
OVERWRITING: Mapping[str, str] = {
    "SAGEMAKER_NUM_MODEL_WORKERS": "/maxWorkers",
    "SAGEMAKER_STARTUP_TIMEOUT": "model_loading_timeout",
    "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "predict_timeout",
}
# TGI's name -> LMI's name, which wins if both are set.
TGI_NAMES: Mapping[str, str] = {
    "HF_MODEL_REVISION": "OPTION_REVISION",
    "REVISION": "OPTION_REVISION",
    "DTYPE": "OPTION_DTYPE",
    "QUANTIZE": "OPTION_QUANTIZE",
    "KV_CACHE_DTYPE": "OPTION_KV_CACHE_DTYPE",
    "NUM_SHARD": "OPTION_TENSOR_PARALLEL_DEGREE",
    "MAX_TOTAL_TOKENS": "OPTION_MAX_MODEL_LEN",
    "TRUST_REMOTE_CODE": "OPTION_TRUST_REMOTE_CODE",
    "ROPE_SCALING": "OPTION_ROPE_SCALING",
    "LORA_ADAPTERS": "OPTION_LORA_MODULES",
    "PAYLOAD_LIMIT": "SERVING_MAX_REQUEST_SIZE",
}
# Answers in lists, streams of events, and greedy unless a request samples.
TGI_MANNERS: Mapping[str, str] = {"OPTION_TGI_COMPAT": "true", "OPTION_ROLLING_BATCH": "lmi-dist"}


class Setting(msgspec.Struct, frozen=True):
    """A value, and the name of its source for messages."""

    value: str
    given_as: str


class Options(msgspec.Struct):
    """Settings by option name, and warnings about their sources."""

    settings: dict[str, Setting] = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)

    def put_if_absent(self, name: str, value: str, given_as: str) -> None:
        """Set `name` unless a source of higher precedence did."""
        if value:
            self.settings.setdefault(ALIASES.get(name, name), Setting(value, given_as))


def merge_options(env: Mapping[str, str], properties_text: str) -> Options:
    """Every option that is set, from all sources in LMI's order."""
    options = Options()
    for key, value in parse_properties(properties_text, options.warnings).items():
        take_property(options, key, key, value)
    for prefix, take in PREFIXES.items():
        for variable, value in sorted(env.items()):
            if variable.startswith(prefix):
                take(options, variable, variable.removeprefix(prefix).lower(), value)
    for variable, name in PLAIN_NAMES.items():
        options.put_if_absent(name, env.get(variable, ""), variable)
    graphs = env.get("ENABLE_CUDA_GRAPHS", "").lower()
    if graphs in ("true", "false"):
        eager = "false" if graphs == "true" else "true"
        options.put_if_absent("enforce_eager", eager, "ENABLE_CUDA_GRAPHS")
    for variable, name in OVERWRITING.items():
        if env.get(variable):
            options.settings[name] = Setting(env[variable], variable)
    return options


def take_property(options: Options, given_as: str, key: str, value: str) -> None:
    """Enter one pair of serving.properties, or one that a SERVING_* variable names."""
    if key.startswith(PREFIX):
        take_option(options, given_as, key.removeprefix(PREFIX), value)
    else:
        options.put_if_absent(key if key in UNPREFIXED else "/" + key, value, given_as)


def take_option(options: Options, given_as: str, name: str, value: str) -> None:
    """Enter one option of LMI."""
    options.put_if_absent(SPELLINGS.get(name.lower(), name), value, given_as)


def take_argument(options: Options, given_as: str, name: str, value: str) -> None:
    """Enter one variable of a vLLM image, whose entry point makes it an argument of vLLM.

    An empty value is the bare argument, which is true. The value false leaves the argument out.
    """
    if value.strip().lower() == "false":
        return
    if name.startswith("no_"):
        name, value = name.removeprefix("no_"), "false"
    options.put_if_absent(name, value or "true", given_as)


# Prefix of variables -> the function that enters a variable. Earlier prefixes win.
PREFIXES: Mapping[str, Callable[[Options, str, str, str], None]] = {
    "OPTION_": take_option,
    "SERVING_": take_property,
    "SM_VLLM_": take_argument,
}


def parse_properties(text: str, warnings: list[str]) -> dict[str, str]:
    """The pairs of a Java properties file. Later pairs win. Adds to `warnings`."""
    pairs: dict[str, str] = {}
    for line in logical_lines(text):
        cuts = [line.find(mark) for mark in "=:" if mark in line]
        if not cuts:
            warnings.append(f"serving.properties: {line[:80]!r} is not of the form key=value")
            continue
        cut = min(cuts)
        pairs[line[:cut].strip()] = line[cut + 1 :].strip()
    return pairs


def logical_lines(text: str) -> list[str]:
    """Lines without comments and blanks. A backslash at the end joins the next line."""
    lines: list[str] = []
    open_line = ""
    for raw in text.removeprefix("\ufeff").split("\n"):
        line = open_line + raw.strip()
        open_line = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            open_line = line[:-1]
            continue
        lines.append(line)
    return [*lines, open_line] if open_line else lines


def as_lmi(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with LMI's variables in addition to TGI's."""
    named = {theirs: env[name] for name, theirs in TGI_NAMES.items() if env.get(name)}
    with_adapters = {"OPTION_ENABLE_LORA": "true"} if env.get("LORA_ADAPTERS") else {}
    return {**TGI_MANNERS, **with_adapters, **named, **env}


def as_vllm(env: Mapping[str, str], listing: Collection[str]) -> dict[str, str]:
    """`env` without HF_MODEL_ID if the model folder holds a model and no variable names a model.

    `listing` are the names in the model folder.
    """
    is_named = env.get("SM_VLLM_MODEL") or env.get("OPTION_MODEL_ID") or env.get("OPTION_MODEL")
    unread = "HF_MODEL_ID" if "config.json" in listing and not is_named else ""
    return {name: value for name, value in env.items() if name != unread}
