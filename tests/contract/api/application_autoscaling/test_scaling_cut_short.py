"""Control dies between two writes of a scaling operation: the same call again makes it whole."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.api.application_autoscaling.policy import renew_alarms
from hostelry.api.cloudwatch import alarm
from hostelry.api.context import CallContext
from hostelry.api.operations import perform
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key, Record
from hostelry.store.records import State, open_state

SERVICE = "application-autoscaling"
HERE = Scope("123456789012", "us-west-2")
ROLE = "arn:aws:iam::123456789012:role/r"
COPIES = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "inference-component/base",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
TRACKING: dict[str, Any] = {
    "TargetValue": 5.0,
    "PredefinedMetricSpecification": {
        "PredefinedMetricType": "SageMakerInferenceComponentInvocationsPerCopy"
    },
}
POLICY = {"PolicyName": "p", "PolicyType": "TargetTrackingScaling"}
MEMBER = "TargetTrackingScalingPolicyConfiguration"
ACTION = {
    "ScheduledActionName": "n",
    "Schedule": "rate(1 hour)",
    "ScalableTargetAction": {"MinCapacity": 2},
}
Step = tuple[str, dict[str, Any]]
REGISTER: Step = (
    "RegisterScalableTarget",
    {"MinCapacity": 1, "MaxCapacity": 5, "Tags": {"a": "b"}},
)
PUT: Step = ("PutScalingPolicy", {**POLICY, MEMBER: TRACKING})
PUT_WITHOUT_IN: Step = (
    "PutScalingPolicy",
    {**POLICY, MEMBER: {**TRACKING, "DisableScaleIn": True}},
)
SCHEDULE: Step = ("PutScheduledAction", ACTION)
DELETE: Step = ("DeleteScalingPolicy", {"PolicyName": "p"})
DEREGISTER: Step = ("DeregisterScalableTarget", {})
REMOVE: Step = ("DeleteInferenceComponent", {"InferenceComponentName": "base"})


class Killed(Exception):  # noqa: N818 - what happens to the process
    pass


class MortalStore(MemoryStore):
    """Dies before its write number `dies_at`."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        self._live()
        return super().put(key, body, expect=expect)

    def delete(self, key: Key, *, expect: int) -> None:
        self._live()
        super().delete(key, expect=expect)

    def _live(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed


def run(state: State, service: str, operation: str, **params: Any) -> dict[str, Any]:
    context = CallContext(
        scope=HERE,
        state=state,
        now=1_700_000_000.0,
        get_shape=lambda _: Shape(cpus=48, memory_bytes=2**38, accelerators=4),
        role_arn=ROLE,
        role_name="r",
        metrics=MemoryMetrics(ManualClock()),
    )
    return perform(context, service, operation, params)


def do(state: State, step: Step) -> None:
    if step == REMOVE:
        run(state, "sagemaker", REMOVE[0], **REMOVE[1])
        return
    run(state, SERVICE, step[0], **COPIES, **step[1])


def with_a_component(store: MortalStore) -> State:
    state = open_state(store)
    variant = {"VariantName": "v", "InstanceType": "ml.g5.12xlarge", "InitialInstanceCount": 1}
    config = {"ExecutionRoleArn": ROLE, "ProductionVariants": [variant]}
    run(state, "sagemaker", "CreateEndpointConfig", EndpointConfigName="c", **config)
    run(state, "sagemaker", "CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    needs = {"MinMemoryRequiredInMb": 1024}
    specification = {"Container": {"Image": "i"}, "ComputeResourceRequirements": needs}
    name = {"InferenceComponentName": "base", "EndpointName": "e"}
    copies = {"Specification": specification, "RuntimeConfig": {"CopyCount": 1}}
    run(state, "sagemaker", "CreateInferenceComponent", **name, **copies)
    found = state.components.get(HERE, "base")
    assert found is not None
    ready = replace(found.value, status=ComponentStatus.IN_SERVICE)
    state.components.put(HERE, "base", ready, expect=found.version)
    return state


def left_over(state: State) -> dict[str, int]:
    """How many records of each kind there are."""
    return {
        "targets": len(state.scalable_targets.list(HERE)),
        "policies": len(state.scaling_policies.list(HERE)),
        "alarms": len(state.metric_alarms.list(HERE)),
        "actions": len(state.scheduled_actions.list(HERE)),
        "tags": len(state.tags.list(HERE)),
    }


def check_whole(state: State) -> None:
    """Assert that exactly the alarms that the policies name exist."""
    named = {name for it in state.scaling_policies.list(HERE) for name in it.value.alarm_names}
    assert {it.value.name for it in state.metric_alarms.list(HERE)} == named


@pytest.mark.parametrize("dies_at", range(12))
@cases(
    "before, step, after",
    case("register", [], REGISTER, {"targets": 1, "tags": 1}),
    case("a new policy", [REGISTER], PUT, {"policies": 1, "alarms": 2}),
    case("an alarm less", [REGISTER, PUT], PUT_WITHOUT_IN, {"policies": 1, "alarms": 1}),
    case("an alarm more", [REGISTER, PUT_WITHOUT_IN], PUT, {"policies": 1, "alarms": 2}),
    case("delete a policy", [REGISTER, PUT], DELETE, {"policies": 0, "alarms": 0}),
    case("deregister", [REGISTER, PUT, SCHEDULE], DEREGISTER,
        {"targets": 0, "policies": 0, "alarms": 0, "actions": 0, "tags": 0}),
    case("delete the component", [REGISTER, PUT, SCHEDULE], REMOVE,
        {"targets": 0, "policies": 0, "alarms": 0, "actions": 0, "tags": 0}),
)  # fmt: skip
def test_the_same_call_again_makes_it_whole(
    before: list[Step], step: Step, after: dict[str, int], dies_at: int
) -> None:
    store = MortalStore()
    state = with_a_component(store)
    for earlier in before:
        do(state, earlier)
    store.left = dies_at
    try:
        do(state, step)
    except Killed:
        store.left = None
        state = open_state(store)
        # Where all but the answer was done before, there is nothing left to delete.
        with suppress(*([ServiceError] if step in (DELETE, DEREGISTER) else [])):
            do(state, step)
    store.left = None
    assert after.items() <= left_over(state).items()
    check_whole(state)


def test_deleting_a_policys_alarms_leaves_the_policy() -> None:
    state = with_a_component(MortalStore())
    for step in (REGISTER, PUT):
        do(state, step)
    names = [it.value.name for it in state.metric_alarms.list(HERE)]
    run(state, "cloudwatch", "DeleteAlarms", AlarmNames=names)
    shown = run(state, SERVICE, "DescribeScalingPolicies", ServiceNamespace="sagemaker")
    assert [it["AlarmName"] for it in shown["ScalingPolicies"][0]["Alarms"]] == names
    do(state, DELETE)
    assert left_over(state)["policies"] == 0


def context_of(state: State, pace: float = 1.0) -> Callable[[Scope], CallContext]:
    return lambda scope: CallContext(
        scope=scope,
        state=state,
        now=1_700_000_100.0,
        get_shape=lambda _: Shape(cpus=48, memory_bytes=2**38, accelerators=4),
        role_arn=ROLE,
        role_name="r",
        pace=pace,
        metrics=MemoryMetrics(ManualClock()),
    )


@pytest.mark.parametrize("dies_at", range(6))
def test_control_makes_the_alarms_of_a_policy_whole_when_it_starts(dies_at: int) -> None:
    store = MortalStore()
    state = with_a_component(store)
    do(state, REGISTER)
    store.left = dies_at
    with suppress(Killed):
        do(state, PUT)
    store.left = None
    state = open_state(store)
    renew_alarms(state, context_of(state))
    check_whole(state)
    revision = store.revision()
    renew_alarms(state, context_of(state))
    assert store.revision() == revision, "nothing is written where nothing is missing"


def test_another_pace_is_in_the_alarms_after_a_start() -> None:
    store = MortalStore()
    state = with_a_component(store)
    for step in (REGISTER, PUT):
        do(state, step)
    renew_alarms(state, context_of(state, pace=5.0))
    periods = sorted(it.value.rule.evaluation_periods for it in state.metric_alarms.list(HERE))
    assert periods == [3, 3]
    renew_alarms(state, context_of(state))
    periods = sorted(it.value.rule.evaluation_periods for it in state.metric_alarms.list(HERE))
    assert periods == [3, 15]


def test_no_more_alarms_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    state = with_a_component(MortalStore())
    do(state, REGISTER)
    monkeypatch.setattr(alarm, "MAX_ALARMS", 1)
    with pytest.raises(ServiceError, match="at most 1 are possible") as caught:
        do(state, PUT)
    assert caught.value.code == "LimitExceededException"
    assert left_over(state)["policies"] == 0
