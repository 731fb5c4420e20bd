"""Events of objects at the S3 port: noted durably, reported until control has them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.domain.object_event import BucketNotification, NotificationTarget, ObjectEvent
from hostelry.domain.scope import Scope
from hostelry.s3 import event_file
from hostelry.s3.answers import StoreAnswer
from hostelry.s3.event_file import EventFile
from hostelry.s3.object_events import EventSender, ObjectEvents, ObjectWrite, settling
from hostelry.s3.store_client import StoreClient

QUEUE = NotificationTarget(
    id="q", arn="arn:aws:sqs:r:1:q", events=("s3:ObjectCreated:Copy",), prefix="in/"
)
COPIED = StoreAnswer(
    status=200, headers={}, body=b"<CopyObjectResult><ETag>&quot;e&quot;</ETag></C>"
)
PUT = StoreAnswer(status=200, headers={"etag": '"e"', "x-amz-request-id": "r1"})
FAILED = StoreAnswer(status=200, headers={}, body=b"<Error><Code>InternalError</Code></Error>")


class Store:
    """Says that every object has seven bytes."""

    async def ask(self, method: str, target: str) -> Any:
        class Found:
            headers = {"content-length": "7"}  # noqa: RUF012

        return Found() if method == "HEAD" and target == "/b/in/k" else None


def write(kind: str = "Put", key: str = "in/k", **given: Any) -> ObjectWrite:
    return ObjectWrite(kind=kind, bucket="b", key=key, target=f"/b/{key}", **given)


def events_of(file: EventFile) -> ObjectEvents:
    store = cast("StoreClient", Store())
    return ObjectEvents(file, store, ManualClock(), lambda _: Scope("1", "r"))


@cases(
    "notification, written, answer, size",
    case("a put, to EventBridge", BucketNotification(to_bus=True), write(size_bytes=3), PUT, 3),
    case("a copy, to a queue", BucketNotification(targets=(QUEUE,)), write("Copy"), COPIED, 7),
)
def test_an_event_survives_the_process(
    tmp_path: Path,
    notification: BucketNotification,
    written: ObjectWrite,
    answer: StoreAnswer,
    size: int,
) -> None:
    file = EventFile(tmp_path / "events.db")
    file.configure("b", notification)
    assert events_of(file).watches(written)
    asyncio.run(events_of(file).note(written, answer, "127.0.0.1"))
    again = EventFile(tmp_path / "events.db")
    assert again.notification("b") == notification
    [(_, event)] = again.oldest(10)
    assert (event.key, event.etag, event.size_bytes) == ("in/k", "e", size)
    assert (event.targets, event.to_bus) == (notification.targets, notification.to_bus)


@cases(
    "notification, written",
    case("a bucket without a configuration", BucketNotification(), write("Copy")),
    case("another kind of write", BucketNotification(targets=(QUEUE,)), write()),
    case("another prefix", BucketNotification(targets=(QUEUE,)), write("Copy", "out/k")),
)
def test_a_write_that_nothing_asks_for_is_not_watched(
    tmp_path: Path, notification: BucketNotification, written: ObjectWrite
) -> None:
    file = EventFile(tmp_path / "events.db")
    file.configure("b", notification)
    assert not events_of(file).watches(written)


def test_a_copy_that_failed_in_its_body_has_no_event(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "events.db")
    file.configure("b", BucketNotification(to_bus=True))
    asyncio.run(events_of(file).note(write("Copy"), FAILED, ""))
    assert file.oldest(10) == []


def test_an_event_that_cannot_be_noted_takes_the_answer_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = EventFile(tmp_path / "events.db")
    file.configure("b", BucketNotification(to_bus=True))
    settle = settling(events_of(file), write(size_bytes=1), "", b"refused")
    assert asyncio.run(cast("Any", settle(PUT))) is None
    monkeypatch.setattr(event_file, "MAX_EVENTS", 1)
    assert asyncio.run(cast("Any", settle(PUT))) == b"refused"


def test_events_are_reported_in_order_until_control_has_taken_them(tmp_path: Path) -> None:
    file = EventFile(tmp_path / "events.db")
    file.configure("b", BucketNotification(to_bus=True))
    reports: list[list[str]] = []
    answers = [False, False, True]

    async def report(events: Sequence[ObjectEvent]) -> bool:
        reports.append([it.key for it in events])
        return answers.pop(0)

    async def reporting() -> None:
        events, clock = events_of(file), ManualClock()
        for key in ("in/1", "in/2"):
            await events.note(write(key=key, size_bytes=1), PUT, "")
        sender = asyncio.create_task(EventSender(file, events.noted, clock, report).run())
        while file.oldest(1):
            clock.advance(10.0)
            await asyncio.sleep(0)
        sender.cancel()

    asyncio.run(reporting())
    assert reports == [["in/1", "in/2"]] * 3
