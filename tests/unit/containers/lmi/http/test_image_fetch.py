"""Images at addresses: accepted and refused answers of their hosts."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.cases import case, cases

from hostelry.containers.lmi.http import invoke
from hostelry.containers.lmi.http.invoke import fetch_image
from hostelry.containers.lmi.refusal import Refusal
from hostelry.containers.lmi.request.images import ImageSource

SOURCE = ImageSource(where="messages[0]", url="https://pictures.example/a")


class Endless(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield bytes(1000)


class Silent(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


def fetch(answer: httpx.Response | httpx.HTTPError) -> ImageSource:
    def handle(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, httpx.HTTPError):
            raise answer
        return answer

    async def run() -> ImageSource:
        async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
            return await fetch_image(client, SOURCE, 5000)

    return asyncio.run(run())


def test_the_bytes_take_the_place_of_the_address() -> None:
    found = fetch(httpx.Response(200, content=b"a picture"))
    assert (found.data, found.url) == (b"a picture", None)


@cases(
    "answer, message",
    case("not there", httpx.Response(404), "answered 404"),
    case("it leads elsewhere", httpx.Response(302, headers={"Location": "http://169.254.169.254/"}),
        "answered 302"),
    case("empty", httpx.Response(200, content=b""), "no bytes"),
    case("endless", httpx.Response(200, stream=Endless()), "more than 5000 bytes"),
    case("silent", httpx.Response(200, stream=Silent()), "did not come within"),
    case("no connection", httpx.ConnectError("no route"), "no route"),
)  # fmt: skip
def test_refusals(
    answer: httpx.Response | httpx.HTTPError, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invoke, "FETCH_S", 0.05)
    with pytest.raises(Refusal, match=message) as caught:
        fetch(answer)
    assert "messages[0]" in str(caught.value)
