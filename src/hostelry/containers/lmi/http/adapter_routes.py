"""Routes that manage adapters: /adapters, also under /models/{model}, and vLLM's two.

A request to /adapters with parameters in the query is answered as DJL Serving does (JSON). A
request that has only a JSON body is answered as Amazon's container standards library does (plain
text). A client chooses the path for vLLM's routes, so the path has the same limits as a path by a
model's author (see `artifact_path`). Source: vLLM documentation, Dynamically serving LoRA adapters.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hostelry.base.http import whole_number
from hostelry.containers.lmi.artifact_path import path_inside
from hostelry.containers.lmi.engine.backend import AdapterView
from hostelry.containers.lmi.http.adapter_registry import AdapterRecord, AdapterRegistry
from hostelry.containers.lmi.http.bodies import PlainEndpoint, answering, json_response, read_body
from hostelry.containers.lmi.http.request_head import ALIAS_HEADER, check_asked_model
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface, bad_request
from hostelry.containers.lmi.request.fields import BodyFields, parse_json, show
from hostelry.containers.lmi.settings.config import LmiConfig

MAX_BODY_BYTES = 64 * 1024
DEFAULT_PAGE = 100
MAX_PAGE = 1000

UNREAD: Mapping[str, Any] = {"loaded": False}

Operation = Callable[[AdapterRegistry, Request], Awaitable[Response]]
HUB_ID = re.compile(r"[a-zA-Z0-9][\w.-]*/[a-zA-Z0-9][\w.-]*", re.ASCII)
REMOTE = ("s3://", "hf://")
BOTH_NEEDED = "Both 'lora_name' and 'lora_path' must be provided."


def adapter_paths(server: LmiServer) -> list[Route]:
    """Every adapter route under both of its prefixes."""
    operations: tuple[tuple[str, str, Operation], ...] = (
        ("POST", "/adapters", register),
        ("GET", "/adapters", list_adapters),
        ("POST", "/adapters/{name}/update", update),
        ("GET", "/adapters/{name}", describe),
        ("DELETE", "/adapters/{name}", unregister),
    )
    return [
        Route(prefix + path, endpoint(server, operation), methods=[method])
        for prefix in ("", "/models/{model}")
        for method, path, operation in operations
    ]


def endpoint(server: LmiServer, operation: Operation) -> PlainEndpoint:
    """The endpoint of `operation`: checks the model's name, and formats refusals."""

    async def answer(request: Request) -> Response:
        model = server.get_model()
        check_asked_model(server.config, request)
        return await operation(model.registry, request)

    return answering(server, Surface.FRONT_END, answer)


async def parameters(request: Request) -> tuple[BodyFields, bool]:
    """The parameters, the query's before the body's, and whether there is a query."""
    body = await read_body(request, MAX_BODY_BYTES)
    query = dict(request.query_params)
    members = parse_json(body) if body.strip() else {}
    if not isinstance(members, dict):
        raise bad_request("the body must be a JSON object with name and src")
    return BodyFields({**members, **query}, "the parameters"), bool(query)


def confirmation(alias: str, change: str, as_json: bool) -> Response:
    """The response to a successful change."""
    text = f"Adapter {alias} {change}"
    return json_response({"status": text}) if as_json else PlainTextResponse(text)


async def register(registry: AdapterRegistry, request: Request) -> Response:
    """POST /adapters."""
    given, as_json = await parameters(request)
    name, src = get_required_text(given, "name"), get_required_text(given, "src")
    record = AdapterRecord(
        name=name,
        alias=request.headers.get(ALIAS_HEADER) or name,
        src=src,
        preload=given.flag("preload", True),
        pin=given.flag("pin"),
    )
    await registry.register(record)
    return confirmation(record.alias, "registered", as_json)


async def update(registry: AdapterRegistry, request: Request) -> Response:
    """POST /adapters/{name}/update."""
    given, _ = await parameters(request)
    record = await registry.update(
        request.path_params["name"],
        src=given.text("src"),
        preload=given.flag("preload") if "preload" in given else None,
        pin=given.flag("pin") if "pin" in given else None,
    )
    return confirmation(record.alias, "updated", as_json=True)


async def unregister(registry: AdapterRegistry, request: Request) -> Response:
    """DELETE /adapters/{name}."""
    record = await registry.unregister(request.path_params["name"])
    return confirmation(record.alias, "unregistered", as_json=True)


async def describe(registry: AdapterRegistry, request: Request) -> Response:
    """GET /adapters/{name}: the registration, and the adapter's state in the engine."""
    name = request.path_params["name"]
    view = await registry.view(name)
    return json_response(
        {**registration_document(registry.find(name)), **(state_document(view) if view else UNREAD)}
    )


async def list_adapters(registry: AdapterRegistry, request: Request) -> Response:
    """GET /adapters, one page at a time. The token of the next page is its first index."""
    limit = query_integer(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
    start = query_integer(request, "next_page_token", 0, 0, len(registry.records))
    records = list(registry.records.values())
    page: dict[str, Any] = {
        "adapters": [registration_document(it) for it in records[start : start + limit]]
    }
    if start + limit < len(records):
        page["nextPageToken"] = str(start + limit)
    return json_response(page)


def registration_document(record: AdapterRecord) -> dict[str, Any]:
    """A registration as JSON."""
    return {
        "name": record.name,
        "alias": record.alias,
        "src": record.src,
        "preload": record.preload,
        "pin": record.pin,
    }


def state_document(view: AdapterView) -> dict[str, Any]:
    """An adapter's state in the engine, as JSON."""
    return {
        "loaded": True,
        "version": view.version,
        "tier": view.tier,
        "rank": view.rank,
        "bytes": view.num_bytes,
        "poolPages": view.num_pages,
        "requests": view.requests,
        "promptTokens": view.prompt_tokens,
        "generatedTokens": view.generated_tokens,
        "hits": view.hits,
        "loads": view.loads,
        "failedLoads": view.failed_loads,
        "uploads": view.uploads,
        "hostEvictions": view.host_evictions,
        "inFlight": view.in_flight,
        "warnings": view.warnings,
    }


def get_required_text(given: BodyFields, name: str) -> str:
    """A required parameter."""
    value = given.text(name)
    if not value:
        raise bad_request(f"Parameter {name} is required.", name)
    return value


def query_integer(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number from the query."""
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    number = whole_number(text, low, high)
    if number is None:
        raise bad_request(f"{name} is {text[:80]}; it must be {low} to {high}", name)
    return number


def lora_paths(server: LmiServer) -> list[Route]:
    """The two routes."""

    def route(path: str, operation: PlainEndpoint) -> Route:
        return Route(path, answering(server, Surface.OPENAI, operation), methods=["POST"])

    async def load(request: Request) -> Response:
        registry, body = server.get_model().registry, await read_lora_fields(request)
        name, path = body.text("lora_name"), body.text("lora_path")
        if not name or not path:
            return invalid(BOTH_NEEDED)
        in_place = body.flag("load_inplace")
        if name in server.config.served or (name in registry.records and not in_place):
            return invalid(f"The lora adapter '{name}' has already been loaded.")
        src = await asyncio.to_thread(allowed_source, server.config, path)
        try:
            if name in registry.records:
                await registry.update(name, src=src, preload=True, pin=None)
            else:
                await registry.register(AdapterRecord(name=name, alias=name, src=src))
        except Refusal as refusal:
            raise as_vllm(refusal) from refusal
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(request: Request) -> Response:
        registry, body = server.get_model().registry, await read_lora_fields(request)
        name = body.text("lora_name")
        if not name:
            return invalid("'lora_name' needs to be provided to unload a LoRA adapter.")
        if name not in registry.records:
            message = f"The lora adapter '{name}' cannot be found."
            raise Refusal(Cause.NOT_FOUND, message, "lora_name")
        await registry.unregister(name)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    return [route("/v1/load_lora_adapter", load), route("/v1/unload_lora_adapter", unload)]


async def read_lora_fields(request: Request) -> BodyFields:
    """The members of the body."""
    body = BodyFields(parse_json(await read_body(request, MAX_BODY_BYTES)), "the body")
    body.refuse("is_3d_lora_weight", (False,), "weights are read as PEFT stores them")
    return body


def invalid(message: str) -> Response:
    """VLLM's 400 for a missing or repeated member of the body."""
    error = {"message": message, "type": "InvalidUserInput", "param": None, "code": 400}
    return json_response({"error": error}, 400)


def as_vllm(refusal: Refusal) -> Refusal:
    """The refusal with vLLM's status: 400 for an adapter that cannot be read or applied."""
    if refusal.cause in (Cause.DEPENDENCY, Cause.CONFLICT):
        return Refusal(Cause.BAD_REQUEST, refusal.message, "lora_path")
    return refusal


def allowed_source(config: LmiConfig, path: str) -> str:
    """`path` as a source of the registry: in the model folder, one of its artifacts, or remote.

    ORGANISATION/NAME is an id of the hub if it is not a folder. Raises Refusal for other places.
    """
    if path.startswith(REMOTE) or path in config.artifact_folders:
        return path
    inside = path_inside(path, config.model_dir)
    if inside is not None and inside.is_dir():
        return str(inside)
    if inside is not None and HUB_ID.fullmatch(path):
        return f"hf://{path}"
    if inside is not None and ":" not in path:
        raise Refusal(Cause.NOT_FOUND, f"No adapter found for {path[:200]}", "lora_path")
    raise bad_request(
        f"lora_path is {show(path)}; it must be a folder inside the model folder (/opt/ml/model), "
        "s3://BUCKET/PREFIX, or an id of the hub",
        "lora_path",
    )
