"""Requests of an endpoint, and a later endpoint of the same name."""

from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import HERE

from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.routes import EndpointRoute
from hostelry.jobs.rules.copy_slots import has_endpoint, was_accepted_before


@cases(
    "accepted_for, serves, goes, fails",
    case("the endpoint that it was accepted for", 5.0, 5.0, True, False),
    case("a later endpoint of the name: its own is gone", 5.0, 7.0, False, True),
    case("routes of the endpoint before: it waits", 7.0, 5.0, False, False),
    case("a request that an earlier version kept", 0.0, 5.0, True, False),
    case("routes that an earlier version made", 5.0, 0.0, True, False),
)
def test_a_request_goes_to_the_endpoint_that_it_was_accepted_for(
    accepted_for: float, serves: float, goes: bool, fails: bool
) -> None:
    request = AsyncRequest(
        id="1", inference_id="i", scope=HERE, endpoint_name="queued", body=b"",
        output_uri="s3://o/1", failure_uri="s3://o/2", accepted_at=9.0, expires_at=99.0,
        timeout_s=1.0, endpoint_created_at=accepted_for,
    )  # fmt: skip
    route = EndpointRoute(scope=HERE, name="queued", takes_components=False, created_at=serves)
    assert (has_endpoint(request, route), was_accepted_before(request, route)) == (goes, fails)
