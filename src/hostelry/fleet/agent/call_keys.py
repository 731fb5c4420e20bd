"""Keys by which a graph's server invokes other models: sent to it, and renewed.

They are temporary keys of the model's account that are good for invocations only. The agent sends
them, since the server outlives agents and their ports; a server without keys answers no ping.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from hostelry.base.clock import Clock
from hostelry.fleet.agent.model_server import ModelServer

T = TypeVar("T")
NewKeys = Callable[[], Mapping[str, str | float]]
RENEW_S = 600.0  # the keys are good for an hour: the server outlasts the death of its agent
FIRST_RETRY_S, MAX_RETRY_S = 0.03, 1.0
TIMEOUT_S = 5.0


async def with_call_keys(
    serves: Coroutine[Any, Any, T], server: ModelServer, keys: NewKeys | None, clock: Clock
) -> T:
    """What `serves` gives; meanwhile the server has `keys`, unless they are None."""
    if keys is None:
        return await serves
    sending = asyncio.create_task(_send_keys(server, keys, clock))
    try:
        return await serves
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send_keys(server: ModelServer, keys: NewKeys, clock: Clock) -> None:
    """Send keys once the server listens, and new ones before they expire."""
    pause_s = FIRST_RETRY_S
    while True:
        body = msgspec.json.encode(await asyncio.to_thread(keys))
        answer, _ = await server.call("PUT", "/credentials", timeout_s=TIMEOUT_S, body=body)
        pause_s = min(MAX_RETRY_S, 1.2 * pause_s)
        await clock.sleep(RENEW_S if answer.fault is None else pause_s)
