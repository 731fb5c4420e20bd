"""Addresses of all controls, kept on a host of control for its node proxy, which asks the others.

So a rotation of the authority reaches each control, whichever host it was begun on.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from hostelry.base.private_file import write_whole
from hostelry.base.recurring import run_periodically
from hostelry.server.home import Home, UpConfig

PAUSE_S = 10.0


@contextlib.asynccontextmanager
async def keeping_controls(
    home: Home, config: UpConfig, document: Callable[[], dict[str, Any]]
) -> AsyncIterator[None]:
    """For the block, keep the controls of `document`, which GET /internal/leader answers."""
    if config.cluster_host is None:
        yield
        return
    kept = b""

    async def look() -> None:
        nonlocal kept
        controls = (await asyncio.to_thread(document))["controls"]
        body = msgspec.json.encode(controls)
        if controls and body != kept:
            await asyncio.to_thread(write_whole, home.known_controls, body)
            kept = body

    task = asyncio.create_task(run_periodically("keeping the other controls", look, PAUSE_S))
    try:
        yield
    finally:
        task.cancel()
