"""Any request of Application Auto Scaling that its model allows: answered, or refused by a code."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hostelry.api.context import CallContext
from hostelry.api.operations import OPERATIONS, perform
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.scaling.decide.schedule import find_due_firing, find_next_due
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

SERVICE = "application-autoscaling"
HERE = Scope("123456789012", "us-west-2")
NOW = 1_700_000_000.0
COPIES = "sagemaker:inference-component:DesiredCopyCount"
CODES = (
    "ValidationException",
    "ObjectNotFoundException",
    "LimitExceededException",
    "InvalidNextTokenException",
    "ResourceNotFoundException",
    "TooManyTagsException",
)
NAMES = sorted(operation for service, operation in OPERATIONS if service == SERVICE)
# Random values for the shapes of these members would almost never name an existing resource.
LIKELY: dict[str, list[Any]] = {
    "ServiceNamespace": ["sagemaker", "sagemaker", "sagemaker", "ecs"],
    "ScalableDimension": [COPIES, COPIES, "sagemaker:variant:DesiredInstanceCount"],
    "ResourceId": ["inference-component/base", "inference-component/base", "endpoint/e/variant/v"],
    "PolicyName": ["p", "q", "~|~"],
    "PolicyType": ["TargetTrackingScaling", "StepScaling"],
    "PredefinedMetricType": ["SageMakerInferenceComponentInvocationsPerCopy"],
    "ScheduledActionName": ["n", "o"],
    "Schedule": ["rate(1 hour)", "cron(0 9 * * ? *)", "at(2030-01-01T00:00:00)", "cron()", "at("],
    "Timezone": ["UTC", "America/New_York", "Mars", "/"],
    "StartTime": [0.0, NOW, NOW + 9e6, -1e9],
    "EndTime": [0.0, NOW + 1e6, NOW + 9e8],
    "MinCapacity": [0, 1, 2, -1, 2**31 - 1],
    "MaxCapacity": [0, 1, 9, -(2**31)],
    "TargetValue": [5.0, 0.0, -1.0, 1e-300, 1e300],
    "Stat": ["Sum", "Average", "p99", "x"],
    "Statistic": ["Sum"],
    "Id": ["m1", "m2", "M"],
    "Expression": ["m1", "m1 + m2", "SUM(METRICS())", "SEARCH('x', 'Sum', 60)", "1 +", "m1 / 0"],
    "NextToken": ["x", "bnVsbA=="],
}


def values(name: str, shape: Any) -> st.SearchStrategy[Any]:
    if name in LIKELY:
        return st.sampled_from(LIKELY[name])
    if shape.type_name == "structure":
        return st.deferred(lambda: structures(shape))
    if shape.type_name == "list":
        return st.lists(values("", shape.member), max_size=3)
    if shape.type_name == "map":
        return st.dictionaries(st.sampled_from(["a", "aws:b", "c"]), st.just("v"), max_size=2)
    return scalars(name, shape)


def scalars(name: str, shape: Any) -> st.SearchStrategy[Any]:
    if shape.type_name == "string":
        arn = f"arn:aws:{SERVICE}:{HERE.region}:{HERE.account}:scalable-target/x"
        return st.sampled_from(shape.enum or ([arn] if "ARN" in name else ["a", "b"]))
    if shape.type_name == "boolean":
        return st.booleans()
    if shape.type_name in ("integer", "long"):
        return st.integers(-2, 60)
    return st.sampled_from([0.0, 5.0, -5.0, 10.0, 1e308])


@st.composite
def structures(draw: st.DrawFn, shape: Any) -> dict[str, Any]:
    optional = sorted(set(shape.members) - set(shape.required_members))
    chosen = draw(st.lists(st.sampled_from(optional), max_size=4, unique=True)) if optional else []
    names = [*shape.required_members, *chosen]
    return {name: draw(values(name, shape.members[name])) for name in names}


def run(state: State, service: str, operation: str, **params: Any) -> dict[str, Any]:
    context = CallContext(
        scope=HERE,
        state=state,
        now=NOW,
        get_shape=lambda _: Shape(cpus=48, memory_bytes=2**38, accelerators=4),
        role_arn="arn:aws:iam::123456789012:role/r",
        role_name="r",
        metrics=MemoryMetrics(ManualClock()),
    )
    return perform(context, service, operation, params)


def registered() -> State:
    """A component in service that is a scalable target already."""
    state = open_state(MemoryStore())
    variant = {"VariantName": "v", "InstanceType": "ml.g5.12xlarge", "InitialInstanceCount": 1}
    config = {"ExecutionRoleArn": "arn:aws:iam::123456789012:role/r"}
    run(state, "sagemaker", "CreateEndpointConfig", EndpointConfigName="c", **config,
        ProductionVariants=[variant])  # fmt: skip
    run(state, "sagemaker", "CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    specification = {
        "Container": {"Image": "i"},
        "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024},
    }
    run(state, "sagemaker", "CreateInferenceComponent", InferenceComponentName="base",
        EndpointName="e", Specification=specification, RuntimeConfig={"CopyCount": 1})  # fmt: skip
    found = state.components.get(HERE, "base")
    assert found is not None
    ready = replace(found.value, status=ComponentStatus.IN_SERVICE)
    state.components.put(HERE, "base", ready, expect=found.version)
    target = {"ResourceId": "inference-component/base", "ScalableDimension": COPIES}
    bounds = {"MinCapacity": 1, "MaxCapacity": 5}
    run(state, SERVICE, "RegisterScalableTarget", ServiceNamespace="sagemaker", **target, **bounds)
    return state


@pytest.mark.parametrize("operation", NAMES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(draw=st.data())
def test_any_request_is_answered_or_refused(
    service_models: Callable[[str], Any],
    check: Callable[[Any, Any], None],
    operation: str,
    draw: st.DataObject,
) -> None:
    model = service_models(SERVICE)
    state = registered()
    params = draw.draw(structures(model.operation_model(operation).input_shape))
    code = ""
    try:
        result = run(state, SERVICE, operation, **params)
        check(model.operation_model(operation).output_shape, result)
    except ServiceError as error:
        code = error.code
    event(code or "answered")
    assert code in ("", *CODES)
    for listing in ("Targets", "Policies", "Activities"):
        kind = "Scalable" if listing == "Targets" else "Scaling"
        shown = run(state, SERVICE, f"Describe{kind}{listing}", ServiceNamespace="sagemaker")
        check(model.operation_model(f"Describe{kind}{listing}").output_shape, shown)
    for action in state.scheduled_actions.list():
        assert find_due_firing(action.value, NOW) is None
        assert find_next_due(action.value, NOW) is not None
    names = {name for it in state.scaling_policies.list() for name in it.value.alarm_names}
    assert names == {it.value.name for it in state.metric_alarms.list()}
