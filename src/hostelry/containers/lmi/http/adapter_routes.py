"""The adapter management routes, with and without the prefix /models/{model}.

A request with parameters in the query is answered as DJL Serving does (JSON); one with a JSON
body only, as Amazon's container standards library does (plain text).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hostelry.base.whole_number import whole_number
from hostelry.containers.lmi.engine.backend import AdapterView
from hostelry.containers.lmi.http.adapter_registry import AdapterRecord, AdapterRegistry
from hostelry.containers.lmi.http.body import read_body
from hostelry.containers.lmi.http.invoke import ALIAS_HEADER
from hostelry.containers.lmi.http.json_answer import PlainEndpoint, answering, json_response
from hostelry.containers.lmi.http.model_name import check_asked_model
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.refusal import Surface, bad_request
from hostelry.containers.lmi.request.fields import BodyFields, parse_json

MAX_BODY_BYTES = 64 * 1024
DEFAULT_PAGE = 100
MAX_PAGE = 1000

UNREAD: Mapping[str, Any] = {"loaded": False}

Operation = Callable[[AdapterRegistry, Request], Awaitable[Response]]


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
        model = server.loaded()
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
    name, src = required(given, "name"), required(given, "src")
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
    return json_response({**listed(registry.find(name)), **(shown(view) if view else UNREAD)})


async def list_adapters(registry: AdapterRegistry, request: Request) -> Response:
    """GET /adapters, a page at a time; the token of the next page is its first index."""
    limit = query_integer(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
    start = query_integer(request, "next_page_token", 0, 0, len(registry.records))
    records = list(registry.records.values())
    page: dict[str, Any] = {"adapters": [listed(it) for it in records[start : start + limit]]}
    if start + limit < len(records):
        page["nextPageToken"] = str(start + limit)
    return json_response(page)


def listed(record: AdapterRecord) -> dict[str, Any]:
    """A registration as JSON."""
    return {
        "name": record.name,
        "alias": record.alias,
        "src": record.src,
        "preload": record.preload,
        "pin": record.pin,
    }


def shown(view: AdapterView) -> dict[str, Any]:
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


def required(given: BodyFields, name: str) -> str:
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
