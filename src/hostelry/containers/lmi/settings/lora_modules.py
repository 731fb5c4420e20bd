"""Parser of `lora_modules`: the adapters that a server starts with. Pure.

    name=path name2=path2            paths inside the model folder, or ids of the hub
    {"name": "a", "path": "b"} {...} the same as JSON objects, or a JSON list of them
    org/name,name=path@revision      TGI's form: commas, an id alone is its own name

Source: vLLM's LoRAParserAction; TGI's LORA_ADAPTERS.
"""

from dataclasses import dataclass
from json import JSONDecoder

import msgspec

from hostelry.base.json import decode

MAX_MODULES = 1024


class ModuleOption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON form of a module."""

    name: str
    path: str
    base_model_name: str | None = None  # vLLM shows it as the parent and does not compare it


@dataclass(frozen=True, slots=True)
class LoraModule:
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
