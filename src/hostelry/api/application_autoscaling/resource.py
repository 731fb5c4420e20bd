"""Resources that Application Auto Scaling can scale: ids, dimensions and checks. Pages of lists.

Source: RegisterScalableTarget (ResourceId, ScalableDimension) in the Application Auto Scaling API
reference.
"""

from collections.abc import Iterable
from typing import TypeVar

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, Position, get_page
from hostelry.api.sagemaker.endpoint import find_endpoint
from hostelry.api.sagemaker.kinds import COMPONENTS
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.scaling import Dimension, ScalableTarget, target_name
from hostelry.domain.serverless import MAX_CONCURRENCY
from hostelry.domain.validation import MAX_COPIES, MAX_INSTANCES
from hostelry.store.records import Versioned

NAMESPACE = "sagemaker"
UNSUPPORTED = "Unsupported service namespace, resource type or scalable dimension"
IN_SERVICE = (EndpointStatus.IN_SERVICE, EndpointStatus.UPDATING)
COMPONENT_IN_SERVICE = (ComponentStatus.IN_SERVICE, ComponentStatus.UPDATING)
MAX_RESULTS = 50
T = TypeVar("T")


def get_dimension(params: Params) -> Dimension | None:
    """The requested dimension, or None for another service's."""
    given = params.get("ScalableDimension")
    known = {it.value: it for it in Dimension}
    return known.get(given or "") if params["ServiceNamespace"] == NAMESPACE else None


def _parse_resource_id(resource_id: str, dimension: Dimension) -> tuple[str, ...]:
    """(endpoint, variant) or (component,) of a ResourceId. Raises ValidationException."""
    match resource_id.split("/"):
        case ["endpoint", endpoint, "variant", variant] if dimension is not Dimension.COPIES:
            return endpoint, variant
        case ["inference-component", component] if dimension is Dimension.COPIES:
            return (component,)
    raise validation_error(
        f'{UNSUPPORTED}: "{resource_id}" with {dimension.value}. Hostelry scales'
        f" endpoint/NAME/variant/NAME with {Dimension.INSTANCES.value} or"
        f" {Dimension.PROVISIONED_CONCURRENCY.value}, and"
        f" inference-component/NAME with {Dimension.COPIES.value}."
    )


def check_resource(context: CallContext, resource_id: str, dimension: Dimension) -> None:
    """Refuse a resource that is missing, is not in service, or has no capacity to scale."""
    names = _parse_resource_id(resource_id, dimension)
    if dimension is Dimension.COPIES:
        _check_component(context, names[0])
        return
    endpoint = find_endpoint(context, names[0]).value
    _check_variant(endpoint, names[1])
    _check_dimension(endpoint, names[1], dimension)


def _check_component(context: CallContext, name: str) -> None:
    """Refuse adapters, and components that are not in service."""
    component = COMPONENTS.find(context, name).value
    if component.adapter is not None:
        raise validation_error(
            f'Inference component "{component.arn}" is an adapter, which has no copies of its own;'
            f" scale its base, inference-component/{component.adapter.base_name}."
        )
    if component.status not in COMPONENT_IN_SERVICE:
        raise _not_in_service("inference component", component.arn, component.status.value)


def _check_variant(endpoint: Endpoint, name: str) -> None:
    """Refuse variants that are missing, are not in service, or follow their components."""
    variants = {it.variant.name: it.variant for it in endpoint.active.variants}
    if name not in variants:
        raise validation_error(
            f'Could not find variant "{name}" of endpoint "{endpoint.arn}"; its variants are'
            f" {', '.join(variants)}."
        )
    if endpoint.status not in IN_SERVICE:
        raise _not_in_service("endpoint", endpoint.arn, endpoint.status.value)
    scaling = variants[name].scaling
    if scaling is not None and scaling.enabled:
        raise validation_error(
            f'Variant "{name}" of endpoint "{endpoint.arn}" has ManagedInstanceScaling ENABLED, so'
            " that its instances follow the copies of inference components. Register those instead:"
            f" inference-component/NAME with {Dimension.COPIES.value}."
        )


def _check_dimension(endpoint: Endpoint, name: str, dimension: Dimension) -> None:
    """Refuse instances of a serverless variant, and provisioned concurrency of other variants."""
    config = next(it.serverless for it in endpoint.active.variants if it.variant.name == name)
    where = f'Variant "{name}" of endpoint "{endpoint.arn}"'
    if dimension is Dimension.INSTANCES:
        if config is not None:
            raise validation_error(
                f"{where} is serverless: the platform chooses its instances. Register it with"
                f" {Dimension.PROVISIONED_CONCURRENCY.value}."
            )
        return
    if config is None:
        raise validation_error(
            f"{where} has instances, and no provisioned concurrency. Register it with"
            f" {Dimension.INSTANCES.value}."
        )
    if not config.provisioned_concurrency:
        raise validation_error(
            f"{where} has no ProvisionedConcurrency; give it some by"
            " UpdateEndpointWeightsAndCapacities first."
        )


def check_bounds(low: int, high: int, dimension: Dimension, least: int, most: int) -> None:
    """Refuse bounds that contradict each other, or that the dimension cannot have.

    `least` and `most` are the results of `get_min_capacity` and `get_max_capacity`.
    """
    if high < low:
        raise validation_error(
            "Maximum capacity cannot be less than minimum capacity:"
            f" MaxCapacity is {high}, MinCapacity {low}."
        )
    if low < 0:
        raise validation_error(f"MinCapacity is {low}; it cannot be less than 0.")
    if low < least and dimension is Dimension.PROVISIONED_CONCURRENCY:
        raise validation_error(
            f"MinCapacity is {low}; of provisioned concurrency at least {least} is needed."
        )
    if low < least:
        raise validation_error(
            f"MinCapacity is {low}; a real-time variant needs at least {least} instance. Variants"
            " of endpoints with an AsyncInferenceConfig, and inference components, can be scaled"
            " to 0."
        )
    if high > most:
        limit = " (MaxConcurrency)" if dimension is Dimension.PROVISIONED_CONCURRENCY else ""
        raise validation_error(f"MaxCapacity is {high}; at most {most}{limit} are possible.")


def get_min_capacity(context: CallContext, resource_id: str, dimension: Dimension) -> int:
    """The lowest capacity: copies and asynchronous endpoints' instances can be scaled to 0."""
    if dimension is Dimension.COPIES:
        return 0
    endpoint_name, _ = _parse_resource_id(resource_id, dimension)
    found = context.state.endpoints.get(context.scope, endpoint_name)
    if found is None or dimension is Dimension.PROVISIONED_CONCURRENCY:
        return 1
    return found.value.active.config.least_instances


def get_max_capacity(context: CallContext, resource_id: str, dimension: Dimension) -> int:
    """The highest capacity: the variant's MaxConcurrency for provisioned concurrency."""
    if dimension is not Dimension.PROVISIONED_CONCURRENCY:
        return MAX_COPIES if dimension is Dimension.COPIES else MAX_INSTANCES
    endpoint_name, variant_name = _parse_resource_id(resource_id, dimension)
    found = context.state.endpoints.get(context.scope, endpoint_name)
    variants = () if found is None else found.value.active.variants
    mine = (it.serverless for it in variants if it.variant.name == variant_name)
    config = next(mine, None)
    return MAX_CONCURRENCY if config is None else config.max_concurrency


def find_target(context: CallContext, params: Params) -> Versioned[ScalableTarget]:
    """The registered target of a request. Raises ObjectNotFoundException."""
    found = get_target(context, params)
    if found is None:
        raise not_found("No scalable target registered", params)
    return found


def get_target(context: CallContext, params: Params) -> Versioned[ScalableTarget] | None:
    """The registered target of a request, or None."""
    dimension = get_dimension(params)
    if dimension is None:
        return None
    name = target_name(params["ResourceId"], dimension)
    return context.state.scalable_targets.get(context.scope, name)


def not_found(what: str, params: Params, name: str = "") -> ServiceError:
    """The error for an object that is not registered. `name` is appended to its identity."""
    return ServiceError(
        "ObjectNotFoundException",
        f"{what} for service namespace: {params['ServiceNamespace']}, resource ID:"
        f" {params['ResourceId']}, scalable dimension: {params['ScalableDimension']}{name}",
    )


def _not_in_service(kind: str, arn: str, status: str) -> ServiceError:
    return validation_error(
        f'Cannot register {kind} "{arn}" as a scalable target in status {status}; wait until it is'
        " InService."
    )


def parse_resource_filter(params: Params) -> tuple[str | None, Dimension | None]:
    """ResourceId and ScalableDimension of a Describe. The dimension needs a resource id."""
    resource_id = params.get("ResourceId")
    if params.get("ScalableDimension") is None:
        return resource_id, None
    if resource_id is None and not params.get("ResourceIds"):
        raise validation_error("ScalableDimension can only be given together with a resource ID.")
    return resource_id, get_dimension(params)


def build_page(
    context: CallContext,
    operation: str,
    params: Params,
    rows: Iterable[tuple[Position, T]],
    *,
    size: int = MAX_RESULTS,
    descending: bool = False,
) -> tuple[list[T], Result]:
    """The requested page of at most `size` rows, and the token to the next page.

    Raises ValidationException for MaxResults outside of 1 to 50, and InvalidNextTokenException for
    a token of another list.
    """
    tokens = PageTokens(context, operation, params, "InvalidNextTokenException")
    return get_page(tokens, rows, min(size, _get_page_size(params)), descending=descending)


def _get_page_size(params: Params) -> int:
    asked = params.get("MaxResults")
    if asked is None:
        return MAX_RESULTS
    if not 1 <= asked <= MAX_RESULTS:
        bound = "greater than or equal to 1" if asked < 1 else "less than or equal to 50"
        raise validation_error(
            f"1 validation error detected: Value '{asked}' at 'maxResults' failed to satisfy"
            f" constraint: Member must have value {bound}"
        )
    return int(asked)
