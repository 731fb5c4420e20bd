"""A request and the endpoint that serves its name now: is it the one that accepted it?

the endpoint, by when it was created      the request
---------------------------------------   ------------------------------------------
the one that it was accepted for          goes there
a later one of the same name              fails: its own endpoint was deleted
an earlier one: these routes are old      waits for newer routes
not known: an earlier version wrote it    goes there
"""

from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.routes import EndpointRoute


def has_endpoint(request: AsyncRequest, endpoint: EndpointRoute) -> bool:
    """True if the request may go to `endpoint`."""
    known = request.endpoint_created_at and endpoint.created_at
    return not known or request.endpoint_created_at == endpoint.created_at


def is_of_earlier(request: AsyncRequest, endpoint: EndpointRoute) -> bool:
    """True if the request was accepted for a predecessor of `endpoint`, deleted since."""
    return 0.0 < request.endpoint_created_at < endpoint.created_at
