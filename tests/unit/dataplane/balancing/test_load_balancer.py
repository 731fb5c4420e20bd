import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.dataplane.routes_sample import COPIES

from hostelry.dataplane.balancing.adapter_places import AdapterPlaces
from hostelry.dataplane.balancing.load_balancer import InFlightRequest, LoadBalancer
from hostelry.dataplane.balancing.outstanding import Outstanding
from hostelry.dataplane.fake import FakeUpstream
from hostelry.dataplane.tracing.call_trace import MAX_VIEWED, RouteView
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.http1.reply import BrokenError, ConnectError, DeadlineError, UpstreamError
from hostelry.http1.upstream import Timeouts
from hostelry.routing.circuit import FAILURES_IN_A_ROW, FIRST_OPEN_S

FIRST, SECOND = (copy.address for copy in COPIES)
REQUEST = (b"POST / HTTP/1.1\r\n\r\n", b"")
LEAST = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS
RANDOM = RoutingStrategy.RANDOM


class Rig:
    """Two copies, of which some fail, and a draw that always names the first."""

    def __init__(self, failures: dict[str, UpstreamError] | None = None) -> None:
        self.now_s = 50.0
        self.upstream = FakeUpstream(failures)
        self.outstanding = Outstanding()
        self.placed: list[InFlightRequest] = []
        self.copies = LoadBalancer(
            self.upstream,
            self.outstanding,
            lambda: 0.0,
            lambda: self.now_s,
            AdapterPlaces(lambda: self.now_s),
        )

    def send(
        self, num: int = 1, adapter: str | None = None, strategy: RoutingStrategy = LEAST
    ) -> list[str]:
        """The addresses that get `num` requests, which are sent one by one."""
        self.upstream.asked.clear()

        async def scenario() -> None:
            for _ in range(num):
                placed = await self.copies.send(
                    COPIES, strategy, REQUEST, Timeouts(total_s=1), adapter=adapter
                )
                assert self.outstanding.total > 0
                self.placed.append(placed)

        self.placed.clear()
        asyncio.run(scenario())
        return list(self.upstream.asked)

    def close(self) -> None:
        for placed in self.placed:
            placed.close()

    def choices(self, **given: Any) -> list[tuple[str, RouteView | None]]:
        """The copies that one request is sent to, each with the candidates of its choice."""
        found: list[tuple[str, RouteView | None]] = []

        async def scenario() -> None:
            asked = {"copies": COPIES, "strategy": LEAST, **given}
            self.placed.append(
                await self.copies.send(
                    parts=REQUEST,
                    timeouts=Timeouts(total_s=1),
                    chosen=lambda copy_id, _num, _config, route: found.append((copy_id, route)),
                    **asked,
                )
            )

        asyncio.run(scenario())
        return found


def test_a_request_counts_until_it_is_closed_and_the_idlest_copy_is_next() -> None:
    rig = Rig()
    assert rig.send(3) == [FIRST, SECOND, FIRST]
    assert (rig.outstanding.of("c-1"), rig.outstanding.of("c-2")) == (2, 1)
    rig.close()
    rig.close()
    assert rig.outstanding.total == 0


def test_a_copy_that_refuses_is_replaced_and_left_alone_for_a_second() -> None:
    rig = Rig({FIRST: ConnectError("refused")})
    assert rig.send() == [FIRST, SECOND]
    rig.close()
    assert rig.send() == [SECOND]
    rig.close()
    rig.upstream.failures.clear()
    rig.now_s += FIRST_OPEN_S
    assert rig.send() == [FIRST]


def test_a_copy_left_alone_is_asked_where_there_is_no_other() -> None:
    rig = Rig({FIRST: ConnectError("refused"), SECOND: ConnectError("refused")})
    with pytest.raises(ConnectError):
        rig.send()
    assert sorted(rig.upstream.asked) == [FIRST, SECOND]
    with pytest.raises(ConnectError):
        rig.send()
    assert sorted(rig.upstream.asked) == [FIRST, SECOND]
    assert rig.outstanding.total == 0


@pytest.mark.parametrize("failure", [BrokenError("died"), DeadlineError("late")])
def test_a_request_that_may_have_been_processed_is_not_sent_again(failure: UpstreamError) -> None:
    rig = Rig({FIRST: failure})
    with pytest.raises(type(failure)):
        rig.send()
    assert rig.upstream.asked == [FIRST]
    assert rig.outstanding.total == 0


def test_a_copy_that_leaves_requests_without_an_answer_is_left_alone_until_a_probe_succeeds() -> (
    None
):
    rig = Rig({FIRST: DeadlineError("late")})
    for _ in range(FAILURES_IN_A_ROW):
        with pytest.raises(DeadlineError):
            rig.send()
    assert rig.send() == [SECOND]
    rig.close()
    rig.now_s += FIRST_OPEN_S
    with pytest.raises(DeadlineError):
        rig.send()  # the probe
    assert rig.send(2) == [SECOND, SECOND]
    rig.close()
    rig.now_s += FIRST_OPEN_S
    assert rig.send() == [SECOND]  # twice as long as the first time
    rig.close()
    rig.now_s += FIRST_OPEN_S
    rig.upstream.failures.clear()
    assert rig.send(2) == [FIRST, SECOND]


def test_an_answer_in_between_forgives_what_failed_before() -> None:
    rig = Rig()
    for _ in range(3 * FAILURES_IN_A_ROW):
        rig.upstream.failures = {FIRST: BrokenError("died")}
        with pytest.raises(BrokenError):
            rig.send()
        rig.upstream.failures = {}
        assert rig.send() == [FIRST]
        rig.close()


def test_only_one_request_at_a_time_tries_a_copy_that_was_left_alone() -> None:
    rig = Rig({FIRST: ConnectError("refused")})
    rig.send()
    rig.close()
    rig.now_s += FIRST_OPEN_S
    assert rig.copies.choose(COPIES, LEAST)[0].address == FIRST  # the probe, not back yet
    assert {rig.copies.choose(COPIES, LEAST)[0].address for _ in range(5)} == {SECOND}


def test_requests_for_an_adapter_stay_where_it_is_and_others_go_to_the_idlest() -> None:
    rig = Rig()
    assert rig.send(1, adapter="pirate") == [FIRST]
    rig.close()
    rig.outstanding.reserve("c-2")
    assert rig.send(1, adapter="poet") == [FIRST]
    rig.close()
    assert rig.send(1) == [FIRST]
    rig.close()
    assert rig.send(3, adapter="pirate") == [FIRST, FIRST, SECOND]


def test_random_is_random_for_adapters_too() -> None:
    rig = Rig()
    rig.send(1, adapter="pirate", strategy=RANDOM)
    copies = LoadBalancer(
        rig.upstream, rig.outstanding, lambda: 0.9, lambda: 0.0, AdapterPlaces(float)
    )
    assert {copies.choose(COPIES, RANDOM, "pirate")[0].address for _ in range(3)} == {SECOND}


def test_an_adapter_is_never_sent_to_a_copy_that_is_left_alone_for_being_there() -> None:
    rig = Rig()
    assert rig.send(1, adapter="pirate") == [FIRST]
    rig.close()
    rig.upstream.failures = {FIRST: ConnectError("refused")}
    assert rig.send(1, adapter="pirate") == [FIRST, SECOND]
    rig.close()
    rig.upstream.failures = {}
    rig.now_s += FIRST_OPEN_S
    assert rig.send(1, adapter="pirate") == [SECOND]  # the first one has been started again


def test_giving_a_place_back_twice_counts_once() -> None:
    outstanding = Outstanding()
    give_back = outstanding.reserve("c-1")
    outstanding.reserve("c-1")
    give_back()
    give_back()
    assert outstanding.of("c-1") == 1


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_counts_end_at_zero_in_whatever_order_places_come_back(order: Iterable[int]) -> None:
    outstanding = Outstanding()
    places = [outstanding.reserve(copy) for copy in ("c-1", "c-2", "c-1")]
    for index in order:
        places[index]()
    assert outstanding.total == 0


def test_what_a_copy_was_chosen_from_is_reported_with_the_costs() -> None:
    first, second = (copy.id for copy in COPIES)
    rig = Rig()
    assert rig.choices() == [(first, (LEAST.value, (first, second), (0, 0), 2))]
    assert rig.choices() == [(second, (LEAST.value, (first, second), (1, 0), 2))]
    assert rig.choices(strategy=RANDOM) == [(first, (RANDOM.value, (first, second), (1, 1), 2))]
    assert rig.choices(copies=COPIES[:1]) == [(first, None)], "there was no choice"
    ((_, route),) = rig.choices(adapter="sql")
    assert route is not None
    assert route[:2] == ("adapter", (first, second))
    assert all(cost > 0 for cost in route[2]), "milliseconds"


def test_a_copy_that_refuses_is_followed_by_a_choice_among_the_others() -> None:
    first, second = (copy.id for copy in COPIES)
    choices = Rig({FIRST: ConnectError("refused")}).choices()
    assert [it[0] for it in choices] == [first, second]
    assert choices[1][1] is None


def test_of_very_many_copies_the_first_are_reported_with_their_number() -> None:
    many = [replace(COPIES[0], id=f"c-{it}") for it in range(40)]
    ((_, route),) = Rig().choices(copies=many)
    assert route is not None
    assert (len(route[1]), len(route[2]), route[3]) == (MAX_VIEWED, MAX_VIEWED, 40)
