"""Addresses of the platform's controls, which each host of control keeps.

By them a rotation of the authority reaches each control, whichever host it was begun on, and the
host's other processes another control while their own is away (`build_own_control`). One that does
not answer is kept, after those that do: its host's object store and gateway may run.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from hostelry.base.address import Address
from hostelry.base.concurrency import run_periodically
from hostelry.base.files import write_whole
from hostelry.base.json import decode
from hostelry.home.home import Home, UpConfig

LOG = logging.getLogger(__name__)
PAUSE_S = 2.0
MAX_KNOWN = 16


@contextlib.asynccontextmanager
async def keep_controls(
    home: Home, config: UpConfig, document: Callable[[], dict[str, Any]]
) -> AsyncIterator[None]:
    """For the block, keep the controls of `document`, which GET /internal/leader answers.

    They come first. Controls known before fill up to `MAX_KNOWN`. A control that is alone, and that
    no host can join, keeps none.
    """
    kept = _last_known(home)

    async def look() -> None:
        nonlocal kept
        controls = (await asyncio.to_thread(document))["controls"]
        both = list(dict.fromkeys([*controls, *kept]))[:MAX_KNOWN]
        is_alone = config.cluster_host is None and len(both) == 1
        if both != kept and not is_alone:
            await asyncio.to_thread(write_whole, home.known_controls, msgspec.json.encode(both))
            kept = both

    task = asyncio.create_task(run_periodically("keeping the other controls", look, PAUSE_S))
    try:
        yield
    finally:
        task.cancel()


def list_known_controls(home: Home, config: UpConfig) -> tuple[str, ...]:
    """The addresses of the other controls, last known first, then the joined home's."""
    both = dict.fromkeys([*_last_known(home), *config.controls])
    return tuple(it for it in both if may_be_asked(it) and it != config.control_address)


def may_be_asked(address: str) -> bool:
    """Whether the internal key may be sent there: by mutual TLS to a control, or on loopback."""
    try:
        found = Address.parse(address)
    except ValueError:
        return False
    return found.name == "control" or (found.scheme, found.host) == ("http", "127.0.0.1")


def _last_known(home: Home) -> list[str]:
    try:
        return decode(home.known_controls.read_bytes(), list[str])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        LOG.warning("%s is not used: %s", home.known_controls, error)
        return []
