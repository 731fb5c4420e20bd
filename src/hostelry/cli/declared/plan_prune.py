"""Steps that delete old versions, and what a set made and no longer names. Pure."""

from collections.abc import Callable, Iterable

from hostelry.cli.declared.document import CLOUDWATCH, SAGEMAKER, SCALING
from hostelry.cli.declared.forms import base_of, models_in
from hostelry.cli.declared.plan_alarms import named_in
from hostelry.cli.declared.plan_endpoints import is_old_config
from hostelry.cli.declared.plan_scaling import resource_key, target_members
from hostelry.cli.declared.planning import Planning
from hostelry.cli.declared.resource import (
    NAME_TAG,
    UNNAMED_SET,
    Observed,
    ResourceKey,
    ResourceKind,
)
from hostelry.cli.declared.step import OLD_VERSION

UNNAMED = "no document names it"


def plan_old_versions(planning: Planning) -> None:
    """Delete former models and configurations of the set, after their users have the new ones."""
    for config in planning.observed.of(ResourceKind.CONFIG):
        endpoint = ResourceKey(ResourceKind.ENDPOINT, config.tags.get(NAME_TAG, ""))
        if is_old_config(planning, config, planning.found(endpoint)):
            _delete_config(planning, config, planning.done.get(endpoint, ()), OLD_VERSION)
    for model in planning.observed.of(ResourceKind.MODEL):
        name = model.tags.get(NAME_TAG, "")
        now = planning.model_names.get(name)
        if model.owner in (planning.owner, UNNAMED_SET) and now not in (None, model.key.name):
            users = (
                number
                for wanted in planning.wanted.values()
                if name in models_in(wanted.params)
                for number in planning.done.get(wanted.key, ())
            )
            needs = [*users, *planning.done.get(ResourceKey(ResourceKind.MODEL, name), ())]
            _delete_model(planning, model, needs, OLD_VERSION)


def plan_prune(planning: Planning) -> None:
    """Delete what the set made and no document names: users before what they use."""
    _prune_alarms(planning)
    for target in _unnamed(planning, ResourceKind.TARGET):
        if resource_key(target.key.name) in planning.gone:
            continue  # it goes with what it scales, which is replaced
        call = (SCALING, "DeregisterScalableTarget", target_members(target.key.name))
        planning.delete(target.key, call, (), UNNAMED)
    components = _unnamed(planning, ResourceKind.COMPONENT)
    for component in sorted(components, key=lambda it: base_of(it.params) is None):
        others = planning.observed.of(ResourceKind.COMPONENT)
        adapters = [it.key for it in others if base_of(it.params) == component.key.name]
        name = {"InferenceComponentName": component.key.name}
        call = (SAGEMAKER, "DeleteInferenceComponent", name)
        needs = [*_gone(planning, adapters), *_targets_gone(planning, component.key)]
        planning.delete(component.key, call, needs, UNNAMED)
    for endpoint in _unnamed(planning, ResourceKind.ENDPOINT):
        hosted = [
            one.key
            for one in planning.observed.of(ResourceKind.COMPONENT)
            if one.params["EndpointName"] == endpoint.key.name
        ]
        needs = [*_gone(planning, hosted), *_targets_gone(planning, endpoint.key)]
        call = (SAGEMAKER, "DeleteEndpoint", {"EndpointName": endpoint.key.name})
        planning.delete(endpoint.key, call, needs, UNNAMED)
    _prune_versions(planning)


def prune_composites(planning: Planning) -> None:
    """Delete composite alarms: no alarm can go while a rule names it."""
    unnamed = _unnamed(planning, ResourceKind.ALARM)
    left = {it.key.name: it for it in unnamed if "AlarmRule" in it.params}
    while left:
        named = {child for it in left.values() for child in named_in(it.params, left)}
        for name in [it for it in left if it not in named] or list(left):
            alarm = left.pop(name)
            call = (CLOUDWATCH, "DeleteAlarms", {"AlarmNames": [name]})
            needs = _gone(planning, [it for it in planning.gone if it.kind is ResourceKind.ALARM])
            planning.delete(alarm.key, call, needs, UNNAMED)


def _prune_alarms(planning: Planning) -> None:
    """Delete metric alarms, after the composite ones and the new rules of those that stay."""
    needs = [it.number for it in planning.steps if it.key.kind is ResourceKind.ALARM]
    for alarm in _unnamed(planning, ResourceKind.ALARM):
        if "AlarmRule" not in alarm.params:
            call = (CLOUDWATCH, "DeleteAlarms", {"AlarmNames": [alarm.key.name]})
            planning.delete(alarm.key, call, needs, UNNAMED)


def _prune_versions(planning: Planning) -> None:
    """Models and configurations whose documents are gone, after their users."""
    users = [
        number
        for key, numbers in planning.gone.items()
        if key.kind in (ResourceKind.ENDPOINT, ResourceKind.COMPONENT)
        for number in numbers
    ]
    for kind, named, delete in (
        (ResourceKind.CONFIG, ResourceKind.ENDPOINT, _delete_config),
        (ResourceKind.MODEL, ResourceKind.MODEL, _delete_model),
    ):
        for found in planning.observed.of(kind):
            document = ResourceKey(named, found.tags.get(NAME_TAG, ""))
            is_own = found.owner == planning.owner
            # A configuration keeps the tag of documents that had no name yet.
            is_own |= found.owner == UNNAMED_SET and document in planning.gone
            if is_own and document not in planning.wanted:
                delete(planning, found, users, UNNAMED)


def _unnamed(planning: Planning, kind: ResourceKind) -> list[Observed]:
    return [
        found
        for found in planning.observed.of(kind)
        if found.owner == planning.owner and found.key not in planning.wanted
        and found.status != "Deleting"
    ]  # fmt: skip


def _gone(planning: Planning, keys: Iterable[ResourceKey]) -> list[int]:
    return [number for key in keys for number in planning.gone.get(key, ())]


def _targets_gone(planning: Planning, resource: ResourceKey) -> list[int]:
    targets = [it for it in planning.gone if it.kind is ResourceKind.TARGET]
    return _gone(planning, [it for it in targets if resource_key(it.name) == resource])


Delete = Callable[[Planning, Observed, Iterable[int], str], None]


def _delete_config(planning: Planning, found: Observed, needs: Iterable[int], because: str) -> None:
    name = {"EndpointConfigName": found.key.name}
    planning.delete(found.key, (SAGEMAKER, "DeleteEndpointConfig", name), needs, because)


def _delete_model(planning: Planning, found: Observed, needs: Iterable[int], because: str) -> None:
    call = (SAGEMAKER, "DeleteModel", {"ModelName": found.key.name})
    planning.delete(found.key, call, needs, because)
