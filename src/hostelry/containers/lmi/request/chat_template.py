"""A model's chat template, rendered by the conventions of Hugging Face.

Source: the conventions of transformers' chat templates (variables, raise_exception, strftime_now,
tojson, trimmed blocks). Templates come with the model, so they run in jinja2's sandbox.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from hostelry.base.clock import Clock
from hostelry.containers.lmi.artifact_path import path_inside
from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import parse_json

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


class GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is plain text."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own protocol

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The nodes between the two tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template with the model's special tokens."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], clock: Clock) -> None:
        """Compile `source`; raises ValueError with the line for invalid syntax."""
        self._special_tokens = dict(special_tokens)
        try:
            self._template = compile_template(source, clock)
        except TemplateError as error:
            raise ValueError(f"the chat template cannot be read: {error}") from error

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        """The prompt's text; raises Refusal when the template rejects the messages."""
        try:
            return self._template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._special_tokens,
            )
        except (TemplateError, TypeError, ArithmeticError, LookupError, OverflowError) as error:
            raise bad_request(
                f"the model's chat template refused the messages: {error}", "messages"
            ) from error


def compile_template(source: str, clock: Clock) -> Template:
    """The template in an environment with Hugging Face's functions and filters."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", GenerationBlock],
    )

    def strftime_now(form: str) -> str:
        return datetime.fromtimestamp(clock.now()).strftime(form)  # noqa: DTZ006 - local time, as the convention has it

    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment.from_string(source)


def raise_exception(message: str) -> str:
    """Function for templates that reject their input."""
    raise TemplateError(message)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """`value` as JSON, without jinja2's HTML escapes."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def load_chat_template(
    folder: Path, configured: str | None, clock: Clock, model_dir: Path | None = None
) -> ChatTemplate | None:
    """The configured template (a path or inline text), else that of the model in `folder`.

    A path is relative to `folder`, or to the properties' folder `model_dir`. None when there is
    no template. Raises ValueError when it cannot be compiled.
    """
    settings = tokenizer_settings(folder)
    source = configured_source(configured, folder, model_dir or folder) or model_source(
        folder, settings
    )
    if source is None:
        return None
    tokens = {name: token_text(settings.get(name)) for name in SPECIAL_TOKENS}
    return ChatTemplate(source, {name: text for name, text in tokens.items() if text}, clock)


def tokenizer_settings(folder: Path) -> Mapping[str, Any]:
    """The members of tokenizer_config.json; empty without that file."""
    path = folder / "tokenizer_config.json"
    settings = parse_json(path.read_bytes()) if path.exists() else {}
    return settings if isinstance(settings, dict) else {}


def configured_source(configured: str | None, folder: Path, model_dir: Path) -> str | None:
    """The text of `option.chat_template`: a file's, or the option's own when it is a template."""
    if not configured:
        return None
    if "{" in configured or "\n" in configured:
        return configured
    for within in dict.fromkeys((folder, model_dir)):
        path = path_inside(configured, within)
        if path is not None and path.is_file():
            return path.read_text(encoding="utf-8")
    raise ValueError(
        f"option.chat_template names {configured[:200]}, which is neither a file inside the model "
        "folder nor a template"
    )


def model_source(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The model's template: chat_template.jinja, else the tokenizer's default template."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    given = settings.get("chat_template")
    if isinstance(given, list):
        named = {each.get("name"): each.get("template") for each in given if isinstance(each, dict)}
        given = named.get("default")
    return given if isinstance(given, str) else None


def token_text(value: object) -> str | None:
    """The text of a special token, given as a string or as an object."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None
