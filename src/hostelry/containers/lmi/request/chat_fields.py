"""Parser of a chat's fields that its template reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import BodyFields, show

MAX_DOCUMENTS = 1000
MAX_VARIABLES = 100
MAX_TEMPLATE_CHARACTERS = 65_536
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Fields of the request itself, and arguments of the call that renders.
OWN_VARIABLES = frozenset(
    {
        "messages", "tools", "chat_template", "tokenize", "add_generation_prompt",
        "continue_final_message", "return_dict", "return_tensors", "self",
    }
)  # fmt: skip


class ChatFields(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of a chat template in addition to the messages.

    With `continue_final_message` the prompt ends with the last message's text, which the answer
    continues. `variables` are a request's own. `template` takes the place of the model's.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = msgspec.field(default_factory=dict)
    template: str | None = None


def parse_chat_fields(
    body: BodyFields, defaults: Mapping[str, Any], *, trust_template: bool
) -> ChatFields:
    """The fields of a chat's body. Its variables go before the variables in `defaults`.

    `trust_template` allows the request's own template. Raises Refusal.
    """
    continues = body.flag("continue_final_message")
    prompted = body.flag("add_generation_prompt", not continues)
    if continues and prompted:
        raise bad_request(
            "continue_final_message and add_generation_prompt are both true; the answer continues "
            "the last message or begins one",
            "continue_final_message",
        )
    variables = {**defaults, **parse_variables(body)}
    given = body.raw("documents") if "documents" in body else variables.pop("documents", None)
    return ChatFields(
        add_generation_prompt=prompted,
        continue_final_message=continues,
        documents=None if given is None else parse_documents(given),
        variables=variables,
        template=parse_template(body, trust_template),
    )


def parse_variables(body: BodyFields) -> dict[str, Any]:
    """The template's variables: `chat_template_kwargs`, and `reasoning_effort` as vLLM has it."""
    members = body.members("chat_template_kwargs")
    variables = {name: members.raw(name) for name in members.names()}
    if len(variables) > MAX_VARIABLES:
        raise bad_request(
            f"chat_template_kwargs has {len(variables)} members; at most {MAX_VARIABLES}",
            "chat_template_kwargs",
        )
    for name in variables:
        if name in OWN_VARIABLES:
            raise bad_request(
                f"chat_template_kwargs has {show(name)}, which it cannot set; where the request "
                "has a field of that name use it",
                "chat_template_kwargs",
            )
    effort = body.text("reasoning_effort")
    if effort is None:
        return variables
    if effort not in EFFORTS:
        raise bad_request(
            f"reasoning_effort is {show(effort)}; it must be one of {', '.join(EFFORTS)}",
            "reasoning_effort",
        )
    return {"enable_thinking": effort != "none", **variables, "reasoning_effort": effort}


def parse_documents(value: object) -> list[dict[str, Any]]:
    """Documents for the template, which may read any part of them."""
    if (
        not isinstance(value, list)
        or len(value) > MAX_DOCUMENTS
        or not all(isinstance(each, dict) for each in value)
    ):
        raise bad_request(
            f"documents is {show(value)}; it must be a list of at most {MAX_DOCUMENTS} objects, "
            "such as with title and text",
            "documents",
        )
    return value


def parse_template(body: BodyFields, trust: bool) -> str | None:
    """The request's own template. Refused unless the operator trusts templates of requests."""
    template = body.text("chat_template")
    if template is None:
        return None
    if not trust:
        raise bad_request(
            "chat_template is given with the request, and templates of requests are not trusted; "
            "leave it out, or start the server with option.trust_request_chat_template=true",
            "chat_template",
        )
    if len(template) > MAX_TEMPLATE_CHARACTERS:
        raise bad_request(
            f"chat_template has {len(template)} characters; at most {MAX_TEMPLATE_CHARACTERS}",
            "chat_template",
        )
    return template
