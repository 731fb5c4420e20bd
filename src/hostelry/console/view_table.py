"""The views and the look-ups that the console has."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hostelry.console.call_lookup import look_at_call
from hostelry.console.platform import PlatformPort, Query
from hostelry.console.views import adapters, calls, endpoint, endpoints, failures, fleet

Params = Mapping[str, str]
Lookup = Callable[[PlatformPort, Params, float], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleView:
    """A live view.

    Args:
        sources: (params, now) -> what it reads, by a name of its own.
        document: (answers by that name, params, now) -> what it shows. Pure. The answer of a
            source that never answered is None; of one that fails now, its last one.
        params: the parameters that it takes.
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
# GET /console/api/look/NAME: what is asked once.
LOOKUPS: Mapping[str, Lookup] = {
    "call": look_at_call,
}
