"""The desired number of a scalable target: read from the records, set by compare-and-set."""

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from hostelry.base.errors import Conflict, RetryableError, ServiceError, TerminalError
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.load import LoadKey
from hostelry.domain.resize import (
    is_only_resized,
    is_only_resizing,
    replace_active,
    replace_variant,
    resize_component,
    set_instances,
    set_serverless,
)
from hostelry.domain.scaling import Dimension, ScalableTarget
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import check_serverless
from hostelry.domain.validation import MAX_COPIES, check_instance_count, check_limit
from hostelry.scaling.decide.decision import Resource
from hostelry.store.records import State, Versioned

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

Name = tuple[Scope, str]
Variant = tuple[Scope, str, str]  # an endpoint's


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to what, as of one revision."""

    endpoints: Mapping[Name, Endpoint]
    components: Mapping[Name, InferenceComponent]
    adapters: Mapping[Name, Sequence[InferenceComponent]]  # by their base
    hosted: Mapping[Variant, Sequence[InferenceComponent]]
    copies: Mapping[Name, Sequence[Copy]]  # by their component
    copies_on: Mapping[Variant, Sequence[Copy]]
    instances: Mapping[Variant, Sequence[Instance]]


class Grouping:
    """The groups of a store, cached by its revision. Thread-safe."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._known: tuple[int, Groups] | None = None

    def now(self) -> Groups:
        """The groups as the store has them now."""
        revision = self._state.store.revision()
        with self._lock:
            known = self._known
        if known is not None and known[0] == revision:
            return known[1]
        # Read after the revision: later changes are read once more the next time.
        groups = self._build_groups()
        with self._lock:
            self._known = (revision, groups)
        return groups

    def _build_groups(self) -> Groups:
        components = [it.value for it in self._state.components.list()]
        copies = [it.value for it in self._state.copies.list()]
        instances = [it.value for it in self._state.instances.list()]
        endpoints = [it.value for it in self._state.endpoints.list()]
        return Groups(
            endpoints={(it.scope, it.name): it for it in endpoints},
            components={(it.scope, it.name): it for it in components},
            adapters=group_by(
                (it for it in components if it.adapter is not None),
                lambda it: (it.scope, "" if it.adapter is None else it.adapter.base_name),
            ),
            hosted=group_by(components, lambda it: (it.scope, it.endpoint_name, it.variant_name)),
            copies=group_by(copies, lambda it: (it.scope, it.component_name or "")),
            copies_on=group_by(copies, lambda it: (it.scope, it.endpoint_name, it.variant_name)),
            instances=group_by(instances, lambda it: (it.scope, it.endpoint_name, it.variant_name)),
        )


def group_by(values: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The values by their keys, in order."""
    found: dict[K, list[T]] = {}
    for value in values:
        found.setdefault(key(value), []).append(value)
    return found


ATTEMPTS = 20  # reconcilers write too, and each lost race means that one of them got on
RefuseFewer = Callable[[Endpoint, Deployment], str | None]


class Unscalable(RetryableError):  # noqa: N818 - AWS's own word
    """The resource takes no other number now. It will once the present change has ended."""


class Gone(TerminalError):  # noqa: N818 - a fact, not a failure
    """The resource does not exist any more."""


def parse_names(resource_id: str) -> tuple[str, ...]:
    """The names in a ResourceId: (endpoint, variant), or (component,)."""
    return tuple(resource_id.split("/")[1::2])


def build_component_id(name: str) -> str:
    """The ResourceId of an inference component."""
    return f"inference-component/{name}"


def build_variant_id(endpoint_name: str, variant_name: str) -> str:
    """The ResourceId of a variant."""
    return f"endpoint/{endpoint_name}/variant/{variant_name}"


class Capacities:
    """The numbers of every scalable target.

    `refuse_fewer` says why an endpoint cannot have the (fewer) instances of a deployment, or None.
    """

    def __init__(self, state: State, refuse_fewer: RefuseFewer) -> None:
        self._state = state
        self._refuse_fewer = refuse_fewer
        self._grouping = Grouping(state)

    def groups(self) -> Groups:
        """The records as they are now, for several calls of `find` in a row."""
        return self._grouping.now()

    def find(
        self,
        scope: Scope,
        resource_id: str,
        dimension: Dimension,
        groups: Groups | None = None,
    ) -> Resource | None:
        """The resource of a scalable target. None if it does not exist (any more)."""
        groups = groups or self.groups()
        names = parse_names(resource_id)
        if dimension is Dimension.COPIES and len(names) == 1:
            component = groups.components.get((scope, names[0]))
            if component is None or component.spec is None:
                return None
            return build_component_resource(component, groups)
        if dimension is not Dimension.COPIES and len(names) == 2:
            endpoint = groups.endpoints.get((scope, names[0]))
            desired = None if endpoint is None else find_variant(endpoint, names[1])
            if endpoint is None or desired is None:
                return None
            is_serverless = desired.serverless is not None
            if is_serverless is not (dimension is Dimension.PROVISIONED_CONCURRENCY):
                return None
            return build_variant_resource(endpoint, desired, groups)
        return None

    def set(self, target: ScalableTarget, desired: int, now: float) -> None:
        """Write the number, durably on return.

        Raises Gone if there is nothing to scale, Unscalable if it may work later, and TerminalError
        if such a number is never possible.
        """
        change = {
            Dimension.COPIES: self._set_copies,
            Dimension.INSTANCES: self._set_instances,
            Dimension.PROVISIONED_CONCURRENCY: self._set_provisioned,
        }[target.dimension]
        with self._state.writing:
            for _ in range(ATTEMPTS - 1):
                try:
                    return change(target, desired, now)
                except Conflict:
                    continue
            return change(target, desired, now)

    def _set_copies(self, target: ScalableTarget, desired: int, now: float) -> None:
        scope, (name, *_) = target.scope, parse_names(target.resource_id)
        found = self._state.components.get(scope, name)
        if found is None or found.value.spec is None:
            raise Gone(f"inference component {name} does not exist any more")
        if found.value.desired_copies == desired:
            return
        now_there = build_component_resource(found.value, self.groups())
        self._check(now_there, desired, f"inference component {name}")
        run_check(lambda: check_limit("DesiredCopyCount", desired, MAX_COPIES))
        variant = self._hosting(found)
        after = resize_component(found.value, desired, variant.variant, now)
        self._state.components.put(scope, name, after, expect=found.version)

    def _set_instances(self, target: ScalableTarget, desired: int, now: float) -> None:
        scope, (endpoint_name, variant_name, *_) = target.scope, parse_names(target.resource_id)
        found = self._state.endpoints.get(scope, endpoint_name)
        before = None if found is None else find_variant(found.value, variant_name)
        if found is None or before is None:
            raise Gone(f"endpoint {endpoint_name} has no variant {variant_name} any more")
        if before.desired_instance_count == desired:
            return
        now_there = build_variant_resource(found.value, before, self.groups())
        self._check(now_there, desired, f"endpoint {endpoint_name}")
        least = found.value.active.config.least_instances
        run_check(lambda: check_instance_count(before.variant, desired, least))
        active = set_instances(found.value.active, variant_name, desired)
        if desired < before.desired_instance_count:
            reason = self._refuse_fewer(found.value, active)
            if reason is not None:
                raise Unscalable(reason)
        after = replace_active(found.value, active, now)
        self._state.endpoints.put(scope, endpoint_name, after, expect=found.version)

    def _set_provisioned(self, target: ScalableTarget, desired: int, now: float) -> None:
        scope, (endpoint_name, variant_name, *_) = target.scope, parse_names(target.resource_id)
        found = self._state.endpoints.get(scope, endpoint_name)
        before = None if found is None else find_variant(found.value, variant_name)
        config = None if before is None else before.serverless
        if found is None or before is None or config is None:
            raise Gone(
                f"endpoint {endpoint_name} has no serverless variant {variant_name} any more"
            )
        if config.provisioned_concurrency == desired:
            return
        now_there = build_variant_resource(found.value, before, self.groups())
        self._check(now_there, desired, f"endpoint {endpoint_name}")
        wanted = replace(config, provisioned_concurrency=desired)
        run_check(lambda: check_serverless(wanted, f"variant {variant_name}"))
        active = replace_variant(found.value.active, set_serverless(before, wanted))
        after = replace_active(found.value, active, now)
        self._state.endpoints.put(scope, endpoint_name, after, expect=found.version)

    def _check(self, resource: Resource, desired: int, what: str) -> None:
        if resource.is_ending:
            raise Gone(f"{what} is {resource.status}")
        if not resource.may_become(desired):
            raise Unscalable(
                f"{what} is {resource.status}: it takes {desired} once it is InService"
            )

    def _hosting(self, found: Versioned[InferenceComponent]) -> EndpointVariant:
        component = found.value
        endpoint = self._state.endpoints.get(component.scope, component.endpoint_name)
        variant = None if endpoint is None else find_variant(endpoint.value, component.variant_name)
        if variant is None:
            raise Gone(f"endpoint {component.endpoint_name} does not exist any more")
        return variant


def build_component_resource(component: InferenceComponent, groups: Groups) -> Resource:
    """What a component's number of copies belongs to."""
    name = (component.scope, component.name)
    mine = groups.copies.get(name, ())
    return Resource(
        keys=tuple(get_load_key(it) for it in (component, *groups.adapters.get(name, ()))),
        desired=component.desired_copies,
        serving=sum(it.serves for it in mine),
        status=component.status.value,
        is_settled=component.status is ComponentStatus.IN_SERVICE,
        may_grow=is_only_resizing(component),
        is_ending=component.status in (ComponentStatus.DELETING, ComponentStatus.FAILED),
        problem=component.failure_reason or component.placement_note,
        copies=tuple(mine),
        created_at=component.created_at,
    )


def build_variant_resource(
    endpoint: Endpoint, desired: EndpointVariant, groups: Groups
) -> Resource:
    """What a variant's number of instances, or of provisioned environments, belongs to."""
    place = (endpoint.scope, endpoint.name, desired.variant.name)
    copies = groups.copies_on.get(place, ())
    generation = endpoint.active.generation
    current = [it for it in groups.instances.get(place, ()) if it.generation == generation]
    running = {it.id for it in current if it.state is InstanceState.RUNNING}
    if desired.model is not None:
        running &= {it.instance_id for it in copies if it.serves}
    count, serving, config = desired.desired_instance_count, len(running), desired.serverless
    if config is not None:
        count = config.provisioned_concurrency
        serving = sum(it.serves and it.generation == generation for it in copies)
    return Resource(
        keys=list_keys(desired, place, groups),
        desired=count,
        serving=serving,
        status=endpoint.status.value,
        is_settled=endpoint.status is EndpointStatus.IN_SERVICE,
        may_grow=is_only_resized(endpoint),
        is_ending=endpoint.status in (EndpointStatus.DELETING, EndpointStatus.FAILED),
        problem=endpoint.failure_reason,
        copies=tuple(copies),
        created_at=endpoint.created_at,
    )


def list_keys(desired: EndpointVariant, place: Variant, groups: Groups) -> tuple[LoadKey, ...]:
    """The names whose requests a variant carries: its model's, or its components'."""
    if desired.model is None:
        return tuple(get_load_key(it) for it in groups.hosted.get(place, ()))
    scope, endpoint_name, variant_name = place
    return (LoadKey(scope=scope, endpoint_name=endpoint_name, variant_name=variant_name),)


def get_load_key(component: InferenceComponent) -> LoadKey:
    """The name that a component's requests are counted by."""
    return LoadKey(
        scope=component.scope,
        endpoint_name=component.endpoint_name,
        variant_name=component.variant_name,
        component_name=component.name,
    )


def find_variant(endpoint: Endpoint, name: str) -> EndpointVariant | None:
    """The variant of that name in the deployment that serves."""
    return next((it for it in endpoint.active.variants if it.variant.name == name), None)


def run_check(check: Callable[[], None]) -> None:
    """Run a check of `domain.validation`. Raises TerminalError with the check's message."""
    try:
        check()
    except ServiceError as error:
        raise TerminalError(error.message) from None
