"""The server's configuration as one frozen value, from LMI's options. Pure.

option (see option_table.py)                       -> result
done                                               -> a field of LmiConfig
without effect, answers stay the same              -> a warning
changes nothing                                    -> nothing
not in the table                                   -> a warning; ConfigurationError when strict
would change answers and is not done               -> ConfigurationError
value out of range                                 -> ConfigurationError naming key and choices
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any

from hostelry.base.runtimes import runtimes_folder
from hostelry.containers.lmi.artifact_path import CONTAINER_MODEL_DIR
from hostelry.containers.lmi.refusal import StatusCodes, Surface
from hostelry.containers.lmi.request.inputs import FORMATTERS
from hostelry.containers.lmi.request.sampling import MAX_LOGPROBS
from hostelry.containers.lmi.settings.code_settings import (
    CodeSettings,
    CodeSettingsError,
    SecureModeError,
    code_settings,
)
from hostelry.containers.lmi.settings.option_reader import (
    MAX_INTEGER,
    SHOWN_CHARACTERS,
    ConfigurationError,
    OptionReader,
    header_name,
    invalid_setting,
    quote_setting,
    whole_number,
)
from hostelry.containers.lmi.settings.option_rows import OptionFate, OptionRow
from hostelry.containers.lmi.settings.option_table import TGI_VARIABLES, close_names, find_row
from hostelry.containers.lmi.settings.option_values import (
    LoraModule,
    PooledOptions,
    ToolSettings,
    media_domains,
    parse_modules,
    parse_most_images,
    parse_policies,
    parse_policy,
    parse_tool_settings,
    read_pooled,
)
from hostelry.containers.lmi.settings.options import Options, Setting, merge_options
from hostelry.engine import request as engine_request
from hostelry.engine.scheduler.tenants import TenantPolicy

DEFAULT_MAX_LORAS = 4
MIB = 1024 * 1024
DEFAULT_MAX_REQUEST_BYTES = 64 * MIB
MAX_BATCH_SIZES: Mapping[Surface, int] = {
    Surface.ASYNC: 32,
    Surface.LEGACY: 256,
    Surface.OPENAI: 256,
}

DTYPES: Mapping[str, str] = {
    "auto": "auto",
    "fp32": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
}
DIALECTS: Mapping[str, Surface] = {
    "auto": Surface.ASYNC,
    "disable": Surface.ASYNC,
    "vllm": Surface.LEGACY,
    "trtllm": Surface.LEGACY,
    "lmi-dist": Surface.LEGACY,
}
ENGINES = ("Python", "MPI")
AS_THE_FILES_HAVE_IT = PooledOptions()
DEFAULT_ADAPTERS = PurePosixPath("adapters")
# Set by the operator who starts the server, not by the model's author.
ARTIFACT_PREFIX = "HOSTELRY_ARTIFACT_"
HUB_FOLDER = f"{ARTIFACT_PREFIX}HUB_MODEL"
CACHE_VARIABLE = "HOSTELRY_ADAPTER_CACHE_DIR"


class ImageKind(Enum):
    """The container images that the server stands in for."""

    LMI = "lmi"
    VLLM = "vllm"
    TGI = "tgi"


class Backend(Enum):
    """The engine to serve the model with. AUTO: ours if it reads the model, else vLLM."""

    AUTO = "auto"
    HOSTELRY = "hostelry"
    VLLM = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class LmiConfig:
    """Configuration of the server.

    With `model_id` None the model lies in `model_dir`. It may also name one of `artifact_folders`.
    `hub_folder` is the agent's download from the hub. `max_batched_tokens`, `max_model_len` and
    `num_threads` None leave the choice to the engine. `served` are the names of the base model in
    requests, `model_name` is its name in responses. `max_loras` bounds the distinct adapters of one
    step (None: no bound), `max_cpu_loras` the pinned adapters. The number of registered adapters is
    not limited. `adapters` is the folder of the model's own adapters, inside the model folder, and
    `lora_modules` names more adapters. `config_overrides` replace members of config.json. Defaults
    of sampling come from `generation_config` (auto, vllm, or a folder) and `generation_overrides`.
    With `seed` the seeds of requests that give none are drawn from it. `pool_bytes`,
    `adapter_host_bytes` and `adapter_cache_bytes` None are the engine's defaults. Nothing is cached
    on disk without `adapter_cache_dir`. Tenants outside `tenants` have the policy `default_tenant`.
    `runtimes_dir` holds the interpreters of other engines.
    """

    model_dir: Path
    model_id: str | None = None
    artifact_folders: tuple[str, ...] = ()
    hub_folder: str | None = None
    revision: str | None = None
    hf_token: str | None = field(default=None, repr=False)
    image: ImageKind = ImageKind.LMI
    model_name: str = "lmi"
    served: tuple[str, ...] = ("lmi",)
    dialect: Surface = Surface.ASYNC
    backend: Backend = Backend.AUTO
    rolling_batch_is_vllm: bool = False
    runtimes_dir: Path = Path("/nonexistent")
    dtype: str = "auto"
    weight_dtype: str = "auto"
    max_batch_size: int = 32
    max_batched_tokens: int | None = None
    max_model_len: int | None = None
    num_threads: int | None = None
    use_accelerators: bool = True
    job_queue_size: int = 1000
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES
    enable_lora: bool = False
    max_loras: int | None = None
    max_cpu_loras: int = 4
    max_lora_rank: int = 16
    adapters: PurePosixPath = DEFAULT_ADAPTERS
    lora_modules: tuple[LoraModule, ...] = ()
    fuse_adapter: str | None = None
    config_overrides: Mapping[str, Any] = field(default_factory=dict)
    generation_config: str = "auto"
    generation_overrides: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    max_logprobs: int = MAX_LOGPROBS
    pool_bytes: int | None = None
    prefix_cache: bool = True
    enforce_eager: bool | None = None
    max_images: int | None = None
    media_domains: frozenset[str] = frozenset()
    adapter_host_bytes: int | None = None
    adapter_cache_dir: Path | None = None
    adapter_cache_bytes: int | None = None
    tenants: Mapping[str, TenantPolicy] = field(default_factory=dict)
    default_tenant: TenantPolicy = field(default_factory=TenantPolicy)
    first_token_deadline_s: float | None = None
    output_formatter: str | None = None
    tgi_compat: bool = False
    chat_template: str | None = None
    strict_fields: bool = False
    trust_request_chat_template: bool = False
    tools: ToolSettings = field(default_factory=ToolSettings)
    predict_timeout_s: float = 240.0
    loading_timeout_s: float = 1800.0
    codes: StatusCodes = field(default_factory=StatusCodes)
    request_id_header: str = "x-request-id"
    code: CodeSettings = field(default_factory=CodeSettings)
    pooled: PooledOptions = AS_THE_FILES_HAVE_IT
    warnings: tuple[str, ...] = ()


def resolve_config(
    env: Mapping[str, str],
    properties_text: str,
    listing: Collection[str],
    model_dir: Path,
    machine_cpus: int,
    image: ImageKind = ImageKind.LMI,
) -> LmiConfig:
    """The configuration by environment, serving.properties and the model folder's listing.

    `listing` holds the names in `model_dir`, `machine_cpus` counts the CPUs this process may use.
    Raises ConfigurationError.
    """
    options = merge_options(env, properties_text)
    read = OptionReader(options)
    dialect = chosen_dialect(options, read, image)
    max_loras = read.optional_integer("max_loras", 1)
    served = served_names(read, image, artifact_folders(env))
    dtype = DTYPES[read.choice("dtype", "auto", tuple(DTYPES))]
    enable_lora = read.flag("enable_lora", False)
    return LmiConfig(
        model_dir=model_dir,
        model_id=read.text("model_id"),
        artifact_folders=artifact_folders(env),
        hub_folder=hub_folder(env, read.text("model_id")),
        revision=read.text("revision"),
        hf_token=read.text("hf_token"),
        image=image,
        model_name=served[0],
        served=served,
        dialect=dialect,
        backend=Backend(read.choice("backend", "auto", tuple(it.value for it in Backend))),
        rolling_batch_is_vllm=(read.text("rolling_batch") or "").lower() == "vllm",
        runtimes_dir=runtimes_folder(env),
        dtype=dtype,
        max_batch_size=read.integer("max_rolling_batch_size", MAX_BATCH_SIZES[dialect], 1),
        max_batched_tokens=read.optional_integer("max_rolling_batch_prefill_tokens", 1),
        max_model_len=read.optional_integer("max_model_len", 2),
        num_threads=cpu_threads(env, machine_cpus),
        use_accelerators=get_reservation(env, "HOSTELRY_ACCELERATORS") != 0,
        job_queue_size=read.integer("job_queue_size", 1000, 0),
        max_request_bytes=max_request_bytes(env, read),
        enable_lora=enable_lora,
        max_loras=max_loras,
        max_cpu_loras=read.integer("max_cpu_loras", max_loras or DEFAULT_MAX_LORAS, max_loras or 1),
        max_lora_rank=read.integer("max_lora_rank", 16, 1),
        adapters=read.folder("adapters", DEFAULT_ADAPTERS),
        lora_modules=lora_modules(options, read, enable_lora=enable_lora),
        fuse_adapter=fused_adapter(options, enable_lora=enable_lora),
        config_overrides=config_overrides(read),
        generation_config=generation_config(read, dialect),
        generation_overrides=read.members("override_generation_config"),
        seed=read.optional_integer("seed", 0),
        max_logprobs=max_logprobs(options),
        weight_dtype=weight_dtype(options, dtype),
        pool_bytes=read.optional_integer("pool_bytes", 1),
        prefix_cache=read.flag("enable_prefix_caching", True),
        max_images=read.parse("limit_mm_per_prompt", parse_most_images),
        media_domains=media_domains(env, read),
        enforce_eager=read.flag("enforce_eager", True) if read.text("enforce_eager") else None,
        adapter_host_bytes=read.optional_integer("adapter_host_bytes", 0),
        adapter_cache_dir=adapter_cache(env),
        adapter_cache_bytes=read.optional_integer("adapter_cache_bytes", 1),
        tenants=read.parse("tenants", parse_policies) or {},
        default_tenant=read.parse("default_tenant", parse_policy) or TenantPolicy(),
        first_token_deadline_s=read.seconds("first_token_deadline_s"),
        output_formatter=read.choice("output_formatter", "", tuple(FORMATTERS)) or None,
        tgi_compat=read.flag("tgi_compat", False),
        chat_template=read.text("chat_template"),
        strict_fields=read.flag("strict_fields", False),
        trust_request_chat_template=read.flag("trust_request_chat_template", False),
        tools=parse_tool_settings(read),
        predict_timeout_s=read.integer("predict_timeout", 240, 1),
        loading_timeout_s=read.integer("model_loading_timeout", 1800, 1),
        codes=read.codes(),
        request_id_header=read.parse("/request_id_header_key", header_name) or "x-request-id",
        code=author_code(env, options, listing),
        pooled=read_pooled(read),
        warnings=(*options.warnings, *option_warnings(options, env, image, read)),
    )


def author_code(env: Mapping[str, str], options: Options, listing: Collection[str]) -> CodeSettings:
    """Settings of the author's code. Raises ConfigurationError."""
    try:
        return code_settings(env, options, listing)
    except (CodeSettingsError, SecureModeError) as error:
        raise ConfigurationError(str(error)) from error


def served_names(
    read: OptionReader, image: ImageKind, downloads: Collection[str]
) -> tuple[str, ...]:
    """The names of the base model in requests. The first is the name in responses.

    A folder among `downloads` is not a name: callers get no path of this machine.
    """
    given = read.text("model_id")
    model_id = None if given in downloads else given
    own = model_id or str(CONTAINER_MODEL_DIR) if image is ImageKind.VLLM else "lmi"
    names = read.names("served_model_name") or (own,)
    return tuple(dict.fromkeys([*names, *([model_id] if model_id else [])]))


def chosen_dialect(options: Options, read: OptionReader, image: ImageKind) -> Surface:
    """OPENAI for a vLLM image, LEGACY where a rolling batch is named, else ASYNC."""
    name = read.choice("rolling_batch", "auto", tuple(DIALECTS))
    if read.flag("async_mode", False) and DIALECTS[name] is Surface.LEGACY:
        raise invalid_setting(options.settings["async_mode"], f"false with rolling_batch={name}")
    read.choice("engine", "Python", ENGINES, str)
    return Surface.OPENAI if image is ImageKind.VLLM else DIALECTS[name]


def generation_config(read: OptionReader, dialect: Surface) -> str:
    """The source of sampling defaults. LMI's rolling batch and TGI read none of the model."""
    return read.text("generation_config") or ("vllm" if dialect is Surface.LEGACY else "auto")


def config_overrides(read: OptionReader) -> dict[str, Any]:
    """What is in the place of config.json's members."""
    scaling, theta = read.members("rope_scaling"), read.number("rope_theta")
    return {
        **read.members("hf_overrides"),
        **({"rope_scaling": dict(scaling)} if scaling else {}),
        **({} if theta is None else {"rope_theta": theta}),
    }


def weight_dtype(options: Options, dtype: str) -> str:
    """The weights' type: int8, or as stored. Raises ConfigurationError for other kinds."""
    cache = options.settings.get("kv_cache_dtype")
    if cache and DTYPES.get(cache.value.lower()) not in ("auto", dtype):
        raise invalid_setting(cache, f"auto, or the option dtype ({dtype})")
    kind = options.settings.get("quantize")
    if kind is None or kind.value.lower() in ("none", "false", "auto"):
        return "auto"
    if kind.value.lower() != "int8":
        raise invalid_setting(
            kind, "int8 (on CPU), or left out: weights are then computed as they are stored"
        )
    return "int8"


def max_logprobs(options: Options) -> int:
    """The most alternatives of a token that a request may ask for."""
    setting = options.settings.get("max_logprobs")
    return (
        MAX_LOGPROBS if setting is None else whole_number(setting, 0, engine_request.MAX_LOGPROBS)
    )


def lora_modules(
    options: Options, read: OptionReader, *, enable_lora: bool
) -> tuple[LoraModule, ...]:
    """The adapters of the start that an option names."""
    modules = read.parse("lora_modules", parse_modules) or ()
    if modules and not enable_lora:
        raise invalid_setting(options.settings["lora_modules"], "left out without enable_lora=true")
    return modules


def fused_adapter(options: Options, *, enable_lora: bool) -> str | None:
    """The name of the adapter to merge. Raises ConfigurationError for what cannot be one name."""
    setting, quantize = options.settings.get("fuse_adapter"), options.settings.get("quantize")
    if setting is None:
        return None
    if not enable_lora:
        raise invalid_setting(setting, "left out without enable_lora=true")
    if not setting.value.isprintable() or set(setting.value) & set('/,= [{"'):
        raise invalid_setting(setting, "the name of one adapter, without spaces and / , = [ {")
    if quantize is not None and quantize.value.lower() == "int8":
        raise invalid_setting(
            setting, "left out with quantize=int8: 8-bit weights are too coarse for its update"
        )
    return setting.value


def artifact_folders(env: Mapping[str, str]) -> tuple[str, ...]:
    """The folders of the artifacts fetched for this server."""
    return tuple(it for name, it in sorted(env.items()) if name.startswith(ARTIFACT_PREFIX))


def hub_folder(env: Mapping[str, str], model_id: str | None) -> str | None:
    """The folder with the model of the hub, if the agent has downloaded the one with this id."""
    return env.get(HUB_FOLDER) if model_id in env.values() else None


def adapter_cache(env: Mapping[str, str]) -> Path | None:
    """The cache folder of remote adapters. None for no cache."""
    folder = env.get(CACHE_VARIABLE)
    if folder and not folder.startswith("/"):
        raise invalid_setting(Setting(folder, CACHE_VARIABLE), "an absolute path")
    return Path(folder) if folder else None


def cpu_threads(env: Mapping[str, str], machine_cpus: int) -> int | None:
    """OMP_NUM_THREADS, else the reserved CPUs rounded up. None if neither is set.

    At least one, and at most the machine's CPUs: a declared instance type may have more CPUs than
    this machine, and more threads than CPUs are slow.
    """
    threads = env.get("OMP_NUM_THREADS", "")
    given = whole_number(Setting(threads, "OMP_NUM_THREADS"), 0) if threads.isdecimal() else None
    cpus = given or get_reservation(env, "HOSTELRY_CPUS")
    return max(1, min(math.ceil(cpus), machine_cpus)) if cpus else None


def get_reservation(env: Mapping[str, str], variable: str) -> float | None:
    """A number of the copy's reservation. None if unset."""
    text = env.get(variable)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise invalid_setting(Setting(text, variable), "a number, 0 or more")
    return value


def max_request_bytes(env: Mapping[str, str], read: OptionReader) -> int:
    """The largest body: SageMaker's bytes, else its MiB, else the server's property."""
    for variable, unit in (("SAGEMAKER_MAX_REQUEST_SIZE", 1), ("SAGEMAKER_MAX_PAYLOAD_IN_MB", MIB)):
        text = env.get(variable)
        if text:
            return whole_number(Setting(text, variable), 1, MAX_INTEGER // unit) * unit
    return read.integer("/max_request_size", DEFAULT_MAX_REQUEST_BYTES, 1)


def option_warnings(
    options: Options, env: Mapping[str, str], image: ImageKind, read: OptionReader
) -> list[str]:
    """Warnings for options without effect. Raises if ignoring an option would change answers."""
    strict = read.flag("strict_options", False)
    found = [
        judge_setting(name, it, find_row(name), strict) for name, it in options.settings.items()
    ]
    if image is ImageKind.TGI:
        found += [
            judge_setting(name, Setting(env[name], name), row, strict)
            for name, row in TGI_VARIABLES.items()
            if env.get(name)
        ]
    if options.settings.get("rolling_batch", Setting("", "")).value.lower() == "lmi-dist":
        found.append("rolling_batch=lmi-dist was removed from LMI; vllm is used in its place")
    return [it for it in found if it is not None]


def judge_setting(name: str, setting: Setting, row: OptionRow | None, strict: bool) -> str | None:
    """The warning of one setting, if any. Raises ConfigurationError for a refused setting."""
    if row is None:
        kind = "property" if name.startswith("/") else "option"
        close = " or ".join(it.removeprefix("/") for it in close_names(name))
        hint = f"; did you mean {close}?" if close else ""
        message = f"{setting.given_as[:SHOWN_CHARACTERS]} is not a known {kind}{hint}"
        if strict:
            raise ConfigurationError(f"{message} (strict_options refuses what is not known)")
        return f"{message}; it is not used"
    if row.fate is OptionFate.DONE or row.asks_nothing(setting.value):
        return None
    if row.fate is OptionFate.REFUSED:
        raise invalid_setting(setting, row.text)
    value = quote_setting(setting).strip("'\"")
    return f"{setting.given_as}={value} has no effect: {row.text}"
