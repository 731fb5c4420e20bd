"""The next step of an inference experiment, from its endpoint and the time."""

from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.experiment_rig import (
    HOUR_S,
    experiment,
)
from tests.unit.reconcile.samples import NOW, deployment, endpoint, variant

from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.experiment_deployment import after_deployment, begin_deployment, run_deployment
from hostelry.domain.experiment_life import begin_stop, start_experiment
from hostelry.domain.inference_experiment import (
    ExperimentStatus,
    ExperimentStop,
    InferenceExperiment,
    VariantAction,
)
from hostelry.reconcile.plan.experiment import ExperimentFleet, next_experiment_step

CREATED, STARTING = ExperimentStatus.CREATED, ExperimentStatus.STARTING
RUNNING, UPDATING = ExperimentStatus.RUNNING, ExperimentStatus.UPDATING
STOPPING = ExperimentStatus.STOPPING
COMPLETED, CANCELLED = ExperimentStatus.COMPLETED, ExperimentStatus.CANCELLED
IN_SERVICE = EndpointStatus.IN_SERVICE
FIRST = experiment()
WAITS = replace(FIRST, status=CREATED, deadline_at=None, start_at=NOW + 60)
BEGUN = start_experiment(replace(WAITS, start_at=NOW), NOW)
SERVES = endpoint(deployment(variant(model="m")), IN_SERVICE)
KNOWN = replace(BEGUN, before=SERVES.active, expects_endpoint=True)
RUN = begin_deployment(SERVES, run_deployment(KNOWN, SERVES, 2, NOW), NOW)
SEEN = replace(KNOWN, is_deployed=True, deadline_at=NOW + 4000)
RUNS = replace(SEEN, status=RUNNING, deadline_at=None)
UP = ExperimentFleet(
    endpoint=replace(RUN, status=IN_SERVICE, deadline_at=None), shadow_serves=True, generation=3
)
COMES = replace(UP, shadow_serves=False)
OTHER = replace(SERVES, active=deployment(variant(model="m"), generation=9))
LATE = NOW + 5000


def stop_of(one: InferenceExperiment, now: float = NOW, **more: Any) -> InferenceExperiment:
    return begin_stop(one, ExperimentStop(at=now, **more), now)


@cases(
    "before, fleet, now, status, reason",
    case("made", FIRST, ExperimentFleet(), NOW, CREATED, None),
    case("waits for its start", WAITS, UP, NOW + 59, CREATED, None),
    case("its start has come", WAITS, UP, NOW + 60, STARTING, None),
    case("its time went by", WAITS, UP, NOW + HOUR_S, CANCELLED, "before its EndTime"),
    case("the endpoint is gone", KNOWN, ExperimentFleet(), NOW, CANCELLED, "deleted"),
    case(
        "the endpoint is being updated",
        KNOWN,
        ExperimentFleet(endpoint=replace(SERVES, status=EndpointStatus.UPDATING)),
        NOW,
        STARTING,
        None,
    ),
    case(
        "the endpoint is being updated for too long",
        KNOWN,
        ExperimentFleet(endpoint=replace(SERVES, status=EndpointStatus.UPDATING)),
        LATE,
        CANCELLED,
        "Updating for too long",
    ),
    case(
        "the endpoint failed",
        KNOWN,
        ExperimentFleet(
            endpoint=replace(SERVES, status=EndpointStatus.FAILED, failure_reason="no disk")
        ),
        NOW,
        CANCELLED,
        "failed: no disk",
    ),
    case(
        "the endpoint was changed before the start",
        KNOWN,
        ExperimentFleet(
            endpoint=replace(SERVES, active=deployment(variant(model="x", name="other")))
        ),
        NOW,
        CANCELLED,
        'has the production variant "other", not',
    ),
    case("the shadow comes up", SEEN, COMES, NOW, STARTING, None),
    case(
        "the shadow cannot come up",
        SEEN,
        replace(COMES, shadow_failure="no such file"),
        NOW,
        STOPPING,
        "no such file",
    ),
    case("the shadow takes too long", SEEN, COMES, LATE, STOPPING, "not come up in time"),
    case("the shadow serves", SEEN, UP, NOW, RUNNING, None),
    case("the shadow served while control was away", SEEN, UP, LATE, RUNNING, None),
    case(
        "the endpoint's name is taken",
        BEGUN,
        ExperimentFleet(is_name_taken=True),
        NOW,
        CANCELLED,
        "another case of letters",
    ),
    case("too late", BEGUN, ExperimentFleet(), NOW + HOUR_S, CANCELLED, "before its EndTime"),
    case(
        "the endpoint was rolled back",
        SEEN,
        ExperimentFleet(endpoint=replace(SERVES, failure_reason="CapacityError: none")),
        NOW,
        CANCELLED,
        "CapacityError: none",
    ),
    case("runs", RUNS, UP, NOW + HOUR_S - 1, RUNNING, None),
    case("a shadow that dies ends nothing", RUNS, COMES, NOW, RUNNING, None),
    case("a clock set back ends nothing", RUNS, UP, NOW - 9e9, RUNNING, None),
    case("its end has come", RUNS, UP, NOW + HOUR_S, STOPPING, None),
    case("the endpoint was deleted", RUNS, ExperimentFleet(), NOW, CANCELLED, "was deleted"),
    case(
        "the endpoint is being deleted",
        RUNS,
        ExperimentFleet(endpoint=replace(SERVES, status=EndpointStatus.DELETING)),
        NOW,
        CANCELLED,
        "was deleted",
    ),
    case(
        "the endpoint was updated by a client",
        RUNS,
        ExperimentFleet(endpoint=OTHER),
        NOW,
        CANCELLED,
        "changed while the experiment was Running: it has configuration config-9",
    ),
    case(
        "the endpoint is being updated by a client",
        RUNS,
        replace(UP, endpoint=replace(UP.endpoint or RUN, pending=OTHER.active)),
        NOW,
        CANCELLED,
        "configuration config-9",
    ),
    case(
        "a client changed the share",
        replace(RUNS, percent=25),
        UP,
        NOW,
        CANCELLED,
        "it is 50 % now, not 25 %",
    ),
    case("updated before its start", replace(WAITS, status=UPDATING), UP, NOW, CREATED, None),
    case("updated", replace(RUNS, status=UPDATING), UP, NOW, RUNNING, None),
    case(
        "the endpoint was deleted during an update",
        replace(RUNS, status=UPDATING),
        ExperimentFleet(),
        NOW,
        CANCELLED,
        "was deleted",
    ),
    case(
        "an update takes too long",
        replace(RUNS, status=UPDATING, percent=1, deadline_at=LATE),
        replace(UP, endpoint=RUN),
        LATE,
        STOPPING,
        "did not take the update",
    ),
    case(
        "stopped before anything was changed",
        stop_of(BEGUN, reason="no need"),
        ExperimentFleet(endpoint=SERVES),
        NOW,
        CANCELLED,
        "no need",
    ),
    case(
        "stopped before the endpoint was made",
        stop_of(BEGUN, is_completed=True),
        ExperimentFleet(),
        NOW,
        COMPLETED,
        None,
    ),
    case("gone when stopped", stop_of(RUNS), ExperimentFleet(), NOW, CANCELLED, "was deleted"),
    case(
        "updated by a client when stopped",
        stop_of(RUNS),
        ExperimentFleet(endpoint=OTHER),
        NOW,
        CANCELLED,
        "while the experiment was Stopping",
    ),
    case(
        "stopped, and everything stays",
        stop_of(RUNS, shadow=VariantAction.RETAIN, is_completed=True),
        UP,
        NOW,
        COMPLETED,
        None,
    ),
    case(
        "stopped, and as it was before",
        stop_of(RUNS, is_completed=True),
        ExperimentFleet(endpoint=SERVES),
        NOW,
        COMPLETED,
        None,
    ),
    case("a stop takes too long", stop_of(RUNS), UP, LATE, CANCELLED, "still has its shadow"),
)
def test_the_next_status(
    before: InferenceExperiment,
    fleet: ExperimentFleet,
    now: float,
    status: ExperimentStatus,
    reason: str | None,
) -> None:
    step = next_experiment_step(before, fleet, now)
    after = step.experiment
    assert after.status is status
    shown = after.status_reason or (after.stop.reason if after.stop else None)
    assert (shown is None) == (reason is None), shown
    assert (reason or "") in (shown or "")
    assert (after.completed_at is not None) == after.is_over
    waits_for_time = (CREATED, RUNNING, COMPLETED, CANCELLED)
    assert (after.deadline_at is None) == (status in waits_for_time)
    assert step.endpoint is None or step.experiment == before, "one write a step"


@cases(
    "before, fleet, config",
    case("makes an endpoint", BEGUN, ExperimentFleet(), "trial-run"),
    case("adds the shadow", KNOWN, ExperimentFleet(endpoint=SERVES), "trial-run"),
    case(
        "waits until an earlier shadow is gone",
        KNOWN,
        ExperimentFleet(endpoint=SERVES, has_leftovers=True),
        None,
    ),
    case("goes back", stop_of(RUNS), UP, "config-1"),
    case(
        "promotes",
        stop_of(RUNS, production=VariantAction.REMOVE, shadow=VariantAction.PROMOTE),
        UP,
        "trial-after",
    ),
    case("mirrors another share", replace(RUNS, status=UPDATING, percent=7), UP, "trial-run"),
)
def test_the_next_change_of_the_endpoint(
    before: InferenceExperiment, fleet: ExperimentFleet, config: str | None
) -> None:
    step = next_experiment_step(before, fleet, NOW)
    assert step.experiment == before
    if config is None or step.endpoint is None:
        assert (step.endpoint, config) == (None, None)
        return
    coming = step.endpoint.pending or step.endpoint.active
    assert coming.config.name.startswith(config)
    assert coming.shadow_share == (before.share if "run" in config else 0)


def test_an_endpoint_keeps_what_scaling_gave_it() -> None:
    live = after_scaling(UP.endpoint or RUN, 4)
    stop = stop_of(RUNS)
    after = after_deployment(stop, live, 5, NOW)
    assert after is not None
    assert after.production[0].desired_instance_count == 4


def after_scaling(found: Endpoint, count: int) -> Endpoint:
    variants = tuple(
        one if one.variant.is_shadow else replace(one, desired_instance_count=count)
        for one in found.active.variants
    )
    return replace(found, active=replace(found.active, variants=variants))
