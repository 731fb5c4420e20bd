"""The server's configuration as one frozen value, from LMI's options. Pure.

option                                             -> result
supported                                          -> a field of LmiConfig
no effect here, answers stay the same              -> a warning
asks for what is done anyway                       -> nothing
not known to LMI                                   -> a warning
would change answers and is not supported          -> ConfigurationError
value out of range                                 -> ConfigurationError naming key and choices
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeVar

from hostelry.base.errors import HostelryError
from hostelry.containers.lmi.artifact_path import relative_path
from hostelry.containers.lmi.refusal import StatusCodes, Surface
from hostelry.containers.lmi.request.inputs import FORMATTERS
from hostelry.containers.lmi.request.terms import MAX_DEADLINE_S
from hostelry.containers.lmi.settings.option_table import REFUSED, effect_missing, is_known
from hostelry.containers.lmi.settings.options import Options, Setting, merge_options
from hostelry.containers.lmi.settings.tenant_options import parse_policies, parse_policy
from hostelry.engine.scheduler.tenants import TenantPolicy

T = TypeVar("T")

DEFAULT_MAX_LORAS = 4
SHOWN_CHARACTERS = 200
MIB = 1024 * 1024
MAX_INTEGER = 2**53 - 1  # of any setting: exact in the number format of every client
DEFAULT_MAX_REQUEST_BYTES = 64 * MIB

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
TASKS = ("auto", "generate", "text-generation")
ENGINES = ("Python", "MPI")
DEFAULT_ADAPTERS = PurePosixPath("adapters")
# Set by the operator who starts the server, not by the model's author.
ARTIFACT_PREFIX = "HOSTELRY_ARTIFACT_"
CACHE_VARIABLE = "HOSTELRY_ADAPTER_CACHE_DIR"


class ConfigurationError(HostelryError):
    """The server cannot start as it is configured; the message names key, value and choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LmiConfig:
    """Configuration of the server.

    With `model_id` None the model lies in `model_dir`; `artifact_folders` are the other folders of
    this machine that it may name. `max_batched_tokens`, `max_model_len` and `num_threads` None
    leave the choice to the engine. `served` are the names of the base model in requests,
    `model_name` the one in responses. `max_loras` bounds the distinct adapters of one step (None:
    no bound), `max_cpu_loras` the pinned ones; the number of registered ones is not limited.
    `adapters` is the folder of the model's own adapters, inside the model folder. `pool_bytes`,
    `adapter_host_bytes` and `adapter_cache_bytes` None are the engine's defaults; without
    `adapter_cache_dir` nothing is cached on disk. `default_tenant` is the policy of tenants that
    are not in `tenants`.
    """

    model_dir: Path
    model_id: str | None = None
    artifact_folders: tuple[str, ...] = ()
    revision: str | None = None
    model_name: str = "lmi"
    served: tuple[str, ...] = ("lmi",)
    dialect: Surface = Surface.ASYNC
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
    pool_bytes: int | None = None
    prefix_cache: bool = True
    adapter_host_bytes: int | None = None
    adapter_cache_dir: Path | None = None
    adapter_cache_bytes: int | None = None
    tenants: Mapping[str, TenantPolicy] = field(default_factory=dict)
    default_tenant: TenantPolicy = field(default_factory=TenantPolicy)
    first_token_deadline_s: float | None = None
    output_formatter: str | None = None
    tgi_compat: bool = False
    chat_template: str | None = None
    predict_timeout_s: float = 240.0
    loading_timeout_s: float = 1800.0
    codes: StatusCodes = field(default_factory=StatusCodes)
    request_id_header: str = "x-request-id"
    warnings: tuple[str, ...] = ()


def resolve_config(
    env: Mapping[str, str],
    properties_text: str,
    listing: Collection[str],
    model_dir: Path,
    machine_cpus: int,
) -> LmiConfig:
    """The configuration by environment, serving.properties and the model folder's listing.

    `listing` holds the names in `model_dir`, `machine_cpus` counts the CPUs this process may use.
    Raises ConfigurationError.
    """
    options = merge_options(env, properties_text)
    read = OptionReader(options)
    warnings = [*options.warnings, *option_warnings(options, listing)]
    dialect = read.dialect()
    max_loras = read.optional_integer("max_loras", 1)
    model_id = read.text("model_id")
    names = [it.strip() for it in (read.text("served_model_name") or "lmi").split(",")]
    return LmiConfig(
        model_dir=model_dir,
        model_id=model_id,
        artifact_folders=artifact_folders(env),
        revision=read.text("revision"),
        model_name=names[0],
        served=tuple(dict.fromkeys([*names, *([model_id] if model_id else [])])),
        dialect=dialect,
        dtype=DTYPES[read.choice("dtype", "auto", tuple(DTYPES))],
        max_batch_size=read.integer(
            "max_rolling_batch_size", 256 if dialect is Surface.LEGACY else 32, 1
        ),
        max_batched_tokens=read.optional_integer("max_rolling_batch_prefill_tokens", 1),
        max_model_len=read.optional_integer("max_model_len", 2),
        num_threads=cpu_threads(env, machine_cpus),
        use_accelerators=reserved(env, "HOSTELRY_ACCELERATORS") != 0,
        job_queue_size=read.integer("job_queue_size", 1000, 0),
        max_request_bytes=max_request_bytes(env, read),
        enable_lora=read.flag("enable_lora", False),
        max_loras=max_loras,
        max_cpu_loras=read.integer("max_cpu_loras", max_loras or DEFAULT_MAX_LORAS, max_loras or 1),
        max_lora_rank=read.integer("max_lora_rank", 16, 1),
        adapters=read.folder("adapters", DEFAULT_ADAPTERS),
        weight_dtype="int8" if (read.text("quantize") or "").lower() == "int8" else "auto",
        pool_bytes=read.optional_integer("pool_bytes", 1),
        prefix_cache=read.flag("enable_prefix_caching", True),
        adapter_host_bytes=read.optional_integer("adapter_host_bytes", 0),
        adapter_cache_dir=adapter_cache(env),
        adapter_cache_bytes=read.optional_integer("adapter_cache_bytes", 1),
        tenants=read.parsed("tenants", parse_policies) or {},
        default_tenant=read.parsed("default_tenant", parse_policy) or TenantPolicy(),
        first_token_deadline_s=read.seconds("first_token_deadline_s"),
        output_formatter=read.formatter(),
        tgi_compat=read.flag("tgi_compat", False),
        chat_template=read.text("chat_template"),
        predict_timeout_s=read.integer("predict_timeout", 240, 1),
        loading_timeout_s=read.integer("model_loading_timeout", 1800, 1),
        codes=read.codes(),
        warnings=tuple(warnings),
    )


class OptionReader:
    """Typed reads of options; an invalid value raises ConfigurationError."""

    def __init__(self, options: Options) -> None:
        self._settings = options.settings

    def text(self, name: str) -> str | None:
        """The option's text."""
        setting = self._settings.get(name)
        return setting.value if setting else None

    def flag(self, name: str, default: bool) -> bool:
        """True or false, in any case."""
        return self.choice(name, str(default).lower(), ("true", "false"), str.lower) == "true"

    def choice(
        self,
        name: str,
        default: str,
        allowed: tuple[str, ...],
        form: Callable[[str], str] = str.lower,
    ) -> str:
        """One of `allowed`."""
        setting = self._settings.get(name)
        if setting is None:
            return default
        value = form(setting.value)
        if value not in allowed:
            raise invalid_setting(setting, f"one of {', '.join(allowed)}")
        return value

    def integer(self, name: str, default: int, low: int) -> int:
        """A whole number of at least `low`."""
        value = self.optional_integer(name, low)
        return default if value is None else value

    def optional_integer(self, name: str, low: int) -> int | None:
        """A whole number of at least `low`; None when absent."""
        setting = self._settings.get(name)
        if setting is None:
            return None
        return whole_number(setting, low)

    def folder(self, name: str, default: PurePosixPath) -> PurePosixPath:
        """A folder below the model's, relative to it."""
        setting = self._settings.get(name)
        if setting is None:
            return default
        path = relative_path(setting.value)
        if path is None or not path.parts:
            raise invalid_setting(setting, "a folder inside the model folder, such as adapters")
        return path

    def seconds(self, name: str) -> float | None:
        """A time; None when absent."""
        setting = self._settings.get(name)
        if setting is None:
            return None
        try:
            value = float(setting.value)
        except ValueError:
            value = math.nan
        if not 0 < value <= MAX_DEADLINE_S:
            raise invalid_setting(setting, f"a number greater than 0, at most {MAX_DEADLINE_S:g}")
        return value

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        """The result of `parse`, which may raise ValueError; None when absent."""
        setting = self._settings.get(name)
        if setting is None:
            return None
        try:
            return parse(setting.value)
        except ValueError as error:
            shown = setting.value[:SHOWN_CHARACTERS]
            raise ConfigurationError(f"{setting.given_as} is {shown!r}: {error}") from error

    def dialect(self) -> Surface:
        """LEGACY where a rolling batch is named, else ASYNC."""
        name = self.choice("rolling_batch", "auto", tuple(DIALECTS))
        if DIALECTS[name] is Surface.LEGACY and self.flag("async_mode", False):
            raise invalid_setting(self._settings["async_mode"], f"false with rolling_batch={name}")
        self.choice("task", "auto", TASKS)
        self.choice("engine", "Python", ENGINES, str)
        return DIALECTS[name]

    def formatter(self) -> str | None:
        """The configured output formatter."""
        allowed = tuple(FORMATTERS)
        return self.choice("output_formatter", "", allowed) or None

    def codes(self) -> StatusCodes:
        """The configurable statuses."""
        return StatusCodes(
            bad_request=self.integer("/bad_request_http_code", 400, 400),
            queue_full=self.integer("/throttle_error_http_code", 503, 400),
            not_ready=self.integer("/wlm_error_http_code", 503, 400),
            timeout=self.integer("/timeout_http_code", 400, 400),
            server_error=self.integer("/server_error_http_code", 500, 400),
        )


def invalid_setting(setting: Setting, allowed: str) -> ConfigurationError:
    """The error of one setting."""
    shown = setting.value[:SHOWN_CHARACTERS]
    return ConfigurationError(f"{setting.given_as} is {shown!r}; it must be {allowed}")


def whole_number(setting: Setting, low: int, high: int = MAX_INTEGER) -> int:
    """The value as a whole number from `low` to `high`. Raises ConfigurationError."""
    digits = setting.value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))):
        value = None
    else:
        value = int(setting.value)
    if value is None or not low <= value <= high:
        raise invalid_setting(setting, f"a whole number of at least {low} and at most {high}")
    return value


def artifact_folders(env: Mapping[str, str]) -> tuple[str, ...]:
    """The folders of the artifacts fetched for this server."""
    return tuple(it for name, it in sorted(env.items()) if name.startswith(ARTIFACT_PREFIX))


def adapter_cache(env: Mapping[str, str]) -> Path | None:
    """The cache folder of remote adapters; None for no cache."""
    folder = env.get(CACHE_VARIABLE)
    if folder and not folder.startswith("/"):
        raise invalid_setting(Setting(folder, CACHE_VARIABLE), "an absolute path")
    return Path(folder) if folder else None


def cpu_threads(env: Mapping[str, str], machine_cpus: int) -> int | None:
    """OMP_NUM_THREADS, else the reserved CPUs rounded up; None where neither is set.

    At least one, and at most the machine's CPUs: a declared instance type may have more CPUs than
    this machine, and more threads than CPUs are slow.
    """
    threads = env.get("OMP_NUM_THREADS", "")
    given = whole_number(Setting(threads, "OMP_NUM_THREADS"), 0) if threads.isdecimal() else None
    cpus = given or reserved(env, "HOSTELRY_CPUS")
    return max(1, min(math.ceil(cpus), machine_cpus)) if cpus else None


def reserved(env: Mapping[str, str], variable: str) -> float | None:
    """A number of the copy's reservation; None where unset."""
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


def option_warnings(options: Options, listing: Collection[str]) -> list[str]:
    """Warnings for options without effect; raises where ignoring one would change answers."""
    found: list[str] = []
    for name, setting in options.settings.items():
        if name in REFUSED and setting.value.lower() not in REFUSED[name].harmless:
            raise invalid_setting(setting, REFUSED[name].allowed)
        if not is_known(name):
            kind = "property" if name.startswith("/") else "option"
            found.append(f"{setting.given_as} is not a known {kind}; it is not used")
        elif why := effect_missing(name, setting.value):
            found.append(f"{setting.given_as}={setting.value} has no effect: {why}")
    if options.settings.get("rolling_batch", Setting("", "")).value.lower() == "lmi-dist":
        found.append("rolling_batch=lmi-dist was removed from LMI; vllm is used in its place")
    entry = options.settings.get("entryPoint")
    if entry and not entry.value.startswith("djl_python"):
        raise invalid_setting(
            entry, "one of LMI's own djl_python handlers; custom code is not run here"
        )
    if "model.py" in listing:
        raise ConfigurationError(
            "the model folder holds model.py; custom inference code is not run by this server. "
            "Remove it, or bring an image of your own"
        )
    return found
