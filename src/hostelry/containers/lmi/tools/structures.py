"""Structures that guarantee calls: arguments satisfy their function's schema.

They are values of xgrammar's structural tags, which join fixed text, control tokens, JSON schemas
and free text. Source: xgrammar's documentation of structural tags.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.containers.lmi.tools.families import CallForm
from hostelry.containers.lmi.tools.thinking import Thinking

Format = dict[str, Any]
ANY_OBJECT: Format = {"type": "object", "additionalProperties": True}


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function that a request offers. `schema` is the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, Any]
    strict: bool = False


class CallWriter(msgspec.Struct, frozen=True, kw_only=True):
    """Formats of calls of `functions` in a family's form.

    `special` are the ids of control tokens by their text. With `every` all functions keep their
    schemas. Otherwise only strict functions do, and the others take any object.
    """

    form: CallForm
    functions: Sequence[Function]
    special: Mapping[str, int]
    parallel: bool = True
    every: bool = True

    def force(self) -> Format:
        """At least one call, and nothing else."""
        group = self._group(self.form.begin)
        if self.form.separator is not None or not self.parallel:
            return group
        return sequence(group, star(sequence(self._optional_line(), group)))

    def offer(self, otherwise: Format | None) -> Format:
        """Free text (or `otherwise`) in which calls may come."""
        if otherwise is not None:
            return build_choice(self.force(), otherwise)
        if self.form.bare:
            opening = re.escape(self.form.begin or self.form.before[:1])
            free = {"type": "regex", "pattern": rf"[^\s{opening}](.|\n)*"}
            return build_choice(self.force(), free)
        (trigger, *rest) = self._mark_text(self.form.begin)
        after = sequence(*rest, self._group(""))
        kind = "token_dispatch" if trigger["type"] == "token" else "dispatch"
        key = trigger.get("token", trigger.get("value"))
        return {"type": kind, "rules": [[key, after]], "loop": self.parallel}

    def _group(self, begin: str) -> Format:
        call = build_choice(*(self._call(each) for each in self.functions))
        more: list[Format] = []
        if self.parallel and self.form.separator is not None:
            more = [star(sequence(*self._mark_text(self.form.separator), call))]
        return sequence(*self._mark_text(begin), call, *more, *self._mark_text(self.form.end))

    def _call(self, function: Function) -> Format:
        schema = function.schema if self.every or function.strict else ANY_OBJECT
        before = self.form.before.replace("{name}", function.name)
        arguments = {"type": "json_schema", "json_schema": dict(schema)}
        return sequence(*self._mark_text(before), arguments, *self._mark_text(self.form.after))

    def _optional_line(self) -> Format:
        return {"type": "optional", "content": {"type": "const_string", "value": "\n"}}

    def _mark_text(self, text: str) -> list[Format]:
        return mark_text(text, self.special)


def mark_text(text: str, special: Mapping[str, int]) -> list[Format]:
    """Fixed text, its control tokens as tokens."""
    if not special:
        return [{"type": "const_string", "value": text}] if text else []
    names = "|".join(re.escape(it) for it in sorted(special, key=len, reverse=True))
    return [
        {"type": "token", "token": special[part]}
        if part in special
        else {"type": "const_string", "value": part}
        for part in re.split(f"({names})", text)
        if part
    ]


def after_thinking(
    thinking: Thinking, special: Mapping[str, int], answer: Format, budget_tokens: int | None
) -> Format:
    """Reasoning of at most `budget_tokens`, then `answer`.

    The reasoning is required if the prompt begins it, optional if the prompt does not mention it,
    and absent if the prompt ended it.
    """
    if thinking.closed:
        return answer
    thought: Format = {"type": "any_text"}
    if budget_tokens is not None:
        thought["max_tokens"] = budget_tokens
    (end, *_) = mark_text(thinking.ends[0], special)
    begins = [] if thinking.opened else [mark_text(it, special)[0] for it in thinking.begins]
    tags = [
        {"type": "tag", "begin": get_mark(begin), "content": thought, "end": get_mark(end)}
        for begin in begins or [{"value": ""}]
    ]
    blank = {"type": "optional", "content": {"type": "const_string", "value": "\n\n"}}
    both = sequence(build_choice(*tags), blank)
    first = both if thinking.opened else {"type": "optional", "content": both}
    return sequence(first, answer)


def get_mark(mark: Format) -> Any:
    """A mark as a tag has it: a text, or a token."""
    return mark if "token" in mark else mark["value"]


def sequence(*elements: Format) -> Format:
    """The elements one after the other."""
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": list(elements)}


def build_choice(*elements: Format) -> Format:
    """Any one of the elements."""
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": list(elements)}


def star(content: Format) -> Format:
    """The content any number of times, or not at all."""
    return {"type": "star", "content": content}
