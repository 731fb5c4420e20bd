"""Calls carried out in groups: those that come while a group is under way share the next one.

what happens                                     a call
----------------------------------------------   -----------------------------------------------
its group returns                                has the result of its own item, or raises that
                                                 where it is an exception
its group fails, and has others                  is carried out again, alone
it fails alone                                   raises the failure
its caller is cancelled before the group began   is in no group
the event loop ends                              is cancelled
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class GroupedCalls(Generic[Item, Result]):
    """Hands items to `carry_out`, in the order of their calls, at most `most` at once.

    `carry_out` returns a result for each item, or an exception in place of one; where it raises, it
    has done nothing of the group. Belongs to one event loop.
    """

    def __init__(
        self,
        carry_out: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        most: int,
    ) -> None:
        self._carry_out = carry_out
        self._most = most
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def call(self, item: Item) -> Result:
        """The result of one item."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, result))
        if self._task is None:
            self._task = loop.create_task(self._run())
        return await result

    async def finish(self) -> None:
        """Return once no call is under way."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                number = min(self._most, len(self._waiting))
                group = [self._waiting.popleft() for _ in range(number)]
                await self._end([it for it in group if not it[1].done()])
        finally:
            self._task = None
            for _, result in self._waiting:
                result.cancel()
            self._waiting.clear()

    async def _end(self, group: Sequence[tuple[Item, "asyncio.Future[Result]"]]) -> None:
        """Carry out a group, and end its calls."""
        if not group:
            return
        try:
            found = await self._carry_out([item for item, _ in group])
        except Exception as error:  # noqa: BLE001 - the callers get it
            if len(group) == 1:
                _set(group[0][1], error)
                return
            for call in group:
                await self._end([call] if not call[1].done() else [])
        except BaseException:
            for _, result in group:
                result.cancel()
            raise
        else:
            for (_, result), value in zip(group, found, strict=True):
                _set(result, value)


def _set(result: "asyncio.Future[Result]", value: Result | Exception) -> None:
    if result.done():
        return  # its caller is cancelled
    if isinstance(value, Exception):
        result.set_exception(value)
    else:
        result.set_result(value)
