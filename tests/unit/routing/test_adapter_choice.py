from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.routing.adapter_choice import (
    TIE_SHARE,
    CopyView,
    choose_for_adapter,
    common_service_ms,
)

IDLE = CopyView(outstanding=0, service_ms=50.0, load_ms=40.0, resident=False, held=0, capacity=4)


def view(outstanding: int = 0, **changes: Any) -> CopyView:
    return IDLE._replace(outstanding=outstanding, **changes)


def home(outstanding: int = 0, **changes: Any) -> CopyView:
    return view(outstanding, resident=True, held=1, **changes)


SITUATIONS = [
    pytest.param([view(), home()], 1, id="where the adapter is, while all are idle"),
    pytest.param([view(), home(1)], 0, id="elsewhere once waiting costs more than loading"),
    pytest.param([view(), home(1, load_ms=60.0), view()], 0,
                 id="the load cost that counts is that of where it is not"),
    pytest.param([view(load_ms=60.0), home(1)], 1, id="it waits where loading costs more"),
    pytest.param([view(load_ms=3000.0), home(9)], 1, id="a load of seconds is worth a queue"),
    pytest.param([view(load_ms=3000.0), home(61)], 0, id="but not any queue: nothing is pinned"),
    pytest.param([view(1), view(1, held=2), view(1, held=3)], 2,
                 id="an unknown adapter goes to the fullest copy with room"),
    pytest.param([view(held=3), view(held=4)], 0,
                 id="a full copy is not the fullest: its load drops another adapter"),
    pytest.param([view(2, held=4, load_ms=60.0), view(3, held=1, load_ms=60.0)], 1,
                 id="room for another adapter is worth a little wait"),
    pytest.param([view(held=4), view(held=4)], 0, id="the first of two that are alike"),
    pytest.param([view(2), view(1), view(2)], 1, id="without an adapter anywhere, the idlest"),
    pytest.param([home(1), home(), home(1)], 1, id="on several copies, the idlest of them"),
    pytest.param([home(service_ms=500.0), home(1, service_ms=20.0)], 1,
                 id="a fast copy with a request before a slow one without"),
    pytest.param([home(service_ms=52.0), home(service_ms=50.0)], 0,
                 id="a service time that is hardly better decides nothing"),
    pytest.param([view(7)], 0, id="a single copy is always it"),
]  # fmt: skip


@pytest.mark.parametrize(("copies", "expected"), SITUATIONS)
def test_where_a_request_for_an_adapter_goes(copies: list[CopyView], expected: int) -> None:
    assert choose_for_adapter(copies).index == expected


@cases(
    "copies, reason",
    case("at home", [home()], "it has the adapter, and 50 ms are expected there"),
    case(
        "a first load",
        [view()],
        "no copy has the adapter; here 50 ms are expected and 40 ms for the load",
    ),
    case(
        "a spill",
        [view(), home(2)],
        "150 ms are expected where the adapter is; here 50 ms are expected and 40 ms for the load",
    ),
)
def test_a_choice_has_its_reason(copies: list[CopyView], reason: str) -> None:
    assert choose_for_adapter(copies).reason == reason


views = st.builds(
    CopyView,
    outstanding=st.integers(0, 200),
    service_ms=st.floats(0.1, 10_000),
    load_ms=st.floats(1, 60_000),
    resident=st.booleans(),
    held=st.integers(0, 64),
    capacity=st.just(64),
)


@given(st.lists(views, min_size=1, max_size=20))
def test_no_copy_is_chosen_that_costs_more_than_another_by_more_than_a_tie(
    copies: list[CopyView],
) -> None:
    chosen = copies[choose_for_adapter(copies).index]
    tie_ms = TIE_SHARE * min(copy.service_ms for copy in copies)
    assert cost_ms(chosen) <= min(cost_ms(copy) for copy in copies) + tie_ms


def cost_ms(copy: CopyView) -> float:
    """Time to the request's end there, and the load of the adapter."""
    return (copy.outstanding + 1) * copy.service_ms + copy.loading_ms


@given(st.lists(views, min_size=1, max_size=20), st.floats(0.1, 10_000))
def test_no_copy_idles_while_the_wait_is_longer_than_there_and_the_load(
    copies: list[CopyView], service_ms: float
) -> None:
    alike = [copy._replace(service_ms=service_ms) for copy in copies]
    choice = choose_for_adapter(alike)
    chosen = alike[choice.index]
    for copy in alike:
        if copy.outstanding == 0 and chosen.outstanding > 0:
            assert choice.wait_ms <= (1 + TIE_SHARE) * service_ms + copy.loading_ms


@given(st.lists(views, min_size=1, max_size=20))
def test_the_same_copies_give_the_same_choice(copies: list[CopyView]) -> None:
    assert choose_for_adapter(copies) == choose_for_adapter(list(copies))


@cases(
    "services_ms, expected",
    case("a single one", [50.0], [50.0]),
    case("noise makes no difference", [40.0, 50.0, 70.0], [50.0, 50.0, 50.0]),
    case("a slow copy does", [50.0, 50.0, 50.0, 110.0], [50.0, 50.0, 50.0, 110.0]),
    case("a fast one does", [20.0, 50.0, 55.0], [20.0, 50.0, 50.0]),
    case("no time at all", [0.0, 0.0], [0.0, 0.0]),
)
def test_paces_to_choose_by(services_ms: list[float], expected: list[float]) -> None:
    assert common_service_ms(services_ms) == expected
