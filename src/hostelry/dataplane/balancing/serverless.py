"""Serverless variants: which requests they take, and how many at once.

Source: "Deploy models with Amazon SageMaker Serverless Inference" in the SageMaker developer guide.
"""

from collections.abc import Callable

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.errors import ServiceError
from hostelry.dataplane.balancing.outstanding import InFlightCounts
from hostelry.dataplane.route_table import Destination
from hostelry.domain.serverless import MAX_PAYLOAD_BYTES


class ConcurrencyError(ServiceError):
    """As many requests of a serverless variant are under way as it takes."""

    def __init__(self, destination: Destination, limit: int) -> None:
        message = (
            f"Endpoint {destination.endpoint_name} takes {limit} requests at once (MaxConcurrency),"
            " and as many are under way. Try again, or raise MaxConcurrency."
        )
        super().__init__("ThrottlingException", message, 429)


def check_invocation(destination: Destination, invocation: InvokeRequest, num_bytes: int) -> None:
    """Raise ServiceError for what serverless variants do not take; `num_bytes` is the body's."""
    name = destination.endpoint_name
    if num_bytes > MAX_PAYLOAD_BYTES:
        raise ServiceError(
            "ValidationError",
            f"The body has {num_bytes} bytes; endpoint {name} is serverless and takes at most "
            f"{MAX_PAYLOAD_BYTES}.",
            400,
        )
    if invocation.session_id is not None:
        raise ServiceError(
            "ValidationError",
            f"Endpoint {name} is serverless and keeps no sessions, as its environments end when "
            "they are idle. Leave SessionId out.",
            400,
        )


def enter(destination: Destination, counts: InFlightCounts) -> Callable[[], None]:
    """Count one more request of a serverless variant; returns the function that ends the count.

    Raises ConcurrencyError where MaxConcurrency are under way on all workers, those that wait for
    an environment included.
    """
    config = destination.serverless
    assert config is not None, "only a serverless variant has a limit"
    leave = counts.claim(destination.concurrency_id, config.max_concurrency)
    if leave is None:
        raise ConcurrencyError(destination, config.max_concurrency)
    return leave


def is_beyond_provisioned(destination: Destination, counts: InFlightCounts) -> bool:
    """Whether the request that just entered is one more than the provisioned environments take."""
    config = destination.serverless
    assert config is not None, "only a serverless variant has provisioned environments"
    ready = config.provisioned_concurrency
    return ready > 0 and counts.of(destination.concurrency_id) > ready
