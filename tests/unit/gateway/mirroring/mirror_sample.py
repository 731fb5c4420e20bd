"""A shadow, and requests for it."""

from tests.unit.dataplane.routes_sample import COPIES, HERE

from hostelry.dataplane.route_table import Shadow
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.load import LoadKey
from hostelry.gateway.mirroring.messages import MirroredInvocation, to_shadow_address

KEY = LoadKey(scope=HERE, endpoint_name="e", variant_name="shadow")
SHADOW = Shadow(key=KEY, share=1.0, routing=RoutingStrategy.RANDOM, copies=COPIES[:1])


def asked(request_id: str = "r-1", pair: int = 0, offered_at_s: float = 0.0) -> MirroredInvocation:
    """A request for the shadow, whose answers may be captured."""
    return MirroredInvocation(
        shadow=to_shadow_address(KEY),
        head=b"POST / \r\n",
        request_id=request_id,
        is_stream=False,
        captured=("text/csv", None, None),
        offered_at_s=offered_at_s,
        pair=pair,
    )
