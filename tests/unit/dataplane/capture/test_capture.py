"""The buffer of captured requests: kept, dropped and returned records."""

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.capture.capture_sample import AT, CAPTURE, KEY, all_records, spool
from tests.unit.dataplane.routes_sample import COPIES

from hostelry.base.clock import ManualClock
from hostelry.dataplane.capture.capture import (
    MAX_BUFFER_BYTES,
    MIB,
    Captured,
    CapturedRequest,
    RequestCapture,
)
from hostelry.dataplane.capture.spool import SpoolLimits
from hostelry.dataplane.route_table import Destination, Shadow
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint_config import RoutingStrategy

LIMITS = SpoolLimits(total_bytes=1024 * MIB, min_free_bytes=0)
EVENT = "0b7f3c52-8d54-4c0e-9d7b-3f0f4f6b1a11"
SHADOW_KEY = replace(KEY, variant_name="shadow")
ANSWERED = {"content-type": "application/json"}


def destination(capture: DataCapture | None = CAPTURE) -> Destination:
    return Destination(
        scope=KEY.scope,
        endpoint_name="e",
        variant_name="v",
        component_name=None,
        routing=RoutingStrategy.RANDOM,
        copies=COPIES,
        key=KEY,
        capture=capture,
    )


def shadow() -> Shadow:
    return Shadow(
        key=SHADOW_KEY, share=1.0, routing=RoutingStrategy.RANDOM, copies=COPIES, capture=CAPTURE
    )


def asked(body: bytes = b"") -> CapturedRequest:
    return CapturedRequest(EVENT, body, "text/csv", "i", None)


def capture_in(folder: Path) -> RequestCapture:
    return RequestCapture(spool(folder, LIMITS), lambda: 0.5, ManualClock(AT))


def take(capture: RequestCapture, body: bytes, *chunks: bytes, **settings: Any) -> None:
    take_of(capture, destination(replace(CAPTURE, **settings)), body, *chunks)


def take_of(capture: RequestCapture, captured: Captured, body: bytes, *chunks: bytes) -> None:
    found = capture.begin(captured, asked(body))
    assert found is not None
    for chunk in chunks:
        found.add(chunk)
    found.finish(ANSWERED)
    found.close()


@cases(
    "settings, is_turn",
    case("none", None, False),
    case("all", CAPTURE, True),
    case("0 percent", replace(CAPTURE, percent=0), False),
)
def test_what_is_not_captured_costs_nothing(
    tmp_path: Path, settings: DataCapture | None, is_turn: bool
) -> None:
    capture = capture_in(tmp_path)
    assert capture.is_turn(destination(settings)) is is_turn
    assert (capture.begin(destination(settings), asked()) is None) is (settings is None)


def test_without_a_spool_nothing_is_captured() -> None:
    capture = RequestCapture(None, lambda: 0.5, ManualClock(AT))
    assert not capture.is_turn(destination())
    assert capture.begin(destination(), asked()) is None


@cases(
    "settings, sides",
    case("both", {}, (b"in", b"out")),
    case("the input", {"takes_output": False}, (b"in", b"")),
    case("the answer", {"takes_input": False}, (b"", b"out")),
)
def test_a_request_is_on_disk_after_the_next_write(
    tmp_path: Path, settings: dict[str, Any], sides: tuple[bytes, bytes]
) -> None:
    capture = capture_in(tmp_path)
    take(capture, b"in", b"o", b"ut", **settings)
    assert list(tmp_path.iterdir()) == []
    asyncio.run(capture.write())
    (record,) = all_records(tmp_path)
    assert (record.input, record.output) == sides
    assert (record.head.input_type, record.head.output_type) == ("text/csv", "application/json")
    assert (record.head.inference_id, record.head.at) == ("i", AT)
    assert record.head.event_id == EVENT
    counted = capture.counts()[KEY]
    assert (counted.captured, counted.dropped) == (1, 0)
    assert capture.counts() == {}


def test_requests_beyond_the_buffer_are_dropped_until_it_is_written(tmp_path: Path) -> None:
    capture, large = capture_in(tmp_path), b"x" * (24 * MIB)
    for _ in range(3):
        take(capture, large)
    take(capture, large, large, large)
    take(capture, b"small", b"fits")
    asyncio.run(capture.write())
    counted = capture.counts()[KEY]
    assert (counted.captured, counted.dropped) == (3, 2)
    assert "no room" in (counted.drop_cause or "")
    assert capture.hold(MAX_BUFFER_BYTES), "everything was given back"


def test_a_shadow_leaves_half_of_the_buffer_to_answers_of_clients(tmp_path: Path) -> None:
    capture, large = capture_in(tmp_path), b"x" * (15 * MIB)
    for _ in range(4):
        take_of(capture, shadow(), b"asked", large)
    take(capture, b"asked", large)
    asyncio.run(capture.write())
    counted = capture.counts()
    assert (counted[SHADOW_KEY].captured, counted[SHADOW_KEY].dropped) == (2, 2)
    assert (counted[KEY].captured, counted[KEY].dropped) == (1, 0)


def test_an_answer_that_does_not_end_gives_its_room_back(tmp_path: Path) -> None:
    capture = capture_in(tmp_path)
    found = capture.begin(destination(), asked())
    assert found is not None
    found.add(b"x" * MIB)
    found.close()
    found.close()
    asyncio.run(capture.write())
    assert list(tmp_path.iterdir()) == []
    assert capture.counts() == {}
    assert capture.hold(MAX_BUFFER_BYTES)


async def test_a_large_buffer_is_written_at_once(tmp_path: Path) -> None:
    class Announced(RequestCapture):
        def __init__(self) -> None:
            super().__init__(spool(tmp_path, LIMITS), lambda: 0.5, ManualClock(AT))
            self.wrote = asyncio.Event()

        async def write(self) -> None:
            await super().write()
            self.wrote.set()

    capture = Announced()
    running = asyncio.create_task(capture.run())
    await asyncio.sleep(0)
    take(capture, b"x" * (5 * MIB))
    await asyncio.wait_for(capture.wrote.wait(), 0.9)  # a small one waits for a second
    running.cancel()
    assert len(all_records(tmp_path)) == 1


def test_the_end_writes_and_closes_everything(tmp_path: Path) -> None:
    writer = spool(tmp_path, LIMITS)
    capture = RequestCapture(writer, lambda: 0.5, ManualClock(AT))
    take(capture, b"last")
    asyncio.run(capture.finish())
    assert [it.input for it in all_records(tmp_path)] == [b"last"]
    assert not writer.has_open
