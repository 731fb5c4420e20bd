"""One invocation as a shadow variant gets it."""

from dataclasses import replace
from functools import partial

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.http import HttpRequest
from hostelry.gateway.handlers.invocation_head import invocation_head
from hostelry.gateway.mirror import ShadowMirror
from hostelry.gateway.route_table import Destination


class MirroredInvocation:
    """Has one invocation mirrored at most once, however often it is sent to production."""

    __slots__ = ("_invocation", "_is_offered", "_mirror", "_request", "_request_id")

    def __init__(
        self, mirror: ShadowMirror, invocation: InvokeRequest, request: HttpRequest, request_id: str
    ) -> None:
        self._mirror = mirror
        self._invocation = invocation
        self._request = request
        self._request_id = request_id
        self._is_offered = False

    def offer(self, destination: Destination) -> None:
        """Offer it to the shadow of `destination`, if any; it is sent once the caller waits.

        Without its session, as the shadow's copies do not know those of production's.
        """
        if destination.shadow is None or self._is_offered:
            return
        self._is_offered = True
        invocation, request = self._invocation, self._request
        if invocation.session_id is not None:
            invocation = replace(invocation, session_id=None)
        head = partial(invocation_head, invocation, destination, request, self._request_id)
        self._mirror.offer(destination.shadow, head, request.body, is_stream=invocation.stream)
