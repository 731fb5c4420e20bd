"""Plan ordered steps from desired documents and observed resources. Pure.

Steps are in the order of needs: uploads, models, endpoints, components, scaling, alarms. Then come
deletions of old models and configurations. With `prune`, resources that the set dropped follow.
"""

from collections.abc import Callable, Iterable

from hostelry.cli.declared.document import CLOUDWATCH, SAGEMAKER, SCALING
from hostelry.cli.declared.expansion import WantedState
from hostelry.cli.declared.forms import get_base, models_in
from hostelry.cli.declared.local_artifacts import ArtifactUploads
from hostelry.cli.declared.observation import ObservedState
from hostelry.cli.declared.plan_hosting import (
    is_old_config,
    plan_components,
    plan_endpoints,
    replaced_components,
    replaced_endpoints,
)
from hostelry.cli.declared.plan_scaling import (
    named_in,
    plan_alarms,
    plan_first_alarms,
    plan_scaling,
    resource_key,
    target_members,
)
from hostelry.cli.declared.planning import Planning, plan_models
from hostelry.cli.declared.resource import (
    NAME_TAG,
    OLD_VERSION,
    UNNAMED_SET,
    ApplyStep,
    Observed,
    ResourceKey,
    ResourceKind,
    StepAct,
    StepPlan,
)

UNNAMED = "no document names it"
Delete = Callable[[Planning, Observed, Iterable[int], str], None]


def plan(
    wanted: WantedState,
    observed: ObservedState,
    uploads: ArtifactUploads,
    present: frozenset[str] = frozenset(),
    *,
    prune: bool = False,
) -> StepPlan:
    """Plan the steps. `present` has the URIs of existing objects.

    Raises TerminalError if a step would change a resource of another set.
    """
    planning = Planning(wanted, observed, uploads, present)
    plan_uploads(planning)
    plan_models(planning)
    replaced_endpoints(planning)
    replaced_components(planning)
    if prune:
        prune_composites(planning)
    plan_first_alarms(planning)
    plan_endpoints(planning)
    plan_components(planning)
    plan_scaling(planning, prune=prune)
    plan_alarms(planning)
    if wanted.owner:
        plan_old_versions(planning)
    if prune:
        plan_prune(planning)
    planning.refuse_foreign()
    changed = {it.key for it in planning.steps}
    num_same = sum(1 for key in wanted.resources if key not in changed)
    return StepPlan(steps=tuple(planning.steps), num_same=num_same)


def plan_uploads(planning: Planning) -> None:
    """Upload missing objects of local artifacts. Several artifacts may share an upload."""
    numbers: dict[str, int] = {}
    for uri, files in planning.uploads.files.items():
        key = ResourceKey(ResourceKind.ARTIFACT, uri)
        for file in files:
            if file.uri in numbers:
                planning.done[key].append(numbers[file.uri])
            elif file.uri not in planning.present:
                step = ApplyStep(
                    number=len(planning.steps) + 1, act=StepAct.UPLOAD, key=key, file=file
                )
                planning.steps.append(step)
                planning.done[key].append(step.number)
                numbers[file.uri] = step.number


def plan_old_versions(planning: Planning) -> None:
    """Delete old models and configurations of the set, after their users have the new ones."""
    for config in planning.observed.of(ResourceKind.CONFIG):
        endpoint = ResourceKey(ResourceKind.ENDPOINT, config.tags.get(NAME_TAG, ""))
        if is_old_config(planning, config, planning.find(endpoint)):
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
    """Delete resources of the set that no document names, users before the resources they use."""
    _prune_alarms(planning)
    for target in _find_unnamed(planning, ResourceKind.TARGET):
        if resource_key(target.key.name) in planning.gone:
            continue  # deleted with the replaced resource that it scales
        call = (SCALING, "DeregisterScalableTarget", target_members(target.key.name))
        planning.delete(target.key, call, (), UNNAMED)
    components = _find_unnamed(planning, ResourceKind.COMPONENT)
    for component in sorted(components, key=lambda it: get_base(it.params) is None):
        others = planning.observed.of(ResourceKind.COMPONENT)
        adapters = [it.key for it in others if get_base(it.params) == component.key.name]
        name = {"InferenceComponentName": component.key.name}
        call = (SAGEMAKER, "DeleteInferenceComponent", name)
        needs = [*_find_deletions(planning, adapters), *_targets_gone(planning, component.key)]
        planning.delete(component.key, call, needs, UNNAMED)
    for endpoint in _find_unnamed(planning, ResourceKind.ENDPOINT):
        hosted = [
            one.key
            for one in planning.observed.of(ResourceKind.COMPONENT)
            if one.params["EndpointName"] == endpoint.key.name
        ]
        needs = [*_find_deletions(planning, hosted), *_targets_gone(planning, endpoint.key)]
        call = (SAGEMAKER, "DeleteEndpoint", {"EndpointName": endpoint.key.name})
        planning.delete(endpoint.key, call, needs, UNNAMED)
    _prune_versions(planning)


def prune_composites(planning: Planning) -> None:
    """Delete composite alarms first: no alarm can be deleted while a rule names it."""
    unnamed = _find_unnamed(planning, ResourceKind.ALARM)
    left = {it.key.name: it for it in unnamed if "AlarmRule" in it.params}
    while left:
        named = {child for it in left.values() for child in named_in(it.params, left)}
        for name in [it for it in left if it not in named] or list(left):
            alarm = left.pop(name)
            call = (CLOUDWATCH, "DeleteAlarms", {"AlarmNames": [name]})
            needs = _find_deletions(
                planning, [it for it in planning.gone if it.kind is ResourceKind.ALARM]
            )
            planning.delete(alarm.key, call, needs, UNNAMED)


def _prune_alarms(planning: Planning) -> None:
    """Delete metric alarms, after composite alarms are deleted or have their new rules."""
    needs = [it.number for it in planning.steps if it.key.kind is ResourceKind.ALARM]
    for alarm in _find_unnamed(planning, ResourceKind.ALARM):
        if "AlarmRule" not in alarm.params:
            call = (CLOUDWATCH, "DeleteAlarms", {"AlarmNames": [alarm.key.name]})
            planning.delete(alarm.key, call, needs, UNNAMED)


def _prune_versions(planning: Planning) -> None:
    """Delete models and configurations that no document has any more, after their users."""
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
            # A configuration keeps the tag of the time when its documents had no name.
            is_own |= found.owner == UNNAMED_SET and document in planning.gone
            if is_own and document not in planning.wanted:
                delete(planning, found, users, UNNAMED)


def _find_unnamed(planning: Planning, kind: ResourceKind) -> list[Observed]:
    return [
        found
        for found in planning.observed.of(kind)
        if found.owner == planning.owner and found.key not in planning.wanted
        and found.status != "Deleting"
    ]  # fmt: skip


def _find_deletions(planning: Planning, keys: Iterable[ResourceKey]) -> list[int]:
    return [number for key in keys for number in planning.gone.get(key, ())]


def _targets_gone(planning: Planning, resource: ResourceKey) -> list[int]:
    targets = [it for it in planning.gone if it.kind is ResourceKind.TARGET]
    return _find_deletions(planning, [it for it in targets if resource_key(it.name) == resource])


def _delete_config(planning: Planning, found: Observed, needs: Iterable[int], because: str) -> None:
    name = {"EndpointConfigName": found.key.name}
    planning.delete(found.key, (SAGEMAKER, "DeleteEndpointConfig", name), needs, because)


def _delete_model(planning: Planning, found: Observed, needs: Iterable[int], because: str) -> None:
    call = (SAGEMAKER, "DeleteModel", {"ModelName": found.key.name})
    planning.delete(found.key, call, needs, because)
