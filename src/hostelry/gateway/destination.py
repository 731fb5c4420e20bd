"""What an invocation is for: the variant or component that its headers name, or why there is none.

Texts as the service words them. Source: SageMaker runtime API reference, InvokeEndpoint errors.
"""

from hostelry.aws.runtime import Invocation
from hostelry.base.errors import ServiceError
from hostelry.domain.routes import EndpointRoute
from hostelry.domain.scope import Scope
from hostelry.gateway.route_table import Destination, RouteTable
from hostelry.routing.session import marked_variant
from hostelry.routing.variant_choice import choose_variant, named_variant

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


def find_destination(
    table: RouteTable,
    scope: Scope,
    invocation: Invocation,
    draw: float,
    holder: int | None = None,
) -> Destination:
    """Where `invocation` goes; it has at least one copy.

    Args:
        table: the routes.
        scope: the caller's account and region.
        invocation: what the client asks for.
        draw: a uniform random number in [0, 1), for the choice of a variant.
        holder: the mark of the copy that holds the invocation's session, if one does; its variant
            goes before chance.

    Raises ServiceError ValidationError (400) or ServiceUnavailable (503).
    """
    endpoint = table.endpoint(scope, invocation.endpoint_name)
    if endpoint is None:
        raise _invalid(f"Endpoint {invocation.endpoint_name} of account {scope.account} not found.")
    _check_kind(endpoint, invocation)
    if endpoint.takes_components:
        return _component(table, endpoint, invocation)
    return _variant(table, endpoint, invocation, draw, holder)


def _check_kind(endpoint: EndpointRoute, invocation: Invocation) -> None:
    """Refuse what only kinds of endpoints that are not served here could answer."""
    if invocation.enable_explanations is not None:
        raise _invalid(
            f"Endpoint {endpoint.name} has no explainer; EnableExplanations cannot be used on it. "
            "Leave the header out."
        )
    if invocation.target_model is not None:
        raise _invalid(
            f"Endpoint {endpoint.name} is not a multi-model endpoint; TargetModel "
            f"{invocation.target_model} cannot be invoked on it."
        )
    if invocation.target_container_hostname is not None:
        raise _invalid(
            f"Endpoint {endpoint.name} is not a direct multi-container endpoint; "
            f"TargetContainerHostname {invocation.target_container_hostname} cannot be invoked."
        )


def _component(table: RouteTable, endpoint: EndpointRoute, invocation: Invocation) -> Destination:
    name = invocation.inference_component_name
    if name is None:
        raise _invalid(NO_COMPONENT_NAMED)
    destination = table.component(endpoint.scope, name)
    if destination is None or destination.endpoint_name != endpoint.name:
        raise _invalid(f"Inference Component {name} not found on endpoint {endpoint.name}.")
    if invocation.target_variant not in (None, destination.variant_name):
        raise _no_variant(endpoint, invocation.target_variant)
    if not destination.copies:
        # Only at zero wanted copies would asking for more of them help.
        raise unavailable(endpoint.name) if destination.desired_copies else _invalid(NO_CAPACITY)
    return destination


def _variant(
    table: RouteTable,
    endpoint: EndpointRoute,
    invocation: Invocation,
    draw: float,
    holder: int | None,
) -> Destination:
    if invocation.inference_component_name is not None:
        raise _invalid(
            f"Endpoint {endpoint.name} has no inference components; "
            f"{invocation.inference_component_name} cannot be invoked on it."
        )
    wanted = invocation.target_variant
    if wanted is None:
        variant = None if holder is None else marked_variant(endpoint.variants, holder)
        variant = variant or choose_variant(endpoint.variants, draw)
    else:
        variant = named_variant(endpoint.variants, wanted)
        if variant is None:
            raise _no_variant(endpoint, wanted)
    if variant is None or not variant.copies:
        raise unavailable(endpoint.name)
    return table.variant(endpoint, variant)


def unavailable(endpoint_name: str) -> ServiceError:
    """The answer while no copy can be reached; clients of AWS try again on it."""
    return ServiceError(
        "ServiceUnavailable",
        f"No healthy instance of endpoint {endpoint_name} can take the request now; try again.",
        503,
    )


def _no_variant(endpoint: EndpointRoute, name: str | None) -> ServiceError:
    return _invalid(f"Variant {name} not found on endpoint {endpoint.name}.")


def _invalid(message: str) -> ServiceError:
    return ServiceError("ValidationError", message, 400)
