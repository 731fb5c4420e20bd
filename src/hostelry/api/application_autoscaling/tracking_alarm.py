"""The alarms of target-tracking policies as records, made and deleted with their policies."""

from collections.abc import Callable, Iterable, Sequence

from hostelry.api.cloudwatch.alarm import check_number, put, status_after
from hostelry.api.cloudwatch.alarm_describe import rule_members
from hostelry.api.context import CallContext
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_uuid
from hostelry.domain.alarm import AlarmActions, MetricAlarm, alarm_arn
from hostelry.domain.scaling import ScalingPolicy, TargetTracking
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.tracking_alarms import AlarmSide, alarm_name, alarm_rule, side_of
from hostelry.store.records import State


def names_for(resource_id: str, tracking: TargetTracking, before: Iterable[str]) -> tuple[str, ...]:
    """The names of the alarms that a policy needs; those that it has are kept.

    A policy that never scales in has no AlarmLow.
    """
    known = {side_of(name): name for name in before}
    sides = (AlarmSide.HIGH,) if tracking.disable_scale_in else (AlarmSide.HIGH, AlarmSide.LOW)
    return tuple(known.get(it) or alarm_name(resource_id, it, new_uuid()) for it in sides)


def check_room(context: CallContext, names: Sequence[str]) -> None:
    """Refuse a policy where no more alarms are possible."""
    records = context.state.metric_alarms
    if all(records.get(context.scope, it) is not None for it in names):
        return
    try:
        check_number(len(records.list(context.scope)) + len(names) - 1)
    except ServiceError as error:
        raise ServiceError("LimitExceededException", error.message) from None


def renew_alarms(state: State, context_of: Callable[[Scope], CallContext]) -> None:
    """Write the alarms of every scope's policies that are missing or have another rule.

    They differ where control died while it wrote a policy, or runs with another `pace` now. To be
    called before alarms are watched.
    """
    with state.writing:
        for policy in (it.value for it in state.scaling_policies.list()):
            context = context_of(policy.scope)
            if policy.tracking is not None and is_stale(context, policy, policy.tracking):
                put_alarms(context, policy, policy.tracking)


def is_stale(context: CallContext, policy: ScalingPolicy, tracking: TargetTracking) -> bool:
    """Whether one of the policy's alarms is missing, or has another rule than it should."""
    for name in policy.alarm_names:
        side = side_of(name)
        found = context.state.metric_alarms.get(policy.scope, name)
        if found is None or side is None:
            return True
        if found.value.rule != alarm_rule(tracking, policy.resource_id, side, pace=context.pace):
            return True
    return False


def put_alarms(context: CallContext, policy: ScalingPolicy, tracking: TargetTracking) -> None:
    """Write every alarm that `policy` names; existing ones keep their state."""
    for name in policy.alarm_names:
        side = side_of(name)
        assert side is not None, "a policy's alarms are named by names_for"
        found = context.state.metric_alarms.get(context.scope, name)
        rule = alarm_rule(tracking, policy.resource_id, side, pace=context.pace)
        given = {
            "AlarmName": name,
            "AlarmDescription": (
                f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy.arn}."
            ),
            "ActionsEnabled": True,
            "AlarmActions": [policy.arn],
            **rule_members(rule, {}),
        }
        alarm = MetricAlarm(
            scope=context.scope,
            name=name,
            arn=alarm_arn(context.scope, name),
            rule=rule,
            actions=AlarmActions(alarm=(policy.arn,)),
            status=status_after(context, found),
            configured_at=context.now,
            owner=policy.arn,
            given={key: value for key, value in given.items() if value is not None},
        )
        put(context, context.state.metric_alarms, found, alarm, {})
