"""Notifications and metrics while control is away, and those that control refuses."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.memory_queue import MemoryQueue

from hostelry.base.clock import ManualClock
from hostelry.dataplane.routes import FixedRoutes
from hostelry.domain.async_request import (
    AsyncInference,
    AsyncMetricsReport,
    AsyncRequest,
    ScopedMetric,
)
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.messaging import PublicationRequest
from hostelry.domain.routes import EndpointRoute, RouteSnapshot, VariantRoute
from hostelry.domain.scope import Scope
from hostelry.jobs.control_client import ControlDownError, ControlRefusedError
from hostelry.jobs.dispatch.metric_reports import (
    NOTIFICATION_FAILURES,
    PROCESSED,
    TURN_S,
    AsyncMeasurements,
    MetricReports,
)
from hostelry.jobs.dispatch.outbox import Outbox
from hostelry.jobs.queue.protocol import Notification, QueueCommits, RequestCompleted
from hostelry.jobs.queue.work_claims import SharedWork, WorkClaims
from hostelry.jobs.rules.async_metrics import build_backlog_samples
from hostelry.store.database import open_database
from hostelry.store.protocol import StoreUnavailable

SCOPE = Scope("111122223333", "us-west-2")
PLACE = (SCOPE, "queued", "AllTraffic")
DOWN, REFUSED = ControlDownError("no answer"), ControlRefusedError("no such topic")


class ScriptedControl:
    """Raises the errors of its list, one a call, then takes everything."""

    def __init__(self, errors: Sequence[Exception] = ()) -> None:
        self.errors = list(errors)
        self.published: list[str] = []
        self.reported: list[int] = []

    async def publish(self, publication: PublicationRequest) -> None:
        self._fail()
        self.published.append(publication.message_id)

    async def report(self, report: AsyncMetricsReport) -> None:
        self._fail()
        self.reported.append(report.sequence)

    async def has_endpoint(self, scope: Scope, name: str) -> bool:
        return True

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


class OutboxRig:
    """A queue with one ended request, whose notification waits."""

    def __init__(self, errors: Sequence[Exception], queue: MemoryQueue | None = None) -> None:
        self.clock, self.queue = ManualClock(), queue or MemoryQueue()
        self.control, self.measurements = ScriptedControl(errors), AsyncMeasurements()
        variant = VariantRoute(
            name="AllTraffic", weight=1.0, routing=RoutingStrategy.RANDOM, copies=()
        )
        route = EndpointRoute(
            scope=SCOPE,
            name="queued",
            takes_components=False,
            variants=(variant,),
            async_inference=AsyncInference(output_uri="s3://out/x"),
        )
        routes = FixedRoutes(RouteSnapshot(version="1", endpoints=(route,)))
        commits = QueueCommits(self.queue)
        self.outbox = Outbox(commits, self.control, routes, self.measurements, self.clock)
        self._end_a_request()

    def _end_a_request(self) -> None:
        now = self.clock.now()
        request = AsyncRequest(
            id="r",
            inference_id="r",
            scope=SCOPE,
            endpoint_name="queued",
            body=b"",
            output_uri="s3://out/x/r.out",
            failure_uri="",
            accepted_at=now,
            expires_at=now + 60,
            timeout_s=1,
        )
        self.queue.submit([request])
        (claim,) = self.queue.claim(SCOPE, "queued", "me", 1, now, 30)
        letter = Notification(
            id="r",
            topic_arn="arn",
            subject=None,
            message="{}",
            scope=SCOPE,
            endpoint_name="queued",
        )
        assert self.queue.complete(claim, RequestCompleted(), now, [letter])

    def failures(self) -> int:
        samples = [it.sample for it in self.measurements.take(self.clock.now(), with_queues=True)]
        found = [it for it in samples if it.metric.name == NOTIFICATION_FAILURES]
        return int(sum(sum(it.counts) for it in found))


@cases(
    "errors, published, failures",
    case("control takes it", (), 1, 0),
    case("control comes back", (DOWN, DOWN), 1, 0),
    case("there is no such topic", (REFUSED,), 0, 1),
)
async def test_a_notification_is_sent_until_control_has_decided(
    errors: tuple[Exception, ...], published: int, failures: int
) -> None:
    rig = OutboxRig(errors)
    for _ in range(4):
        await rig.outbox.send_due()
        rig.clock.advance(60)
    assert (len(rig.control.published), rig.failures()) == (published, failures)
    assert not rig.queue.letters


class FullDisk(MemoryQueue):
    """Cannot forget a notification while `is_full`."""

    is_full = True

    def forget_notification(self, notification_id: str) -> None:
        if self.is_full:
            raise StoreUnavailable("the disk is full")
        super().forget_notification(notification_id)


async def test_a_notification_is_sent_once_where_the_outbox_cannot_be_written() -> None:
    queue = FullDisk()
    rig = OutboxRig((), queue)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await rig.outbox.send_due()
    queue.is_full = False
    await rig.outbox.send_due()
    assert (rig.control.published, queue.letters) == (["r"], {})


async def test_a_notification_is_not_sent_again_before_its_pause_is_over() -> None:
    rig = OutboxRig((DOWN,))
    await rig.outbox.send_due()
    await rig.outbox.send_due()
    assert (rig.control.published, list(rig.queue.letters)) == ([], ["r"])


async def test_reports_wait_for_control_and_are_sent_in_order() -> None:
    clock, control, measurements = ManualClock(), ScriptedControl((DOWN, DOWN)), AsyncMeasurements()
    reports = MetricReports(measurements, control, clock, SharedWork(None, clock))
    for _ in range(3):
        measurements.count(PLACE, PROCESSED)
        await reports.send()
    await reports.send()
    assert control.reported == [1, 2, 3]


def test_queues_are_reported_by_one_host_at_a_time_and_events_by_each(tmp_path: Path) -> None:
    clock, seen = ManualClock(), list[tuple[str, list[str]]]()

    class Control(ScriptedControl):
        async def report(self, report: AsyncMetricsReport) -> None:
            seen.append((report.host, [it.sample.metric.name for it in report.samples]))

    async def scenario() -> None:
        for name in ("a", "b", "a", "b", "b", "a", "a"):
            if len(seen) == 4:
                await reports["a"][1].finish()  # this host leaves, and has seen nothing since
            if len(seen) >= 5:  # the other one is dead
                clock.advance(TURN_S / 2)
            measurements, own = reports[name]
            measurements.count(PLACE, PROCESSED)
            queues = build_backlog_samples("queued", 7, 0, None, 1, clock.now())
            measurements.set_queues(ScopedMetric(scope=SCOPE, sample=it) for it in list(queues)[:1])
            await own.send()

    with contextlib.closing(open_database(tmp_path / "jobs.db")) as database:
        reports = {}
        for name in ("a", "b"):
            shared, measured = SharedWork(WorkClaims(database, name), clock), AsyncMeasurements()
            reports[name] = (measured, MetricReports(measured, Control(), clock, shared, name))
        asyncio.run(scenario())
    both, counted = [PROCESSED, "ApproximateBacklogSize"], [PROCESSED]
    assert seen[:4] == [("a", both), ("b", counted), ("a", both), ("b", counted)]
    assert seen[4:] == [("b", both), ("a", counted), ("a", both)]


async def test_a_report_that_control_refuses_is_dropped() -> None:
    clock, control, measurements = ManualClock(), ScriptedControl((REFUSED,)), AsyncMeasurements()
    reports = MetricReports(measurements, control, clock, SharedWork(None, clock))
    measurements.count(PLACE, PROCESSED)
    with pytest.raises(ControlRefusedError):
        await reports.send()
    measurements.count(PLACE, PROCESSED)
    await reports.send()
    assert control.reported == [2]


def test_times_are_counted_by_value_with_three_digits() -> None:
    measurements = AsyncMeasurements()
    for taken_s in (0.0123449, 0.0123351, 0.2):
        measurements.add_ms(PLACE, "TotalProcessingTime", taken_s)
    (scoped,) = measurements.take(5.0, with_queues=True)
    sample = scoped.sample
    found = dict(zip(sample.values, sample.counts, strict=True))
    assert (found, sample.unit, sample.at) == ({12.3: 2.0, 200.0: 1.0}, "Milliseconds", 5.0)
    assert measurements.take(6.0, with_queues=True) == ()
