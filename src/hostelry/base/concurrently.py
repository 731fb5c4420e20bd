"""Work on many items at once, within a bound."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


async def for_each(
    items: Iterable[Item], act: Callable[[Item], Awaitable[None]], most: int
) -> None:
    """Call `act` with every item, at most `most` at once.

    Raises the first failure once all calls have ended: none is cut off by another's failure.
    """
    slots = asyncio.Semaphore(most)

    async def one(item: Item) -> None:
        async with slots:
            await act(item)

    for failure in await asyncio.gather(*map(one, items), return_exceptions=True):
        if failure is not None:
            raise failure
