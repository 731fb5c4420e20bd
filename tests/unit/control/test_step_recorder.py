"""The recorder of steps: which calls it counts, for which endpoint, and faults of the metrics."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.reconcile.samples import (
    SCOPE,
    Town,
    component,
    deployment,
    endpoint,
    variant,
)

from hostelry.aws.call import ApiCall
from hostelry.control.step_recorder import EndpointStepRecorder
from hostelry.control.usage_sums import list_sums
from hostelry.cost.usage import UsageSum, gather_hours
from hostelry.domain.metric import Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.protocol import StoreUnavailable


def call(operation: str, service: str = "sagemaker", **params: Any) -> ApiCall:
    return ApiCall(
        service=service, operation=operation, params=params, protocol="json", request_id="r"
    )


SCALING = "application-autoscaling"


class Rig:
    """A recorder over an endpoint `ep` with the component `base`."""

    def __init__(self) -> None:
        self.town = Town()
        self.town.add(endpoint(deployment(variant())), component(copies=1))
        self.metrics = MemoryMetrics(self.town.clock)
        self.recorder = EndpointStepRecorder(self.town.state, self.metrics, self.town.clock)

    def steps(self) -> dict[tuple[str, str], float]:
        now = self.town.clock.now()
        found: dict[tuple[str, str], float] = {}
        sums = list_sums(SCOPE, self.metrics, (now - 1, now + 1), now)
        for hour in gather_hours(
            UsageSum(metric.name, dict(metric.dimensions), point.at, point.value)
            for metric, points in sums
            for point in points
        ):
            found |= hour.steps
        return found


@cases(
    "made, steps",
    case(
        "an endpoint",
        call("UpdateEndpoint", EndpointName="other"),
        {("other", "UpdateEndpoint"): 1.0},
    ),
    case(
        "a component, by its record",
        call("DeleteInferenceComponent", InferenceComponentName="base"),
        {("ep", "DeleteInferenceComponent"): 1.0},
    ),
    case(
        "a component whose record is gone",
        call("DeleteInferenceComponent", InferenceComponentName="gone"),
        {("", "DeleteInferenceComponent"): 1.0},
    ),
    case("a model", call("CreateModel", ModelName="m"), {("", "CreateModel"): 1.0}),
    case(
        "a policy of a variant",
        call("PutScalingPolicy", SCALING, ResourceId="endpoint/ep/variant/v"),
        {("ep", "PutScalingPolicy"): 1.0},
    ),
    case(
        "a policy of a component",
        call("PutScalingPolicy", SCALING, ResourceId="inference-component/base"),
        {("ep", "PutScalingPolicy"): 1.0},
    ),
    case("a call that reads", call("DescribeEndpoint", EndpointName="ep"), {}),
    case("a call of another service", call("CreateModel", "other", EndpointName="ep"), {}),
)
def test_steps_name_their_endpoint(made: ApiCall, steps: dict[tuple[str, str], float]) -> None:
    rig = Rig()
    try:
        rig.recorder.note_call(SCOPE, made)
        assert rig.steps() == steps
    finally:
        rig.town.close()


def test_equal_steps_are_all_counted() -> None:
    rig = Rig()
    try:
        for _ in range(100):
            rig.recorder.note_call(SCOPE, call("CreateModel", ModelName="m"))
        rig.recorder.note_act(SCOPE, "ep", "restart")
        assert rig.steps() == {("", "CreateModel"): 100.0, ("ep", "restart"): 1.0}
    finally:
        rig.town.close()


class BrokenMetrics:
    """Metrics whose store is away."""

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        raise StoreUnavailable("the store is away")

    emit = record


def test_a_step_that_cannot_be_recorded_is_logged_and_its_call_succeeds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    try:
        recorder = EndpointStepRecorder(rig.town.state, BrokenMetrics(), rig.town.clock)
        recorder.note_call(SCOPE, call("CreateModel", ModelName="m"))
        recorder.note_act(SCOPE, "ep", "drain")
    finally:
        rig.town.close()
    assert [it.getMessage() for it in caplog.records] == [
        "the step CreateModel was not recorded: the store is away",
        "the act drain was not recorded as a step: the store is away",
    ]
