"""Data capture of one attempt at an asynchronous request: kept once the request's end is durable.

A request that a kill has run twice has one end, and so one record: that of the attempt that ended
it.
"""

from collections.abc import Mapping
from uuid import UUID

from hostelry.dataplane.capture.capture import CapturedAnswer, CapturedRequest, RequestCapture
from hostelry.dataplane.route_table import Destination
from hostelry.domain.async_request import AsyncRequest
from hostelry.jobs.dispatch.request_input import OpenInput
from hostelry.jobs.objects.object_store import PART_BYTES

TOO_LARGE = f"its input or its answer has more than {PART_BYTES // 1024**2} MiB"


class AttemptCapture:
    """The record of one attempt, as far as it has come; `close` must be called.

    Args:
        capture: of this process.
        request: the one that is attempted.
    """

    def __init__(self, capture: RequestCapture, request: AsyncRequest) -> None:
        self._capture = capture
        self._request = request
        self._is_captured: bool | None = None
        self._captured: CapturedAnswer | None = None
        self._answered: Mapping[str, str] | None = None

    def sent(self, destination: Destination, given: OpenInput) -> None:
        """The request goes to a copy of `destination`; again where one refused the connection."""
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
            given.listen(captured.asked)

    def answered(
        self, destination: Destination, body: bytes | None, answered: Mapping[str, str]
    ) -> None:
        """The copy's answer was written; `body` is None where it is large."""
        captured, capture = self._captured, destination.capture
        if captured is None or capture is None:
            return
        self._answered = answered
        if body is not None:
            captured.add(body)
        elif capture.takes_output:
            captured.drop(TOO_LARGE)

    def finish(self) -> None:
        """The request has ended with this answer: keep its record."""
        if self._captured is not None and self._answered is not None:
            self._captured.finish(self._answered)

    def close(self) -> None:
        """Give back what is held; idempotent."""
        if self._captured is not None:
            self._captured.close()
            self._captured = None
