import asyncio
from typing import Any

import pytest

from hostelry.base.guards import OwnHostsOnly, find_foreign_page


@pytest.mark.parametrize(
    ("host", "origin", "foreign"),
    [
        pytest.param("127.0.0.1:8787", None, False, id="the address"),
        pytest.param("127.0.0.1", None, False, id="without a port"),
        pytest.param("LocalHost:9999", None, False, id="localhost through a tunnel"),
        pytest.param("[::1]:8787", None, False, id="IPv6"),
        pytest.param("127.0.0.2:8787", None, False, id="another loopback address"),
        pytest.param("door.example:8787", None, False, id="a name that is its own"),
        pytest.param("localhost:1", "http://localhost:1", False, id="its own page"),
        pytest.param("evil.example:8787", None, True, id="a rebound name"),
        pytest.param("127.0.0.1.evil.example", None, True, id="a name that begins like one"),
        pytest.param("localhost.evil.example", None, True, id="another that does"),
        pytest.param("localhost.", None, True, id="a name with a dot"),
        pytest.param("0.0.0.0:8787", None, True, id="any address"),
        pytest.param("2130706433", None, True, id="a number"),
        pytest.param("", None, True, id="no name"),
        pytest.param("[::1", None, False, id="an open bracket"),
        pytest.param("[" + "1" * 9999, None, True, id="a long name"),
        pytest.param("localhost:1", "http://localhost:2", True, id="another local server's page"),
        pytest.param("localhost:1", "https://evil.example", True, id="a foreign page"),
        pytest.param("localhost:1", "null", True, id="a page without a name"),
    ],
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
