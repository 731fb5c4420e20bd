"""Control's side of a fleet: the HTTP client of an agent, and the leader's fence."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import msgspec

from hostelry.base.errors import Fenced, RetryableError, TerminalError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.json import decode
from hostelry.base.peer_http import peer_client
from hostelry.base.peers import EPOCH_HEADER, LeaderEpoch, parse_epoch
from hostelry.domain.copy import CopySpec, Instance
from hostelry.fleet.protocol import CopyPage, Fleet, Observation, RunningInstance

CALL_TIMEOUT_S = 10.0


class AgentKeyError(RetryableError):
    """The agent has a different key."""


class HttpAgent:
    """The agent at `address`. Implements `fleet.protocol.Agent`.

    Every call opens its own connection, so that one object serves any thread and event loop. Calls
    carry the leader's `epoch`, if any, and raise Fenced once the epoch is over.
    """

    def __init__(
        self,
        address: str,
        internal_key: str,
        call_timeout_s: float = CALL_TIMEOUT_S,
        epoch: LeaderEpoch | None = None,
    ) -> None:
        self._address = address
        self._headers = {INTERNAL_KEY_HEADER: internal_key}
        self._epoch = epoch
        if epoch is not None:
            self._headers[EPOCH_HEADER] = str(epoch.number)
        self._call_timeout_s = call_timeout_s

    async def apply(self, copies: Sequence[CopySpec]) -> None:
        """Run exactly `copies`. Returns once the agent has recorded them on disk."""
        await self._call("PUT", "/copies", content=msgspec.json.encode(tuple(copies)))

    async def observe(self, have: str | None = None, timeout_s: float = 0.0) -> Observation:
        """The current state. Waits up to `timeout_s` for a state whose version is not `have`."""
        asked = {"wait_s": f"{timeout_s:g}"} | ({"have": have} if have is not None else {})
        body = await self._call("GET", "/observe", params=asked, patience_s=timeout_s)
        try:
            return decode(body, Observation)
        except msgspec.DecodeError as error:
            raise RetryableError(f"agent {self._address}: no observation: {error}") from error

    async def log_tail(self, copy_id: str, max_lines: int = 100) -> str:
        """The last lines of the copy's log, empty if it never started."""
        body = await self._call("GET", f"/logs/{copy_id}", params={"lines": str(max_lines)})
        return body.decode("utf-8", "replace")

    async def copy_pages(self) -> tuple[CopyPage, ...]:
        """The pages for Prometheus of the ready copies. Raises RetryableError without an answer."""
        body = await self._call("GET", "/metrics")
        try:
            return decode(body, tuple[CopyPage, ...])
        except msgspec.DecodeError as error:
            raise RetryableError(f"agent {self._address}: no pages: {error}") from error

    async def copy_account(self, what: str, copy_id: str, query: str = "") -> dict[str, Any]:
        """A copy's account of its `cache`, `models` or `graph`. Raises RetryableError."""
        body = await self._call("GET", f"/{what}/{copy_id}{query}")
        try:
            return decode(body, dict[str, Any])
        except msgspec.DecodeError as error:
            raise RetryableError(f"agent {self._address}: no {what}: {error}") from error

    async def shutdown(self) -> None:
        """Ask the agent to stop every copy, then itself. Returns before that is done."""
        await self._call("POST", "/shutdown")

    async def _call(
        self, method: str, path: str, *, patience_s: float = 0.0, **request: Any
    ) -> bytes:
        timeout_s = self._call_timeout_s + patience_s
        try:
            async with peer_client(self._address) as http:
                answer = await http.request(
                    method,
                    path,
                    headers=self._headers,
                    timeout=timeout_s,
                    **request,
                )
        except httpx.HTTPError as error:
            cause = str(error) or type(error).__name__
            raise RetryableError(f"agent {self._address}: {method} {path}: {cause}") from error
        if answer.is_success:
            return answer.content
        fault = f"agent {self._address}: {method} {path}: {answer.status_code} {answer.text[:300]}"
        if answer.status_code in (400, 413):
            raise TerminalError(fault)
        if answer.status_code == 409:
            newest = parse_epoch(answer.headers.get(EPOCH_HEADER, ""))
            if self._epoch is not None and newest is not None:
                self._epoch.refused(newest)
            raise Fenced(fault)
        raise (AgentKeyError if answer.status_code == 403 else RetryableError)(fault)


class FencedFleet:
    """`fleet` behind the leader's fence. `check` raises Fenced for a former leader, and may block.

    A leader may be frozen between a check and its act. Its successor repeats or undoes that act.
    Both acts are idempotent by the instance's id, and an agent that the successor has called
    refuses the older epoch.
    """

    def __init__(self, fleet: Fleet, check: Callable[[], None]) -> None:
        self._fleet = fleet
        self._check = check

    async def launch(self, instance: Instance) -> RunningInstance:
        """Start the instance's agent, or return the running agent."""
        await asyncio.to_thread(self._check)
        return await self._fleet.launch(instance)

    async def terminate(self, instance_id: str) -> None:
        """Stop the agent and its copies. Succeeds if it is gone."""
        await asyncio.to_thread(self._check)
        await self._fleet.terminate(instance_id)

    async def list(self) -> Sequence[RunningInstance]:
        """Every instance whose agent answers now."""
        return await self._fleet.list()
