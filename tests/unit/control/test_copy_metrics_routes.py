"""GET /internal/copy-metrics: the joined pages of copies, and copies without a page."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import httpx
import pytest
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.unit.reconcile.samples import Town, component, deployment, endpoint, variant

from hostelry.base.errors import RetryableError
from hostelry.base.metrics_page import parse_page
from hostelry.control.copy_routes import CopyMetricsRoutes, MetricsTarget, join_pages
from hostelry.fleet.protocol import CopyPage
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state


def target(copy_id: str) -> MetricsTarget:
    labels = {"endpoint": "e", "component": "", "copy": copy_id}
    return MetricsTarget(copy_id=copy_id, agent_address="http://a", labels=labels)


def page(copy_id: str, text: bytes, *, is_built_in: bool = False) -> CopyPage:
    kept = parse_page(text)
    return CopyPage(copy_id=copy_id, answer="up", seconds=0.25, page=kept, is_built_in=is_built_in)


def test_the_page_has_each_copy_once() -> None:
    pages = {
        "a": page("a", b"# TYPE n gauge\nn 1\n"),
        "b": page("b", b"# TYPE n counter\nn 2\n", is_built_in=True),
        "d": CopyPage(copy_id="d", answer="none"),
    }
    assert join_pages([target(it) for it in "abcd"], pages).splitlines() == [
        "# HELP hostelry_copy_metrics_up 1 where the copy gave its page in this scrape.",
        "# TYPE hostelry_copy_metrics_up gauge",
        'hostelry_copy_metrics_up{endpoint="e",copy="b"} 1',
        'hostelry_copy_metrics_up{endpoint="e",copy="a"} 1',
        'hostelry_copy_metrics_up{endpoint="e",copy="c"} 0',
        "# HELP hostelry_copy_metrics_seconds Time that the copy took for its page.",
        "# TYPE hostelry_copy_metrics_seconds gauge",
        'hostelry_copy_metrics_seconds{endpoint="e",copy="b"} 0.250000',
        'hostelry_copy_metrics_seconds{endpoint="e",copy="a"} 0.250000',
        "# HELP hostelry_copy_metrics_dropped Lines of the copy's page that are left out here, "
        "by reason.",
        "# TYPE hostelry_copy_metrics_dropped gauge",
        'hostelry_copy_metrics_dropped{endpoint="e",copy="a",reason="type"} 1',
        "# TYPE n counter",
        'n{endpoint="e",copy="b"} 2',
    ]


def test_a_copy_beyond_the_pages_bound_is_down() -> None:
    text = join_pages([target("a")], {"a": page("a", b"n 1\n")}, max_bytes=5)
    assert 'hostelry_copy_metrics_up{endpoint="e",copy="a"} 0' in text
    assert 'hostelry_copy_metrics_dropped{endpoint="e",copy="a",reason="limit"} 1' in text
    assert "\nn{" not in text


@cases(
    "query, status, words",
    case("no copy at all", "", 200, "# TYPE hostelry_copy_metrics_up gauge"),
    case("an unknown endpoint", "?endpoint=e", 404, "There is no endpoint e."),
    case("another parameter", "?name=e", 400, "the only parameter is endpoint"),
)
def test_an_answer_without_a_copy(query: str, status: int, words: str) -> None:
    async def none(address: str) -> Sequence[CopyPage]:
        raise AssertionError(address)

    answer = asked(open_state(MemoryStore()), none, query)
    assert (answer.status_code, words in answer.text) == (status, True)


@pytest.mark.parametrize("is_there", [True, False])
def test_copies_have_the_labels_of_their_records(is_there: bool) -> None:
    """Also if their agent does not answer."""
    town = Town()
    town.add(endpoint(deployment(variant())), component(copies=2))
    town.settle()
    copies = {it.value.spec.id for it in town.state.copies.list()}

    async def pages(address: str) -> Sequence[CopyPage]:
        if not is_there:
            raise RetryableError(f"{address} does not answer")
        return [page(it, b"n 1\n") for it in copies]

    answer = asked(town.state, pages, "?endpoint=ep")
    town.close()
    ours = 'endpoint="ep",variant="AllTraffic",component="base",copy="'
    ups = [it for it in answer.text.splitlines() if it.startswith("hostelry_copy_metrics_up{")]
    assert len(ups) == len(copies) == 2
    assert all(ours in it and it.endswith(" 1" if is_there else " 0") for it in ups)
    samples = [it for it in answer.text.splitlines() if it.startswith("n{")]
    assert len(samples) == (2 if is_there else 0)
    assert all(ours in it for it in samples)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


def asked(
    state: State, pages: Callable[[str], Awaitable[Sequence[CopyPage]]], query: str
) -> httpx.Response:
    """The answer to GET /internal/copy-metrics."""

    async def ask() -> httpx.Response:
        routes = CopyMetricsRoutes(state, pages)
        transport = httpx.ASGITransport(app=Starlette(routes=list(routes.routes())))
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            return await client.get(f"/internal/copy-metrics{query}")

    return asyncio.run(ask())
