"""Turns: a shadow's share of requests, evenly."""

import pytest
from tests.unit.dataplane.routes_sample import COPIES, HERE

from hostelry.dataplane.route_table import Shadow
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.load import LoadKey
from hostelry.gateway.mirroring.port import ShadowTurns


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_share_is_even(share: float) -> None:
    shadow = Shadow(
        key=LoadKey(scope=HERE, endpoint_name="e", variant_name="shadow"),
        share=share,
        routing=RoutingStrategy.RANDOM,
        copies=COPIES,
    )
    turns, num_taken = ShadowTurns(lambda: 0.3), 0
    for number in range(1, 101):
        num_taken += turns.is_turn(shadow)
        assert abs(num_taken - share * number) <= 2
