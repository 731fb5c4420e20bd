"""Work that goes on for as long as its process: one step that fails is not the last.

Every loop that nobody waits for is one of these, or takes its steps with `run_guarded`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from hostelry.base.errors import RetryableError

log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None]]


async def run_guarded(name: str, step: Step, *, quiet: bool = False) -> bool:
    """Run `step`; True when it ended well. What it raises is logged with `name`, never passed on.

    A retryable error is one line; anything else is a defect and leaves its traceback, unless
    `quiet`.
    """
    try:
        await step()
    except RetryableError as error:
        log.info("%s: will be tried again: %s", name, error)
        return False
    except Exception:  # the outermost edge of all work that is repeated, see CONTRIBUTING.md
        if not quiet:
            log.exception("%s: failed; will be tried again", name)
        return False
    return True


async def run_periodically(name: str, step: Step, pause_s: float) -> None:
    """`step` after each `pause_s`, until cancelled; what fails is logged once, until it works."""
    failing = False
    while True:
        await asyncio.sleep(pause_s)
        failing = not await run_guarded(name, step, quiet=failing)
