"""Options whose value has parts: pooling, tools, tenants, images, adapters of the start.

`lora_modules`, the adapters that a server starts with (source: vLLM's LoRAParserAction and TGI's
LORA_ADAPTERS):

    name=path name2=path2            paths inside the model folder, or ids of the hub
    {"name": "a", "path": "b"} {...} the same as JSON objects, or a JSON list of them
    org/name,name=path@revision      TGI's form: commas, an id alone is its own name
"""

import re
from collections.abc import Collection, Mapping
from json import JSONDecoder
from typing import Any, TypeVar

import msgspec

from hostelry.base.json import decode
from hostelry.containers.lmi.request.chat_fields import OWN_VARIABLES
from hostelry.containers.lmi.request.context import is_tenant_name
from hostelry.containers.lmi.settings.option_reader import (
    ConfigurationError,
    OptionReader,
    invalid_setting,
)
from hostelry.containers.lmi.settings.options import Setting
from hostelry.containers.lmi.tools.families import OFF, REASONING_FAMILIES, TOOL_FAMILIES
from hostelry.engine.config import PooledTask
from hostelry.engine.pooled import POOLING_MODES
from hostelry.engine.scheduler.tenants import TenantPolicy

# Names of LMI, vLLM and Hugging Face -> the model's task.
TASKS: Mapping[str, str] = {
    "auto": "auto",
    **dict.fromkeys(("generate", "text-generation"), "generate"),
    **dict.fromkeys(
        (
            "text-embedding", "text_embedding", "feature-extraction", "embed", "embedding",
            "sentence-similarity",
        ),
        "embed",
    ),
    **dict.fromkeys(
        ("classify", "text-classification", "score", "rerank", "text-ranking"), "classify"
    ),
}  # fmt: skip
MAX_WAITING_TEXTS = 8192  # of a pooled model: four of the largest requests
LISTED_TASKS = ("feature-extraction", "sentence-similarity")
PARSER_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
# Option -> the text that its parser reads, and the fields that need it.
PARSER_EFFECTS: Mapping[str, tuple[str, str]] = {
    "tool_call_parser": ("calls", "tools and tool_choice auto"),
    "reasoning_parser": ("thoughts", "thinking_token_budget or include_reasoning false"),
}
T = TypeVar("T")
MEDIA_VARIABLE = "HOSTELRY_MEDIA_DOMAINS"
MAX_IMAGES = 256
HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
MAX_MODULES = 1024


def read_pooled(read: OptionReader) -> PooledTask:
    """The model's task and pooling. Raises ConfigurationError."""
    return PooledTask(
        task=TASKS[read.choice("task", "auto", tuple(TASKS))],
        pooling=read.choice("pooling", "", POOLING_MODES) or None,
        normalize=read.flag("normalize", True) if read.text("normalize") else None,
        max_waiting=MAX_WAITING_TEXTS,
    )


class ToolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Names of parsers (None: by the chat template, `none`: no parser) and template variables.

    Without `auto_choice` only a request that forces a call gets a call. `template_variables` are
    for requests without variables.
    """

    call_parser: str | None = None
    reasoning_parser: str | None = None
    auto_choice: bool = True
    template_variables: Mapping[str, Any] = msgspec.field(default_factory=dict)


def parse_tool_settings(read: OptionReader) -> ToolSettings:
    """The settings in the options. Raises ConfigurationError."""
    calls = parser_name(read, "tool_call_parser", TOOL_FAMILIES)
    reasoning = parser_name(read, "reasoning_parser", REASONING_FAMILIES)
    reasons = read.flag("enable_reasoning", True)
    variables = read.members("default_chat_template_kwargs")
    if taken := sorted(OWN_VARIABLES & variables.keys()):
        raise ConfigurationError(
            f"option.default_chat_template_kwargs has {taken[0]}, which only a request can set"
        )
    return ToolSettings(
        call_parser=calls,
        reasoning_parser=reasoning or (None if reasons else OFF),
        auto_choice=read.flag("enable_auto_tool_choice", True),
        template_variables=variables,
    )


def parser_name(read: OptionReader, option: str, known: Collection[str]) -> str | None:
    """The parser that the option names. A name that is not known here is a warning.

    Most chats need no parser, and new versions of vLLM add parsers.
    """
    name = read.parse(option, well_formed)
    if name is not None and name not in (*known, OFF):
        what, needs = PARSER_EFFECTS[option]
        read.warnings.append(
            f"option.{option} is {name}, which this server cannot read: {what} stay in the "
            f"answer's text, and requests with {needs} are refused; known are {', '.join(known)}"
        )
    return name


def well_formed(value: str) -> str:
    """A parser's name in small letters. Raises ValueError."""
    if not PARSER_NAME.fullmatch(value):
        raise ValueError("must be a parser's name, of letters, digits, _, - and .")
    return value.lower()


class PolicyOption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON form of a policy (see TenantPolicy)."""

    weight: float = 1.0
    tokens_per_s: float | None = None
    burst_s: float = 10.0
    max_concurrent: int | None = None
    max_queued: int | None = None

    def policy(self) -> TenantPolicy:
        """The engine's value. Raises ValueError for a value out of range."""
        return TenantPolicy(**msgspec.structs.asdict(self))


def parse_policy(text: str) -> TenantPolicy:
    """One policy. Raises ValueError naming field and fault."""
    return decode_option(text, PolicyOption).policy()


def parse_policies(text: str) -> Mapping[str, TenantPolicy]:
    """Policies by tenant. Raises ValueError naming tenant, field and fault."""
    policies = {}
    for name, option in decode_option(text, dict[str, PolicyOption]).items():
        if not is_tenant_name(name):
            raise ValueError(f"{name[:80]!r} cannot be a tenant's name")
        try:
            policies[name] = option.policy()
        except ValueError as error:
            raise ValueError(f"{error}, of tenant {name!r}") from error
    return policies


def decode_option(text: str, kind: type[T]) -> T:
    """The JSON as `kind`. Raises ValueError."""
    try:
        return decode(text, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error


def parse_most_images(text: str) -> int:
    """The images of ``{"image": 2}`` or ``image=2``. Raises ValueError."""
    if text.lstrip().startswith("{"):
        members = decode(text.encode(), dict[str, int])
    else:
        pairs = (it.partition("=") for it in text.split(","))
        members = {name.strip(): int(value) for name, _, value in pairs}
    others = {name for name, count in members.items() if count} - {"image"}
    if others:
        raise ValueError(f"{', '.join(sorted(others))} cannot be sent; images alone can")
    most = members.get("image", 0)
    if not 1 <= most <= MAX_IMAGES:
        raise ValueError(f'it must be {{"image": N}}, where N is 1 to {MAX_IMAGES}')
    return most


def media_domains(env: Mapping[str, str], read: OptionReader) -> frozenset[str]:
    """The hosts that images are fetched from. Raises ConfigurationError."""
    wanted: frozenset[str] | None = read.parse("allowed_media_domains", parse_domains)
    given = env.get(MEDIA_VARIABLE, "")
    try:
        allowed = parse_domains(given)
    except ValueError as error:
        raise invalid_setting(Setting(given, MEDIA_VARIABLE), f"a list of hosts: {error}") from None
    return allowed if wanted is None else allowed & wanted


def parse_domains(text: str) -> frozenset[str]:
    """The hosts of a JSON list, or of a list with commas. Raises ValueError."""
    is_json = text.lstrip().startswith("[")
    names = decode(text.encode(), list[str]) if is_json else text.split(",")
    found = frozenset(it.strip().lower() for it in names if it.strip())
    for name in found:
        if not HOST.fullmatch(name):
            raise ValueError(f"{name[:100]!r} is no host name")
    return found


class ModuleOption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON form of a module."""

    name: str
    path: str
    base_model_name: str | None = None  # vLLM shows it as the parent and does not compare it


class LoraModule(msgspec.Struct, frozen=True):
    """An adapter's name, and the path or hub id of its files."""

    name: str
    path: str


def parse_modules(text: str) -> tuple[LoraModule, ...]:
    """The modules in `text`. Raises ValueError."""
    stripped = text.strip()
    try:
        if stripped.startswith("["):
            options = decode(stripped, list[ModuleOption])
        elif stripped.startswith("{"):
            options = [decode(each, ModuleOption) for each in json_texts(stripped)]
        else:
            options = [parse_pair(each) for each in stripped.replace(",", " ").split()]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it must be NAME=PATH or JSON objects with name and path: {error}") from (
            error
        )
    names = [each.name for each in options]
    for name in names:
        if not name or names.count(name) > 1:
            raise ValueError(f"the name {name[:80]!r} is empty or given twice")
    if not 0 < len(options) <= MAX_MODULES:
        raise ValueError(f"it has {len(options)} adapters; it must have 1 to {MAX_MODULES}")
    return tuple(LoraModule(each.name, each.path) for each in options)


def parse_pair(text: str) -> ModuleOption:
    """One NAME=PATH, or an id of the hub alone. Raises ValueError."""
    name, mark, path = text.partition("=")
    if mark and not path:
        raise ValueError(f"{text[:80]!r} has no path")
    return ModuleOption(name=name, path=path or name)


def json_texts(text: str) -> list[str]:
    """The JSON objects that follow each other in `text`. Raises ValueError."""
    decoder = JSONDecoder()
    texts: list[str] = []
    start = 0
    while start < len(text) and len(texts) <= MAX_MODULES:
        _, end = decoder.raw_decode(text, start)
        texts.append(text[start:end])
        start = len(text) - len(text[end:].lstrip())
    return texts
