"""A model's chat template, rendered by the conventions of Hugging Face.

The model's template runs in jinja2's sandbox in this process, a request's in a separate process.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from hostelry.base.clock import Clock
from hostelry.containers.lmi.artifact_path import path_inside
from hostelry.containers.lmi.refusal import Refusal, bad_request
from hostelry.containers.lmi.request.chat_fields import ChatFields
from hostelry.containers.lmi.request.fields import parse_json
from hostelry.containers.lmi.request.images import TEMPLATE_PART
from hostelry.containers.lmi.request.template_process import compile_template, render_apart

PLAIN = ChatFields()
MARK = "HOSTELRY_CONTINUES_HERE "
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


class ChatTemplate:
    """A compiled template with the model's special tokens."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str],
        clock: Clock,
        tools_source: str | None = None,
    ) -> None:
        """Compile `source`, and the separate template for chats with tools, if there is one.

        Raises ValueError with the line for invalid syntax.
        """
        self.sources = (source, *([tools_source] if tools_source else []))
        self._special_tokens = dict(special_tokens)
        self._clock = clock
        try:
            self._template, *rest = [compile_template(each, clock) for each in self.sources]
            self._tools_template = rest[0] if rest else self._template
        except TemplateError as error:
            raise ValueError(f"the chat template cannot be read: {error}") from error

    def render(self, messages: Sequence[Mapping[str, Any]], fields: ChatFields = PLAIN) -> str:
        """The prompt's text. Raises Refusal if the template rejects the messages.

        Blocks for a while if `fields` has a request's own template.
        """
        variables = {
            **self._special_tokens,
            **fields.variables,
            "messages": mark_end(messages) if fields.continue_final_message else messages,
            "tools": fields.tools,
            "documents": fields.documents,
            "add_generation_prompt": fields.add_generation_prompt,
        }
        text = self._text(variables, fields.template)
        return cut_at_mark(text) if fields.continue_final_message else text

    def places_images(self) -> bool:
        """True if the template puts something in the place of an image among a content's parts."""
        text = {"type": "text", "text": MARK}

        def rendered(*parts: Mapping[str, str]) -> str:
            return self.render([{"role": "user", "content": list(parts)}])

        try:
            plain, pictured = rendered(text), rendered(TEMPLATE_PART, text)
        except Refusal:
            return False
        return MARK.strip() in plain and "'type'" not in pictured and plain != pictured

    def _text(self, variables: Mapping[str, Any], template: str | None) -> str:
        if template is not None:
            return render_apart(template, variables, self._clock)
        try:
            template_used = self._tools_template if variables["tools"] else self._template
            return template_used.render(variables)
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise bad_request(
                f"the model's chat template refused the messages: {error}", "messages"
            ) from error


def mark_end(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages with a mark at the end of the last message's text."""
    last = messages[-1]
    content = last["content"] or ""
    if isinstance(content, list):
        return [*messages[:-1], {**last, "content": [*content, {"type": "text", "text": MARK}]}]
    return [*messages[:-1], {**last, "content": content + MARK}]


def cut_at_mark(text: str) -> str:
    """The beginning of a prompt up to the mark, as transformers cuts it.

    If the template has trimmed the mark's space, the message's last spaces are removed as well.
    """
    place = text.rfind(MARK.strip())
    if place < 0:
        raise bad_request(
            "continue_final_message is true, but the chat template leaves out the last message",
            "continue_final_message",
        )
    kept = text[:place]
    return kept if text.startswith(MARK, place) else kept.rstrip()


def load_chat_template(
    folder: Path, configured: str | None, clock: Clock, model_dir: Path | None = None
) -> ChatTemplate | None:
    """The configured template (a path or inline text), else the template of the model in `folder`.

    A path is relative to `folder`, or to the properties' folder `model_dir`. None without a
    template. Raises ValueError if the template cannot be compiled.
    """
    settings = tokenizer_settings(folder)
    source, tools_source = configured_source(configured, folder, model_dir or folder), None
    if source is None:
        source, tools_source = model_sources(folder, settings)
    if source is None:
        return None
    tokens = {name: token_text(settings.get(name)) for name in SPECIAL_TOKENS}
    special = {name: text for name, text in tokens.items() if text}
    return ChatTemplate(source, special, clock, tools_source)


def tokenizer_settings(folder: Path) -> Mapping[str, Any]:
    """The members of tokenizer_config.json. Empty without that file."""
    path = folder / "tokenizer_config.json"
    settings = parse_json(path.read_bytes()) if path.exists() else {}
    return settings if isinstance(settings, dict) else {}


def configured_source(configured: str | None, folder: Path, model_dir: Path) -> str | None:
    """The text of `option.chat_template`: from a file, or the option itself if it is a template."""
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


def model_sources(folder: Path, settings: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The model's template, and the template for chats with tools if it is another.

    They are in chat_template.jinja, else in the tokenizer's settings.
    """
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8"), None
    given = settings.get("chat_template")
    if not isinstance(given, list):
        return (given if isinstance(given, str) else None), None
    named = {each.get("name"): each.get("template") for each in given if isinstance(each, dict)}
    default, tools = (
        text if isinstance(text, str) else None
        for text in (named.get("default"), named.get("tool_use"))
    )
    return default or tools, tools


def token_text(value: object) -> str | None:
    """The text of a special token, given as a string or as an object."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None
