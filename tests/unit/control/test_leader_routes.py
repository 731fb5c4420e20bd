"""GET /internal/leader: many that ask at once."""

import asyncio
import threading
from typing import Any

import msgspec
from starlette.requests import Request

from hostelry.control.election import LeaderRoutes

REQUEST = Request({"type": "http", "method": "GET", "path": "/", "headers": []})


async def test_those_that_ask_while_the_database_is_read_share_the_answer() -> None:
    may_end, readings = threading.Event(), list[int]()

    def document() -> dict[str, Any]:
        readings.append(1)
        assert may_end.wait(30)
        return {"epoch": len(readings)}

    routes = LeaderRoutes(document)
    asking = [asyncio.ensure_future(routes.leader(REQUEST)) for _ in range(5)]
    await asyncio.sleep(0)  # each has begun
    asking[0].cancel()
    may_end.set()
    for answer in await asyncio.gather(*asking[1:]):
        assert msgspec.json.decode(answer.body) == {"epoch": 1}, "one reading"
    later = await routes.leader(REQUEST)
    assert msgspec.json.decode(later.body) == {"epoch": 2}, "and then a new one"
