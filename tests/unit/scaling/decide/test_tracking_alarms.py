"""The alarms of target tracking: names, periods, thresholds.

Sources: UG = "Target tracking scaling policies" in the Application Auto Scaling user guide, CW =
"Monitor Amazon SageMaker AI with Amazon CloudWatch", 7.2 and 7.3 = sections of our own reference.
"""

import botocore.session
import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.alarm import Comparison, MissingData
from hostelry.domain.metric import Metric, MetricQuery, MetricStat
from hostelry.domain.scaling import TargetTracking
from hostelry.scaling.decide.decision import Direction
from hostelry.scaling.decide.tracking_alarms import (
    PREDEFINED,
    AlarmSide,
    build_alarm_name,
    build_alarm_rule,
    find_alarm_side,
    get_predefined_stat,
    has_same_metric,
)

VARIANT = "endpoint/Llms/variant/AllTraffic"
COMPONENT = "inference-component/Llama-3"


def policy(predefined: str | None = None, *queries: MetricQuery) -> TargetTracking:
    return TargetTracking(
        target_value=5.0,
        scale_out_cooldown_s=180.0,
        scale_in_cooldown_s=180.0,
        predefined=predefined,
        queries=queries,
    )


@pytest.mark.parametrize(
    ("predefined", "resource", "metric", "stat", "period_s", "low_periods"),
    [
        # Names and units by CW, periods and counts by 7.2 and 7.3.
        pytest.param("SageMakerVariantInvocationsPerInstance", VARIANT, "InvocationsPerInstance",
            "Sum", 60, 15, id="invocations per instance"),
        pytest.param("SageMakerVariantConcurrentRequestsPerModelHighResolution", VARIANT,
            "ConcurrentRequestsPerModel", "Maximum", 10, 90, id="concurrency per model"),
        pytest.param("SageMakerVariantProvisionedConcurrencyUtilization", VARIANT,
            "ServerlessProvisionedConcurrencyUtilization", "Maximum", 60, 15, id="serverless"),
        pytest.param("SageMakerInferenceComponentInvocationsPerCopy", COMPONENT,
            "InvocationsPerCopy", "Sum", 60, 15, id="invocations per copy"),
        pytest.param("SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution",
            COMPONENT, "ConcurrentRequestsPerCopy", "Maximum", 10, 90, id="concurrency per copy"),
    ],
)  # fmt: skip
def test_predefined_metrics(
    predefined: str, resource: str, metric: str, stat: str, period_s: int, low_periods: int
) -> None:
    high = build_alarm_rule(policy(predefined), resource, AlarmSide.HIGH)
    low = build_alarm_rule(policy(predefined), resource, AlarmSide.LOW)
    dimensions = (
        (("EndpointName", "Llms"), ("VariantName", "AllTraffic"))
        if resource == VARIANT
        else (("InferenceComponentName", "Llama-3"),)
    )
    named = Metric(namespace="AWS/SageMaker", name=metric, dimensions=dimensions)
    assert high.stat == low.stat == MetricStat(metric=named, period_s=period_s, statistic=stat)
    assert (high.evaluation_periods, high.datapoints_to_alarm) == (3, 3)
    assert (low.evaluation_periods, low.datapoints_to_alarm) == (low_periods, low_periods)
    assert (high.threshold, high.comparison) == (5.0, Comparison.GREATER)
    assert (low.threshold, low.comparison) == (4.5, Comparison.LESS)
    assert high.missing is low.missing is MissingData.MISSING


def test_every_predefined_type_of_sagemaker_is_known() -> None:
    model = botocore.session.get_session().get_service_model("application-autoscaling")
    kinds = model.shape_for("MetricType").enum
    assert {it for it in kinds if it.startswith("SageMaker")} == set(PREDEFINED)


@cases(
    "pace, low",
    case("as on AWS", 1.0, 90),
    case("thirty times as fast", 30.0, 3),
    case("a part of a datapoint is one", 40.0, 3),
    case("at least one", 1e6, 1),
)
def test_pace_divides_the_wait_of_the_low_alarm_alone(pace: float, low: int) -> None:
    tracking = policy("SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution")
    assert build_alarm_rule(tracking, COMPONENT, AlarmSide.LOW, pace=pace).evaluation_periods == low
    assert build_alarm_rule(tracking, COMPONENT, AlarmSide.HIGH, pace=pace).evaluation_periods == 3
    assert build_alarm_rule(tracking, COMPONENT, AlarmSide.LOW, pace=pace).period_s == 10


def test_small_targets_keep_a_fractional_low_threshold() -> None:
    tracking = replace(
        policy("SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"),
        target_value=1.0,
    )
    assert build_alarm_rule(tracking, COMPONENT, AlarmSide.LOW).threshold == 0.9


BACKLOG = MetricStat(
    metric=Metric.of("Own", "Backlog", {"q": "a"}), period_s=60, statistic="Average"
)
ONE = MetricQuery(id="m1", stat=BACKLOG)
MATH = (
    replace(ONE, return_data=False),
    MetricQuery(id="m2", stat=replace(BACKLOG, statistic="Sum"), return_data=False),
    MetricQuery(id="e1", expression="m1 / m2", period_s=60),
)


def test_a_customized_metric_is_watched_by_the_minute() -> None:
    rule = build_alarm_rule(policy(None, ONE), COMPONENT, AlarmSide.LOW)
    assert (rule.stat, rule.queries, rule.evaluation_periods) == (BACKLOG, (), 15)


def test_metric_math_keeps_its_queries() -> None:
    rule = build_alarm_rule(policy(None, *MATH), COMPONENT, AlarmSide.HIGH)
    assert (rule.stat, rule.queries, rule.period_s) == (None, MATH, 60)


@cases(
    "name, side",
    case("high", build_alarm_name(VARIANT, AlarmSide.HIGH, "u-1"), AlarmSide.HIGH),
    case("low", build_alarm_name(COMPONENT, AlarmSide.LOW, "u-1"), AlarmSide.LOW),
    case("a resource that is named like the other one",
        build_alarm_name("inference-component/a-AlarmLow-b", AlarmSide.HIGH, "u"), AlarmSide.HIGH),
    case("a user's own", "my-AlarmHigh-1", None),
    case("a user's own that begins alike", "TargetTracking-mine", None),
)  # fmt: skip
def test_which_alarm_a_name_is(name: str, side: AlarmSide | None) -> None:
    assert find_alarm_side(name) is side


def test_names_are_those_of_aws() -> None:
    assert (
        build_alarm_name(VARIANT, AlarmSide.HIGH, "0f-1")
        == f"TargetTracking-{VARIANT}-AlarmHigh-0f-1"
    )
    assert AlarmSide.HIGH.direction is Direction.OUT
    assert AlarmSide.LOW.direction is Direction.IN


@cases(
    "one, other, same",
    case("the same type", policy("SageMakerInferenceComponentInvocationsPerCopy"),
        policy("SageMakerInferenceComponentInvocationsPerCopy"), True),
    case("the pair that the announcement of the high-resolution metrics recommends",
        policy("SageMakerInferenceComponentInvocationsPerCopy"),
        policy("SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"), False),
    case("the same one by hand", policy("SageMakerInferenceComponentInvocationsPerCopy"),
        policy(None, MetricQuery(id="x", stat=get_predefined_stat(
            "SageMakerInferenceComponentInvocationsPerCopy", COMPONENT))), True),
    case("another statistic of the same metric", policy(None, ONE),
        policy(None, replace(ONE, id="m9", stat=replace(BACKLOG, statistic="Sum"))), True),
    case("the same expression", policy(None, *MATH), policy(None, *MATH), True),
    case("an expression of it", policy(None, *MATH), policy(None, ONE), False),
)  # fmt: skip
def test_the_same_metric(one: TargetTracking, other: TargetTracking, same: bool) -> None:
    assert has_same_metric(one, other, COMPONENT) is same


@cases(
    "predefined, resource",
    case("another service's type", "ECSServiceAverageCPUUtilization", COMPONENT),
    case("no variant", "SageMakerVariantInvocationsPerInstance", "endpoint/e"),
)
def test_what_has_no_metric(predefined: str, resource: str) -> None:
    with pytest.raises(ValueError, match=r"is none of|is neither"):
        build_alarm_rule(policy(predefined), resource, AlarmSide.HIGH)
