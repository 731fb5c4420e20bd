"""Ends of asynchronous requests: outputs, failure objects, notifications, attempts, metrics."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.async_rig import ERROR, SUCCESS, AsyncRig, Model, until_true
from tests.integration.test_objectstore import object_store
from tests.memory_queue import MemoryQueue

from hostelry.domain.async_request import AsyncRequest
from hostelry.home.home import Home
from hostelry.jobs.dispatch.async_work import AsyncWork
from hostelry.jobs.queue.protocol import RequestCompleted, RequestExpired, RequestFailed, Write
from hostelry.store.protocol import StoreUnavailable

pytestmark = pytest.mark.integration
LARGE = os.urandom(1024 * 1024) * 20 + b"end"
REFUSES = "http://127.0.0.1:1"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A request, and its end: the output and its content type, or a part of the reason."""

    command: str | None = None
    request: tuple[tuple[str, Any], ...] = ()
    attempts: int = 1
    output: bytes | None = None
    kind: str = "text/plain"
    reason: str = ""


CASES = {
    "an inline body": Case(output=b"name"),
    "an object": Case(request=(("input_uri", "s3://in-put/small.csv"),), output=b"1,2"),
    "a large object, answered in parts": Case(
        request=(("input_uri", "s3://in-put/large"),), output=LARGE
    ),
    "a model that recovers": Case(command="recovers=2", attempts=3, output=b"name"),
    "a model that refuses": Case(
        command="status=400", reason="client error (400) from primary with message \"the model's"
    ),
    "a model that fails": Case(command="status=500", attempts=3, reason="server error (500)"),
    "a model that breaks off": Case(command="cut", attempts=3, reason="may have died"),
    "a model that hangs": Case(
        command="hang", request=(("timeout_s", 0.5),), attempts=3, reason="timed out"
    ),
    "no input object": Case(
        request=(("input_uri", "s3://in-put/nothing"),), attempts=0, reason="NoSuchKey"
    ),
    "no input bucket": Case(
        request=(("input_uri", "s3://no-such-bucket/x"),), attempts=0, reason="NoSuchBucket"
    ),
    "an input that is no URI": Case(
        request=(("input_uri", "s3:/x"),), attempts=0, reason="is not the URI of an object"
    ),
    "no output bucket": Case(
        request=(("output_uri", "s3://no-such-bucket/x.out"),), attempts=3, reason="NoSuchBucket"
    ),
    "an expired request": Case(
        request=(("expires_at", 1.0), ("accepted_at", 0.0)), attempts=0, reason="expired"
    ),
    "a deleted endpoint whose name another one has": Case(
        request=(("endpoint_created_at", 1.0),),
        attempts=0,
        reason="queued was deleted before the request was processed",
    ),
    "a deleted endpoint": Case(
        request=(("endpoint_name", "gone"),), attempts=0, reason="gone was deleted"
    ),
}
NAMES = {title: title.replace(" ", "-").replace(",", "") for title in CASES}


@pytest.fixture(scope="module")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    home = Home(Path(tmp_path_factory.mktemp("dispatch")) / "home")
    with object_store(home) as (_, port):
        yield port


@pytest.fixture(scope="module")
def rig(s3_port: int) -> Iterator[AsyncRig]:
    """All cases, run at once, with a model and a copy that refuses connections."""
    found = AsyncRig(s3_port)
    found.s3.put_object(Bucket="in-put", Key="small.csv", Body=b"1,2", ContentType="text/csv")
    found.s3.put_object(Bucket="in-put", Key="large", Body=LARGE)
    requests = [
        found.request(NAMES[title], case.command, **dict(case.request))
        for title, case in CASES.items()
    ]

    async def scenario(work: AsyncWork) -> None:
        found.queue.submit(requests)
        for request in requests:
            work.wake(request.scope, request.endpoint_name)
        await until_true(lambda: len(found.queue.completions) == len(CASES))
        await until_true(lambda: len(found.control.messages) == len(CASES))

    found.run(scenario, found.routes(REFUSES, found.model.address))
    yield found
    found.stop()


@pytest.mark.parametrize("title", CASES)
def test_each_request_has_its_end_once(rig: AsyncRig, title: str) -> None:
    case, name = CASES[title], NAMES[title]
    outcome = rig.queue.rows[name].outcome
    assert (rig.queue.completions[name], rig.model.attempts[name]) == (1, case.attempts)
    if case.output is None:
        assert isinstance(outcome, RequestFailed | RequestExpired)
        body, _ = rig.stored(f"s3://out-put/{name}-error.out")
        assert case.reason in body.decode()
        assert f"{name}.out" not in rig.outputs()
    else:
        assert outcome == RequestCompleted()
        expected = name.encode() if case.output == b"name" else case.output
        body, kind = rig.stored(f"s3://out-put/{name}.out")
        assert (body == expected, kind) == (True, case.kind)
        assert f"{name}-error.out" not in rig.outputs()


@pytest.mark.parametrize("title", CASES)
def test_each_end_is_notified_to_its_topic(rig: AsyncRig, title: str) -> None:
    case, message = CASES[title], rig.control.messages[NAMES[title]]
    good = case.output is not None
    assert message["topic"] == (SUCCESS if good else ERROR)
    assert message["invocationStatus"] == ("Completed" if good else "Failed")
    assert case.reason in message.get("failureReason", "")


def test_the_objects_content_type_is_sent_where_the_client_gave_none(rig: AsyncRig) -> None:
    assert rig.model.kinds[NAMES["an object"]] == "text/csv"
    assert rig.model.kinds[NAMES["an inline body"]] == "application/octet-stream"


def test_no_parts_of_uploads_are_left(rig: AsyncRig) -> None:
    assert not rig.s3.list_multipart_uploads(Bucket="out-put").get("Uploads")


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("InvocationsProcesssed", len(CASES) - 1),
        ("InvocationFailures", sum(it.output is None for it in CASES.values()) - 1),
        ("ExpiredRequests", 1),
        ("RequestDownloadFailures", 3),
        ("ResponseUploadFailures", 3),
        ("NotificationFailures", 0),
    ],
)
def test_ends_are_counted(rig: AsyncRig, name: str, count: int) -> None:
    assert rig.control.published(name) == count


def test_backlog_is_published_also_of_an_empty_queue(rig: AsyncRig) -> None:
    names = {it["metric"]["name"] for it in rig.control.samples}
    assert {"ApproximateBacklogSize", "ApproximateAgeOfOldestRequest", "TimeInBacklog"} <= names
    rig.control.samples.clear()

    async def scenario(work: AsyncWork) -> None:
        await until_true(lambda: bool(rig.control.samples))

    rig.run(scenario, rig.routes(), MemoryQueue())
    values = {it["metric"]["name"]: it["values"] for it in rig.control.samples}
    assert values == {
        "ApproximateBacklogSize": [0.0],
        "ApproximateBacklogSizePerInstance": [0.0],
        "HasBacklogWithoutCapacity": [0.0],
        "ApproximateAgeOfOldestRequest": [0.0],
    }


def fresh(rig: AsyncRig, prefix: str, count: int, command: str) -> list[AsyncRequest]:
    return [rig.request(f"{prefix}{number}", command) for number in range(count)]


def test_a_copy_has_no_more_in_flight_than_the_endpoint_allows(rig: AsyncRig) -> None:
    queue, requests = MemoryQueue(), fresh(rig, "capped", 30, "slow=0.02")
    model = Model()

    async def scenario(work: AsyncWork) -> None:
        queue.submit(requests)
        work.wake(requests[0].scope, "queued")
        await until_true(lambda: len(queue.completions) == 30)

    rig.run(scenario, rig.routes(model.address, limit=3), queue)
    model.stop()
    assert model.most_in_flight == 3


def test_requests_wait_without_copies_and_run_once_there_is_one(rig: AsyncRig) -> None:
    queue, requests = MemoryQueue(), fresh(rig, "late", 2, "")
    routes = rig.routes()

    async def scenario(work: AsyncWork) -> None:
        queue.submit(requests)
        work.wake(requests[0].scope, "queued")
        await asyncio.sleep(0.3)
        assert not queue.completions
        routes.replace(rig.snapshot(rig.model.address))
        await until_true(lambda: len(queue.completions) == 2)

    rig.run(scenario, routes, queue)


def test_what_runs_at_the_end_goes_back_to_the_queue(rig: AsyncRig) -> None:
    queue, requests = MemoryQueue(), fresh(rig, "stopped", 2, "hang")

    async def scenario(work: AsyncWork) -> None:
        queue.submit(requests)
        work.wake(requests[0].scope, "queued")
        await until_true(lambda: rig.model.attempts["stopped1"] == 1)

    rig.run(scenario, rig.routes(rig.model.address), queue, grace_s=0.1)
    rows = [queue.rows[it.id] for it in requests]
    assert [(it.outcome, it.lease_until, it.attempt) for it in rows] == [(None, None, 1)] * 2


def test_an_owner_whose_claim_was_taken_writes_no_output(rig: AsyncRig) -> None:
    queue, request, model = MemoryQueue(), rig.request("taken", "slow=0.3"), Model()

    async def scenario(work: AsyncWork) -> None:
        queue.submit([request])
        work.wake(request.scope, "queued")
        await until_true(lambda: model.attempts["taken"] == 1)
        queue.release_host(None)
        now = request.accepted_at
        assert queue.claim(request.scope, "queued", "other", 1, now, 60)
        await until_true(lambda: work.num_running == 0)

    rig.run(scenario, rig.routes(model.address), queue)
    model.stop()
    assert "taken.out" not in rig.outputs()
    assert not queue.completions


class FullAtTimes(MemoryQueue):
    """A queue whose disk `is_full` at times."""

    is_full = False
    num_refused = 0

    def write_together(self, writes: Sequence[Write]) -> list[Any]:
        if self.is_full:
            self.num_refused += 1
            raise StoreUnavailable("the disk is full")
        return super().write_together(writes)


def test_requests_that_run_while_the_disk_is_full_end_once_there_is_room(rig: AsyncRig) -> None:
    queue, model = FullAtTimes(), Model()
    names = [f"full{number}" for number in range(4)]
    requests = [
        *(rig.request(name, "slow=0.3") for name in names[:2]),
        *(rig.request(name, "status=400", failure_uri="") for name in names[2:]),
    ]

    async def scenario(work: AsyncWork) -> None:
        queue.submit(requests)
        work.wake(requests[0].scope, "queued")
        await until_true(lambda: len(model.attempts) == len(names))
        queue.is_full = True
        await until_true(lambda: model.in_flight == 0)
        await until_true(lambda: queue.num_refused > len(names))
        assert "full0.out" not in rig.outputs(), "its claim cannot be renewed now"
        queue.is_full = False
        await until_true(lambda: len(queue.completions) == len(names))

    rig.run(scenario, rig.routes(model.address), queue)
    model.stop()
    assert [model.attempts[name] for name in names] == [1] * 4
    outcomes = [type(queue.rows[name].outcome) for name in names]
    assert outcomes == [RequestCompleted] * 2 + [RequestFailed] * 2
    assert {"full0.out", "full1.out"} <= rig.outputs()


def test_a_process_that_starts_on_a_full_disk_takes_over_once_there_is_room(rig: AsyncRig) -> None:
    queue, model, request = FullAtTimes(), Model(), rig.request("taken-over")
    queue.submit([request])
    assert queue.claim(request.scope, "queued", "before", 1, request.accepted_at, 60)
    queue.is_full = True

    async def scenario(work: AsyncWork) -> None:
        work.wake(request.scope, "queued")
        await until_true(lambda: queue.num_refused > 0)
        assert not model.attempts
        queue.is_full = False
        await until_true(lambda: len(queue.completions) == 1)

    rig.run(scenario, rig.routes(model.address), queue)
    model.stop()
    assert queue.rows["taken-over"].fence == 2


def test_the_message_carries_a_small_response_where_asked_for(rig: AsyncRig) -> None:
    queue = MemoryQueue()
    request = rig.request("included", include_response_in=("SUCCESS_NOTIFICATION_TOPIC",))

    async def scenario(work: AsyncWork) -> None:
        queue.submit([request])
        work.wake(request.scope, "queued")
        await until_true(lambda: "included" in rig.control.messages)

    rig.run(scenario, rig.routes(rig.model.address), queue)
    assert rig.control.messages["included"]["responseBody"]["content"] == "aW5jbHVkZWQ="
