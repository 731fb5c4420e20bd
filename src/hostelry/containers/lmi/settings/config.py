"""The server's configuration as one frozen value, from LMI's options. Pure.

A value out of range raises ConfigurationError naming key and choices. engine_terms.py judges the
options that an engine does not do.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec.structs import replace

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
from hostelry.containers.lmi.settings.engine_settings import (
    EngineSettings,
    read_engine_settings,
    read_queue_size,
)
from hostelry.containers.lmi.settings.engine_terms import (
    Backend,
    OptionTerms,
    judge_options,
    read_vllm_arguments,
)
from hostelry.containers.lmi.settings.option_reader import (
    MAX_INTEGER,
    ConfigurationError,
    OptionReader,
    header_name,
    invalid_setting,
    whole_number,
)
from hostelry.containers.lmi.settings.option_table import TGI_VARIABLES, find_row
from hostelry.containers.lmi.settings.option_values import (
    LISTED_TASKS,
    TASKS,
    LoraModule,
    ToolSettings,
    media_domains,
    parse_modules,
    parse_tool_settings,
)
from hostelry.containers.lmi.settings.options import Options, Setting, merge_options
from hostelry.engine import request as engine_request

DEFAULT_MAX_LORAS = 4
MIB = 1024 * 1024
DEFAULT_MAX_REQUEST_BYTES = 64 * MIB
DIALECTS: Mapping[str, Surface] = {
    "auto": Surface.ASYNC,
    "disable": Surface.ASYNC,
    "vllm": Surface.LEGACY,
    "trtllm": Surface.LEGACY,
    "lmi-dist": Surface.LEGACY,
}
ENGINES = ("Python", "MPI")
DEFAULT_ADAPTERS = PurePosixPath("adapters")
# The operator who starts the server sets them, not the model's author.
ARTIFACT_PREFIX = "HOSTELRY_ARTIFACT_"
HUB_FOLDER = f"{ARTIFACT_PREFIX}HUB_MODEL"


class ImageKind(Enum):
    """The container images that the server stands in for."""

    LMI = "lmi"
    VLLM = "vllm"
    TGI = "tgi"


@dataclass(frozen=True, slots=True, kw_only=True)
class LmiConfig:
    """Configuration of the server.

    With `model_id` None the model lies in `model_dir`. It may also name one of `artifact_folders`.
    `hub_folder` is the agent's download from the hub. `served` are the names of the base model in
    requests, `model_name` is its name in responses. `runtimes_dir` holds the interpreters of other
    engines. `max_cpu_loras` bounds the pinned adapters, nothing the registered ones. `adapters` is
    the folder of the model's own adapters, inside the model folder, and `lora_modules` names more
    adapters. `config_overrides` replace members of config.json. Defaults of sampling come from
    `generation_config` (auto, vllm, or a folder) and `generation_overrides`. Seeds of requests that
    give none are drawn from `seed`, if it is set. With `lists_vectors` one text is answered as a
    list of one vector. `terms` has the demands of options on each engine.
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
    engine: EngineSettings = field(default_factory=EngineSettings)
    job_queue_size: int = 1000
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES
    max_cpu_loras: int = 4
    adapters: PurePosixPath = DEFAULT_ADAPTERS
    lora_modules: tuple[LoraModule, ...] = ()
    config_overrides: Mapping[str, Any] = field(default_factory=dict)
    generation_config: str = "auto"
    generation_overrides: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    max_logprobs: int = MAX_LOGPROBS
    media_domains: frozenset[str] = frozenset()
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
    lists_vectors: bool = False
    terms: OptionTerms = field(default_factory=OptionTerms)

    def find_warnings(self, engine: Backend) -> tuple[str, ...]:
        """The warnings about options if `engine` serves."""
        return (*self.terms.warnings, *self.terms.of(engine).warnings)


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
    backend = Backend(read.choice("backend", "auto", tuple(it.value for it in Backend)))
    engine = replace(
        read_engine_settings(options, read, env, machine_cpus, dialect),
        vllm=read_vllm_arguments(options, backend),
    )
    served = served_names(read, image, artifact_folders(env))
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
        backend=backend,
        rolling_batch_is_vllm=(read.text("rolling_batch") or "").lower() == "vllm",
        runtimes_dir=runtimes_folder(env),
        engine=engine,
        job_queue_size=read_queue_size(read),
        max_request_bytes=max_request_bytes(env, read),
        max_cpu_loras=engine.max_cpu_loras or engine.max_loras or DEFAULT_MAX_LORAS,
        adapters=read.folder("adapters", DEFAULT_ADAPTERS),
        lora_modules=lora_modules(options, read, enable_lora=engine.enable_lora),
        config_overrides=config_overrides(read),
        generation_config=generation_config(read, dialect),
        generation_overrides=read.members("override_generation_config"),
        seed=read.optional_integer("seed", 0),
        max_logprobs=max_logprobs(options),
        media_domains=media_domains(env, read),
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
        lists_vectors=read.choice("task", "auto", tuple(TASKS)) in LISTED_TASKS,
        terms=option_terms(options, env, image, backend, read),
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
    """OPENAI for a vLLM image, LEGACY if a rolling batch is named, else ASYNC."""
    name = read.choice("rolling_batch", "auto", tuple(DIALECTS))
    if read.flag("async_mode", False) and DIALECTS[name] is Surface.LEGACY:
        raise invalid_setting(options.settings["async_mode"], f"false with rolling_batch={name}")
    read.choice("engine", "Python", ENGINES, str)
    return Surface.OPENAI if image is ImageKind.VLLM else DIALECTS[name]


def generation_config(read: OptionReader, dialect: Surface) -> str:
    """The source of sampling defaults. LMI's rolling batch and TGI read none of the model."""
    return read.text("generation_config") or ("vllm" if dialect is Surface.LEGACY else "auto")


def config_overrides(read: OptionReader) -> dict[str, Any]:
    """The members that replace members of config.json."""
    scaling, theta = read.members("rope_scaling"), read.number("rope_theta")
    return {
        **read.members("hf_overrides"),
        **({"rope_scaling": dict(scaling)} if scaling else {}),
        **({} if theta is None else {"rope_theta": theta}),
    }


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


def artifact_folders(env: Mapping[str, str]) -> tuple[str, ...]:
    """The folders of the artifacts fetched for this server."""
    return tuple(it for name, it in sorted(env.items()) if name.startswith(ARTIFACT_PREFIX))


def hub_folder(env: Mapping[str, str], model_id: str | None) -> str | None:
    """The folder with the model of the hub, if the agent has downloaded the one with this id."""
    return env.get(HUB_FOLDER) if model_id in env.values() else None


def max_request_bytes(env: Mapping[str, str], read: OptionReader) -> int:
    """The largest body: SageMaker's bytes, else its MiB, else the server's property."""
    for variable, unit in (("SAGEMAKER_MAX_REQUEST_SIZE", 1), ("SAGEMAKER_MAX_PAYLOAD_IN_MB", MIB)):
        text = env.get(variable)
        if text:
            return whole_number(Setting(text, variable), 1, MAX_INTEGER // unit) * unit
    return read.integer("/max_request_size", DEFAULT_MAX_REQUEST_BYTES, 1)


def option_terms(
    options: Options,
    env: Mapping[str, str],
    image: ImageKind,
    backend: Backend,
    read: OptionReader,
) -> OptionTerms:
    """What the options ask of each engine. Raises ConfigurationError (see engine_terms)."""
    strict = read.flag("strict_options", False)
    given = [(name, it, find_row(name)) for name, it in options.settings.items()]
    if image is ImageKind.TGI:
        given += [
            (name, Setting(env[name], name), row)
            for name, row in TGI_VARIABLES.items()
            if env.get(name)
        ]
    terms = judge_options(given, backend, strict=strict)
    more = list(options.warnings)
    if options.settings.get("rolling_batch", Setting("", "")).value.lower() == "lmi-dist":
        more.append("rolling_batch=lmi-dist was removed from LMI; vllm is used in its place")
    return replace(terms, warnings=(*more, *terms.warnings))
