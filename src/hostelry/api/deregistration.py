"""Deletion of scalable targets and policies with what belongs to them.

| deleted | with it |
| --- | --- |
| a target-tracking policy | the alarms that it made |
| a step policy | its ARN among the actions of alarms, which stay |
| a scalable target | its policies, its scheduled actions, its tags |
| an endpoint, a component | its scalable targets |

Sources: DeleteScalingPolicy and DeregisterScalableTarget in the Application Auto Scaling API
reference, and "Delete endpoints configured for auto scaling" in the SageMaker developer guide.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from hostelry.api.context import CallContext
from hostelry.api.tags import write_tags
from hostelry.domain.scaling import (
    ScalableTarget,
    ScalingPolicy,
    ScheduledAction,
    policy_key,
    target_name,
)
from hostelry.scaling.decide.alarm_events import build_configuration_item
from hostelry.store.alarm_log import append_history
from hostelry.store.records import Versioned

Part = TypeVar("Part", ScalingPolicy, ScheduledAction)


def deregister_endpoint(context: CallContext, name: str) -> None:
    """Deregister the variants of an endpoint."""
    start = f"endpoint/{name}/variant/"
    _deregister_matching(context, lambda resource_id: resource_id.startswith(start))


def deregister_component(context: CallContext, name: str) -> None:
    """Deregister an inference component."""
    own_id = f"inference-component/{name}"
    _deregister_matching(context, lambda resource_id: resource_id == own_id)


def _deregister_matching(context: CallContext, matches: Callable[[str], bool]) -> None:
    for found in context.state.scalable_targets.list(context.scope):
        if matches(found.value.resource_id):
            deregister(context, found)


def deregister(context: CallContext, found: Versioned[ScalableTarget]) -> None:
    """Delete a target after its parts, so that an interrupted call can be repeated."""
    target = found.value
    for policy in list_policies(context, target):
        delete_policy(context, policy)
    for action in list_actions(context, target):
        delete_action(context, action)
    write_tags(context, target.arn, {})
    name = target_name(target.resource_id, target.dimension)
    context.state.scalable_targets.delete(context.scope, name, expect=found.version)


def delete_policy(context: CallContext, found: Versioned[ScalingPolicy]) -> None:
    """Delete a policy, after its alarms and its ARN in the actions of other alarms."""
    policy = found.value
    drop_alarms(context, policy.alarm_names)
    _drop_alarm_actions(context, policy.arn)
    name = policy_key(policy.resource_id, policy.dimension, policy.name)
    context.state.scaling_policies.delete(context.scope, name, expect=found.version)


def delete_action(context: CallContext, found: Versioned[ScheduledAction]) -> None:
    """Delete a scheduled action."""
    action = found.value
    name = policy_key(action.resource_id, action.dimension, action.name)
    context.state.scheduled_actions.delete(context.scope, name, expect=found.version)


def list_policies(context: CallContext, target: ScalableTarget) -> list[Versioned[ScalingPolicy]]:
    """The policies of a target."""
    return _select_parts(context.state.scaling_policies.list(context.scope), target)


def list_actions(context: CallContext, target: ScalableTarget) -> list[Versioned[ScheduledAction]]:
    """The scheduled actions of a target."""
    return _select_parts(context.state.scheduled_actions.list(context.scope), target)


def _select_parts(stored: list[Versioned[Part]], target: ScalableTarget) -> list[Versioned[Part]]:
    place = (target.resource_id, target.dimension)
    return [it for it in stored if (it.value.resource_id, it.value.dimension) == place]


def drop_alarms(context: CallContext, names: Iterable[str]) -> None:
    """Delete alarms. Alarms that a user has deleted already are ignored."""
    records = context.state.metric_alarms
    for name in names:
        found = records.get(context.scope, name)
        if found is None:
            continue
        records.delete(context.scope, name, expect=found.version)
        write_tags(context, found.value.arn, {})
        deleted = build_configuration_item(found.value, "Delete", context.now)
        append_history(context.state, context.scope, [deleted])


def _drop_alarm_actions(context: CallContext, policy_arn: str) -> None:
    records = context.state.metric_alarms
    for found in records.list(context.scope):
        alarm, actions = found.value, found.value.actions
        kept = replace(
            actions,
            alarm=_remove_action(actions.alarm, policy_arn),
            ok=_remove_action(actions.ok, policy_arn),
            insufficient_data=_remove_action(actions.insufficient_data, policy_arn),
        )
        if kept == actions:
            continue
        given = {
            member: _remove_action(value, policy_arn) if member.endswith("Actions") else value
            for member, value in alarm.given.items()
        }
        after = replace(alarm, actions=kept, given=given, configured_at=context.now)
        records.put(context.scope, alarm.name, after, expect=found.version)
        updated = build_configuration_item(after, "Update", context.now)
        append_history(context.state, context.scope, [updated])


def _remove_action(actions: Iterable[str], policy_arn: str) -> tuple[str, ...]:
    return tuple(it for it in actions if it != policy_arn)
