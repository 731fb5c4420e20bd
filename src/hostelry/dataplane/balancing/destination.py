"""Look-up of an invocation's destination: the variant or component that its headers name.

Texts as the service words them. Source: SageMaker runtime API reference, InvokeEndpoint errors.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.errors import ServiceError
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import EndpointRoute, FailedComponent, VariantRoute
from hostelry.domain.scope import Scope
from hostelry.routing.copy_choice import choose_variant, named_variant, next_position, takes_new
from hostelry.routing.no_copy import NoCopyAction, no_copy_action
from hostelry.routing.session import marked_variant

MAX_NAMES = 4096  # beyond them all begin again


class EvenPositions:
    """Positions in [0, 1), one even step after the other for each name.

    Args:
        draw: uniform random numbers in [0, 1), for the first position of a name.
    """

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._next: dict[LoadKey, float] = {}

    def take(self, key: LoadKey) -> float:
        """The position of the name's present request."""
        position = self._next.get(key)
        if position is None:
            position = self._draw()
            if len(self._next) >= MAX_NAMES:
                self._next.clear()
        self._next[key] = next_position(position)
        return position


class TrafficSplit:
    """The position of each variant's next request, of one worker.

    Args:
        draw: uniform random numbers in [0, 1), for the first position.
    """

    def __init__(self, draw: Callable[[], float]) -> None:
        self._positions = EvenPositions(draw)

    def in_order(self, destination: Destination) -> Iterator[Destination]:
        """Yield the destination with the copies of one fleet, then of the other fleet.

        The fleet whose turn it is comes first. A fleet without copies is left out. While no traffic
        shifts, the only one is the destination itself.
        """
        fleets = destination.fleets
        if fleets is None:
            yield destination
            return
        order = (fleets.old, fleets.new)
        is_news_turn = takes_new(self._positions.take(destination.key), fleets.share)
        for copies in reversed(order) if is_news_turn else order:
            if copies:
                yield replace(destination, copies=copies, fleets=None)


NO_COMPONENT_NAMED = (
    "Inference Component Name header is required for endpoints to which you plan to deploy "
    "inference components. Please include Inference Component Name header or consider using "
    "SageMaker models."
)
NO_CAPACITY = (
    "Inference Component has no capacity to process this request. ApplicationAutoScaling may be "
    "in-progress (if configured) or try to increase the capacity by invoking "
    "UpdateInferenceComponentRuntimeConfig API."
)
WHY_ASLEEP = {
    Wakeable.NO_TARGET: " Its copy count was set to 0, and no scalable target is registered by "
    "which a request could have it raised.",
    Wakeable.MAX_ZERO: " The MaxCapacity of its scalable target is 0 now, so that no request may "
    "have a copy started.",
    Wakeable.SUSPENDED: " DynamicScalingOutSuspended is set on its scalable target, so that no "
    "request may have a copy started.",
}


class UnknownNameError(ServiceError):
    """The routes do not have the name. The request would be counted under `key`."""

    def __init__(self, error: ServiceError, key: LoadKey) -> None:
        super().__init__(error.code, error.message, error.http_status, error.members)
        self.key = key


class NoCopyError(ServiceError):
    """The routes have the name, but no copy for it. `action` decides on the request."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.action = no_copy_action(
            destination.at_zero, destination.desired_copies, destination.wakeable
        )
        if self.action is NoCopyAction.REFUSE:
            holds = destination.at_zero is AtZero.HOLD
            why = WHY_ASLEEP.get(destination.wakeable, "") if holds else ""
            super().__init__("ValidationError", NO_CAPACITY + why, 400)
        else:
            error = unavailable(destination.endpoint_name)
            super().__init__(error.code, error.message, error.http_status)


def find_destination(
    table: RouteTable,
    scope: Scope,
    invocation: InvokeRequest,
    draw: float,
    holder: int | None = None,
) -> Destination:
    """Find the destination of `invocation`. It has at least one copy.

    the routes have                         result
    no such endpoint or component           UnknownNameError
    the component as Failed                 ServiceError ValidationError with the reason
    no such variant on the endpoint         ServiceError ValidationError
    headers of another kind of endpoint     ServiceError ValidationError
    the endpoint as asynchronous            ServiceError ValidationError
    the name, and no ready copy for it      NoCopyError
    the name, and a copy                    its destination

    Args:
        table: the routes.
        scope: the caller's account and region.
        invocation: the client's call.
        draw: a uniform random number in [0, 1), for the choice of a variant.
        holder: the mark of the copy that holds the invocation's session. The copy's variant is
            chosen.
    """
    endpoint = table.endpoint(scope, invocation.endpoint_name)
    if endpoint is None:
        name = invocation.endpoint_name
        raise UnknownNameError(
            _invalid(f"Endpoint {name} of account {scope.account} not found."),
            _asked_key(scope, invocation),
        )
    _check_kind(endpoint, invocation)
    if endpoint.takes_components:
        return _component(table, endpoint, invocation)
    return _variant(table, endpoint, invocation, draw, holder)


def _check_kind(endpoint: EndpointRoute, invocation: InvokeRequest) -> None:
    """Raise ServiceError for an asynchronous endpoint, and headers of other kinds of endpoints."""
    if endpoint.async_inference is not None:
        raise _invalid(
            f"Endpoint {endpoint.name} has an AsyncInferenceConfig: it takes InvokeEndpointAsync "
            "only."
        )
    if invocation.enable_explanations is not None:
        raise _invalid(
            f"Endpoint {endpoint.name} has no explainer; EnableExplanations cannot be used on it. "
            "Leave the header out."
        )
    if invocation.target_model is not None and endpoint.takes_components:
        raise _no_models(f"Endpoint {endpoint.name}", invocation.target_model)
    if invocation.target_container_hostname is not None and endpoint.takes_components:
        raise _no_containers(f"Endpoint {endpoint.name}", invocation.target_container_hostname)


def _component(
    table: RouteTable, endpoint: EndpointRoute, invocation: InvokeRequest
) -> Destination:
    name = invocation.inference_component_name
    if name is None:
        raise _invalid(NO_COMPONENT_NAMED)
    destination = table.component(endpoint.scope, name)
    failed = table.find_failed_on(endpoint, name) if destination is None else None
    if failed is not None:
        raise _invalid(failure_text(failed))
    if destination is None or destination.endpoint_name != endpoint.name:
        raise UnknownNameError(
            _invalid(f"Inference Component {name} not found on endpoint {endpoint.name}."),
            _asked_key(endpoint.scope, invocation),
        )
    if invocation.target_variant not in (None, destination.variant_name):
        raise _no_variant(endpoint, invocation.target_variant)
    if not destination.copies:
        raise NoCopyError(destination)
    return destination


def _variant(
    table: RouteTable,
    endpoint: EndpointRoute,
    invocation: InvokeRequest,
    draw: float,
    holder: int | None,
) -> Destination:
    if invocation.inference_component_name is not None:
        raise _invalid(
            f"Endpoint {endpoint.name} has no inference components; "
            f"{invocation.inference_component_name} cannot be invoked on it."
        )
    wanted = invocation.target_variant
    if wanted is not None and named_variant(endpoint.variants, wanted) is None:
        raise _no_variant(endpoint, wanted)
    variants, container = (
        _select_by_model(endpoint, invocation),
        invocation.target_container_hostname,
    )
    if wanted is None:
        variant = None if holder is None else marked_variant(variants, holder)
        variant = variant or choose_variant(variants, draw)
    else:
        variant = named_variant(variants, wanted)
    if variant is None or not variant.copies:
        raise NoCopyError(table.variant(endpoint, variant or _heaviest(variants), container))
    return table.variant(endpoint, variant, container)


def _select_by_model(
    endpoint: EndpointRoute, invocation: InvokeRequest
) -> tuple[VariantRoute, ...]:
    """Select the variants that can get the invocation, with the copies of its container.

    They are multi-model if the invocation names a model. Raises ServiceError if no variant is left,
    or if the variant that it names is not among them.
    """
    model, wanted = invocation.target_model, invocation.target_variant
    of_containers = _select_by_container(endpoint, invocation)
    variants = tuple(it for it in of_containers if it.is_multi_model == (model is not None))
    if variants and (wanted is None or named_variant(variants, wanted) is not None):
        return variants
    title = _title(endpoint, wanted)
    if model is None:
        raise _invalid(
            f"{title} is multi-model; name the model to invoke as TargetModel, its path below the "
            "ModelDataUrl."
        )
    raise _no_models(title, model)


def _title(endpoint: EndpointRoute, variant_name: str | None) -> str:
    return f"Endpoint {endpoint.name}" if variant_name is None else f"Variant {variant_name}"


def _select_by_container(
    endpoint: EndpointRoute, invocation: InvokeRequest
) -> Sequence[VariantRoute]:
    """Select the variants that can get the invocation, by the container that it names, if any."""
    name, wanted = invocation.target_container_hostname, invocation.target_variant
    if name is None and not any(it.containers for it in endpoint.variants):
        return endpoint.variants
    asked = [it for it in endpoint.variants if wanted in (None, it.name)]
    if name is None:
        found = [it for it in asked if not it.containers]
    else:
        found = [
            replace(variant, copies=container.copies)
            for variant in asked
            for container in variant.containers
            if container.hostname == name
        ]
    if found:
        return found
    title = _title(endpoint, wanted)
    there = dict.fromkeys(it.hostname for variant in asked for it in variant.containers)
    if name is None:
        raise _invalid(
            f"{title} is a direct multi-container endpoint; name the container to invoke as "
            f"TargetContainerHostname: {', '.join(there)}."
        )
    if not there:
        raise _no_containers(title, name)
    raise _invalid(
        f"TargetContainerHostname {name} is no container of {title[:1].lower()}{title[1:]}; its "
        f"containers are {', '.join(there)}."
    )


def failure_text(failed: FailedComponent) -> str:
    """The answer to a request for a component that is Failed."""
    return (
        f"Inference Component {failed.name} is Failed and takes no requests: {failed.reason} "
        "Update it, or delete and create it again."
    )


def _heaviest(variants: Sequence[VariantRoute]) -> VariantRoute:
    """The variant with the largest weight. An endpoint has at least one variant."""
    return max(variants, key=lambda it: it.weight)


def _asked_key(scope: Scope, invocation: InvokeRequest) -> LoadKey:
    return LoadKey(
        scope=scope,
        endpoint_name=invocation.endpoint_name,
        variant_name=invocation.target_variant or "",
        component_name=invocation.inference_component_name,
    )


def unavailable(endpoint_name: str) -> ServiceError:
    """The answer while no copy can be reached, on which AWS clients retry."""
    return ServiceError(
        "ServiceUnavailable",
        f"No healthy instance of endpoint {endpoint_name} can take the request now; try again.",
        503,
    )


def _no_models(title: str, target_model: str) -> ServiceError:
    return _invalid(
        f"{title} has no multi-model container; TargetModel {target_model} cannot be invoked on it."
    )


def _no_containers(title: str, hostname: str) -> ServiceError:
    return _invalid(
        f"{title} is not a direct multi-container endpoint; TargetContainerHostname {hostname} "
        "cannot be invoked."
    )


def _no_variant(endpoint: EndpointRoute, name: str | None) -> ServiceError:
    return _invalid(f"Variant {name} not found on endpoint {endpoint.name}.")


def _invalid(message: str) -> ServiceError:
    return ServiceError("ValidationError", message, 400)
