"""GET /internal/copy-caches: the copies that are asked, and the answer about silent copies."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.unit.reconcile.samples import Town, adapter, component, deployment, endpoint, variant

from hostelry.base.errors import RetryableError
from hostelry.control.copy_routes import CopyCacheRoutes

KEPT: dict[str, Any] = {"adapters": {}}


@cases(
    "query, is_llm, is_there, answers",
    case("every copy of an LLM", "", True, True, [{"cache": KEPT}] * 2),
    case("of one", "?component=base&limit=5", True, True, [{"cache": KEPT}] * 2),
    case("of a component that is not there", "?component=other", True, True, []),
    case("of an endpoint that is not there", "?endpoint=other", True, True, []),
    case("a copy that keeps nothing is not asked", "", False, True, []),
    case("an agent that is gone", "", True, False, [{"fault": "it is gone"}] * 2),
)
def test_copies(query: str, is_llm: bool, is_there: bool, answers: list[dict[str, Any]]) -> None:
    town = Town()
    town.add(endpoint(deployment(variant())), component(copies=2))
    town.settle()
    asked: list[tuple[str, str]] = []

    async def ask(address: str, what: str, copy_id: str, limits: str) -> dict[str, Any]:
        if not is_there:
            raise RetryableError("it is gone")
        asked.append((what, limits))
        return KEPT

    found = got(CopyCacheRoutes(town.state, ask, lambda _: is_llm), query).json()
    town.close()
    shown = [{k: it[k] for k in it if k in ("cache", "fault")} for it in found["copies"].values()]
    assert (shown, found["left_out"]) == (answers, 0)
    assert {it["component"] for it in found["copies"].values()} <= {"base"}
    limit = "?limit=5" if "limit" in query else "?limit=0"
    assert asked == [("cache", limit)] * sum("cache" in it for it in answers)


@pytest.mark.parametrize("limit", ["1001", "-1", "x", "99999999999999999999"])
def test_a_limit_out_of_bounds_is_refused(limit: str) -> None:
    town = Town()

    async def ask(*_: str) -> dict[str, Any]:
        raise AssertionError

    answer = got(CopyCacheRoutes(town.state, ask, lambda _: True), f"?limit={limit}")
    town.close()
    assert answer.status_code == 400
    assert answer.text == f"limit is {limit[:20]}; 0 to 1000\n"


def got(routes: CopyCacheRoutes, query: str) -> httpx.Response:
    """The answer to GET /internal/copy-caches."""

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app=Starlette(routes=list(routes.routes())))
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            return await client.get(f"/internal/copy-caches{query}")

    return asyncio.run(get())


def test_declared_adapters_are_named_for_one_base_alone() -> None:
    town = Town()
    town.add(endpoint(deployment(variant())), component(copies=1), adapter(name="fr"))
    town.settle()

    async def ask(*_: str) -> dict[str, Any]:
        return KEPT

    routes = CopyCacheRoutes(town.state, ask, lambda _: True)
    every, one = got(routes, "").json(), got(routes, "?component=base").json()
    other = got(routes, "?component=nobody").json()
    town.close()
    assert every["declared"]["base"] == {"count": 1, "names": [], "not_ready": {}}
    assert (every["endpoint"], one["endpoint"], other["endpoint"]) == (None, "ep", None)
    assert (one["declared"]["base"]["names"], other["declared"]) == (["fr"], {})
