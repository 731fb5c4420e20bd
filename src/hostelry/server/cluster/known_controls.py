"""Addresses of the platform's controls, which each host of control keeps.

By them a rotation of the authority reaches each control, whichever host it was begun on, and the
host's other processes another control while their own is away (`server.own_control`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from hostelry.base.address import Address
from hostelry.base.json import decode
from hostelry.base.private_file import write_whole
from hostelry.base.recurring import run_periodically
from hostelry.server.home import Home, UpConfig

PAUSE_S = 2.0


@contextlib.asynccontextmanager
async def keeping_controls(
    home: Home, config: UpConfig, document: Callable[[], dict[str, Any]]
) -> AsyncIterator[None]:
    """For the block, keep the controls of `document`, which GET /internal/leader answers.

    One that is alone, and that no host can join, keeps none.
    """
    kept = b""

    async def look() -> None:
        nonlocal kept
        controls = (await asyncio.to_thread(document))["controls"]
        body = msgspec.json.encode(controls)
        is_alone = config.cluster_host is None and len(controls) == 1 and not kept
        if controls and body != kept and not is_alone:
            await asyncio.to_thread(write_whole, home.known_controls, body)
            kept = body

    task = asyncio.create_task(run_periodically("keeping the other controls", look, PAUSE_S))
    try:
        yield
    finally:
        task.cancel()


def known_controls(home: Home, config: UpConfig) -> tuple[str, ...]:
    """The addresses of the other controls: those known last, then those of the joined home."""
    try:
        last = decode(home.known_controls.read_bytes(), list[str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        last = []
    both = dict.fromkeys([*last, *config.controls])
    return tuple(it for it in both if may_be_asked(it) and it != config.control_address)


def may_be_asked(address: str) -> bool:
    """Whether the internal key may be sent there: by mutual TLS to a control, or on loopback."""
    try:
        found = Address.parse(address)
    except ValueError:
        return False
    return found.name == "control" or (found.scheme, found.host) == ("http", "127.0.0.1")
