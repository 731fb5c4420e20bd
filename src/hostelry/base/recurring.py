"""Loops that outlive the failure of a step: run, log, repeat.

Every loop whose result no caller awaits is one of these, or takes its steps with `run_guarded`.

step                     run_guarded returns   log
ended                    True                  nothing
RetryableError           False                 one line; nothing where `quiet`
any other exception      False                 traceback; nothing where `quiet`
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from hostelry.base.clock import Clock, SystemClock, until_next_s
from hostelry.base.errors import RetryableError

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None]]


async def run_guarded(name: str, step: Step, *, quiet: bool = False) -> bool:
    """Run `step`; True when it did not fail. An exception is logged with `name`, never raised."""
    try:
        await step()
    except RetryableError as error:
        if not quiet:
            log.info("%s: will be tried again: %s", name, error)
        return False
    except Exception:  # the outermost edge of all work that is repeated, see CONTRIBUTING.md
        if not quiet:
            log.exception("%s: failed; will be tried again", name)
        return False
    return True


async def run_periodically(name: str, step: Step, pause_s: float) -> None:
    """Run `step` each `pause_s`, until cancelled; of failures in a row one is logged.

    Steps with the same pause run at the same instants.
    """
    failing, clock = False, SystemClock()
    while True:
        await asyncio.sleep(until_next_s(clock.now(), pause_s) if pause_s > 0 else 0)
        failing = not await run_guarded(name, step, quiet=failing)


async def run_again(name: str, step: Step, pause_s: float, clock: Clock) -> None:
    """Run `step`, and again `pause_s` after each end of it, until cancelled; logs each failure."""
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

    What comes within `rest_s` of its end is handled together.
    """
    while True:
        woken.clear()
        await run_guarded(name, step)
        await clock.sleep(rest_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s()):
                await woken.wait()


async def run_until_done(name: str, step: Step, pause_s: float, clock: Clock) -> None:
    """Run `step` until it does not fail, `pause_s` after each failure; logs each failure."""
    while not await run_guarded(name, step):
        await clock.sleep(pause_s)
