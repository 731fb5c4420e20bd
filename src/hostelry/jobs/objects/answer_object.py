"""An answer written to its output object as it comes: in one put, or in parts above 8 MiB."""

import asyncio
from collections.abc import Awaitable, Callable

from hostelry.dataplane.http.reply import Reply
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
    """The request is another's by now: its output must not be written."""


class AnswerWriter:
    """Writes answers; at most `MAX_LARGE` of those above 1 MiB at once, which bounds memory."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._large = asyncio.Semaphore(MAX_LARGE)

    async def write(
        self,
        uri: str,
        reply: Reply,
        settings: OutputSettings,
        may_publish: Callable[[], Awaitable[bool]],
    ) -> bytes | None:
        """Write the body of `reply` to `uri`; the body where it was of one part, else None.

        The object is not visible before `may_publish` has agreed: raises StaleClaimError where it
        does not. Raises ObjectError, and UpstreamError where the answer breaks off; then nothing
        is visible, and parts are dropped.
        """
        pieces: list[bytes] = []
        num_bytes = 0
        while num_bytes <= LARGE_BYTES:
            chunk = await reply.next_chunk()
            if chunk is None:
                body = b"".join(pieces)
                await self._check(may_publish)
                await self._store.put(uri, body, settings)
                return body
            pieces.append(chunk)
            num_bytes += len(chunk)
        async with self._large:
            return await self._write_large(uri, reply, settings, may_publish, pieces)

    async def _write_large(
        self,
        uri: str,
        reply: Reply,
        settings: OutputSettings,
        may_publish: Callable[[], Awaitable[bool]],
        pieces: list[bytes],
    ) -> bytes | None:
        part, is_whole = await _next_part(reply, pieces)
        if is_whole:
            await self._check(may_publish)
            await self._store.put(uri, part, settings)
            return part
        upload = await self._store.begin_upload(uri, settings)
        try:
            await upload.part(part)
            while not is_whole:
                part, is_whole = await _next_part(reply, [])
                if part:
                    await upload.part(part)
            await self._check(may_publish)
            await upload.complete()
        except BaseException:
            await _drop(upload)
            raise
        return None

    @staticmethod
    async def _check(may_publish: Callable[[], Awaitable[bool]]) -> None:
        if not await may_publish():
            raise StaleClaimError


async def _next_part(reply: Reply, pieces: list[bytes]) -> tuple[bytes, bool]:
    """The next part, of at least 8 MiB but for the last, and whether it is the last."""
    num_bytes = sum(map(len, pieces))
    while num_bytes < PART_BYTES:
        chunk = await reply.next_chunk()
        if chunk is None:
            return b"".join(pieces), True
        pieces.append(chunk)
        num_bytes += len(chunk)
    return b"".join(pieces), False


async def _drop(upload: PartedUpload) -> None:
    """Drop the parts; those that cannot be dropped stay, as of any broken upload."""
    try:
        await upload.abort()
    except ObjectError:
        return
