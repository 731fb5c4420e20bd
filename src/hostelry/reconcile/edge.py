"""The outermost edge of everything that reconciles: nothing raised gets past it."""

import logging
from collections.abc import Awaitable, Callable

from hostelry.base.errors import RetryableError

LOG = logging.getLogger(__name__)


async def survives(name: str, step: Callable[[], Awaitable[None]]) -> bool:
    """Run `step`; True when it ended well. What it raises is logged with `name`, never passed on.

    A retryable error is one line; anything else is a defect and leaves its traceback.
    """
    try:
        await step()
    except RetryableError as error:
        LOG.info("%s: will be tried again: %s", name, error)
        return False
    except Exception:  # the reconcile worker: an outermost edge, see CONTRIBUTING.md
        LOG.exception("%s: failed; will be tried again", name)
        return False
    return True
