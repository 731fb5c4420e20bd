"""Plan steps of scalable targets, their policies and scheduled actions. Pure.

Policies and actions have no tags. A tag of their target marks those that a set of documents made.
The target gets the tag first, so that no policy or action exists without a mark.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from hostelry.cli.declared.document import CLOUDWATCH, SCALING
from hostelry.cli.declared.observation import ACTIONS, policy_reference
from hostelry.cli.declared.planning import Planning, tag_members
from hostelry.cli.declared.resource import (
    Observed,
    Params,
    ResourceKey,
    ResourceKind,
    StepAct,
    Wanted,
    changes,
    split_target,
)

SCALING_TAG_CALLS = (
    (SCALING, "TagResource", "ResourceARN"),
    (SCALING, "UntagResource", "ResourceARN"),
)
MARK = "hostelry:applied-"
PUT = {ResourceKind.POLICY: "PutScalingPolicy", ResourceKind.ACTION: "PutScheduledAction"}
DELETE = {ResourceKind.POLICY: "DeleteScalingPolicy", ResourceKind.ACTION: "DeleteScheduledAction"}
NAMES = {ResourceKind.POLICY: "PolicyName", ResourceKind.ACTION: "ScheduledActionName"}
WORDS = {ResourceKind.POLICY: "policy", ResourceKind.ACTION: "action"}
ALARM_TAG_CALLS = (
    (CLOUDWATCH, "TagResource", "ResourceARN"),
    (CLOUDWATCH, "UntagResource", "ResourceARN"),
)


def get_mark(key: ResourceKey) -> str:
    """The tag of the target that marks a policy or an action."""
    digest = hashlib.sha256(key.name.encode()).hexdigest()[:16]
    return f"{MARK}{WORDS[key.kind]}/{digest}"


def target_members(name: str) -> dict[str, str]:
    """The members of a request that name a target."""
    resource_id, dimension = split_target(name)
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": resource_id,
        "ScalableDimension": dimension,
    }


def resource_key(target: str) -> ResourceKey:
    """The endpoint or component of a target."""
    parts = split_target(target)[0].split("/")
    return ResourceKey(
        ResourceKind.ENDPOINT if parts[0] == "endpoint" else ResourceKind.COMPONENT, parts[1]
    )


def plan_scaling(planning: Planning, *, prune: bool) -> None:
    """Register targets. Then delete pruned policies and actions, and put the wanted ones."""
    for wanted in planning.of(ResourceKind.TARGET):
        _plan_target(planning, wanted)
    if prune:
        _plan_pruned_parts(planning)
    for kind in (ResourceKind.POLICY, ResourceKind.ACTION):
        for wanted in planning.of(kind):
            _plan_part(planning, wanted)


def find_parts(planning: Planning, target: ResourceKey) -> list[Wanted]:
    """The wanted policies and actions of a target."""
    return [it for it in planning.wanted.values() if it.key.within == target.name]


def _plan_target(planning: Planning, wanted: Wanted) -> None:
    key = wanted.key
    found = _find(planning, key)
    needs = planning.find_needs(None, resource_key(key.name))
    if found is None:
        parts = find_parts(planning, key) if planning.owner else []
        marks = {get_mark(it.key): planning.owner for it in parts}
        tags = tag_members({**planning.tags(wanted), **marks}, SCALING)
        request = {**target_members(key.name), **wanted.params, **tags}
        call = (SCALING, "RegisterScalableTarget", request)
        planning.add(StepAct.CREATE, key, call, needs=needs, changes=changes({}, wanted.params))
        return
    planning.retag(wanted, found, SCALING_TAG_CALLS)
    before = {name: it for name, it in found.params.items() if name in wanted.params}
    before = _given_alike(before, wanted.params)
    if before != wanted.params:
        planning.check_owner(wanted, found)
        call = (SCALING, "RegisterScalableTarget", {**target_members(key.name), **wanted.params})
        planning.add(StepAct.UPDATE, key, call, needs=needs, changes=changes(before, wanted.params))


def _find(planning: Planning, key: ResourceKey) -> Observed | None:
    """A target, policy or action. None if it does not exist, or is deleted with its resource."""
    goes = resource_key(key.within or key.name) in planning.gone
    return None if goes else planning.find(key)


def _given_alike(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """`before` with only those suspensions that the documents give."""
    given = wanted.get("SuspendedState", {})
    suspended = {it: on for it, on in before.get("SuspendedState", {}).items() if it in given}
    return {**before, **({"SuspendedState": suspended} if given else {})}


def _plan_part(planning: Planning, wanted: Wanted) -> None:
    key = wanted.key
    target = ResourceKey(ResourceKind.TARGET, key.within)
    found, holder = _find(planning, key), _find(planning, target)
    if found is not None and (wanted.only_created or found.params == wanted.params):
        return
    if found is not None and holder is not None:
        planning.check_owner(wanted, _add_owner(found, holder))
    needs = planning.find_needs(None, target, resource_key(key.within))
    # A metric can have one tracking policy, so pruned policies are deleted first.
    needs += [
        number
        for other, numbers in planning.gone.items()
        if other.within == key.within
        for number in numbers
    ]
    is_marked = not planning.owner or (holder is not None and get_mark(key) in holder.tags)
    if found is None and holder is not None and not is_marked:
        tags = tag_members({get_mark(key): planning.owner}, SCALING)
        call = (SCALING, "TagResource", {"ResourceARN": holder.arn, **tags})
        planning.add(StepAct.TAG, key, call, needs=needs, because="marks who makes it")
    request = {**target_members(key.within), NAMES[key.kind]: key.name, **wanted.params}
    before = {} if found is None else found.params
    planning.add(
        StepAct.CREATE if found is None else StepAct.UPDATE,
        key,
        (SCALING, PUT[key.kind], request),
        needs=needs,
        changes=changes(before, wanted.params),
    )


def _add_owner(found: Observed, holder: Observed) -> Observed:
    """A policy or an action with its owner, from a tag of its target."""
    owner = holder.tags.get(get_mark(found.key), "")
    return Observed(
        key=found.key, params=found.params, tags={"hostelry:applied-by": owner} if owner else {}
    )


def _plan_pruned_parts(planning: Planning) -> None:
    """Delete policies and actions that the set made and no longer names, then their marks.

    A pruned target's policies and actions are deleted with the target.
    """
    for found in [
        *planning.observed.of(ResourceKind.POLICY),
        *planning.observed.of(ResourceKind.ACTION),
    ]:
        key = found.key
        holder = planning.observed.resources.get(ResourceKey(ResourceKind.TARGET, key.within))
        if key in planning.wanted or holder is None or resource_key(key.within) in planning.gone:
            continue
        target_goes = holder.key not in planning.wanted and holder.owner == planning.owner
        if target_goes or holder.tags.get(get_mark(key)) != planning.owner:
            continue
        request = {**target_members(key.within), NAMES[key.kind]: key.name}
        call = (SCALING, DELETE[key.kind], request)
        number = planning.delete(key, call, (), "no document names it")
        mark = {"ResourceARN": holder.arn, "TagKeys": [get_mark(key)]}
        planning.delete(key, (SCALING, "UntagResource", mark), [number])


def plan_first_alarms(planning: Planning) -> None:
    """Put the alarms that need no policy. Updates of endpoints may name these alarms."""
    for wanted in _in_order(planning):
        if not _find_policies(planning, wanted) and "AlarmRule" not in wanted.params:
            _plan_alarm(planning, wanted)


def plan_alarms(planning: Planning) -> None:
    """Put the other alarms: first those that need policies, then composite alarms."""
    for wanted in _in_order(planning):
        if _find_policies(planning, wanted) or "AlarmRule" in wanted.params:
            _plan_alarm(planning, wanted)


def _in_order(planning: Planning) -> list[Wanted]:
    """Metric alarms first. A composite alarm follows the alarms that its rule names."""
    alarms = planning.of(ResourceKind.ALARM)
    composites = {it.key.name: it for it in alarms if "AlarmRule" in it.params}
    ordered: dict[str, Wanted] = {}

    def put(wanted: Wanted, above: frozenset[str]) -> None:
        name = wanted.key.name
        for child in named_in(wanted.params, composites):
            if child not in above and child not in ordered:
                put(composites[child], above | {name})
        ordered[name] = wanted

    for wanted in composites.values():
        if wanted.key.name not in ordered:
            put(wanted, frozenset())
    return [it for it in alarms if it.key.name not in composites] + list(ordered.values())


def named_in(params: Params, names: Any) -> list[str]:
    """The alarms of `names` that a composite alarm's rule or suppressor names."""
    text = f"{params.get('AlarmRule', '')} ({params.get('ActionsSuppressor', '')})"
    return [it for it in names if f'"{it}"' in text or f"({it})" in text or f":{it}" in text]


def _find_policies(planning: Planning, wanted: Wanted) -> list[ResourceKey]:
    """The wanted policies among an alarm's actions."""
    actions = {it for name in ACTIONS for it in wanted.params.get(name, ())}
    return [
        policy.key
        for policy in planning.of(ResourceKind.POLICY)
        if policy_reference(split_target(policy.key.within)[0], policy.key.name) in actions
    ]


def _plan_alarm(planning: Planning, wanted: Wanted) -> None:
    key = wanted.key
    found = planning.find(key)
    if found is not None:
        planning.retag(wanted, found, ALARM_TAG_CALLS)
        if found.params == wanted.params:
            return
        planning.check_owner(wanted, found)
        found = _after_deletion(planning, wanted, found)
    others = [it.key.name for it in planning.of(ResourceKind.ALARM) if it.key != key]
    children = [ResourceKey(ResourceKind.ALARM, it) for it in named_in(wanted.params, others)]
    tags = {} if found is not None else tag_members(planning.tags(wanted), CLOUDWATCH)
    operation = "PutCompositeAlarm" if "AlarmRule" in wanted.params else "PutMetricAlarm"
    planning.add(
        StepAct.CREATE if found is None else StepAct.UPDATE,
        key,
        (CLOUDWATCH, operation, {"AlarmName": key.name, **wanted.params, **tags}),
        needs=planning.find_needs(None, *_find_policies(planning, wanted), *children),
        changes=changes({} if found is None else found.params, wanted.params),
    )


def _after_deletion(planning: Planning, wanted: Wanted, found: Observed) -> Observed | None:
    """Delete an alarm of the other type, which cannot be updated. None if it is deleted."""
    if ("AlarmRule" in wanted.params) == ("AlarmRule" in found.params):
        return found
    call = (CLOUDWATCH, "DeleteAlarms", {"AlarmNames": [wanted.key.name]})
    composites = [
        number
        for key, numbers in planning.gone.items()
        if key.kind is ResourceKind.ALARM
        for number in numbers
    ]
    planning.delete(
        wanted.key, call, composites, "cannot switch between a metric and a composite alarm"
    )
    return None
