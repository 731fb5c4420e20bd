"""PutMetricAlarm and PutCompositeAlarm: create, or replace and keep the state."""

from typing import TypeVar

from hostelry.api.cloudwatch.alarm_rule import build_actions, build_rule
from hostelry.api.context import CallContext, Params, Result
from hostelry.api.tags import parse_tags, write_tags
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.alarm import (
    AlarmStatus,
    CompositeAlarm,
    MetricAlarm,
    alarm_arn,
)
from hostelry.domain.scope import MAX_TAGS
from hostelry.scaling.decide.alarm_events import TargetKind, build_configuration_item, build_status
from hostelry.scaling.decide.composite import (
    Expression,
    RuleError,
    find_cycle,
    list_children,
    parse,
    parse_alarm_name,
)
from hostelry.store.alarm_log import append_history
from hostelry.store.records import Records, Versioned

MAX_ALARMS = 10_000  # of one kind, for an account in a region
MAX_PARENTS = 150
MAX_WAIT_S = 86_400  # of each of a suppressor's periods
NOT_ECHOED = ("Tags",)
A = TypeVar("A", MetricAlarm, CompositeAlarm)


def put_metric_alarm(context: CallContext, params: Params) -> Result:
    """PutMetricAlarm. An alarm of a scaling policy stays with the policy."""
    name, records = params["AlarmName"], context.state.metric_alarms
    _check_name(name)
    rule, actions = build_rule(context, params), build_actions(context, params)
    if context.state.composite_alarms.get(context.scope, name) is not None:
        raise _other_kind(name, "composite")
    found = records.get(context.scope, name)
    alarm = MetricAlarm(
        scope=context.scope,
        name=name,
        arn=alarm_arn(context.scope, name),
        rule=rule,
        actions=actions,
        status=get_status_after(context, found),
        configured_at=context.now,
        owner=found.value.owner if found else None,
        given=_echo(params),
    )
    return put_alarm(context, records, found, alarm, params)


def put_composite_alarm(context: CallContext, params: Params) -> Result:
    """PutCompositeAlarm. A rule that leads back to the alarm itself is refused."""
    name, records = params["AlarmName"], context.state.composite_alarms
    _check_name(name)
    if params.get("ActionConfiguration") is not None:
        raise validation_error("ActionConfiguration is not supported by this version of Hostelry.")
    actions = build_actions(context, params, (TargetKind.TOPIC, TargetKind.ADDRESS))
    if context.state.metric_alarms.get(context.scope, name) is not None:
        raise _other_kind(name, "metric")
    _check_rule(context, name, _parse_rule(params["AlarmRule"]))
    found = records.get(context.scope, name)
    alarm = CompositeAlarm(
        scope=context.scope,
        name=name,
        arn=alarm_arn(context.scope, name),
        expression=params["AlarmRule"],
        actions=actions,
        status=get_status_after(context, found),
        configured_at=context.now,
        suppressor=_get_suppressor(context, params),
        suppressor_wait_s=float(params.get("ActionsSuppressorWaitPeriod") or 0),
        suppressor_extension_s=float(params.get("ActionsSuppressorExtensionPeriod") or 0),
        given=_echo(params),
    )
    return put_alarm(context, records, found, alarm, params)


def put_alarm(
    context: CallContext, records: Records[A], found: Versioned[A] | None, alarm: A, params: Params
) -> Result:
    """Write the alarm, the tags of a new alarm, and an item of its history."""
    if found is None:
        check_number(len(records.list(context.scope)))
        tags = parse_tags(params.get("Tags"))
        if len(tags) > MAX_TAGS:
            raise validation_error(f"{len(tags)} tags; an alarm has at most {MAX_TAGS}.")
        write_tags(context, alarm.arn, tags)
    records.put(context.scope, alarm.name, alarm, expect=found.version if found else None)
    item = build_configuration_item(alarm, "Update" if found else "Create", context.now)
    append_history(context.state, context.scope, [item])
    return {}


def get_status_after(context: CallContext, found: Versioned[A] | None) -> AlarmStatus:
    """The status of the alarm that is replaced, or of a new one."""
    return build_status(context.now) if found is None else found.value.status


def _echo(params: Params) -> Params:
    return {name: value for name, value in params.items() if name not in NOT_ECHOED}


def _check_name(name: str) -> None:
    if any(ord(it) < 32 or ord(it) == 127 for it in name):
        raise validation_error(f"AlarmName {name!r} must not contain ASCII control characters.")


def check_number(num: int) -> None:
    """Refuse alarms beyond the quota."""
    if num >= MAX_ALARMS:
        raise ServiceError(
            "LimitExceeded", f"There are {num} alarms; at most {MAX_ALARMS} are possible."
        )


def _other_kind(name: str, kind: str) -> ServiceError:
    return validation_error(
        f'There is a {kind} alarm named "{name}"; names of alarms are unique in a region.'
    )


def _parse_rule(text: str) -> Expression:
    try:
        return parse(text)
    except RuleError as error:
        raise validation_error(f"AlarmRule cannot be used: {error}.") from None


def _check_rule(context: CallContext, name: str, rule: Expression) -> None:
    """Refuse a rule that names unknown alarms, leads back to itself, or exceeds MAX_PARENTS."""
    state, scope = context.state, context.scope
    composites = {it.value.name: it.value for it in state.composite_alarms.list(scope)}

    def children_of(other: str) -> tuple[str, ...]:
        return list_children(parse(composites[other].expression)) if other in composites else ()

    way = find_cycle(name, rule, children_of)
    if way:
        raise validation_error(
            f"AlarmRule leads back to the alarm itself: {' -> '.join(way)}. Name other alarms."
        )
    named = list_children(rule)
    unknown = (it for it in named if it not in composites)
    absent = [it for it in unknown if state.metric_alarms.get(scope, it) is None]
    if absent:
        raise validation_error(
            f"Could not save the composite alarm as alarms [{', '.join(absent)}] in the alarm rule"
            " do not exist."
        )
    others = [list_children(parse(it.expression)) for it in composites.values() if it.name != name]
    for child in named:
        if sum(1 for it in others if child in it) >= MAX_PARENTS:
            raise validation_error(
                f'The alarm "{child}" is in the rules of {MAX_PARENTS} composite alarms, the most'
                " that are possible."
            )


def _get_suppressor(context: CallContext, params: Params) -> str | None:
    """The name of the suppressor, which is given with its two periods or not at all."""
    given = params.get("ActionsSuppressor")
    periods = ("ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod")
    for field in periods:
        if (given is None) != (params.get(field) is None):
            raise validation_error(f"ActionsSuppressor and {field} must be given together.")
        if not 0 <= (params.get(field) or 0) <= MAX_WAIT_S:
            raise validation_error(f"{field} must be 0 to {MAX_WAIT_S} seconds.")
    if given is None:
        return None
    name = parse_alarm_name(given)
    state, scope = context.state, context.scope
    if name == params["AlarmName"]:
        raise validation_error("ActionsSuppressor must be another alarm than the one itself.")
    if (state.metric_alarms.get(scope, name) or state.composite_alarms.get(scope, name)) is None:
        raise validation_error(f'ActionsSuppressor: there is no alarm "{given}".')
    return name
