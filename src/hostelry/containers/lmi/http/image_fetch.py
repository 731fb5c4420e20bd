"""Images that messages name by an address: fetched from allowed hosts, within limits."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import httpx

from hostelry.containers.lmi.refusal import Refusal, bad_request
from hostelry.containers.lmi.request.images import ImageLimits, ImageSource

FETCH_S = 10.0
MAX_AT_ONCE = 8


async def fetched(sources: Sequence[ImageSource], limits: ImageLimits) -> tuple[ImageSource, ...]:
    """The sources with their bytes. Raises Refusal with the part whose image cannot be had."""
    if all(it.url is None for it in sources):
        return tuple(sources)
    gate = asyncio.Semaphore(MAX_AT_ONCE)
    async with httpx.AsyncClient(follow_redirects=False, timeout=FETCH_S) as client:

        async def one(source: ImageSource) -> ImageSource:
            async with gate:
                return await fetched_one(client, source, limits.max_bytes)

        return tuple(await asyncio.gather(*(one(it) for it in sources)))


async def fetched_one(
    client: httpx.AsyncClient, source: ImageSource, max_bytes: int
) -> ImageSource:
    """The source with its bytes. Raises Refusal."""
    if source.url is None:
        return source
    data = bytearray()
    try:
        async with asyncio.timeout(FETCH_S), client.stream("GET", source.url) as response:
            if response.status_code != 200:
                raise refusal(source, f"its host answered {response.status_code}")
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > max_bytes:
                    raise refusal(source, f"it has more than {max_bytes} bytes")
    except TimeoutError:
        raise refusal(source, f"it did not come within {FETCH_S:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise refusal(source, str(error) or type(error).__name__) from error
    if not data:
        raise refusal(source, "it has no bytes")
    return replace(source, data=bytes(data), url=None)


def refusal(source: ImageSource, cause: str) -> Refusal:
    """The refusal of a request whose image cannot be had."""
    return bad_request(f"the image of {source.where} cannot be fetched: {cause}", source.where)
