"""vLLM's /tokenize and /detokenize: from a text or a chat to token ids, and back."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.containers.lmi.http.bodies import PlainEndpoint, answering, json_response, read_body
from hostelry.containers.lmi.http.request_head import parse_context
from hostelry.containers.lmi.http.server import LmiServer, LoadedModel
from hostelry.containers.lmi.refusal import Surface, bad_request
from hostelry.containers.lmi.request.adapter_choice import choose_by_model
from hostelry.containers.lmi.request.body import parse_members
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.fields import BodyFields, is_token_id, parse_json, show
from hostelry.containers.lmi.request.invocation import PromptText, Schema

PROMPT_MEMBERS = (
    "model", "prompt", "messages", "add_generation_prompt", "continue_final_message",
    "chat_template", "chat_template_kwargs", "documents", "tools",
)  # fmt: skip
TOKENIZE_MEMBERS = (*PROMPT_MEMBERS, "add_special_tokens", "return_token_strs")
DETOKENIZE_MEMBERS = ("model", "tokens")


def token_paths(server: LmiServer) -> list[Route]:
    """The routes between texts and token ids."""

    def route(path: str, operation: PlainEndpoint) -> Route:
        return Route(path, answering(server, Surface.OPENAI, operation), methods=["POST"])

    async def tokenize(request: Request) -> Response:
        model, body = server.get_model(), await read_known_fields(server, request, TOKENIZE_MEMBERS)
        context = parse_context(server, request, model)
        return json_response(await asyncio.to_thread(tokenize_body, model, body, context))

    async def detokenize(request: Request) -> Response:
        model, body = (
            server.get_model(),
            await read_known_fields(server, request, DETOKENIZE_MEMBERS),
        )
        context = parse_context(server, request, model)
        choose_by_model(context.caller, body, context.served, context.registered)
        return json_response({"prompt": await asyncio.to_thread(detokenize_body, model, body)})

    return [route("/tokenize", tokenize), route("/detokenize", detokenize)]


async def read_known_fields(
    server: LmiServer, request: Request, known: tuple[str, ...]
) -> BodyFields:
    """The members of the body, of which each must be one of `known`."""
    value = parse_json(await read_body(request, server.config.max_request_bytes))
    body = BodyFields(value, "the body")
    unknown = sorted(value.keys() - set(known)) if isinstance(value, dict) else []
    if unknown:
        raise bad_request(
            f"{show(unknown[0])} is not a field of this route, which knows {', '.join(known)}",
            unknown[0],
        )
    return body


def tokenize_body(model: LoadedModel, body: BodyFields, context: ParseContext) -> dict[str, Any]:
    """The ids of a `prompt` or of `messages`, as a generating route would read them."""
    schema = Schema.CHAT if "messages" in body else Schema.COMPLETION
    if ("messages" in body) == ("prompt" in body):
        raise bad_request("the body must have prompt, a text, or messages, and not both", "prompt")
    members = {name: body.raw(name) for name in PROMPT_MEMBERS if name in body}
    (prompt, *others) = parse_members(schema, members, context).prompts
    if others or not isinstance(prompt, PromptText):
        raise bad_request(f"prompt is {show(body.raw('prompt'))}; it must be one text", "prompt")
    special = body.flag("add_special_tokens", prompt.add_special_tokens)
    ids = model.codec.encode(prompt.text, add_special_tokens=special)
    strings = [model.codec.token_name(it) for it in ids] if body.flag("return_token_strs") else None
    return {
        "count": len(ids),
        "max_model_len": model.backend.facts.max_model_len,
        "tokens": ids,
        "token_strs": strings,
    }


def detokenize_body(model: LoadedModel, body: BodyFields) -> str:
    """The text of the body's `tokens`."""
    ids = body.raw("tokens")
    if not isinstance(ids, list) or not all(is_token_id(it) for it in ids):
        raise bad_request(f"tokens is {show(ids)}; it must be a list of token ids", "tokens")
    size = model.backend.facts.vocab_size
    if max(ids, default=0) >= size:
        raise bad_request(
            f"tokens holds token id {max(ids)}; the model's vocabulary has {size}", "tokens"
        )
    return model.codec.decode(ids, skip_special_tokens=False)
