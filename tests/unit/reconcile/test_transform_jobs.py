"""Transform jobs start with their endpoints, and end them, despite any kills."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.selection import numbers
from tests.unit.reconcile.samples import IMAGE, NOW, SCOPE, model
from tests.unit.reconcile.test_reconcile_faults import FaultyStore, Killed
from tests.unit.reconcile.transform_rig import COMPLETED, TransformTown, transform_job

from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.model import Container
from hostelry.domain.status import RUNNER_S, STOP_S, TRANSFORM_S, Event
from hostelry.domain.transform_job import (
    BatchStrategy,
    TransformEnd,
    TransformJob,
    TransformJobStatus,
    TransformProgress,
    TransformProgressReport,
    TransformSnapshot,
)
from hostelry.reconcile.census import take_census
from hostelry.reconcile.overview import MAX_ENDED, transform_overview
from hostelry.reconcile.plan.hidden_endpoint import HiddenFleet
from hostelry.reconcile.plan.transform import (
    batch_model,
    end_job,
    finish_job,
    hidden_endpoint,
    plan_hidden_endpoint,
    plan_transform_job,
)
from hostelry.reconcile.record import filter_visible, load_all
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key, Record

IN_PROGRESS, STOPPING = TransformJobStatus.IN_PROGRESS, TransformJobStatus.STOPPING
COMPLETE, FAILED = TransformJobStatus.COMPLETED, TransformJobStatus.FAILED
STOPPED = TransformJobStatus.STOPPED
JOB = transform_job()
LATE = NOW + TRANSFORM_S
MADE = hidden_endpoint(JOB, 1, NOW)
NOTHING = HiddenFleet(asked_at=LATE)
SERVES = HiddenFleet(
    asked_at=LATE, endpoint=replace(MADE, status=EndpointStatus.IN_SERVICE), serves=True
)
SILENT = replace(SERVES, serves=False, problem="it crashed")


@pytest.fixture
def place() -> Iterator[TransformTown]:
    found = TransformTown()
    yield found
    found.town.close()


def stopping(**more: Any) -> TransformJob:
    fields = {"status": STOPPING, "deadline_at": NOW + STOP_S, "started_at": NOW, **more}
    return transform_job(**fields)


@cases(
    "job, fleet, now, status, reason",
    case("nothing is there yet", JOB, NOTHING, NOW, IN_PROGRESS, None),
    case("instances come up", JOB, replace(NOTHING, endpoint=MADE), NOW, IN_PROGRESS, None),
    case("it is being done", JOB, SERVES, NOW, IN_PROGRESS, None),
    case(
        "the instances could not come up",
        JOB,
        HiddenFleet(
            asked_at=LATE,
            endpoint=replace(
                MADE, status=EndpointStatus.FAILED, failure_reason="CapacityError: none"
            ),
        ),
        NOW,
        FAILED,
        "CapacityError: none",
    ),
    case("it takes too long", JOB, SERVES, LATE, FAILED, "after 28 days"),
    case("it never began, for too long", JOB, NOTHING, LATE, FAILED, "after 28 days"),
    case(
        "a copy may still come back",
        replace(JOB, unserved_since=NOW),
        SILENT,
        NOW + 4000,
        IN_PROGRESS,
        None,
    ),
    case(
        "no copy came back in time",
        replace(JOB, unserved_since=NOW),
        SILENT,
        NOW + 5000,
        FAILED,
        "No copy has served for 5000 s: it crashed",
    ),
    case(
        "a runner may start again",
        replace(JOB, started_at=NOW),
        replace(SERVES, asked_at=NOW - 60),
        NOW + RUNNER_S - 1,
        IN_PROGRESS,
        None,
    ),
    case(
        "there is no runner",
        replace(JOB, started_at=NOW),
        replace(SERVES, asked_at=NOW - 60),
        NOW + RUNNER_S,
        FAILED,
        "no process has asked for transform jobs for 600 s",
    ),
    case("a stop waits for requests under way", stopping(), SERVES, NOW, STOPPING, None),
    case("a stop does not wait forever", stopping(), SERVES, NOW + STOP_S, STOPPED, None),
    case(
        "stopped before it began",
        stopping(started_at=None),
        replace(NOTHING, endpoint=MADE),
        NOW,
        STOPPED,
        None,
    ),
    case("nothing is there", stopping(), NOTHING, NOW, STOPPED, None),
    case("it is over", end_job(JOB, Event.COMPLETE, NOW), NOTHING, LATE, COMPLETE, None),
)
def test_what_becomes_of_a_job(
    job: TransformJob,
    fleet: HiddenFleet,
    now: float,
    status: TransformJobStatus,
    reason: str | None,
) -> None:
    after = plan_transform_job(job, fleet, now)
    assert after.status is status
    assert (reason or "") in (after.failure_reason or "")
    assert (after.failure_reason is None) == (reason is None)
    assert (after.ended_at is None) == (not after.is_over)
    assert (after.deadline_at is None) == after.is_over
    assert plan_transform_job(after, fleet, now) == after, "a second look changes nothing"


def test_a_job_starts_once_and_notices_when_no_copy_serves() -> None:
    first = plan_transform_job(JOB, SERVES, NOW + 5)
    assert first.started_at == NOW + 5
    silent = plan_transform_job(first, SILENT, NOW + 9)
    assert (silent.started_at, silent.unserved_since) == (NOW + 5, NOW + 9)
    assert plan_transform_job(silent, SILENT, NOW + 20).unserved_since == NOW + 9
    assert plan_transform_job(silent, SERVES, NOW + 30).unserved_since is None


@cases(
    "job, reported, status",
    case("done", JOB, COMPLETE, COMPLETE),
    case("failed", JOB, FAILED, FAILED),
    case("a stop that no client asked for", JOB, STOPPED, FAILED),
    case("done while it was being stopped", stopping(), COMPLETE, STOPPED),
    case("failed while it was being stopped", stopping(), FAILED, STOPPED),
    case("the first end counts", end_job(JOB, Event.FAIL, NOW), COMPLETE, FAILED),
)
def test_the_end_that_the_runner_reports(
    job: TransformJob, reported: TransformJobStatus, status: TransformJobStatus
) -> None:
    after = finish_job(job, reported, "3 objects failed", TransformProgress(objects=4), NOW + 9)
    assert after.status is status
    if not job.is_over:
        assert after.progress.objects == 4
        expected = "3 objects failed" if status is FAILED else None
        assert after.failure_reason == expected
    assert finish_job(after, reported, None, None, NOW + 99) == after


@cases(
    "job, expected",
    case("nothing that was not asked for", JOB, {"A": "model", "SAGEMAKER_BATCH": "true"}),
    case(
        "what was asked for, and the job's own variables",
        transform_job(
            max_payload_mb=0,
            strategy=BatchStrategy.SINGLE_RECORD,
            max_concurrent=4,
            environment={"A": "job", "SAGEMAKER_BATCH": "no"},
        ),
        {
            "A": "job",
            "SAGEMAKER_BATCH": "true",
            "SAGEMAKER_MAX_PAYLOAD_IN_MB": "0",
            "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
            "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "4",
        },
    ),
)
def test_variables_of_the_model_server(job: TransformJob, expected: dict[str, str]) -> None:
    # api.md 2.6
    container = Container(image=IMAGE, environment={"A": "model"})
    given = replace(job, model=replace(model("m"), containers=(container,)))
    (found,) = batch_model(given).containers
    assert found.environment == expected


def test_an_endpoint_on_its_way_out_is_left_alone() -> None:
    over = end_job(JOB, Event.COMPLETE, NOW)
    going = plan_hidden_endpoint(over, MADE, 2, NOW)
    assert going is not None
    assert going.status is EndpointStatus.DELETING
    assert plan_hidden_endpoint(over, going, 2, NOW) is None
    assert plan_hidden_endpoint(over, None, 2, NOW) is None
    stuck = replace(going, status=EndpointStatus.FAILED)
    again = plan_hidden_endpoint(over, stuck, 2, NOW)
    assert again is not None
    assert again.status is EndpointStatus.DELETING, "a delete that failed is tried again"
    assert plan_hidden_endpoint(stopping(), None, 2, NOW) is None, "nothing comes up to be stopped"


def test_from_a_record_to_instances_and_back(place: TransformTown) -> None:
    place.add()
    place.turn(20)
    (instances, route) = (place.town.instance_records(), place.town.endpoint_route())
    assert [it.instance_type for it in instances] == ["ml.small", "ml.small"]
    assert (route.name, len(route.variants[0].copies)) == ("transform-job/nightly", 2)
    job = place.job()
    assert job.started_at is not None
    assert [it.name for it in place.snapshot.jobs] == ["nightly"]

    assert place.jobs.finish(COMPLETED)
    assert place.job().status is COMPLETE
    place.turn(30)
    assert place.endpoint() is None
    assert (place.town.instances(), place.snapshot.jobs) == ([], ())
    assert place.town.fleet.machines == {}
    assert place.job().ended_at is not None


def test_instances_that_cannot_come_up_fail_the_job(place: TransformTown) -> None:
    place.town.switches.broken_images[IMAGE] = "model.joblib is not there"
    place.add()
    place.turn(40)
    job = place.job()
    assert job.status is FAILED
    assert "model.joblib is not there" in (job.failure_reason or "")
    group = "See the log stream nightly/i-001-1700000000 of group /aws/sagemaker/TransformJobs."
    assert group in (job.failure_reason or "")
    place.turn(40)
    assert (place.endpoint(), place.town.instances()) == (None, [])


def test_a_stopped_job_lets_its_runner_finish(place: TransformTown) -> None:
    place.add()
    place.turn(20)
    place.change(status=STOPPING, deadline_at=place.town.clock.now() + STOP_S)
    place.turn()
    assert [it.status for it in place.snapshot.jobs] == [STOPPING], "the runner sees it"
    assert place.jobs.finish(replace(COMPLETED, status=STOPPED))
    place.turn(30)
    assert (place.job().status, place.endpoint()) == (STOPPED, None)


def test_a_stopped_job_ends_without_a_runner(place: TransformTown) -> None:
    place.add()
    place.turn(20)
    place.change(status=STOPPING, deadline_at=place.town.clock.now() + STOP_S)
    place.town.clock.advance(STOP_S)
    place.turn(30)
    assert (place.job().status, place.endpoint()) == (STOPPED, None)


def test_progress_is_known_at_once_and_kept_at_the_end(place: TransformTown) -> None:
    place.add()
    place.turn(20)
    version, revision = place.snapshot.version, place.state.store.revision()
    progress = TransformProgress(objects=3, objects_total=7, records=12)
    place.jobs.note(TransformProgressReport(scope=SCOPE, name="nightly", progress=progress))
    assert place.jobs.get_progress(place.job()).objects == 3
    assert place.state.store.revision() == revision, "a job's steps are not written one by one"
    place.turn()
    assert place.snapshot.version == version, "the runner does not get its own progress back"
    place.jobs.finish(COMPLETED)
    place.turn(20)
    assert place.job().progress.records == 12


def test_the_end_of_no_job_is_refused(place: TransformTown) -> None:
    end = TransformEnd(scope=SCOPE, name="gone", status=COMPLETE)
    assert not place.jobs.finish(end)


def test_jobs_beside_each_other_do_not_meet(place: TransformTown) -> None:
    place.add(transform_job("a", instance_count=1), transform_job("b", instance_count=1))
    place.turn(20)
    assert [it.name for it in place.snapshot.jobs] == ["a", "b"]
    place.jobs.finish(TransformEnd(scope=SCOPE, name="a", status=COMPLETE))
    place.turn(60)
    assert place.endpoint("a") is None
    assert [it.endpoint_name for it in place.town.instance_records()] == ["transform-job/b"]


class RefusingStore(MemoryStore):
    """A store that raises for every write of one endpoint."""

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        if key.name == "transform-job/ill":
            raise ZeroDivisionError
        return super().put(key, body, expect=expect)


def test_one_that_cannot_be_driven_holds_up_no_other() -> None:
    place = TransformTown(RefusingStore())
    place.add(transform_job("ill"), transform_job("well"))
    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            place.turn()
        place.town.turn()
    assert place.job("well").started_at is not None
    assert [it.name for it in place.snapshot.jobs] == ["ill", "well"]
    place.town.close()


def test_the_snapshot_of_a_pass_that_fails_is_published() -> None:
    place = TransformTown(RefusingStore())
    place.add(transform_job("ill"), transform_job("well"))

    async def published() -> TransformSnapshot | None:
        driving = asyncio.create_task(place.jobs.loop.run())
        try:
            return await place.jobs.loop.board.newer_than(None, 10.0)
        finally:
            driving.cancel()

    snapshot = asyncio.run(published())
    assert snapshot is not None
    assert [it.name for it in snapshot.jobs] == ["ill", "well"]
    place.town.close()


def test_clients_and_their_metrics_do_not_see_the_endpoint(place: TransformTown) -> None:
    place.add()
    place.turn(20)
    states = load_all(place.state)
    assert filter_visible(states) == []
    census = take_census(states, place.town.facts())
    assert census.variants == {}
    (found,) = census.transforms.values()
    assert len(found.instances) == 2


def test_status_shows_running_jobs_and_the_last_that_ended(place: TransformTown) -> None:
    over = end_job(JOB, Event.COMPLETE, NOW)
    place.add(*(replace(over, name=f"old-{it}", created_at=NOW - it) for it in range(30)))
    place.add()
    place.turn(20)
    jobs = [it.value for it in place.state.transform_jobs.list()]
    shown = transform_overview(
        jobs, load_all(place.state), place.town.facts(), place.jobs.get_progress
    )
    assert len(shown) == MAX_ENDED + 1
    (running,) = (it for it in shown if it["status"] == "InProgress")
    assert len(running["endpoint"]["copies"]) == 2
    assert running["progress"]["objects"] == 0


def stop_it(place: TransformTown) -> None:
    now = place.town.clock.now()
    place.change(status=STOPPING, deadline_at=now + STOP_S, modified_at=now)


def finish_it(place: TransformTown) -> None:
    """The runner is done."""
    place.jobs.finish(COMPLETED)


ENDS: list[Any] = [
    pytest.param(finish_it, COMPLETE, id="done"),
    pytest.param(stop_it, STOPPED, id="stopped"),
]


@pytest.mark.parametrize(("end", "status"), ENDS)
def test_a_control_killed_at_any_write_goes_on(
    end: Callable[[TransformTown], None],
    status: TransformJobStatus,
    pytestconfig: pytest.Config,
) -> None:
    def lead(fails_at: int | None) -> int:
        store = FaultyStore(Killed())
        place = TransformTown(store)
        place.add()
        store.fails_at, store.armed = fails_at, True
        survive(place, lambda it: it.turn(20))
        survive(place, end)
        if place.job().status is IN_PROGRESS:
            end(place)
        survive(place, lambda it: it.turn(30))
        place.town.clock.advance(STOP_S)
        survive(place, lambda it: it.turn(60))
        assert place.job().status is status, f"after a kill at write {fails_at}"
        assert (place.endpoint(), place.town.instances()) == (None, [])
        assert place.town.fleet.machines == {}
        place.town.close()
        return store.num_writes

    for fails_at in numbers(pytestconfig, lead(None), every=4):
        lead(fails_at)


def survive(place: TransformTown, step: Callable[[TransformTown], None]) -> None:
    """Do `step`, and where control is killed in it, start control and do it again."""
    try:
        step(place)
    except Killed:
        place.restart_control()
        step(place)


def test_a_copy_that_is_not_ready_does_not_serve(place: TransformTown) -> None:
    place.add()
    place.turn(20)
    machines = place.town.fleet.machines.values()
    for machine in machines:
        for copy_id, status in machine.copies.items():
            machine.copies[copy_id] = dataclasses.replace(
                status, phase=CopyPhase.UNHEALTHY, reason="it hangs"
            )
    place.turn(3)
    assert place.job().unserved_since is not None
