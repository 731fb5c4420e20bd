"""The input of a request, and data capture of one attempt at it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from uuid import UUID

from hostelry.dataplane.capture.capture import CapturedAnswer, CapturedRequest, RequestCapture
from hostelry.dataplane.route_table import Destination
from hostelry.domain.async_request import AsyncRequest
from hostelry.http1.streamed_body import StreamedBody
from hostelry.jobs.objects.object_store import PART_BYTES, ObjectError, ObjectStore, StoredObject

MAX_INPUT_BYTES = 1024**3
WHOLE_BELOW_BYTES = 1024 * 1024  # smaller inputs are read first, so that a connection is reused


class InputTooLargeError(ObjectError):
    """The input object is larger than the limit."""


class OpenInput:
    """An open input. `close` must be called once, when it is no longer needed.

    `body` is the whole input if it is small, else None. `content_type` is the object's type.
    """

    def __init__(self, body: bytes | None, content_type: str | None = None) -> None:
        self.body = body
        self.content_type = content_type
        self._stored: StoredObject | None = None
        self._came: Callable[[], None] = lambda: None
        self._seen: Callable[[bytes], None] = lambda _: None

    @classmethod
    def build_streamed(cls, stored: StoredObject, on_read: Callable[[], None]) -> "OpenInput":
        """Open a large object, which is streamed. `on_read` is called once it is read."""
        found = cls(None, stored.content_type)
        found._stored, found._came = stored, on_read
        return found

    @property
    def is_streamed(self) -> bool:
        """True if the input comes in pieces."""
        return self._stored is not None

    @property
    def size_bytes(self) -> int:
        """The length of the input."""
        if self._stored is not None:
            return self._stored.size_bytes
        return len(self.body or b"")

    def listen(self, seen: Callable[[bytes], None]) -> None:
        """Call `seen` with each piece of a large object, as it is sent."""
        self._seen = seen

    def stream(self) -> StreamedBody:
        """Take the large object as a body in pieces. It can be taken once."""
        assert self._stored is not None
        return StreamedBody(self._chunks(self._stored), self.size_bytes)

    def close(self) -> None:
        """Stop reading the input."""
        if self._stored is not None:
            self._stored.close()

    async def _chunks(self, stored: StoredObject) -> AsyncGenerator[bytes, None]:
        async with aclosing(stored.chunks()) as chunks:
            async for chunk in chunks:
                self._seen(chunk)
                yield chunk
        self._came()


async def open_input(
    store: ObjectStore, request: AsyncRequest, on_read: Callable[[], None]
) -> OpenInput:
    """Open the request's input. `on_read` is called once an object is read. Raises ObjectError."""
    if request.input_uri is None:
        return OpenInput(request.body)
    stored = await store.open(request.input_uri)
    try:
        check_size(stored)
        if stored.size_bytes > WHOLE_BELOW_BYTES:
            return OpenInput.build_streamed(stored, on_read)
        body = await stored.whole()
    except BaseException:
        stored.close()
        raise
    stored.close()
    on_read()
    return OpenInput(body, stored.content_type)


def check_size(stored: StoredObject) -> None:
    """Raise InputTooLargeError for an object above the limit."""
    if stored.size_bytes > MAX_INPUT_BYTES:
        raise InputTooLargeError(
            f"The input object {stored.uri} has {stored.size_bytes} bytes; the limit is "
            f"{MAX_INPUT_BYTES} bytes (1 GB)."
        )


TOO_LARGE = f"its input or its answer has more than {PART_BYTES // 1024**2} MiB"


class AttemptCapture:
    """The record of one attempt, so far. `close` must be called.

    The record is kept once the request's end is durable. A request that ran twice because of a kill
    has one end, and so one record.

    Args:
        capture: data capture of this process.
        request: the request of the attempt.
    """

    def __init__(self, capture: RequestCapture, request: AsyncRequest) -> None:
        self._capture = capture
        self._request = request
        self._is_captured: bool | None = None
        self._captured: CapturedAnswer | None = None
        self._answered: Mapping[str, str] | None = None

    def begin(self, destination: Destination, given: OpenInput) -> None:
        """Record that a copy of `destination` gets the request. Called again if it refuses."""
        self.close()
        if self._is_captured is None:
            self._is_captured = self._capture.is_turn(destination)
        if not self._is_captured or destination.capture is None:
            return
        request = self._request
        asked = CapturedRequest(
            str(UUID(request.id)),
            given.body or b"",
            request.content_type or given.content_type,
            request.inference_id,
            request.custom_attributes,
        )
        captured = self._captured = self._capture.begin(destination, asked)
        if captured is not None and destination.capture.takes_input and given.is_streamed:
            if given.size_bytes > PART_BYTES:
                captured.drop(TOO_LARGE)
            given.listen(captured.add_request)

    def note_answer(
        self, destination: Destination, body: bytes | None, answered: Mapping[str, str]
    ) -> None:
        """Record that the copy's answer was written. A large body is missing (None)."""
        captured, capture = self._captured, destination.capture
        if captured is None or capture is None:
            return
        self._answered = answered
        if body is not None:
            captured.add(body)
        elif capture.takes_output:
            captured.drop(TOO_LARGE)

    def finish(self) -> None:
        """Keep the record, because the request has ended with this answer."""
        if self._captured is not None and self._answered is not None:
            self._captured.finish(self._answered)

    def close(self) -> None:
        """Release the record. Idempotent."""
        if self._captured is not None:
            self._captured.close()
            self._captured = None
