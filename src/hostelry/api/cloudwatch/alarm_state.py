"""SetAlarmState, EnableAlarmActions, DisableAlarmActions and DeleteAlarms."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.tags import write_tags
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.alarm import AlarmState, CompositeAlarm, MetricAlarm
from hostelry.scaling.decide.alarm_events import Alarm, configured, moved, transition
from hostelry.scaling.decide.composite import children, parse
from hostelry.store.alarm_log import append_history
from hostelry.store.records import Records, Versioned


def set_alarm_state(context: CallContext, params: Params) -> Result:
    """SetAlarmState: a metric alarm is in its own state again after its next evaluation.

    The alarm watcher performs the actions of another state within a second or so.
    """
    name, scope = params["AlarmName"], context.scope
    check_reason_data(params.get("StateReasonData"))
    records, found = find_alarm(context, name)
    alarm = found.value
    status = moved(
        alarm.status,
        AlarmState(params["StateValue"]),
        params["StateReason"],
        params.get("StateReasonData"),
        context.now,
    )
    after = replace(alarm, status=status)
    records.put(scope, name, after, expect=found.version)
    if status.state is not alarm.status.state:
        append_history(context.state, scope, [transition(after, alarm.status, context.now)])
    return {}


def enable_alarm_actions(context: CallContext, params: Params) -> Result:
    """EnableAlarmActions: names that no alarm has are ignored."""
    return switch_actions(context, params["AlarmNames"], enabled=True)


def disable_alarm_actions(context: CallContext, params: Params) -> Result:
    """DisableAlarmActions: likewise; states still change."""
    return switch_actions(context, params["AlarmNames"], enabled=False)


def delete_alarms(context: CallContext, params: Params) -> Result:
    """DeleteAlarms: names that no alarm has are ignored; a refusal deletes nothing.

    Refused are two composite alarms at once, and alarms that other composite alarms name.
    """
    names, scope = dict.fromkeys(params["AlarmNames"]), context.scope
    found = [it for it in (lookup(context, name) for name in names) if it is not None]
    composites = [it.value.name for _, it in found if isinstance(it.value, CompositeAlarm)]
    if len(composites) > 1:
        raise validation_error(
            f"At most one composite alarm can be deleted in one call; {', '.join(composites)} are"
            " composite alarms."
        )
    refuse_children(context, [it.value for _, it in found])
    for records, stored in found:
        alarm = stored.value
        records.delete(scope, alarm.name, expect=stored.version)
        write_tags(context, alarm.arn, {})
        append_history(context.state, scope, [configured(alarm, "Delete", context.now)])
    return {}


def find_alarm(context: CallContext, name: str) -> tuple[Records[Any], Versioned[Any]]:
    """The alarm of that name and where it is recorded; raises ResourceNotFound."""
    found = lookup(context, name)
    if found is None:
        raise ServiceError("ResourceNotFound", f'There is no alarm named "{name}".', 404)
    return found


def lookup(context: CallContext, name: str) -> tuple[Records[Any], Versioned[Any]] | None:
    """The alarm of that name, metric or composite, and where it is recorded."""
    kinds: tuple[Records[MetricAlarm] | Records[CompositeAlarm], ...] = (
        context.state.metric_alarms,
        context.state.composite_alarms,
    )
    for records in kinds:
        found = records.get(context.scope, name)
        if found is not None:
            return records, found
    return None


def switch_actions(context: CallContext, names: Sequence[str], *, enabled: bool) -> Result:
    """Enable or disable the actions of alarms."""
    for name in dict.fromkeys(names):
        found = lookup(context, name)
        if found is None or found[1].value.actions.enabled is enabled:
            continue
        records, stored = found
        alarm: Alarm = stored.value
        # Actions of states that were entered while disabled are not made up for.
        status = replace(alarm.status, acted_at=alarm.status.acted_at or context.now)
        actions = replace(alarm.actions, enabled=enabled)
        after = replace(
            alarm,
            actions=actions,
            status=status if enabled else alarm.status,
            configured_at=context.now,
        )
        records.put(context.scope, name, after, expect=stored.version)
        append_history(context.state, context.scope, [configured(after, "Update", context.now)])
    return {}


def refuse_children(context: CallContext, alarms: Sequence[Alarm]) -> None:
    """Raise ValidationError where a composite alarm that stays names one of `alarms`."""
    going = {it.name for it in alarms}
    stays = [it.value for it in context.state.composite_alarms.list(context.scope)]
    rules = (parse(it.expression) for it in stays if it.name not in going)
    bound = sorted(going & {child for rule in rules for child in children(rule)})
    if bound:
        them = "it" if len(bound) == 1 else "them"
        raise validation_error(
            f"Cannot delete {','.join(bound)} as there are composite alarm(s) depending on {them}."
        )


def check_reason_data(text: str | None) -> None:
    """Raise InvalidFormat where the data is not JSON."""
    if text is None:
        return
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ServiceError("InvalidFormat", f"StateReasonData is not JSON: {error}.") from None
