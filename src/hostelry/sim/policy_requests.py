"""AWS's scaling requests in policy files, checked against their models, as values."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from botocore.model import ListShape, StructureShape

from hostelry.api.application_autoscaling.policy_configuration import stepping_of, tracking_of
from hostelry.api.cloudwatch.alarm_rule import (
    build_metric,
    build_stat,
    get_datapoints_to_alarm,
    parse_comparison,
    parse_missing,
)
from hostelry.aws.constraints import check_params
from hostelry.aws.models import operation_model
from hostelry.aws.tree import JSON_READERS, read_tree
from hostelry.base.errors import TerminalError
from hostelry.domain.alarm import AlarmRule
from hostelry.domain.metric import MetricQuery, MetricStat
from hostelry.domain.scaling import Dimension, ScalingPolicy, ScheduledAction
from hostelry.domain.scope import Scope
from hostelry.metrics.query.queries import check_queries
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.scaling.decide.schedule import get_time_zone, parse_schedule
from hostelry.scaling.decide.tracking_alarms import PREDEFINED
from hostelry.sim.peers import KnativeRule, RayServeRule
from hostelry.sim.published import REPLAYED, REPLAYED_STATISTICS


class NamedAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """A user's alarm, and the policy (by its name) that it triggers."""

    name: str
    rule: AlarmRule
    policy_name: str


class PolicySet(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of one component. Every model of a trace gets the same.

    `rule` is another system's, which then has the number to itself. Without anything the number
    stays at `minimum`.
    """

    name: str
    minimum: int = 1
    maximum: int = 10
    dimension: Dimension = Dimension.COPIES
    policies: tuple[ScalingPolicy, ...] = ()
    alarms: tuple[NamedAlarm, ...] = ()
    schedules: tuple[ScheduledAction, ...] = ()
    responsive: ResponsiveOptions | None = None
    rule: KnativeRule | RayServeRule | None = None

    @property
    def concurrency(self) -> float | None:
        """The concurrency per copy that is aimed at, where any of them says one."""
        for policy in self.policies:
            tracking = policy.tracking
            if tracking is not None and "ConcurrentRequests" in (tracking.predefined or ""):
                return tracking.target_value
        if self.responsive is not None:
            return self.responsive.target
        return None if self.rule is None else self.rule.target


AUTOSCALING = "application-autoscaling"
CLOUDWATCH = "cloudwatch"
RESOURCE_ID = "inference-component/replayed"
DEFAULT_PERIOD_S = 60
SCOPE = Scope("111122223333", "us-west-2")
Params = Mapping[str, Any]


def check_request(service: str, operation: str, given: Params) -> dict[str, Any]:
    """Check a request, and return its members with the ones that a replay fills in.

    Raises ServiceError if the request breaks the operation's model, TerminalError for members that
    it does not have.
    """
    shape = operation_model(service, operation).input_shape
    assert isinstance(shape, StructureShape), "every request of these has members"
    _refuse_unknown(shape, given, operation)
    filled = dict(given)
    if service == AUTOSCALING:
        filled.setdefault("ServiceNamespace", "sagemaker")
        filled.setdefault("ResourceId", RESOURCE_ID)
        filled.setdefault("ScalableDimension", _get_dimension(given))
    params: dict[str, Any] = read_tree(shape, filled, "", JSON_READERS)
    check_params(shape, params)
    return params


def _get_dimension(given: Params) -> Any:
    """The dimension that a predefined metric, or the resource, speaks of."""
    configuration = _get_object(given, "TargetTrackingScalingPolicyConfiguration")
    predefined = _get_object(configuration, "PredefinedMetricSpecification")
    kind = PREDEFINED.get(str(predefined.get("PredefinedMetricType")))
    is_variant = str(given.get("ResourceId", "")).startswith("endpoint/")
    usual = Dimension.INSTANCES if is_variant else Dimension.COPIES
    return (usual if kind is None else kind.dimension).value


def _get_object(given: Params, name: str) -> Params:
    """A member that is an object. Empty if it is not, which the model's check then reports."""
    found = given.get(name)
    return found if isinstance(found, dict) else {}


def _refuse_unknown(shape: StructureShape, node: Any, path: str) -> None:
    if not isinstance(node, dict):
        return
    for name, value in node.items():
        member = shape.members.get(name)
        if member is None:
            raise TerminalError(
                f"{path} has no member {name}. There are: {', '.join(shape.members)}"
            )
        items = value if isinstance(member, ListShape) and isinstance(value, list) else [value]
        inner = member.member if isinstance(member, ListShape) else member
        if isinstance(inner, StructureShape):
            for item in items:
                _refuse_unknown(inner, item, f"{path}.{name}")


def build_policy(given: Params, number: int) -> ScalingPolicy:
    """Build the policy of a PutScalingPolicy request. Raises as `check_request`."""
    named = {"PolicyName": f"policy-{number + 1}", **given}
    tracks = "TargetTrackingScalingPolicyConfiguration" in given
    named.setdefault("PolicyType", "TargetTrackingScaling" if tracks else "StepScaling")
    params = check_request(AUTOSCALING, "PutScalingPolicy", named)
    name, kind = params["PolicyName"], params["PolicyType"]
    configuration = params.get(f"{kind}PolicyConfiguration")
    if configuration is None:
        raise TerminalError(f"{name}: {kind}PolicyConfiguration is missing, as its PolicyType asks")
    dimension = Dimension(params["ScalableDimension"])
    is_tracking = kind == "TargetTrackingScaling"
    tracking = tracking_of(configuration, dimension) if is_tracking else None
    for query in tracking.queries if tracking is not None else ():
        if query.stat is not None:
            _check_metric(query.stat)
    return ScalingPolicy(
        scope=SCOPE,
        name=name,
        arn=f"arn:aws:autoscaling:us-west-2:111122223333:scalingPolicy:{name}",
        resource_id=params["ResourceId"],
        dimension=dimension,
        created_at=0.0,
        tracking=tracking,
        stepping=None if is_tracking else stepping_of(configuration),
    )


def _queries(given: Sequence[Params]) -> tuple[MetricQuery, ...]:
    queries = tuple(_query(it) for it in given)
    check_queries(queries)
    if sum(it.return_data for it in queries) != 1:
        raise TerminalError("exactly one of Metrics must have ReturnData true")
    return queries


def _query(given: Params) -> MetricQuery:
    stat = given.get("MetricStat")
    found = None
    if stat is not None:
        found = MetricStat(
            metric=build_metric({"MetricName": "", "Namespace": "", **stat["Metric"]}, "Metrics"),
            period_s=stat.get("Period", DEFAULT_PERIOD_S),
            statistic=stat["Stat"],
        )
    return MetricQuery(
        id=given["Id"],
        stat=None if found is None else _check_metric(found),
        expression=given.get("Expression"),
        label=given.get("Label"),
        return_data=given.get("ReturnData", True),
        period_s=None if found is not None else given.get("Period", DEFAULT_PERIOD_S),
    )


def _check_metric(stat: MetricStat) -> MetricStat:
    """`stat`, of a metric that a replay knows."""
    if stat.metric.name not in REPLAYED:
        raise TerminalError(
            f"the metric {stat.metric.name} is not replayed. There are: {', '.join(REPLAYED)}"
        )
    statistic = stat.statistic
    is_percentile = statistic.startswith("p") and statistic[1:].replace(".", "", 1).isdigit()
    if statistic not in REPLAYED_STATISTICS and not is_percentile:
        raise TerminalError(
            f"the statistic {statistic} is not replayed; "
            f"{', '.join(REPLAYED_STATISTICS)} and percentiles are"
        )
    return stat


def build_scheduled_action(given: Params) -> ScheduledAction:
    """Build the action of a PutScheduledAction request. Raises as `check_request` or ValueError."""
    params = check_request(AUTOSCALING, "PutScheduledAction", given)
    name, bounds = params["ScheduledActionName"], params.get("ScalableTargetAction", {})
    schedule, zone = params.get("Schedule", ""), params.get("Timezone", "UTC")
    try:
        parse_schedule(schedule)
        get_time_zone(zone)
    except ValueError as error:
        raise TerminalError(
            f"{name}: Schedule is {schedule!r}, Timezone {zone!r}: {error}"
        ) from None
    return ScheduledAction(
        scope=SCOPE,
        name=name,
        arn=name,
        resource_id=params["ResourceId"],
        dimension=Dimension(params["ScalableDimension"]),
        schedule=schedule,
        timezone=zone,
        created_at=0.0,
        start_at=params.get("StartTime"),
        end_at=params.get("EndTime"),
        min_capacity=bounds.get("MinCapacity"),
        max_capacity=bounds.get("MaxCapacity"),
    )


def build_alarm(given: Params) -> NamedAlarm:
    """Build the alarm of a PutMetricAlarm request, with its policy. Raises as `check_request`."""
    params = check_request(CLOUDWATCH, "PutMetricAlarm", given)
    name = params["AlarmName"]
    actions = params.get("AlarmActions", [])
    if len(actions) != 1:
        raise TerminalError(f"{name}: AlarmActions must name one policy, by its name or ARN")
    for member in ("EvaluationPeriods", "ComparisonOperator", "Threshold"):
        if member not in params:
            raise TerminalError(f"{name}: {member} is missing")
    queries = _queries(params["Metrics"]) if params.get("Metrics") else ()
    rule = AlarmRule(
        evaluation_periods=params["EvaluationPeriods"],
        datapoints_to_alarm=get_datapoints_to_alarm(params),
        threshold=float(params["Threshold"]),
        comparison=parse_comparison(params["ComparisonOperator"]),
        missing=parse_missing(params.get("TreatMissingData")),
        stat=None if queries else _check_metric(build_stat(params)),
        queries=queries,
    )
    return NamedAlarm(name=name, rule=rule, policy_name=actions[0].rpartition("policyName/")[2])
