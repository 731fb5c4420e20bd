"""The epochs of control's leaders, as an agent sees them: an older one is refused for good.

The highest epoch is on disk before the first call of it is carried out, so that no call of an
earlier leader, frozen on its way or to a restarted agent, comes after one of its successor.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hostelry.base.epoch_header import EPOCH_HEADER, epoch_of
from hostelry.fleet.records import InstanceFolder


class EpochGuard:
    """The highest epoch of an instance; calls without one (a single control) pass.

    A refusal is 409, with the highest epoch in the header; 503 where it cannot be recorded.
    """

    def __init__(self, folder: InstanceFolder) -> None:
        self._folder = folder
        self._recording = asyncio.Lock()
        self._highest = folder.load_epoch()

    async def refusal(self, request: Request) -> Response | None:
        """The answer to a call that is refused; None: carry it out before anything is awaited."""
        given = request.headers.get(EPOCH_HEADER)
        if given is None:
            return None
        epoch = epoch_of(given)
        if epoch is None:
            return PlainTextResponse(f"{EPOCH_HEADER}: {given[:40]!r} is none", status_code=400)
        if epoch > self._highest:
            try:
                await self._raise_to(epoch)
            except OSError as error:
                text = f"the epoch {epoch} cannot be recorded: {error}"
                return PlainTextResponse(text, status_code=503)
        if epoch < self._highest:
            return PlainTextResponse(
                f"epoch {epoch} is over: the leader with epoch {self._highest} has called",
                status_code=409,
                headers={EPOCH_HEADER: str(self._highest)},
            )
        return None

    def guarded(self, app: ASGIApp) -> ASGIApp:
        """`app` for calls that are not refused."""

        async def guard(scope: Scope, receive: Receive, send: Send) -> None:
            refusal = await self.refusal(Request(scope)) if scope["type"] == "http" else None
            await (refusal or app)(scope, receive, send)

        return guard

    async def _raise_to(self, epoch: int) -> None:
        async with self._recording:
            if epoch > self._highest:
                await asyncio.to_thread(self._folder.save_epoch, epoch)
                self._highest = epoch
