"""What an agent does again and again beside its copies: one look that fails is not the last."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

Look = Callable[[], Awaitable[None]]


async def again_and_again(what: str, look: Look, pause_s: float) -> None:
    """`look` after each `pause_s`, until cancelled; what fails is logged once, until it works.

    Whoever waits for what is looked at would wait in vain otherwise.
    """
    failing = False
    while True:
        await asyncio.sleep(pause_s)
        failing = not await survived(what, look, quiet=failing)


async def survived(what: str, look: Look, *, quiet: bool = False) -> bool:
    """One look; whether it ended well. What it raises is logged with `what`, unless `quiet`."""
    try:
        await look()
    except Exception:  # an agent's look, which is made again: see CONTRIBUTING.md
        if not quiet:
            log.exception("%s failed; it is tried again", what)
        return False
    return True
