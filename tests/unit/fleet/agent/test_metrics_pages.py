"""The pages that an agent gets from its copies, including invalid pages."""

import asyncio
import gzip

import httpx
import pytest
from tests.cases import case, cases

from hostelry.fleet.agent import metrics_pages
from hostelry.fleet.agent.metrics_pages import MetricsPages, MetricsSource
from hostelry.fleet.agent.model_server import ModelServer
from hostelry.fleet.protocol import CopyPage

GZIP = gzip.compress(b"mine 2\n")
PAGE = b"hostelry_x 1\nhostelry_copy_metrics_up 1\nmine 2\n"


def asked(response: httpx.Response, *, is_built_in: bool = False, times: int = 1) -> list[CopyPage]:
    """The results of one copy, each time. Its id ends in the number of requests."""
    requests = 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal requests
        assert (request.url.path, request.headers["x-hostelry-copy-key"]) == ("/metrics", "k")
        requests += 1
        return response

    async def scenario() -> list[CopyPage]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            server = ModelServer("http://copy", http, "k")
            pages = MetricsPages(lambda: 1.0)
            source = MetricsSource("c", server, None, is_built_in)
            return [(await pages.collect([source]))[0] for _ in range(times)]

    found = asyncio.run(scenario())
    assert requests == (1 if response.status_code == 404 else times)
    return found


@cases(
    "response, is_built_in, answer, names, dropped",
    case("another's server has no names of the platform", httpx.Response(200, content=PAGE), False,
        "up", ["mine"], {"reserved": 2}),
    case("ours has all but those of control", httpx.Response(200, content=PAGE), True, "up",
        ["hostelry_x", "mine"], {"reserved": 1}),
    case("an empty page", httpx.Response(200, content=b""), False, "up", [], {}),
    case("no page", httpx.Response(200, content=b"<html>"), False, "down", [], {"invalid": 1}),
    case("a compressed page, which can be a bomb",
        httpx.Response(200, content=GZIP, headers={"Content-Encoding": "gzip"}), False, "down", [],
        {}),
    case("a failure", httpx.Response(500), False, "down", [], {}),
    case("no such route", httpx.Response(404), False, "none", [], {}),
    case("a page that is cut off", httpx.Response(200, content=b"mine 2\n" + b"#" * 1_100_000),
        False, "up", ["mine"], {"limit": 1}),
)  # fmt: skip
def test_a_copys_page(
    response: httpx.Response, is_built_in: bool, answer: str, names: list[str], dropped: object
) -> None:
    (found,) = asked(response, is_built_in=is_built_in)
    assert (found.answer, [it.name for it in found.page.families]) == (answer, names)
    assert found.page.dropped == dropped


def test_a_copy_without_a_page_is_not_asked_again() -> None:
    assert [it.answer for it in asked(httpx.Response(404), times=2)] == ["none", "none"]


def test_pages_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_pages, "TOTAL_BYTES", 3)
    (found,) = asked(httpx.Response(200, content=b"mine 2\n"))
    assert (found.answer, found.page.dropped) == ("down", {"limit": 1})
