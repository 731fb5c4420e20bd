"""Requests in flight on each copy, and the limit of serverless variants."""

from collections.abc import Callable, Container
from typing import Protocol

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.errors import ServiceError
from hostelry.dataplane.route_table import Destination
from hostelry.domain.serverless import MAX_PAYLOAD_BYTES
from hostelry.routing.copy_choice import GatewayShare


class InFlightCounts(Protocol):
    """Requests in flight per copy, of one gateway worker or of all of them together.

    Those of other hosts, where there are any, are included as they were last known.
    """

    @property
    def share(self) -> GatewayShare | None:
        """This host among those with gateways; None where there is no other."""
        ...

    @property
    def total(self) -> int:
        """Requests in flight on all copies."""
        ...

    def of(self, copy_id: str) -> int:
        """Requests in flight on that copy."""
        ...

    def reserve(self, copy_id: str) -> Callable[[], None]:
        """Count one more; returns the function that ends the count, once."""
        ...

    def claim(self, copy_id: str, limit: int) -> Callable[[], None] | None:
        """As `reserve`; None where `limit` are counted already."""
        ...

    def retain(self, copy_ids: Container[str]) -> None:
        """Free what is kept of copies that are not in the routes any more."""
        ...


class Outstanding:
    """Counts of this process alone; a copy without requests takes no memory."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def share(self) -> GatewayShare | None:
        """None: no other host is known."""
        return None

    @property
    def total(self) -> int:
        """Requests in flight on all copies."""
        return sum(self._counts.values())

    def of(self, copy_id: str) -> int:
        """Requests in flight on that copy."""
        return self._counts.get(copy_id, 0)

    def reserve(self, copy_id: str) -> Callable[[], None]:
        """Count one more; returns the function that ends the count, once."""
        self._counts[copy_id] = self._counts.get(copy_id, 0) + 1
        given_back = False

        def give_back() -> None:
            nonlocal given_back
            if given_back:
                return
            given_back = True
            left = self._counts[copy_id] - 1
            if left:
                self._counts[copy_id] = left
            else:
                del self._counts[copy_id]

        return give_back

    def claim(self, copy_id: str, limit: int) -> Callable[[], None] | None:
        """As `reserve`; None where `limit` are counted already."""
        return self.reserve(copy_id) if self.of(copy_id) < limit else None

    def retain(self, copy_ids: Container[str]) -> None:
        """No-op: a copy without requests is not kept."""


# Serverless variants: which requests they take, and how many at once.
#
# Source: "Deploy models with Amazon SageMaker Serverless Inference" in the SageMaker developer
# guide.


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
