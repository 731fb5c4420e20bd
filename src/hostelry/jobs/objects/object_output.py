"""Output objects, written as their bytes come: in one put, or in parts above 8 MiB."""

import asyncio
from collections.abc import Awaitable, Callable

from hostelry.http1.reply import Reply
from hostelry.jobs.objects.object_store import (
    PART_BYTES,
    ObjectError,
    ObjectStore,
    OutputSettings,
    PartedUpload,
)

LARGE_BYTES = 1024 * 1024
MAX_LARGE = 8  # answers whose parts are in memory at once


class StaleClaimError(Exception):
    """Another owner has the request now, so this owner must not write its output."""


class ObjectOutput:
    """Takes bytes in order. They are visible after `complete`. Methods raise ObjectError."""

    def __init__(self, store: ObjectStore, uri: str, settings: OutputSettings) -> None:
        self.num_bytes = 0
        self._store = store
        self._uri = uri
        self._settings = settings
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._upload: PartedUpload | None = None

    async def write(self, piece: bytes) -> None:
        """Add bytes."""
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        self.num_bytes += len(piece)
        if self._held_bytes < PART_BYTES:
            return
        if self._upload is None:
            self._upload = await self._store.begin_upload(self._uri, self._settings)
        await self._upload.part(self._take())

    async def complete(self) -> bytes | None:
        """Make the object visible. Returns its bytes if one put wrote them, else None."""
        if self._upload is None:
            body = self._take()
            await self._store.put(self._uri, body, self._settings)
            return body
        if self._pieces:
            await self._upload.part(self._take())
        await self._upload.complete()
        self._upload = None
        return None

    async def drop(self) -> None:
        """Drop an uncompleted output. Parts may remain, as after a broken upload."""
        if self._upload is None:
            return
        try:
            await self._upload.abort()
        except ObjectError:
            return

    def _take(self) -> bytes:
        body = b"".join(self._pieces)
        self._pieces, self._held_bytes = [], 0
        return body


class AnswerWriter:
    """Writes answers. At most `MAX_LARGE` answers above 1 MiB are read at once, to bound memory."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._large = asyncio.Semaphore(MAX_LARGE)

    async def write(
        self,
        account: str,
        uri: str,
        reply: Reply,
        settings: OutputSettings,
        may_publish: Callable[[], Awaitable[bool]],
    ) -> bytes | None:
        """Write the body of `reply` to `uri` of `account`.

        Returns the body if one put wrote it, else None. `may_publish` is called before the object
        becomes visible. Raises StaleClaimError if it returns False, ObjectError, and UpstreamError
        if the answer breaks off. After an error nothing is visible, and parts are dropped.
        """
        output = ObjectOutput(self._store.acting_for(account), uri, settings)
        is_large = False
        try:
            while (chunk := await reply.next_chunk()) is not None:
                if not is_large and output.num_bytes + len(chunk) > LARGE_BYTES:
                    await self._large.acquire()
                    is_large = True
                await output.write(chunk)
            if not await may_publish():
                raise StaleClaimError
            return await output.complete()
        finally:
            await output.drop()
            if is_large:
                self._large.release()
