"""The table of the console's views and look-ups."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from hostelry.console.platform import PlatformError, PlatformPort, Query, answer_to
from hostelry.console.views import adapters, call, calls, endpoint, endpoints, failures, fleet


async def look_at_call(port: PlatformPort, params: Mapping[str, str], now: float) -> dict[str, Any]:
    """Show the call with the parameter `id`, and its logs. `missing` has the reason if it fails."""
    call_id = params.get("id", "")
    try:
        answer = await port.ask("gateway", f"/traces/{quote(call_id, safe='')}")
    except PlatformError as error:
        return {"id": call_id, "missing": str(error)}
    if "call" not in answer:
        return {"id": call_id, "missing": "Give the id of a request."}
    found_call = answer["call"]
    queries = call.log_queries(found_call)
    asked = (answer_to(port, it) for it in queries)
    state, *found = await asyncio.gather(
        port.ask("control", "/internal/state"), *asked, return_exceptions=True
    )
    pages = [it for it in found if not isinstance(it, BaseException)]
    instances = {} if isinstance(state, BaseException) else call.get_instances(state)
    logs = call.log_streams(found_call, instances, pages)
    return call.document(found_call, logs, answer.get("silent", ()))


async def look_at_costs(
    port: PlatformPort, params: Mapping[str, str], now: float
) -> dict[str, Any]:
    """Show the costs of the last 24 hours. `missing` has the reason if they are not known."""
    try:
        return await port.ask("home", "/costs")
    except PlatformError as error:
        return {"missing": str(error)}


Params = Mapping[str, str]
Lookup = Callable[[PlatformPort, Params, float], Awaitable[dict[str, Any]]]


class ConsoleView(msgspec.Struct, frozen=True, kw_only=True):
    """A live view.

    Args:
        sources: (params, now) -> the queries that the view needs, by source name.
        document: (answers by source name, params, now) -> the document to show. Pure. If a source
            fails, its last answer is given, or None if it has never answered.
        params: names of the parameters that the view takes.
    """

    sources: Callable[[Params, float], Mapping[str, Query]]
    document: Callable[[Mapping[str, Any], Params, float], dict[str, Any]]
    params: frozenset[str] = frozenset()


VIEWS: Mapping[str, ConsoleView] = {
    "fleet": ConsoleView(sources=fleet.sources, document=fleet.document),
    "endpoints": ConsoleView(sources=endpoints.sources, document=endpoints.document),
    "endpoint": ConsoleView(
        sources=endpoint.sources, document=endpoint.document, params=endpoint.PARAMS
    ),
    "calls": ConsoleView(sources=calls.sources, document=calls.document, params=calls.PARAMS),
    "failures": ConsoleView(
        sources=failures.sources, document=failures.document, params=failures.PARAMS
    ),
    "adapters": ConsoleView(
        sources=adapters.sources,
        document=adapters.document,
        params=frozenset({"component", "endpoint"}),
    ),
}
# GET /console/api/look/NAME: views that are read once.
LOOKUPS: Mapping[str, Lookup] = {
    "call": look_at_call,
    "cost": look_at_costs,
}
