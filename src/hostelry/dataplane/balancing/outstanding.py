"""Requests in flight on each copy, and the limit of serverless variants."""

from collections.abc import Callable, Container
from typing import Protocol

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.errors import ServiceError
from hostelry.dataplane.route_table import Destination
from hostelry.domain.serverless import MAX_PAYLOAD_BYTES
from hostelry.routing.copy_choice import GatewayShare


class InFlightCounts(Protocol):
    """Requests in flight per copy, of one gateway worker or of all workers together.

    The last known counts of other hosts are included.
    """

    @property
    def share(self) -> GatewayShare | None:
        """This host's share among the hosts with gateways. None without another host."""
        ...

    @property
    def total(self) -> int:
        """Requests in flight on all copies."""
        ...

    def of(self, copy_id: str) -> int:
        """Requests in flight on that copy."""
        ...

    def reserve(self, copy_id: str) -> Callable[[], None]:
        """Count one more request. Returns the function that ends the count, once."""
        ...

    def claim(self, copy_id: str, limit: int) -> Callable[[], None] | None:
        """Count as `reserve` does. None if `limit` requests are counted already."""
        ...

    def retain(self, copy_ids: Container[str]) -> None:
        """Free the counts of copies that have left the routes."""
        ...


class Outstanding:
    """Counts of this process alone. A copy without requests takes no memory."""

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
        """Count one more request. Returns the function that ends the count, once."""
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
        """Count as `reserve` does. None if `limit` requests are counted already."""
        return self.reserve(copy_id) if self.of(copy_id) < limit else None

    def retain(self, copy_ids: Container[str]) -> None:
        """No-op: a copy without requests is not kept."""


# Limits of serverless variants, from "Deploy models with Amazon SageMaker Serverless Inference" in
# the SageMaker developer guide.


class ConcurrencyError(ServiceError):
    """The serverless variant has MaxConcurrency requests under way."""

    def __init__(self, destination: Destination, limit: int) -> None:
        message = (
            f"Endpoint {destination.endpoint_name} takes {limit} requests at once (MaxConcurrency),"
            " and as many are under way. Try again, or raise MaxConcurrency."
        )
        super().__init__("ThrottlingException", message, 429)


def check_invocation(destination: Destination, invocation: InvokeRequest, num_bytes: int) -> None:
    """Raise ServiceError if a serverless variant cannot take the invocation of `num_bytes`."""
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
    """Count one more request of a serverless variant. Returns the function that ends the count.

    Raises ConcurrencyError if MaxConcurrency requests are under way in all workers. Requests that
    wait for an environment count.
    """
    config = destination.serverless
    assert config is not None, "only a serverless variant has a limit"
    leave = counts.claim(destination.concurrency_id, config.max_concurrency)
    if leave is None:
        raise ConcurrencyError(destination, config.max_concurrency)
    return leave


def is_beyond_provisioned(destination: Destination, counts: InFlightCounts) -> bool:
    """True if the request that just entered is beyond the provisioned environments."""
    config = destination.serverless
    assert config is not None, "only a serverless variant has provisioned environments"
    ready = config.provisioned_concurrency
    return ready > 0 and counts.of(destination.concurrency_id) > ready
