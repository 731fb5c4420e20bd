"""Data capture in a process that sends requests to copies: the requests, and their answers.

A request only puts references to its bodies into a bounded buffer. A task writes the buffer to disk
once a second. Capture neither delays an answer nor changes it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_guarded
from hostelry.base.system import keep_freed_memory
from hostelry.dataplane.capture.sampler import Sampler
from hostelry.dataplane.capture.spool import Spool, SpoolBatch, SpoolTarget
from hostelry.dataplane.capture.spool_file import RecordHead, record_prefix
from hostelry.dataplane.route_table import Destination, Shadow
from hostelry.domain.data_capture import CaptureCounts, DataCapture
from hostelry.domain.load import LoadKey

MIB = 1024 * 1024
MAX_BUFFER_BYTES = 64 * MIB
MAX_WITH_SHADOWS_BYTES = MAX_BUFFER_BYTES // 2  # the rest is for answers to clients
WRITE_FROM_BYTES = MIB  # a larger buffer is written at once, while it is in the processor's cache
WRITE_S = 1.0
MAX_TARGETS = 4096
NO_ROOM = f"the buffer of {MAX_BUFFER_BYTES // MIB} MiB has no room for it"
UNWRITTEN = "a defect: see the gateway's log"
Captured = Destination | Shadow


class CapturedRequest(NamedTuple):
    """A request of a record. `event_id` is a UUID, the same for each answer to the request.

    `body` is empty if it comes in parts.
    """

    event_id: str
    body: bytes
    content_type: str | None
    inference_id: str | None
    custom_attributes: str | None


class Buffered:
    """Records of one target that are not written yet."""

    __slots__ = ("captured", "num_bytes", "num_records", "parts", "sampler", "target")

    def __init__(self, captured: Captured, target: SpoolTarget, sampler: Sampler) -> None:
        self.captured = captured  # the last destination with this target
        self.target = target
        self.sampler = sampler
        self.clear()

    def clear(self) -> None:
        """Forget the records, because they are being written."""
        self.parts: list[bytes] = []
        self.num_records = 0
        self.num_bytes = 0


class CapturedAnswer:
    """Captures an answer as it comes. Call `finish` once it is whole, and always `close`."""

    __slots__ = (
        "_asked",
        "_buffered",
        "_capture",
        "_chunks",
        "_drop_cause",
        "_held",
        "_most",
        "_num_asked",
        "_num_output",
        "_request",
        "_settings",
    )

    def __init__(
        self, capture: "RequestCapture", buffered: Buffered, request: CapturedRequest
    ) -> None:
        self._capture = capture
        self._buffered = buffered
        self._request = request
        is_shadow = isinstance(buffered.captured, Shadow)
        self._most = MAX_WITH_SHADOWS_BYTES if is_shadow else MAX_BUFFER_BYTES
        self._settings = buffered.target.capture
        self._asked: list[bytes] = []
        self._chunks: list[bytes] = []
        self._num_asked = self._num_output = 0
        self._held = 0  # reserved bytes of the buffer
        self._drop_cause: str | None = None

    def add_request(self, chunk: bytes) -> None:
        """Add the next part of a request that comes in parts."""
        if self._settings.takes_input and self._hold(len(chunk)):
            self._num_asked += len(chunk)
            self._asked.append(chunk)

    def add(self, chunk: bytes) -> None:
        """Add the next part of the answer."""
        if self._settings.takes_output and self._hold(len(chunk)):
            self._num_output += len(chunk)
            self._chunks.append(chunk)

    def drop(self, cause: str) -> None:
        """Keep no record. `finish` then counts the request as dropped for `cause`."""
        self._drop_cause = self._drop_cause or cause

    def finish(self, answered: Mapping[str, str]) -> None:
        """Put the record of the request and its answer into the buffer.

        `answered` are the headers of the copy's answer.
        """
        request = self._request
        body = request.body if self._settings.takes_input else b""
        prefix = record_prefix(
            RecordHead(
                at=self._capture.now(),
                event_id=request.event_id,
                inference_id=request.inference_id,
                custom_attributes=request.custom_attributes,
                input_type=request.content_type,
                output_type=answered.get("content-type"),
            ),
            self._num_asked + len(body),
            self._num_output,
        )
        if not self._hold(len(prefix) + len(body)):
            self._capture.drop(self._buffered.target.key, self._drop_cause or NO_ROOM)
            return
        parts = (prefix, body, *self._asked, *self._chunks)
        self._capture.put(self._buffered, parts, self._held)
        self._held = 0  # the record belongs to the buffer now

    def close(self) -> None:
        """Give reserved bytes of the buffer back. A second call does nothing."""
        self._capture.release(self._held)
        self._held = 0
        self._asked.clear()
        self._chunks.clear()

    def _hold(self, num_bytes: int) -> bool:
        """Reserve more bytes for the record. The record is dropped if there is no room."""
        if self._drop_cause is None and self._capture.hold(num_bytes, self._most):
            self._held += num_bytes
            return True
        self.drop(NO_ROOM)
        return False


class RequestCapture:
    """The captured requests of one process.

    Args:
        spool: writes them to disk. None: no request is captured.
        draw: a uniform random number in [0, 1).
        clock: dates records.
    """

    def __init__(self, spool: Spool | None, draw: Callable[[], float], clock: Clock) -> None:
        self._spool = spool
        self._draw = draw
        self._clock = clock
        self._buffers: dict[SpoolTarget, Buffered] = {}
        self._by_id: dict[int, Buffered] = {}  # by the identity of the captured destination
        self._filled: list[Buffered] = []  # those with records
        self._held_bytes = 0
        self._some, self._many = asyncio.Event(), asyncio.Event()
        self._counts: dict[LoadKey, CaptureCounts] = {}

    def is_turn(self, destination: Destination) -> bool:
        """True if the next request of `destination` is captured."""
        buffered = self._find_buffer(destination)
        return buffered is not None and buffered.sampler.takes(self._draw())

    def begin(self, captured: Captured, request: CapturedRequest) -> CapturedAnswer | None:
        """Begin to capture the answer to `request`. None if the destination has no capture."""
        buffered = self._find_buffer(captured)
        return None if buffered is None else CapturedAnswer(self, buffered, request)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock.now()

    def hold(self, num_bytes: int, most: int = MAX_BUFFER_BYTES) -> bool:
        """Reserve bytes of the buffer. False if more than `most` would be reserved."""
        if self._held_bytes + num_bytes > most:
            return False
        self._held_bytes += num_bytes
        return True

    def release(self, num_bytes: int) -> None:
        """Give reserved bytes back."""
        self._held_bytes -= num_bytes

    def put(self, buffered: Buffered, parts: Sequence[bytes], num_bytes: int) -> None:
        """Add a record of `num_bytes`, which are reserved. A large buffer is written at once."""
        if not buffered.num_records:
            self._filled.append(buffered)
            self._some.set()
        buffered.parts += parts
        buffered.num_records += 1
        buffered.num_bytes += num_bytes
        if self._held_bytes >= WRITE_FROM_BYTES:
            self._many.set()

    def drop(self, key: LoadKey, cause: str) -> None:
        """Count a request without a record."""
        self._count(key, CaptureCounts(dropped=1, drop_cause=cause))

    def counts(self) -> dict[LoadKey, CaptureCounts]:
        """Take the counts since the last call."""
        found, self._counts = self._counts, {}
        return found

    async def run(self) -> None:
        """Write the buffer about once a second while it has records."""
        while True:
            if not (self._filled or (self._spool is not None and self._spool.has_open)):
                await self._some.wait()
            self._some.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._many.wait(), WRITE_S)
            await run_guarded("writing captured requests", self.write)

    async def write(self) -> None:
        """Write the buffer, and close files that are due."""
        self._many.clear()
        batches = self._batches()
        if self._spool is None or not (batches or self._spool.has_open):
            return
        outcomes = [CaptureCounts(dropped=it.num_records, drop_cause=UNWRITTEN) for it in batches]
        try:
            outcomes = await asyncio.to_thread(self._spool.append, batches, self._clock.now())
        finally:
            self.release(sum(batch.num_bytes for batch in batches))
            for batch, counted in zip(batches, outcomes, strict=True):
                self._count(batch.target.key, counted)

    async def finish(self) -> None:
        """Write the rest, and close all files."""
        await self.write()
        if self._spool is not None:
            await asyncio.to_thread(self._spool.close)

    def _find_buffer(self, captured: Captured) -> Buffered | None:
        """Find the buffer for records of `captured`. None if it has no capture."""
        if captured.capture is None or self._spool is None:
            return None
        buffered = self._by_id.get(id(captured))
        if buffered is None or buffered.captured is not captured:
            buffered = self._shared_buffer(captured, captured.capture)
        return buffered

    def _shared_buffer(self, captured: Captured, capture: DataCapture) -> Buffered:
        """Return the buffer of the target of `captured`, which later routes share."""
        if len(self._by_id) >= MAX_TARGETS:  # samplers begin again, and no record is lost
            self._by_id.clear()
            self._buffers.clear()
        target = SpoolTarget(key=captured.key, capture=capture)
        buffered = self._buffers.get(target)
        if buffered is None:
            if not self._buffers:
                keep_freed_memory()
            buffered = Buffered(captured, target, Sampler(capture.percent))
            self._buffers[target] = buffered
        else:
            self._by_id.pop(id(buffered.captured), None)
            buffered.captured = captured
        self._by_id[id(captured)] = buffered
        return buffered

    def _batches(self) -> list[SpoolBatch]:
        filled, self._filled = self._filled, []
        found = []
        for buffered in filled:
            batch = SpoolBatch(
                target=buffered.target,
                parts=buffered.parts,
                num_records=buffered.num_records,
                num_bytes=buffered.num_bytes,
            )
            found.append(batch)
            buffered.clear()
        return found

    def _count(self, key: LoadKey, counted: CaptureCounts) -> None:
        mine = self._counts.get(key)
        if mine is None:
            mine = self._counts[key] = CaptureCounts()
        mine.add(counted)
