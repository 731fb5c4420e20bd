"""Hot adapters spread, and cold ones stay. Knowledge about a copy ends with the copy."""

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.base.clock import ManualClock
from hostelry.dataplane.balancing.adapter_places import QUIET_S, AdapterPlaces
from hostelry.dataplane.balancing.sessions import SessionDict
from hostelry.domain.routes import CopyRoute
from hostelry.routing.adapter_choice import PRIOR_LOAD_MS, PRIOR_SERVICE_MS

COPIES = tuple(CopyRoute(id=f"c-{n}", address=f"http://127.0.0.1:{n}") for n in range(4))
NOW = 1_700_000_000.0


def places(capacity: int = 8, board: SessionDict | None = None) -> AdapterPlaces:
    return AdapterPlaces(lambda: NOW, board, capacity)


def sent(known: AdapterPlaces, adapters: list[str], at_once: int = 1) -> dict[str, set[int]]:
    """Copies that each adapter was sent to, with `at_once` requests under way at any time."""
    outstanding = [0] * len(COPIES)
    under_way: list[int] = []
    found: dict[str, set[int]] = defaultdict(set)
    for adapter in adapters:
        choice = known.choose(COPIES, outstanding, adapter)
        found[adapter].add(choice.index)
        outstanding[choice.index] += 1
        under_way.append(choice.index)
        if len(under_way) >= at_once:
            outstanding[under_way.pop(0)] -= 1
    return found


def test_a_hot_adapter_ends_on_every_copy() -> None:
    found = sent(places(), ["hot"] * 60, at_once=24)
    assert found == {"hot": {0, 1, 2, 3}}


def test_cold_adapters_share_as_few_copies_as_hold_them_and_stay_there() -> None:
    cold = [f"cold-{n}" for n in range(12)]
    found = sent(places(capacity=8), cold * 5)
    assert all(len(where) == 1 for where in found.values())
    assert {index for where in found.values() for index in where} == {0, 1}


def test_a_hot_adapter_does_not_drive_cold_ones_from_copy_to_copy() -> None:
    source = random.Random(3)
    asked = [source.choice(["hot"] * 9 + ["cold-1", "cold-2", "cold-3"]) for _ in range(2000)]
    found = sent(places(), asked, at_once=12)
    assert len(found["hot"]) > 1


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=80), st.integers(1, 30))
@settings(max_examples=60)
def test_no_copy_idles_while_another_has_a_long_queue(asked: list[str], at_once: int) -> None:
    known, outstanding, under_way = places(), [0] * len(COPIES), []
    for adapter in asked:
        choice = known.choose(COPIES, outstanding, adapter)
        longest_ms = PRIOR_SERVICE_MS + 2 * PRIOR_LOAD_MS + 0.1 * PRIOR_SERVICE_MS
        if 0 in outstanding:
            assert choice.wait_ms <= longest_ms
        outstanding[choice.index] += 1
        under_way.append(choice.index)
        if len(under_way) >= at_once:
            outstanding[under_way.pop(0)] -= 1


def test_what_was_learned_of_waiting_and_loading_decides() -> None:
    known = places()
    choice = known.choose(COPIES[:2], [0, 0], "a")
    for _ in range(200):
        known.learn_answer(COPIES[0], 1000.0, 0, known.choose(COPIES[:1], [0], "a"))
        known.learn_answer(COPIES[1], 1000.0, 0, known.choose(COPIES[1:2], [0], "b"))
    assert choice.index == 0
    assert known.choose(COPIES[:2], [1, 0], "a").index == 1  # a second of waiting, 40 ms of loading
    for _ in range(200):
        known.learn_answer(COPIES[1], 9000.0, 0, choice)  # a load of eight seconds
    known.forget(COPIES[0])
    known.choose(COPIES[:1], [0], "c")
    assert known.choose(COPIES[:2], [3, 0], "c").index == 0


def test_an_adapter_that_a_copy_refused_is_not_taken_to_be_there() -> None:
    known = places()
    choice = known.choose(COPIES, [0] * 4, "a")
    known.learn_failure(COPIES[choice.index], "a", choice)
    again = known.choose(COPIES, [0] * 4, "a")
    assert not again.resident
    at_home = known.choose(COPIES, [0] * 4, "a")
    known.learn_failure(COPIES[at_home.index], "a", at_home)
    assert known.choose(COPIES, [0] * 4, "a").resident


@pytest.mark.parametrize("by", ["another address", "being forgotten"])
def test_a_copy_that_was_started_again_has_nothing(by: str) -> None:
    known = places()
    known.choose(COPIES[:1], [0], "a")
    assert known.choose(COPIES[:1], [0], "a").resident
    again = COPIES[0]
    if by == "another address":
        again = CopyRoute(id=again.id, address="http://127.0.0.1:99")
    else:
        known.forget(again)
    assert not known.choose((again,), [0], "a").resident


def test_workers_of_one_gateway_find_each_others_adapters() -> None:
    board = SessionDict(lambda: NOW)
    first, second = places(board=board), places(board=board)
    first.choose(COPIES[2:3], [0], "a")
    choice = second.choose(COPIES, [0] * 4, "a")
    assert (choice.index, choice.resident) == (2, True)
    elsewhere = CopyRoute(id="c-2", address="http://127.0.0.1:99")
    assert not places(board=board).choose((elsewhere,), [0], "a").resident


def test_without_a_board_a_process_knows_its_own_only() -> None:
    places().choose(COPIES[2:3], [0], "a")
    assert places().choose(COPIES, [0] * 4, "a").index == 0


class HungBoard:
    """A board whose lock another process keeps."""

    def __init__(self) -> None:
        self.num_tries = 0

    def get(self, key: bytes) -> None:
        """Nothing."""

    def put(self, key: bytes, value: int, expires_at: float) -> bool:
        self.num_tries += 1
        return False


def test_a_board_that_hangs_holds_up_one_request_in_a_while() -> None:
    clock, board = ManualClock(), HungBoard()
    known = AdapterPlaces(clock.now, board)
    for number in range(50):
        known.choose(COPIES, [0] * 4, f"adapter-{number}")
    assert board.num_tries == 1
    clock.advance(QUIET_S)
    known.choose(COPIES, [0] * 4, "another")
    assert board.num_tries == 2


def test_each_of_several_workers_remembers_fewer_adapters() -> None:
    known = AdapterPlaces(lambda: NOW, capacity=64, num_workers=4)
    for number in range(64):
        known.choose(COPIES[:1], [0], f"adapter-{number}")
    held = [n for n in range(64) if known.choose(COPIES[:1], [0], f"adapter-{63 - n}").resident]
    assert held == list(range(32))
