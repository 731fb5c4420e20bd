"""The playground: the models that may be asked, and the requests that a page may send. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

MAX_HEADER_CHARACTERS = 256
MAX_MESSAGES = 500
ENDPOINT, COMPONENT = "EndpointName", "InferenceComponentName"
TARGET_MODEL, CONTENT_TYPE, ACCEPT = "TargetModel", "ContentType", "Accept"
PARAMETERS = (ENDPOINT, COMPONENT, TARGET_MODEL, CONTENT_TYPE, ACCEPT)


class PlaygroundRefusedError(ValueError):
    """The page's request is not sent. The message says why."""


class ChatAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A chat to stream. `endpoint` is the model's endpoint, for the code that the page shows."""

    endpoint: str
    request: Mapping[str, Any]


class InvocationAsked(msgspec.Struct, frozen=True, kw_only=True):
    """An invocation. `parameters` are InvokeEndpoint's parameters by name, without the body."""

    parameters: Mapping[str, str]
    body: str


def targets(
    endpoints: Iterable[Mapping[str, Any]],
    llms: Collection[str],
    caches: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """List the models that may be asked: `chats` by model, `invocations` by endpoint/component.

    `caches` are the adapters that copies keep. Only copies know the adapters in a model's archive.
    """
    chats: dict[str, Any] = {}
    invocations: dict[str, Any] = {}
    for endpoint in endpoints:
        name = endpoint["name"]
        many = any(it.get("models_address") for it in endpoint["copies"]) or None
        if not endpoint["takes_components"]:
            ready = sum(it["phase"] == "ready" for it in endpoint["copies"])
            invocations[name] = {"endpoint": name, "ready": ready, "many": many}
        for component in endpoint["components"]:
            shown = {
                "endpoint": name,
                "component": component["name"],
                "base": component["base"],
                "status": component["status"],
                "ready": component["ready_copies"],
            }
            invocations[f"{name}/{component['name']}"] = {**shown, "many": many}
            if component["name"] in llms:
                chats[component["name"]] = shown
    for copy in caches.values():
        base = chats.get(copy["component"])
        for adapter in copy.get("cache", {}).get("adapters", {}).values():
            if base is not None and adapter["alias"] not in chats:
                own = {**base, "base": copy["component"], "component": None}
                chats[f"{copy['component']}:{adapter['alias']}"] = own
    return {"chats": chats, "invocations": invocations}


def chat_asked(body: Mapping[str, Any]) -> ChatAsked:
    """Parse a page's chat, which is always streamed. Raises PlaygroundRefusedError."""
    endpoint, request = body.get("endpoint"), body.get("request")
    if not isinstance(endpoint, str) or not isinstance(request, dict):
        raise PlaygroundRefusedError("a chat has the members endpoint (text) and request (object)")
    model, messages = request.get("model"), request.get("messages")
    if not isinstance(model, str) or not model:
        raise PlaygroundRefusedError("request.model is missing")
    if not isinstance(messages, list) or not 0 < len(messages) <= MAX_MESSAGES:
        raise PlaygroundRefusedError(f"request.messages must be 1 to {MAX_MESSAGES} messages")
    if request.get("n", 1) != 1:
        raise PlaygroundRefusedError("request.n must be 1: a column shows one answer")
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    return ChatAsked(endpoint=endpoint, request={**request, **streamed})


def invocation_asked(body: Mapping[str, Any]) -> InvocationAsked:
    """Parse a page's invocation. Raises PlaygroundRefusedError."""
    parameters = body.get("parameters")
    text = body.get("body")
    if not isinstance(parameters, dict) or not isinstance(text, str):
        raise PlaygroundRefusedError("an invocation has parameters (object) and body (text)")
    if unknown := parameters.keys() - set(PARAMETERS):
        raise PlaygroundRefusedError(f"parameters: unknown {', '.join(sorted(unknown))[:100]}")
    given = {name: parameters[name] for name in PARAMETERS if parameters.get(name)}
    if ENDPOINT not in given:
        raise PlaygroundRefusedError(f"{ENDPOINT} is missing")
    for name, value in given.items():
        if not isinstance(value, str) or not _is_header(value):
            raise PlaygroundRefusedError(
                f"{name} must be 1 to {MAX_HEADER_CHARACTERS} printable ASCII characters"
            )
    return InvocationAsked(parameters=given, body=text)


def _is_header(value: str) -> bool:
    return len(value) <= MAX_HEADER_CHARACTERS and value.isascii() and value.isprintable()
