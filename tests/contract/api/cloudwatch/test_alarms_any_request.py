"""Any request about alarms that the model allows: an answer in its shape, or a modelled refusal."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from hostelry.api.context import CallContext
from hostelry.api.operations import perform
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.load import Wake
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.scaling.decide.decision import Proposal, Trigger
from hostelry.scaling.loop.alarm_actions import Addresses, AlarmActionDeps
from hostelry.scaling.loop.alarm_watch import AlarmWatch, AlarmWatchDeps
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

HERE = Scope("123456789012", "us-west-2")
ARN = "arn:aws:cloudwatch:us-west-2:123456789012:alarm:"
POLICY = (
    "arn:aws:autoscaling:us-west-2:123456789012:scalingPolicy:1:resource/sagemaker/"
    "inference-component/chat:policyName/p"
)
# Few names, so that requests often name existing resources, and odd but valid values.
TEXTS: Mapping[str, tuple[str, ...]] = {
    "AlarmName": ("a", "both", "new", "\u00e9 \"'()", "x\n"),
    "AlarmRule": ("ALARM(a)", "OK(both)", "NOT TRUE", "(", 'ALARM("new") OR FALSE', "ALARM(gone)"),
    "AlarmArn": ("a", ARN + "a", ARN + "both", "gone"),
    "AmazonResourceName": (ARN + "a", ARN + "gone", "a"),
    "ResourceName": (POLICY, "http://h/", "arn:aws:sns:us-west-2:123456789012:t", "nothing"),
    "TreatMissingData": ("missing", "breaching", "other"),
    "EvaluateLowSampleCountPercentile": ("evaluate", "ignore", "other"),
    "ExtendedStatistic": ("p99", "p101", "IQM", "TM(10%:90%)", "q"),
    "Stat": ("Sum", "p50", "odd"),
    "MetricExpression": ("m1", "m1 / m2", "SEARCH('{Own} x', 'Sum')", "1 +", "m9"),
    "MetricId": ("m1", "m2", "E"),
    "StateReasonData": ("{}", '{"recentDatapoints":[1,null]}', "{", "[]"),
    "NextToken": ("odd", "=", "W10="),
    "AccountId": (HERE.account, "999999999999"),
    "Namespace": ("Own", "AWS/SageMaker"),
}
NUMBERS: Mapping[str, tuple[int, ...]] = {
    "Period": (1, 10, 20, 60, 300, 3600, 86_400, 2**31 - 1),
    "EvaluationPeriods": (1, 3, 15, 2000, 2**31 - 1),
    "DatapointsToAlarm": (1, 2, 15),
    "SuppressorPeriod": (-1, 0, 60, 2**31 - 1),
}
OPERATIONS = (
    "PutMetricAlarm",
    "PutCompositeAlarm",
    "DescribeAlarms",
    "DescribeAlarmsForMetric",
    "DescribeAlarmHistory",
    "SetAlarmState",
    "EnableAlarmActions",
    "DisableAlarmActions",
    "DeleteAlarms",
    "ListTagsForResource",
    "TagResource",
    "UntagResource",
)
CODES = (
    *("", "ValidationException", "ResourceNotFound", "InvalidFormat", "InvalidNextToken"),
    *("ResourceNotFoundException", "InvalidParameterValueException"),
)
USUAL: Mapping[str, Mapping[str, Any]] = {
    "PutMetricAlarm": {
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanThreshold",
        "EvaluationPeriods": 2,
        "Period": 10,
        "Namespace": "Own",
        "MetricName": "Load",
        "Statistic": "Sum",
    }
}


class AcceptingScaler:
    """A scaler that takes everything."""

    def trigger(self, trigger: Trigger) -> None: ...

    def propose(self, proposal: Proposal) -> None: ...

    def wake(self, wake: Wake) -> None: ...


def requests(shape: Any) -> st.SearchStrategy[Any]:
    """Values of `shape`: required members always, and some of the others."""
    if shape.type_name == "structure":
        return st.deferred(lambda: structures(shape))
    if shape.type_name == "list":
        least, most = shape.metadata.get("min", 0), shape.metadata.get("max", 3)
        return st.lists(requests(shape.member), min_size=least, max_size=min(most, least + 3))
    if shape.type_name == "string":
        texts = shape.enum or TEXTS.get(shape.name, ("a", "b", "\u00e9"))
        return st.sampled_from([it for it in texts if shape.metadata.get("min", 0) <= len(it)])
    if shape.type_name == "boolean":
        return st.booleans()
    if shape.type_name == "timestamp":
        return st.sampled_from([0.0, 1_700_000_000.0, 4e9])
    if shape.type_name == "integer":
        least, most = shape.metadata.get("min", 0), shape.metadata.get("max", 2**31 - 1)
        return st.sampled_from(
            [it for it in NUMBERS.get(shape.name, (least, least + 1, most)) if least <= it <= most]
            or [least]
        )
    return st.sampled_from([-1e300, -1.0, 0.0, 0.1, 5.0, 1e300])


@st.composite
def structures(draw: st.DrawFn, shape: Any) -> dict[str, Any]:
    names = sorted(set(shape.members) - set(shape.required_members))
    if shape.is_tagged_union:
        names = [draw(st.sampled_from(names))]
    elif names:
        names = draw(st.lists(st.sampled_from(names), max_size=5, unique=True))
    return {it: draw(requests(shape.members[it])) for it in (*shape.required_members, *names)}


def run(state: State, metrics: MemoryMetrics, operation: str, **params: Any) -> dict[str, Any]:
    context = CallContext(
        scope=HERE,
        state=state,
        now=1_700_000_000.0,
        get_shape=lambda _: Shape(cpus=1, memory_bytes=1),
        role_arn="",
        role_name="",
        metrics=metrics,
    )
    return perform(context, "cloudwatch", operation, params)


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(draw=st.data())
def test_any_request_about_alarms_is_answered_or_refused(
    service_models: Callable[[str], Any],
    check: Callable[[Any, Any], None],
    operation: str,
    draw: st.DataObject,
) -> None:
    model = service_models("cloudwatch")
    clock, state = ManualClock(), open_state(MemoryStore())
    metrics = MemoryMetrics(clock)
    run(state, metrics, "PutMetricAlarm", AlarmName="a", **USUAL["PutMetricAlarm"])
    run(state, metrics, "PutCompositeAlarm", AlarmName="both", AlarmRule="ALARM(a)")
    params = draw.draw(requests(model.operation_model(operation).input_shape))
    if draw.draw(st.booleans()):
        params = {**USUAL.get(operation, {}), **params}
    code = ""
    try:
        result = run(state, metrics, operation, **params)
        check(model.operation_model(operation).output_shape, result)
    except ServiceError as error:
        code = error.code
    event(code or "answered")
    assert code in CODES
    watched = AlarmWatchDeps(
        state=state, metrics=metrics, scaler=AcceptingScaler(), clock=clock, steady=ManualClock()
    )

    async def post(address: str, headers: Mapping[str, str], body: bytes) -> int:
        return 200

    around = AlarmActionDeps(state=state, clock=clock, addresses_of=Addresses().of, post=post)
    AlarmWatch(watched, around).look()
    types = ["MetricAlarm", "CompositeAlarm"]
    for reading in ("DescribeAlarms", "DescribeAlarmHistory"):
        shown = run(state, metrics, reading, AlarmTypes=types)
        check(model.operation_model(reading).output_shape, shown)
