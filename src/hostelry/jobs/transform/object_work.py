"""One object of a job: its payloads sent to a copy, several at once, its answers in order."""

import asyncio
import uuid
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from hostelry.domain.routes import CopyRoute
from hostelry.domain.transform_job import AssembleWith, TransformJob
from hostelry.jobs.objects.object_store import ObjectStore, OutputSettings
from hostelry.jobs.records.batching import Payload
from hostelry.jobs.records.object_keys import output_uri
from hostelry.jobs.records.processing import InferenceMark, RecordProcessing
from hostelry.jobs.records.settings import PayloadSettings
from hostelry.jobs.transform.copy_calls import CopyCalls, cancel_all
from hostelry.jobs.transform.object_output import ObjectOutput
from hostelry.jobs.transform.object_rows import NumberedObject, row_key
from hostelry.jobs.transform.payloads import payloads_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectDeps:
    """What the objects of one job share."""

    job: TransformJob
    store: ObjectStore
    calls: CopyCalls
    settings: PayloadSettings
    processing: RecordProcessing | None


class ObjectWork:
    """One object on one copy.

    Args:
        deps: of its job.
        copy: gets the payloads.
        slots: of the copy; one is held by each payload in flight.
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
        """The records of the object, whose output is visible then.

        Raises RecordError, ObjectError, CopyGoneError; then there is no output.
        """
        job, records = self._deps.job, 0
        uri = output_uri(job.output.path, self._object.relative)
        settings = OutputSettings(
            content_type=job.output.accept or job.input.content_type,
            kms_key_id=job.output.kms_key_id,
            chain_length=job.chain_length,
        )
        output = ObjectOutput(self._deps.store, uri, settings)
        stored = await self._deps.store.open(self._object.uri)
        try:
            payloads = payloads_of(stored, job.input, self._deps.settings)
            async with aclosing(payloads):
                async for payload in payloads:
                    records += len(payload.records)
                    await self._slots.acquire()  # held until the payload's answer is there
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
        """Send a payload; its slot is given back at the end, also of a task that never began."""
        task = asyncio.create_task(self._answer(payload))
        task.add_done_callback(lambda _: self._slots.release())
        return task

    async def _keep(self, output: ObjectOutput, most_in_flight: int) -> None:
        """Write the answers that are there, by order, and wait while too many are under way."""
        while self._in_flight and (
            len(self._in_flight) > most_in_flight or self._in_flight[0].done()
        ):
            await output.write(await self._in_flight[0])
            self._in_flight.popleft()

    async def _answer(self, payload: Payload) -> bytes:
        """What is kept of a payload's answer."""
        deps = self._deps
        processing = deps.processing
        body = payload.body if processing is None else processing.sent(payload)
        answer = await deps.calls.answer(self._copy, body, partial(self._name, payload))
        if processing is not None and processing.changes_answers:
            answer = processing.kept(payload, answer, self._marks(payload))
        if deps.job.output.assemble_with is AssembleWith.LINE and not answer.endswith(b"\n"):
            answer += b"\n"
        return answer

    def _name(self, payload: Payload) -> str:
        last = payload.first_number + len(payload.records) - 1
        return f"records {payload.first_number} to {last} of {self._object.uri}"

    def _marks(self, payload: Payload) -> list[InferenceMark]:
        """Ids that are the same where the object is done again."""
        job, processing = self._deps.job, self._deps.processing
        if processing is None or job.capture is None or not job.capture.adds_inference_id:
            return []
        time = datetime.fromtimestamp(job.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = f"{row_key(job)} {self._object.uri} {payload.first_number}"
        return [
            InferenceMark(str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {number}")), time)
            for number in range(processing.num_units(payload))
        ]
