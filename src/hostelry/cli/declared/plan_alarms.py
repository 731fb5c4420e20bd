"""Steps of alarms. Pure."""

from typing import Any

from hostelry.cli.declared.change import changes
from hostelry.cli.declared.document import CLOUDWATCH
from hostelry.cli.declared.observation import ACTIONS, policy_reference
from hostelry.cli.declared.planning import Planning, tag_members
from hostelry.cli.declared.resource import (
    Observed,
    Params,
    ResourceKey,
    ResourceKind,
    Wanted,
    target_of,
)
from hostelry.cli.declared.step import StepAct

TAG_CALLS = (
    (CLOUDWATCH, "TagResource", "ResourceARN"),
    (CLOUDWATCH, "UntagResource", "ResourceARN"),
)


def plan_first_alarms(planning: Planning) -> None:
    """Put the alarms that no policy has to be there for: updates of endpoints may name them."""
    for wanted in _in_order(planning):
        if not _policies_of(planning, wanted) and "AlarmRule" not in wanted.params:
            _plan_alarm(planning, wanted)


def plan_alarms(planning: Planning) -> None:
    """Put the other alarms: those with policies, then composite ones."""
    for wanted in _in_order(planning):
        if _policies_of(planning, wanted) or "AlarmRule" in wanted.params:
            _plan_alarm(planning, wanted)


def _in_order(planning: Planning) -> list[Wanted]:
    """Metric alarms first, then composite ones after those that their rules name."""
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


def _policies_of(planning: Planning, wanted: Wanted) -> list[ResourceKey]:
    """The wanted policies among an alarm's actions."""
    actions = {it for name in ACTIONS for it in wanted.params.get(name, ())}
    return [
        policy.key
        for policy in planning.of(ResourceKind.POLICY)
        if policy_reference(target_of(policy.key.within)[0], policy.key.name) in actions
    ]


def _plan_alarm(planning: Planning, wanted: Wanted) -> None:
    key = wanted.key
    found = planning.found(key)
    if found is not None:
        planning.retag(wanted, found, TAG_CALLS)
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
        needs=planning.needs_of(None, *_policies_of(planning, wanted), *children),
        changes=changes({} if found is None else found.params, wanted.params),
    )


def _after_deletion(planning: Planning, wanted: Wanted, found: Observed) -> Observed | None:
    """The alarm that is there; None after its deletion, since one kind cannot become the other."""
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
        wanted.key, call, composites, "no metric alarm becomes a composite one, nor back"
    )
    return None
