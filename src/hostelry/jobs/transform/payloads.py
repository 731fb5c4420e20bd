"""The payloads of an object, made while it streams in: inflated, split, batched."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from hostelry.domain.transform_job import TransformInput
from hostelry.jobs.objects.object_store import StoredObject
from hostelry.jobs.records.batching import Batcher, Payload
from hostelry.jobs.records.errors import RecordError
from hostelry.jobs.records.settings import PayloadSettings
from hostelry.jobs.records.splitting import splitter_of

INFLATED_AT_ONCE_BYTES = 1024 * 1024
GZIP = 16 + zlib.MAX_WBITS


async def payloads_of(
    stored: StoredObject, given: TransformInput, settings: PayloadSettings
) -> AsyncGenerator[Payload, None]:
    """The payloads in order; raises RecordError, ObjectError."""
    splitter = splitter_of(given.split_type, stored.uri, settings.max_payload_bytes)
    batcher = Batcher(settings.strategy, settings.max_payload_bytes)
    inflater = Inflater(stored.uri) if given.is_gzip else None
    async with aclosing(stored.chunks()) as chunks:
        async for chunk in chunks:
            for piece in (chunk,) if inflater is None else inflater.feed(chunk):
                for payload in batcher.add(splitter.feed(piece)):
                    yield payload
                await asyncio.sleep(0)  # a payload in flight is served between pieces
    if inflater is not None:
        inflater.finish()
    for payload in batcher.add(splitter.finish()) + batcher.finish():
        yield payload


class Inflater:
    """Inflates gzip, of one or more members, in pieces of at most 1 MiB: bombs fill no memory."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._stream = zlib.decompressobj(GZIP)
        self._is_fresh = True

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The pieces that `chunk` holds; raises RecordError."""
        while chunk:
            if self._stream.eof:
                self._stream = zlib.decompressobj(GZIP)
            self._is_fresh = False
            try:
                piece = self._stream.decompress(chunk, INFLATED_AT_ONCE_BYTES)
            except zlib.error as error:
                raise RecordError(f"{self._uri} is not gzip: {error}") from error
            chunk = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if piece:
                yield piece

    def finish(self) -> None:
        """Raise RecordError where the object is cut off."""
        if self._is_fresh or not self._stream.eof:
            raise RecordError(f"{self._uri} is not whole: its gzip data ends early.")
