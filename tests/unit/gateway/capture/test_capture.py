"""The buffer of captured requests: what it takes, drops and gives back."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.gateway.capture.capture_sample import AT, CAPTURE, KEY, all_records, spool
from tests.unit.gateway.routes_sample import COPIES

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.clock import ManualClock
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.gateway.capture.capture import MAX_BUFFER_BYTES, MIB, RequestCapture
from hostelry.gateway.capture.spool import SpoolLimits
from hostelry.gateway.route_table import Destination

LIMITS = SpoolLimits(total_bytes=1024 * MIB, min_free_bytes=0)
ASKED = InvokeRequest(endpoint_name="e", stream=False, content_type="text/csv", inference_id="i")
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


def capture_in(folder: Path) -> RequestCapture:
    return RequestCapture(spool(folder, LIMITS), lambda: 0.5, ManualClock(AT))


def take(capture: RequestCapture, body: bytes, *chunks: bytes, **settings: Any) -> None:
    found = capture.begin(destination(replace(CAPTURE, **settings)))
    assert found is not None
    for chunk in chunks:
        found.add(chunk)
    found.finish(ASKED, body, ANSWERED)
    found.close()


@pytest.mark.parametrize(
    ("capture", "begins"),
    [
        pytest.param(None, False, id="none"),
        pytest.param(CAPTURE, True, id="all"),
        pytest.param(replace(CAPTURE, percent=0), False, id="0 percent"),
    ],
)
def test_what_is_not_captured_costs_nothing(
    tmp_path: Path, capture: DataCapture | None, begins: bool
) -> None:
    assert (capture_in(tmp_path).begin(destination(capture)) is not None) is begins


def test_without_a_spool_nothing_is_captured() -> None:
    assert RequestCapture(None, lambda: 0.5, ManualClock(AT)).begin(destination()) is None


@pytest.mark.parametrize(
    ("settings", "sides"),
    [
        pytest.param({}, (b"in", b"out"), id="both"),
        pytest.param({"takes_output": False}, (b"in", b""), id="the input"),
        pytest.param({"takes_input": False}, (b"", b"out"), id="the answer"),
    ],
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


def test_an_answer_that_does_not_end_gives_its_room_back(tmp_path: Path) -> None:
    capture = capture_in(tmp_path)
    found = capture.begin(destination())
    assert found is not None
    found.add(b"x" * MIB)
    found.close()
    found.close()
    asyncio.run(capture.write())
    assert list(tmp_path.iterdir()) == []
    assert capture.counts() == {}
    assert capture.hold(MAX_BUFFER_BYTES)


def test_a_large_buffer_is_written_at_once(tmp_path: Path) -> None:
    class Announced(RequestCapture):
        def __init__(self) -> None:
            super().__init__(spool(tmp_path, LIMITS), lambda: 0.5, ManualClock(AT))
            self.wrote = asyncio.Event()

        async def write(self) -> None:
            await super().write()
            self.wrote.set()

    async def main() -> None:
        capture = Announced()
        running = asyncio.create_task(capture.run())
        await asyncio.sleep(0)
        take(capture, b"x" * (5 * MIB))
        await asyncio.wait_for(capture.wrote.wait(), 0.9)  # a small one waits for a second
        running.cancel()

    asyncio.run(main())
    assert len(all_records(tmp_path)) == 1


def test_the_end_writes_and_closes_everything(tmp_path: Path) -> None:
    writer = spool(tmp_path, LIMITS)
    capture = RequestCapture(writer, lambda: 0.5, ManualClock(AT))
    take(capture, b"last")
    asyncio.run(capture.finish())
    assert [it.input for it in all_records(tmp_path)] == [b"last"]
    assert not writer.has_open
