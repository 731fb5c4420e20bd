"""Failed requests while the object store does not take their failure objects."""

from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases
from tests.memory_queue import MemoryQueue
from tests.unit.jobs.dispatch.claims import SCOPE, claimed

from hostelry.base.clock import ManualClock
from hostelry.jobs.dispatch.endings import RequestEnds
from hostelry.jobs.dispatch.metric_reports import AsyncMeasurements
from hostelry.jobs.objects.object_store import ObjectDeniedError, ObjectError, ObjectStoreDownError
from hostelry.jobs.queue.protocol import QueueCommits
from hostelry.jobs.rules.messages import Response
from hostelry.jobs.rules.next_step import STORE_PAUSE_S


class BrokenStore:
    """Refuses objects with `error` while it is set."""

    def __init__(self, error: ObjectError | None) -> None:
        self.error = error
        self.objects: dict[str, bytes] = {}

    def acting_for(self, _: str) -> "BrokenStore":
        return self

    async def put(self, uri: str, body: bytes, settings: Any) -> None:
        if self.error is not None:
            raise self.error
        self.objects[uri] = body


@cases(
    "error, waited_s, waits",
    case("down: it waits for the store", ObjectStoreDownError("down"), 0.0, True),
    case("down, and expired: it ends", ObjectStoreDownError("down"), 61.0, False),
    case("never to be written: it ends", ObjectDeniedError("denied"), 0.0, False),
    case("written: it ends", None, 0.0, False),
)
async def test_a_failed_request_ends_with_its_failure_object_where_that_can_be_had(
    error: ObjectError | None, waited_s: float, waits: bool
) -> None:
    queue, clock, store = MemoryQueue(), ManualClock(), BrokenStore(error)
    (claim,) = claimed(queue, clock, 1)
    claim = replace(claim, request=replace(claim.request, failure_uri="s3://o/k-error.out"))
    measurements: Any = AsyncMeasurements()
    any_store: Any = store
    ends = RequestEnds(QueueCommits(queue), any_store, measurements, clock, lambda: None)
    await clock.sleep(waited_s)
    await ends.fail(claim, "v", "the model refused it")
    assert bool(queue.backlog()) is waits
    if waits:
        later = clock.now() + STORE_PAUSE_S
        (again,) = queue.claim(SCOPE, "e", "me", 1, later, 30)
        assert (again.attempt, again.fence) == (1, 2)


async def test_each_end_of_a_request_has_a_notification_of_its_own_id() -> None:
    queue, clock, store = MemoryQueue(), ManualClock(), BrokenStore(None)
    (claim,) = claimed(queue, clock, 1)
    claim = replace(claim, request=replace(claim.request, success_topic_arn="arn"))
    any_store: Any = store
    ends = RequestEnds(QueueCommits(queue), any_store, AsyncMeasurements(), clock, lambda: None)
    response = Response(location="s3://o/k", content_type=None, body=b"")
    found = []
    held = claim
    for _ in range(2):  # the second as after a retry by hand
        await ends.complete(held, "v", response)
        found += [it.notification.id for it in queue.list_due_notifications(clock.now(), 9)]
        queue.letters.clear()
        queue.rows["0"].outcome = None
        (again,) = queue.claim(SCOPE, "e", "me", 1, clock.now(), 30)
        held = replace(again, request=claim.request)
    first, second = found
    assert first != second
