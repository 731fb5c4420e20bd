"""Alarms set, enabled, disabled and deleted. Tags of alarms and dashboards."""

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.tags import TagOperations, write_tags
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.alarm import AlarmState, CompositeAlarm, MetricAlarm, alarm_arn
from hostelry.domain.metric import dashboard_arn, everywhere
from hostelry.scaling.decide.alarm_events import (
    Alarm,
    build_configuration_item,
    build_transition_item,
    move_status,
)
from hostelry.scaling.decide.composite import list_children, parse, parse_alarm_name
from hostelry.store.alarm_log import append_history
from hostelry.store.records import Records, Versioned


def set_alarm_state(context: CallContext, params: Params) -> Result:
    """SetAlarmState: the next evaluation of a metric alarm restores its own state.

    The alarm watcher performs the actions of another state within a second or so.
    """
    name, scope = params["AlarmName"], context.scope
    _check_reason_data(params.get("StateReasonData"))
    records, found = _find_alarm(context, name)
    alarm = found.value
    status = move_status(
        alarm.status,
        AlarmState(params["StateValue"]),
        params["StateReason"],
        params.get("StateReasonData"),
        context.now,
    )
    after = replace(alarm, status=status)
    records.put(scope, name, after, expect=found.version)
    if status.state is not alarm.status.state:
        append_history(
            context.state, scope, [build_transition_item(after, alarm.status, context.now)]
        )
    return {}


def enable_alarm_actions(context: CallContext, params: Params) -> Result:
    """EnableAlarmActions. Missing alarms are ignored."""
    return _switch_actions(context, params["AlarmNames"], enabled=True)


def disable_alarm_actions(context: CallContext, params: Params) -> Result:
    """DisableAlarmActions. Missing alarms are ignored. States still change."""
    return _switch_actions(context, params["AlarmNames"], enabled=False)


def delete_alarms(context: CallContext, params: Params) -> Result:
    """DeleteAlarms. Missing alarms are ignored. A refusal deletes nothing.

    Two composite alarms at once are refused, and also alarms that other composite alarms name.
    """
    names, scope = dict.fromkeys(params["AlarmNames"]), context.scope
    found = [it for it in (_get_alarm(context, name) for name in names) if it is not None]
    composites = [it.value.name for _, it in found if isinstance(it.value, CompositeAlarm)]
    if len(composites) > 1:
        raise validation_error(
            f"At most one composite alarm can be deleted in one call; {', '.join(composites)} are"
            " composite alarms."
        )
    _refuse_children(context, [it.value for _, it in found])
    for records, stored in found:
        alarm = stored.value
        records.delete(scope, alarm.name, expect=stored.version)
        write_tags(context, alarm.arn, {})
        append_history(
            context.state, scope, [build_configuration_item(alarm, "Delete", context.now)]
        )
    return {}


def _find_alarm(context: CallContext, name: str) -> tuple[Records[Any], Versioned[Any]]:
    """The alarm of that name with its kind of record. Raises ResourceNotFound."""
    found = _get_alarm(context, name)
    if found is None:
        raise ServiceError("ResourceNotFound", f'There is no alarm named "{name}".', 404)
    return found


def _get_alarm(context: CallContext, name: str) -> tuple[Records[Any], Versioned[Any]] | None:
    """The metric or composite alarm of that name with its kind of record, or None."""
    kinds: tuple[Records[MetricAlarm] | Records[CompositeAlarm], ...] = (
        context.state.metric_alarms,
        context.state.composite_alarms,
    )
    for records in kinds:
        found = records.get(context.scope, name)
        if found is not None:
            return records, found
    return None


def _switch_actions(context: CallContext, names: Sequence[str], *, enabled: bool) -> Result:
    for name in dict.fromkeys(names):
        found = _get_alarm(context, name)
        if found is None or found[1].value.actions.enabled is enabled:
            continue
        records, stored = found
        alarm: Alarm = stored.value
        # Actions of states that were entered while disabled are not performed later.
        status = replace(alarm.status, acted_at=alarm.status.acted_at or context.now)
        actions = replace(alarm.actions, enabled=enabled)
        after = replace(
            alarm,
            actions=actions,
            status=status if enabled else alarm.status,
            configured_at=context.now,
        )
        records.put(context.scope, name, after, expect=stored.version)
        append_history(
            context.state, context.scope, [build_configuration_item(after, "Update", context.now)]
        )
    return {}


def _refuse_children(context: CallContext, alarms: Sequence[Alarm]) -> None:
    """Raise ValidationError if a remaining composite alarm names one of `alarms`."""
    going = {it.name for it in alarms}
    stays = [it.value for it in context.state.composite_alarms.list(context.scope)]
    rules = (parse(it.expression) for it in stays if it.name not in going)
    bound = sorted(going & {child for rule in rules for child in list_children(rule)})
    if bound:
        them = "it" if len(bound) == 1 else "them"
        raise validation_error(
            f"Cannot delete {','.join(bound)} as there are composite alarm(s) depending on {them}."
        )


def _check_reason_data(text: str | None) -> None:
    if text is None:
        return
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ServiceError("InvalidFormat", f"StateReasonData is not JSON: {error}.") from None


def _find_tagged(context: CallContext, params: Params) -> str:
    arn: str = params["ResourceARN"]
    prefix = dashboard_arn(context.scope, "")
    if arn.startswith(prefix):
        name = arn.removeprefix(prefix)
        if context.state.dashboards.get(everywhere(context.scope), name) is None:
            raise ServiceError("ResourceNotFoundException", f'There is no dashboard "{arn}".', 404)
        return arn
    name = parse_alarm_name(arn)
    if name == arn:
        raise ServiceError(
            "InvalidParameterValueException",
            f'"{arn}" is not the ARN of an alarm or a dashboard; nothing else of CloudWatch'
            " has tags here.",
        )
    if arn != alarm_arn(context.scope, name) or _get_alarm(context, name) is None:
        raise ServiceError("ResourceNotFoundException", f'There is no alarm "{arn}".', 404)
    return arn


TAGS = TagOperations(find_arn=_find_tagged)
