"""One object of a transform job: sends its payloads to copies, and writes the answers."""

import asyncio
import uuid
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial

import msgspec

from hostelry.domain.routes import CopyRoute
from hostelry.domain.transform_job import AssembleWith, TransformInput, TransformJob
from hostelry.jobs.copy_parameters import PayloadSettings
from hostelry.jobs.objects.object_output import ObjectOutput
from hostelry.jobs.objects.object_store import (
    ObjectStore,
    OutputSettings,
    StoredObject,
)
from hostelry.jobs.records.object_keys import get_output_uri
from hostelry.jobs.records.processing import InferenceMark, RecordProcessing
from hostelry.jobs.records.splitting import Batcher, Payload, RecordError, build_splitter
from hostelry.jobs.transform.copy_calls import CopyCalls, cancel_all
from hostelry.jobs.transform.object_rows import NumberedObject, row_key

INFLATED_AT_ONCE_BYTES = 1024 * 1024
GZIP = 16 + zlib.MAX_WBITS


async def read_payloads(
    stored: StoredObject, given: TransformInput, settings: PayloadSettings
) -> AsyncGenerator[Payload, None]:
    """Yield the payloads in order. Raises RecordError, ObjectError."""
    splitter = build_splitter(given.split_type, stored.uri, settings.max_payload_bytes)
    batcher = Batcher(settings.strategy, settings.max_payload_bytes)
    inflater = Inflater(stored.uri) if given.is_gzip else None
    async with aclosing(stored.chunks()) as chunks:
        async for chunk in chunks:
            for piece in (chunk,) if inflater is None else inflater.add_bytes(chunk):
                for payload in batcher.add(splitter.add_bytes(piece)):
                    yield payload
                await asyncio.sleep(0)  # payloads in flight get a turn between pieces
    if inflater is not None:
        inflater.finish()
    for payload in batcher.add(splitter.finish()) + batcher.finish():
        yield payload


class Inflater:
    """Inflates gzip members in pieces of at most 1 MiB, so that bombs do not fill the memory."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._stream = zlib.decompressobj(GZIP)
        self._is_fresh = True

    def add_bytes(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the pieces in `chunk`. Raises RecordError."""
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
        """Raise RecordError if the object is cut off."""
        if self._is_fresh or not self._stream.eof:
            raise RecordError(f"{self._uri} is not whole: its gzip data ends early.")


class ObjectDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the objects of one job."""

    job: TransformJob
    store: ObjectStore
    calls: CopyCalls
    settings: PayloadSettings
    processing: RecordProcessing | None


class ObjectWork:
    """One object on one copy.

    Args:
        deps: dependencies of the job.
        copy: gets the payloads.
        slots: slots of the copy. Each payload in flight holds a slot.
        found: the object.
    """

    def __init__(
        self, deps: ObjectDeps, copy: CopyRoute, slots: asyncio.Semaphore, found: NumberedObject
    ) -> None:
        self._deps = deps
        self._copy = copy
        self._slots = slots
        self._object = found
        self._in_flight: deque[asyncio.Task[bytes]] = deque()

    async def run(self) -> int:
        """Transform the object, make its output visible, and return the number of records.

        Raises RecordError, ObjectError and CopyGoneError, and then leaves no output.
        """
        job, records = self._deps.job, 0
        uri = get_output_uri(job.output.path, self._object.relative)
        settings = OutputSettings(
            content_type=job.output.accept or job.input.content_type,
            kms_key_id=job.output.kms_key_id,
            chain_length=job.chain_length,
        )
        output = ObjectOutput(self._deps.store, uri, settings)
        stored = await self._deps.store.open(self._object.uri)
        try:
            payloads = read_payloads(stored, job.input, self._deps.settings)
            async with aclosing(payloads):
                async for payload in payloads:
                    records += len(payload.records)
                    await self._slots.acquire()  # held until the payload is answered
                    self._in_flight.append(self._begin(payload))
                    await self._keep(output, self._deps.settings.max_concurrent)
            await self._keep(output, 0)
            await output.complete()
        finally:
            stored.close()
            await cancel_all(list(self._in_flight))
            await output.drop()
        return records

    def _begin(self, payload: Payload) -> asyncio.Task[bytes]:
        """Send a payload. Its slot is given back when the task ends, even if it never began."""
        task = asyncio.create_task(self._answer(payload))
        task.add_done_callback(lambda _: self._slots.release())
        return task

    async def _keep(self, output: ObjectOutput, most_in_flight: int) -> None:
        """Write finished answers in order, and wait while too many are under way."""
        while self._in_flight and (
            len(self._in_flight) > most_in_flight or self._in_flight[0].done()
        ):
            await output.write(await self._in_flight[0])
            self._in_flight.popleft()

    async def _answer(self, payload: Payload) -> bytes:
        """Send a payload, and process its answer for the output."""
        deps = self._deps
        processing = deps.processing
        body = payload.body if processing is None else processing.build_body(payload)
        answer = await deps.calls.answer(self._copy, body, partial(self._name, payload))
        if processing is not None and processing.changes_answers:
            answer = processing.build_output(payload, answer, self._marks(payload))
        if deps.job.output.assemble_with is AssembleWith.LINE and not answer.endswith(b"\n"):
            answer += b"\n"
        return answer

    def _name(self, payload: Payload) -> str:
        last = payload.first_number + len(payload.records) - 1
        return f"records {payload.first_number} to {last} of {self._object.uri}"

    def _marks(self, payload: Payload) -> list[InferenceMark]:
        """Build ids that stay the same if the object is done again."""
        job, processing = self._deps.job, self._deps.processing
        if processing is None or job.capture is None or not job.capture.adds_inference_id:
            return []
        time = datetime.fromtimestamp(job.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = f"{row_key(job)} {self._object.uri} {payload.first_number}"
        return [
            InferenceMark(str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {number}")), time)
            for number in range(processing.count_units(payload))
        ]
