"""Long polls of queues: control waits for a message without a thread."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from starlette.requests import Request

from hostelry.api.context import NotYetError
from hostelry.base.clock import Clock
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpResponse
from hostelry.control.call_threads import CallThreads
from hostelry.messaging.services import Messaging

SHORTEST_WAIT_S = 0.02


async def answered(
    ask: Callable[[bool], HttpResponse],
    request: Request,
    messaging: Messaging | None,
    clock: Clock,
    threads: CallThreads,
    caller: str,
) -> HttpResponse:
    """The answer of `ask(may_wait)`, called in a thread again when a message came.

    Raises ServiceError where the caller has too many calls, though not for one that waited for a
    message, and for a client that is gone, which gets no message.
    """
    may_wait = messaging is not None and not messaging.arrivals.is_full
    try:
        return await threads.run(caller, partial(ask, may_wait))
    except NotYetError as error:
        if messaging is None:
            raise
        queue_arn, until = error.queue_arn, clock.now() + error.wait_s
    with messaging.arrivals.watching(queue_arn) as event:
        while True:
            event.clear()
            left_s = until - clock.now()
            try:
                return await threads.run(caller, partial(ask, left_s > 0.0), is_promised=True)
            except NotYetError as error:
                wait_s = left_s if error.next_at is None else error.next_at - clock.now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(SHORTEST_WAIT_S, min(left_s, wait_s))):
                    await event.wait()
            if await request.is_disconnected():
                raise ServiceError("RequestTimeout", "The client has gone.", 408)
