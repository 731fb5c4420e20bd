import asyncio
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.guards import OwnHostsOnly, find_foreign_page


@cases(
    "host, origin, foreign",
    case("the address", "127.0.0.1:8787", None, False),
    case("without a port", "127.0.0.1", None, False),
    case("localhost through a tunnel", "LocalHost:9999", None, False),
    case("IPv6", "[::1]:8787", None, False),
    case("another loopback address", "127.0.0.2:8787", None, False),
    case("a name that is its own", "door.example:8787", None, False),
    case("its own page", "localhost:1", "http://localhost:1", False),
    case("a rebound name", "evil.example:8787", None, True),
    case("a name that begins like one", "127.0.0.1.evil.example", None, True),
    case("another that does", "localhost.evil.example", None, True),
    case("a name with a dot", "localhost.", None, True),
    case("any address", "0.0.0.0:8787", None, True),
    case("a number", "2130706433", None, True),
    case("no name", "", None, True),
    case("an open bracket", "[::1", None, False),
    case("a long name", "[" + "1" * 9999, None, True),
    case("another local server's page", "localhost:1", "http://localhost:2", True),
    case("a foreign page", "localhost:1", "https://evil.example", True),
    case("a page without a name", "localhost:1", "null", True),
)
def test_what_a_foreign_page_may_have_sent(host: str, origin: str | None, foreign: bool) -> None:
    assert (find_foreign_page(host, origin, {"door.example"}) is not None) is foreign


@pytest.mark.parametrize(("host", "status"), [(b"127.0.0.1:1", 200), (b"evil.example", 403)])
def test_a_page_s_request_does_not_reach_the_application(host: bytes, status: int) -> None:
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Any:
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "headers": [(b"host", host)]}
    asyncio.run(OwnHostsOnly(app)(scope, receive, send))
    assert sent[0]["status"] == status
