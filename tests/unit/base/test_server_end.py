"""Requests that the end of their server cancels."""

import asyncio
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.asgi_server import ENDING, EndsWithServer


@cases(
    "begun, answer",
    case("no answer had begun", [], [503, ENDING]),
    case("an answer had begun: it is cut off", [200], [200]),
    case("an answer was under way", [200, b"part"], [200, b"part"]),
)
async def test_a_cancelled_request_ends_without_an_error(
    begun: list[int | bytes], answer: list[int | bytes]
) -> None:
    sent: list[int | bytes] = []

    async def send(message: Any) -> None:
        sent.append(message["status"] if "status" in message else message["body"])

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    waits = asyncio.Event()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        for part in begun:
            await send({"status": part} if isinstance(part, int) else {"body": part})
        waits.set()
        await asyncio.Event().wait()

    request = asyncio.create_task(EndsWithServer(app)({"type": "http"}, receive, send))
    await waits.wait()
    request.cancel("the server ends")
    await request
    assert sent == answer


def test_an_error_stays_one() -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ValueError("a defect")

    async def none(*_: Any) -> Any:
        raise AssertionError("not called")

    with pytest.raises(ValueError, match="a defect"):
        asyncio.run(EndsWithServer(app)({"type": "http"}, none, none))
