"""The queue of asynchronous requests: the contract of every implementation."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.memory_queue import MemoryQueue
from tests.postgres_rig import postgres_database

from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.jobs.queue.durable_queue import DurableQueue
from hostelry.jobs.queue.protocol import (
    Claim,
    Notification,
    QueueWrites,
    RequestCompleted,
    RequestExpired,
    RequestFailed,
    RequestQueue,
)
from hostelry.store.database import open_database

NOW = 1_700_000_000.0
LEASE_S = 30.0
HERE = Scope("123456789012", "us-west-2")
ELSEWHERE = Scope("123456789012", "eu-west-1")
DONE = RequestCompleted()


@pytest.fixture(params=["memory", "a file", "PostgreSQL"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RequestQueue]:
    if request.param == "memory":
        yield MemoryQueue()
        return
    with contextlib.ExitStack() as stack:
        is_shared = request.param == "PostgreSQL"
        url = stack.enter_context(postgres_database()) if is_shared else tmp_path / "jobs.db"
        durable = DurableQueue(open_database(url), is_shared=is_shared)
        stack.callback(durable.close)
        yield durable


def asked(
    name: str, *, scope: Scope = HERE, endpoint: str = "e", ttl_s: float = 60
) -> AsyncRequest:
    return AsyncRequest(
        id=name,
        inference_id=f"inference-{name}",
        scope=scope,
        endpoint_name=endpoint,
        body=name.encode(),
        output_uri=f"s3://b/{name}.out",
        failure_uri=f"s3://b/{name}-error.out",
        accepted_at=NOW,
        expires_at=NOW + ttl_s,
        timeout_s=10.0,
    )


def claims(queue: QueueWrites, limit: int = 10, now: float = NOW) -> list[Claim]:
    return queue.claim(HERE, "e", "me", limit, now, LEASE_S)


def ids(found: list[Claim]) -> list[str]:
    return [claim.request.id for claim in found]


def note(name: str) -> Notification:
    return Notification(
        id=name, topic_arn="arn", subject=None, message="{}", scope=HERE, endpoint_name="e"
    )


def test_requests_of_an_endpoint_are_claimed_by_arrival_and_once(queue: RequestQueue) -> None:
    queue.submit([asked("a"), asked("other", endpoint="f"), asked("far", scope=ELSEWHERE)])
    queue.submit([asked("c"), asked("b")])
    first, second = claims(queue, 2), claims(queue, 2)
    assert (ids(first), ids(second)) == (["a", "c"], ["b"])
    assert first[0].request == asked("a")
    assert claims(queue) == []


def test_a_request_is_not_claimed_before_its_time_nor_past_its_expiry(queue: RequestQueue) -> None:
    queue.submit([asked("short", ttl_s=5), asked("long")])
    [late] = claims(queue, 1, NOW + 5)
    assert late.request.id == "long"
    assert queue.defer(late, NOW + 20, "no copy", NOW + 5, False)
    assert claims(queue, now=NOW + 19) == []
    assert ids(claims(queue, now=NOW + 20)) == ["long"]


def test_a_deferred_request_keeps_its_place_and_counts_its_attempt(queue: RequestQueue) -> None:
    queue.submit([asked("a"), asked("b")])
    [a] = claims(queue, 1)
    assert queue.defer(a, NOW, "the model failed", NOW, True)
    again = claims(queue)
    assert [(it.request.id, it.attempt) for it in again] == [("a", 2), ("b", 1)]
    assert again[0].fence > a.fence


@pytest.mark.parametrize("act", ["complete", "defer", "renew"])
def test_an_owner_that_comes_back_late_changes_nothing(queue: RequestQueue, act: str) -> None:
    queue.submit([asked("a")])
    [late] = claims(queue)
    assert queue.release_lost(NOW + LEASE_S) == 1
    [present] = claims(queue, now=NOW + LEASE_S)
    if act == "complete":
        assert not queue.complete(late, DONE, NOW, [note("n")])
        assert queue.list_due_notifications(NOW, 9) == []
    elif act == "defer":
        assert not queue.defer(late, NOW, "late", NOW, True)
    else:
        assert queue.renew([late, present], NOW, LEASE_S) == [present]
    assert queue.complete(present, DONE, NOW, [note("n")])
    assert not queue.complete(present, DONE, NOW, [note("m")]), "it has ended"


def test_writes_together_are_made_in_their_order(queue: RequestQueue) -> None:
    queue.submit([asked("a")])
    [a] = claims(queue)
    done = queue.write_together(
        [
            lambda it: it.submit([asked("b")]),
            lambda it: it.defer(a, NOW, "again", NOW, True),
            lambda it: it.complete(a, DONE, NOW, [note("n")]),
            lambda it: claims(it, 1),
        ]
    )
    assert done[:3] == [None, True, False]
    assert [(it.request.id, it.attempt) for it in done[3]] == [("a", 2)]
    assert ids(claims(queue)) == ["b"]
    assert queue.list_due_notifications(NOW, 9) == []


def test_a_renewed_lease_is_not_lost(queue: RequestQueue) -> None:
    queue.submit([asked("a"), asked("b")])
    a, b = claims(queue)
    assert queue.renew([a], NOW + 20, LEASE_S) == [a]
    assert queue.release_lost(NOW + LEASE_S + 1) == 1
    assert ids(claims(queue, now=NOW + LEASE_S + 1)) == ["b"]
    assert not queue.complete(b, DONE, NOW, [])


def test_a_successor_gets_everything_that_was_claimed(queue: RequestQueue) -> None:
    queue.submit([asked("a"), asked("b")])
    first = claims(queue)
    assert queue.complete(first[1], DONE, NOW, [])
    assert queue.release_host(None) == 1
    assert ids(claims(queue)) == ["a"]


def test_a_successor_leaves_alone_what_other_hosts_have_claimed(queue: RequestQueue) -> None:
    if isinstance(queue, MemoryQueue):
        return  # it is one process's
    queue.submit([asked("a"), asked("b")])
    [a] = queue.claim(HERE, "e", "host-1/jobs-7", 1, NOW, LEASE_S)
    [b] = queue.claim(HERE, "e", "host-11/jobs-7", 1, NOW, LEASE_S)
    assert queue.release_host("host-1") == 1
    assert ids(claims(queue)) == ["a"]
    assert not queue.complete(a, DONE, NOW, [])
    assert queue.complete(b, DONE, NOW, [])


def test_requests_that_waited_too_long_are_claimed_to_be_ended(queue: RequestQueue) -> None:
    queue.submit([asked("a", ttl_s=5), asked("b", ttl_s=3, endpoint="f"), asked("c")])
    overdue = queue.claim_overdue("me", 10, NOW + 5, LEASE_S)
    assert sorted(ids(overdue)) == ["a", "b"]
    assert all(queue.complete(it, RequestExpired(), NOW + 5, []) for it in overdue)
    assert queue.claim_overdue("me", 10, NOW + 5, LEASE_S) == []


def test_the_backlog_has_every_endpoint_with_work(queue: RequestQueue) -> None:
    later = replace(asked("b"), accepted_at=NOW + 4)
    queue.submit([asked("a"), later, asked("x", endpoint="f"), asked("y", scope=ELSEWHERE)])
    [a] = claims(queue, 1)
    [y] = queue.claim(ELSEWHERE, "e", "me", 1, NOW, LEASE_S)
    assert queue.complete(y, RequestFailed("why"), NOW, [])
    found = {(it.scope, it.endpoint_name): it for it in queue.backlog()}
    assert set(found) == {(HERE, "e"), (HERE, "f")}
    mine = found[HERE, "e"]
    assert (mine.waiting, mine.running, mine.oldest_at) == (1, 1, NOW + 4)
    assert queue.complete(a, DONE, NOW, [])


def test_a_notification_is_kept_until_it_is_delivered(queue: RequestQueue) -> None:
    queue.submit([asked("a")])
    [a] = claims(queue)
    assert queue.complete(a, DONE, NOW, [note("n"), note("m")])
    assert {it.notification.id for it in queue.list_due_notifications(NOW, 10)} == {"n", "m"}
    queue.forget_notification("m")
    queue.defer_notification("n", NOW + 9, "control is away")
    assert queue.list_due_notifications(NOW + 8, 10) == []
    [left] = queue.list_due_notifications(NOW + 9, 10)
    assert (left.notification, left.attempts) == (note("n"), 1)
