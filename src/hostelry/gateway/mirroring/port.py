"""The mirror as a request sees it."""

from typing import Protocol

from hostelry.dataplane.route_table import Shadow
from hostelry.gateway.mirror import AnswerTap
from hostelry.gateway.mirroring.messages import MirroredInvocation


class MirrorPort(Protocol):
    """Takes requests for shadow variants; nothing here waits, and no answer to a client does."""

    def is_turn(self, shadow: Shadow) -> bool:
        """Whether the next request is one of the shadow's share."""
        ...

    def offer(self, shadow: Shadow, request: MirroredInvocation, body: bytes) -> AnswerTap | None:
        """Have a request, whose turn it is, sent to the shadow.

        The result takes production's answer, to be compared with the shadow's; None: it is not.
        """
        ...

    @property
    def num_in_flight(self) -> int:
        """Requests that this process has, and that have not ended for it."""
        ...

    async def close(self) -> None:
        """Drop what is under way."""
        ...
