"""Work at once within a bound, calls in groups, repeated work, and an event for ending signals."""

import asyncio
import contextlib
import logging
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from hostelry.base.clock import Clock, SystemClock, until_next_s
from hostelry.base.errors import RetryableError

LOG = logging.getLogger(__name__)
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


Result = TypeVar("Result")


class GroupedCalls(Generic[Item, Result]):
    """Hands items to `carry_out`, in the order of their calls, at most `most` at once.

    Calls that come while a group is under way share the next group. `carry_out` returns a result or
    an exception for each item. If it raises, it must have carried out no item of the group. Belongs
    to one event loop.

    event                                            effect on a call
    ----------------------------------------------   -------------------------------------------
    its group returns                                returns its item's result, or raises it if it
                                                     is an exception
    its group fails, and has others                  is carried out again, alone
    it fails alone                                   raises the failure
    its caller is cancelled before the group began   is in no group
    the event loop ends                              is cancelled
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


# Loops that outlive the failure of a step: run, log, repeat.
#
# Every loop whose result no caller awaits is one of these, or takes its steps with `run_guarded`.
#
# step                     run_guarded returns   log
# ended                    True                  nothing
# RetryableError           False                 one line, or nothing if `quiet`
# any other exception      False                 traceback, or nothing if `quiet`


Step = Callable[[], Awaitable[None]]


async def run_guarded(name: str, step: Step, *, quiet: bool = False) -> bool:
    """Run `step`. True if it did not fail. An exception is logged with `name`, never raised."""
    try:
        await step()
    except RetryableError as error:
        if not quiet:
            LOG.info("%s: will be tried again: %s", name, error)
        return False
    except Exception:  # the outermost edge of all work that is repeated, see test_broad_excepts
        if not quiet:
            LOG.exception("%s: failed; will be tried again", name)
        return False
    return True


async def run_periodically(name: str, step: Step, pause_s: float) -> None:
    """Run `step` every `pause_s` until cancelled. Of failures in a row only the first is logged.

    Steps with the same pause run at the same instants.
    """
    failing, clock = False, SystemClock()
    while True:
        await asyncio.sleep(until_next_s(clock.now(), pause_s) if pause_s > 0 else 0)
        failing = not await run_guarded(name, step, quiet=failing)


async def run_again(name: str, step: Step, pause_s: float, clock: Clock) -> None:
    """Run `step` again and again until cancelled, `pause_s` after each end. Logs each failure."""
    while True:
        await run_guarded(name, step)
        await clock.sleep(pause_s)


async def run_woken(
    name: str,
    step: Step,
    woken: asyncio.Event,
    longest_s: Callable[[], float],
    rest_s: float,
    clock: Clock,
) -> None:
    """Run `step` when `woken` is set, or after `longest_s()`, until cancelled.

    Wakes within `rest_s` of its end lead to one run.
    """
    while True:
        woken.clear()
        await run_guarded(name, step)
        await clock.sleep(rest_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s()):
                await woken.wait()


async def run_until_done(name: str, step: Step, pause_s: float, clock: Clock) -> None:
    """Run `step` until it does not fail, `pause_s` after each failure. Logs each failure."""
    while not await run_guarded(name, step):
        await clock.sleep(pause_s)


def stop_event() -> asyncio.Event:
    """An event that SIGTERM or SIGINT set instead of ending the process. For a running loop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
