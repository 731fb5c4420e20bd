"""Data capture of attempts: kept once the request has ended, within a bound of each side."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.capture.capture_sample import AT, CAPTURE, KEY, all_records, spool

from hostelry.base.clock import ManualClock
from hostelry.dataplane.capture.capture import MAX_BUFFER_BYTES, MIB, RequestCapture
from hostelry.dataplane.capture.spool import SpoolLimits
from hostelry.dataplane.route_table import Destination
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.jobs.dispatch.request_input import TOO_LARGE, AttemptCapture, OpenInput

ANSWERED = {"content-type": "application/json"}
LARGE = 8 * MIB + 1
REQUEST = AsyncRequest(
    id="0b7f3c528d544c0e9d7b3f0f4f6b1a11",
    inference_id="mine",
    scope=KEY.scope,
    endpoint_name="e",
    body=b"in",
    output_uri="s3://o/mine.out",
    failure_uri="s3://o/mine-error.out",
    accepted_at=AT,
    expires_at=AT + 60,
    timeout_s=30.0,
)


class Stored:
    """A large input object, of three pieces."""

    content_type = "text/csv"

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        for piece in (b"a,", b"b,", b"c"):
            yield piece


def destination(capture: DataCapture = CAPTURE) -> Destination:
    return Destination(
        scope=KEY.scope,
        endpoint_name="e",
        variant_name="v",
        component_name=None,
        routing=RoutingStrategy.RANDOM,
        copies=(),
        key=KEY,
        capture=capture,
    )


def streamed(size_bytes: int) -> OpenInput:
    stored: Any = Stored(size_bytes)
    return OpenInput.build_streamed(stored, lambda: None)


async def read(given: OpenInput) -> None:
    """Read a large input to its end."""
    async for _ in given.stream().chunks:
        pass


@pytest.fixture
def capture(tmp_path: Path) -> RequestCapture:
    return RequestCapture(
        spool(tmp_path, SpoolLimits(min_free_bytes=0)), lambda: 0.5, ManualClock(AT)
    )


def kept(capture: RequestCapture, folder: Path) -> list[tuple[bytes, bytes]]:
    """Input and output of each record. Asserts that the buffer holds nothing more."""
    asyncio.run(capture.write())
    assert capture.hold(MAX_BUFFER_BYTES)
    return [(it.input, it.output) for it in all_records(folder)]


def test_a_record_has_the_requests_ids_and_types(capture: RequestCapture, tmp_path: Path) -> None:
    attempt = AttemptCapture(capture, REQUEST)
    attempt.begin(destination(), OpenInput(b"in", "text/csv"))
    attempt.note_answer(destination(), b"out", ANSWERED)
    attempt.finish()
    attempt.close()
    assert kept(capture, tmp_path) == [(b"in", b"out")]
    (head,) = [it.head for it in all_records(tmp_path)]
    assert (head.event_id, head.inference_id) == ("0b7f3c52-8d54-4c0e-9d7b-3f0f4f6b1a11", "mine")
    assert (head.input_type, head.output_type) == ("text/csv", "application/json")


@cases(
    "is_answered, is_ended",
    case("an attempt without an answer", False, True),
    case("one that another owner ended, or a kill cut off", True, False),
)
def test_what_did_not_end_the_request_leaves_nothing(
    capture: RequestCapture, tmp_path: Path, is_answered: bool, is_ended: bool
) -> None:
    attempt = AttemptCapture(capture, REQUEST)
    attempt.begin(destination(), OpenInput(b"in"))
    if is_answered:
        attempt.note_answer(destination(), b"out", ANSWERED)
    if is_ended:
        attempt.finish()
    attempt.close()
    assert kept(capture, tmp_path) == []
    assert capture.counts() == {}


def test_an_input_that_is_streamed_is_put_together(capture: RequestCapture, tmp_path: Path) -> None:
    attempt, given = AttemptCapture(capture, REQUEST), streamed(5)
    attempt.begin(destination(), given)
    asyncio.run(read(given))
    attempt.note_answer(destination(), b"out", ANSWERED)
    attempt.finish()
    attempt.close()
    assert kept(capture, tmp_path) == [(b"a,b,c", b"out")]


def test_a_copy_that_refused_the_connection_leaves_nothing(
    capture: RequestCapture, tmp_path: Path
) -> None:
    attempt = AttemptCapture(capture, REQUEST)
    attempt.begin(destination(), OpenInput(b"refused"))
    attempt.begin(destination(), OpenInput(b"in"))
    attempt.note_answer(destination(), b"out", ANSWERED)
    attempt.finish()
    attempt.close()
    assert kept(capture, tmp_path) == [(b"in", b"out")]


@cases(
    "takes, size_bytes, body, is_kept",
    case("a large input", (True, True), LARGE, b"out", False),
    case("a large answer", (True, True), 5, None, False),
    case("a large input that is not captured", (False, True), LARGE, b"out", True),
    case("a large answer that is not captured", (True, False), 5, None, True),
)
def test_a_large_object_is_counted_as_dropped(
    capture: RequestCapture,
    tmp_path: Path,
    takes: tuple[bool, bool],
    size_bytes: int,
    body: bytes | None,
    is_kept: bool,
) -> None:
    found = destination(replace(CAPTURE, takes_input=takes[0], takes_output=takes[1]))
    attempt, given = AttemptCapture(capture, REQUEST), streamed(size_bytes)
    attempt.begin(found, given)
    asyncio.run(read(given))
    attempt.note_answer(found, body, ANSWERED)
    attempt.finish()
    attempt.close()
    assert len(kept(capture, tmp_path)) == is_kept
    counted = capture.counts()[KEY]
    assert (counted.captured, counted.dropped) == (is_kept, not is_kept)
    assert counted.drop_cause == (None if is_kept else TOO_LARGE)
