"""Load aggregator: reports are counted once, and merged second by second."""

import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.metrics.sagemaker.load_sample import CHAT, CODE, T0, load, report

from hostelry.domain.load import CopyOutcomes, Distribution, LoadKey, SecondLoad
from hostelry.domain.metric import StatisticSet
from hostelry.metrics.sagemaker.load_aggregator import HISTORY_S, LoadAggregator, ReportError


def aggregator_of(*workers: str) -> LoadAggregator:
    """An aggregator with a report of each worker that has begun to close seconds."""
    aggregator = LoadAggregator(T0 - 10)
    for worker in workers:
        aggregator.take(report(worker, 1, first=T0 - 3, through=T0 - 3), T0 - 2)
    aggregator.tick(T0)
    for worker in workers:
        aggregator.take(report(worker, 2, first=T0 - 2, through=T0 - 1), T0)
    return aggregator


def arrivals(aggregator: LoadAggregator, key: LoadKey = CHAT, since: int = T0) -> dict[int, int]:
    return {it.second: it.arrivals for it in aggregator.recent(key, since)}


def test_workers_of_one_second_are_added_up_once_all_have_reported_it() -> None:
    aggregator = aggregator_of("gateway-1", "gateway-2")
    one = load(T0, arrivals=3, in_flight_mean=1.5, in_flight_min=1, in_flight_max=2, held=1)
    other = load(T0, arrivals=4, in_flight_mean=0.5, in_flight_min=0, in_flight_max=3, held=2)
    aggregator.take(report("gateway-1", 3, one), T0 + 1.01)
    assert aggregator.recent(CHAT, T0) == []
    aggregator.take(report("gateway-2", 3, other), T0 + 1.02)
    (both,) = aggregator.recent(CHAT, T0)
    assert (both.arrivals, both.held) == (7, 3)
    assert (both.in_flight_mean, both.in_flight_min, both.in_flight_max) == (2.0, 1, 5)


def test_an_idle_worker_holds_no_second_back_until_it_has_a_request() -> None:
    aggregator = aggregator_of("gateway-1", "gateway-2")
    closed: list[int] = []
    aggregator.subscribe(lambda second, loads: closed.append(second))
    for worker in ("gateway-1", "gateway-2"):
        idle = replace(report(worker, 3, first=T0, through=T0), idle_s=5.0)
        aggregator.take(idle, T0 + 1.01)
    aggregator.tick(T0 + 2.01)
    assert closed == [T0, T0 + 1]
    aggregator.take(report("gateway-1", 4, load(T0 + 2, arrivals=3)), T0 + 3.01)
    assert arrivals(aggregator, since=T0 + 2) == {T0 + 2: 3}
    begun = report("gateway-2", 4, first=T0 + 3, through=T0 + 2)
    aggregator.take(begun, T0 + 3.2)
    aggregator.take(report("gateway-1", 5, load(T0 + 3, arrivals=1)), T0 + 4.01)
    assert closed == [T0, T0 + 1, T0 + 2]
    aggregator.take(report("gateway-2", 5, load(T0 + 3, arrivals=2)), T0 + 4.02)
    assert arrivals(aggregator, since=T0 + 2) == {T0 + 2: 3, T0 + 3: 3}


def test_an_idle_worker_without_another_report_is_gone() -> None:
    aggregator = aggregator_of("gateway-1")
    idle = replace(report("gateway-1", 3, first=T0, through=T0), idle_s=5.0)
    aggregator.take(idle, T0 + 1.01)
    assert aggregator.is_reporting(T0 + 8)
    assert not aggregator.is_reporting(T0 + 10)
    aggregator.tick(T0 + 10)
    assert aggregator.closed_through == T0


def test_requests_of_a_transform_job_are_no_load_of_an_endpoint() -> None:
    aggregator = aggregator_of("jobs")
    hidden = replace(CHAT, endpoint_name="transform-job/nightly", component_name=None)
    mine = replace(load(T0, arrivals=3), key=hidden)
    aggregator.take(report("jobs", 3, mine), T0 + 1.01)
    aggregator.tick(T0 + 60)
    assert hidden not in set(aggregator.keys())
    assert [it.arrivals for it in aggregator.take_job_loads()] == [3], "they are usage"
    assert aggregator.take_job_loads() == []


def ended(num: int, least_us: float, most_us: float) -> CopyOutcomes:
    """Whole answers of a copy, `count` of them."""
    seen = StatisticSet(
        sample_count=num, sum=num * (least_us + most_us) / 2, minimum=least_us, maximum=most_us
    )
    return CopyOutcomes(finished=num, model_latency_us=seen)


def test_latencies_and_copies_of_workers_are_joined() -> None:
    aggregator = aggregator_of("gateway-1", "gateway-2")
    one = load(
        T0,
        model_latency_us=Distribution(values=(10.0, 20.0), counts=(1, 2)),
        arrivals_by_copy={"a": 1, "b": 1},
        in_flight_max_by_copy={"a": 2},
        outcomes_by_copy={"a": ended(1, 30.0, 30.0), "b": CopyOutcomes(finished=1, errors_5xx=1)},
    )
    other = load(
        T0,
        model_latency_us=Distribution(values=(5.0, 20.0), counts=(4, 1)),
        arrivals_by_copy={"b": 5},
        in_flight_max_by_copy={"a": 1, "b": 1},
        outcomes_by_copy={"a": ended(2, 10.0, 40.0), "b": ended(4, 20.0, 25.0)},
    )
    aggregator.take(report("gateway-1", 3, one), T0 + 1)
    aggregator.take(report("gateway-2", 3, other), T0 + 1)
    (both,) = aggregator.recent(CHAT, T0)
    assert both.model_latency_us == Distribution(values=(5.0, 10.0, 20.0), counts=(4, 1, 3))
    assert both.arrivals_by_copy == {"a": 1, "b": 6}
    assert both.in_flight_max_by_copy == {"a": 3, "b": 1}
    assert both.outcomes_by_copy == {
        "a": CopyOutcomes(
            finished=3,
            model_latency_us=StatisticSet(sample_count=3, sum=80.0, minimum=10.0, maximum=40.0),
        ),
        "b": replace(ended(4, 20.0, 25.0), finished=5, errors_5xx=1),
    }


@cases(
    "again, counted",
    case("the same report again is counted once", {}, 5),
    case("a report older than the last one is not counted", {"sequence": 2}, 5),
    case("a life that began before a clock was set back", {"started_at": 0.5}, 10),
    case("a new life counts from one again", {"sequence": 1, "started_at": 2.0}, 10),
    case("another worker is counted beside it", {"worker": "gateway-9"}, 10),
)
def test_what_was_counted_is_not_counted_again(again: dict[str, Any], counted: int) -> None:
    aggregator = aggregator_of("gateway-1", "gateway-2")
    first = report("gateway-1", 3, load(T0, arrivals=5))
    aggregator.take(first, T0 + 1)
    is_new = aggregator.take(replace(first, **again), T0 + 1)
    aggregator.tick(T0 + 6)
    assert arrivals(aggregator) == {T0: counted}
    assert is_new == (counted == 10)


def test_a_successor_does_not_count_what_its_predecessor_published() -> None:
    before = aggregator_of("gateway-1", "gateway-2")
    open_one = report("gateway-1", 4, load(T0 + 1, arrivals=7))
    for sent in (report("gateway-1", 3, load(T0, arrivals=5)), open_one):
        before.take(sent, T0 + 1)
    before.take(report("gateway-2", 3, load(T0, arrivals=1)), T0 + 1)
    assert before.closed_through == T0
    receipts = before.receipts(T0)
    assert {name: it.sequence for name, it in receipts.items()} == {"gateway-1": 3, "gateway-2": 3}
    after = LoadAggregator(T0 + 2)
    after.restore(receipts)
    assert not after.is_reporting(T0 + 2)
    assert not after.take(report("gateway-2", 3, load(T0, arrivals=1)), T0 + 2)
    assert after.take(open_one, T0 + 2), "it was not published"
    another_life = report("gateway-2", 1, load(T0 + 2, arrivals=2), started_at=2.0)
    assert after.take(another_life, T0 + 3)
    after.tick(T0 + 9)
    assert {at: number for at, number in arrivals(after).items() if number} == {
        T0 + 1: 7,
        T0 + 2: 2,
    }
    assert after.receipts(T0 + 9)["gateway-1"].sequence == 4


def test_a_dead_workers_requests_do_not_linger() -> None:
    aggregator = aggregator_of("gateway-1", "gateway-2")
    for worker, busy in (("gateway-1", 1), ("gateway-2", 100)):
        aggregator.take(report(worker, 3, load(T0, in_flight_max=busy)), T0 + 1)
    for later in range(1, 8):  # gateway-2 was killed
        reported = report("gateway-1", 3 + later, load(T0 + later, in_flight_max=1))
        aggregator.take(reported, T0 + later + 1)
    seen = [it.in_flight_max for it in aggregator.recent(CHAT, T0)]
    assert seen == [101, *[1] * 7]


def test_a_worker_that_hangs_is_waited_for_and_then_not() -> None:
    aggregator = aggregator_of("gateway-1", "gateway-2")
    aggregator.take(report("gateway-1", 3, load(T0, arrivals=1)), T0 + 1)
    aggregator.tick(T0 + 2.9)
    assert arrivals(aggregator) == {}
    aggregator.tick(T0 + 3)
    assert arrivals(aggregator) == {T0: 1}


def test_what_comes_late_is_counted_and_moves_no_gauge() -> None:
    aggregator = aggregator_of("gateway-1", "gateway-2")
    aggregator.take(report("gateway-1", 3, load(T0, arrivals=1, in_flight_max=2)), T0 + 1)
    aggregator.tick(T0 + 3.5)
    aggregator.take(report("gateway-2", 3, load(T0, arrivals=4, in_flight_max=9, held=9)), T0 + 4)
    (seen,) = aggregator.recent(CHAT, T0)
    assert (seen.arrivals, seen.in_flight_max, seen.held) == (5, 2, 0)
    assert [it.arrivals for it in aggregator.late()] == [4]
    assert aggregator.late() == []


def test_idle_seconds_are_zeros_and_unreported_ones_are_a_gap() -> None:
    aggregator = aggregator_of("gateway-1")
    aggregator.take(report("gateway-1", 3, load(T0, arrivals=1)), T0 + 1)
    aggregator.take(report("gateway-1", 4, first=T0 + 1, through=T0 + 1), T0 + 2)
    aggregator.take(report("gateway-1", 5, load(T0 + 9, arrivals=2)), T0 + 10)
    aggregator.tick(T0 + 13)
    assert arrivals(aggregator) == {T0: 1, T0 + 1: 0, T0 + 9: 2}


def test_after_control_was_away_the_missing_seconds_are_merged_over_all_workers() -> None:
    aggregator = LoadAggregator(T0)
    for worker in ("gateway-1", "gateway-2"):
        reported = [load(T0 - 60 + it, arrivals=1, in_flight_max=1) for it in range(60)]
        aggregator.take(report(worker, 70, *reported), T0 + 0.5)
    assert aggregator.recent(CHAT, T0 - 60) == []
    aggregator.tick(T0 + 3)
    seen = aggregator.recent(CHAT, T0 - 60)
    assert [(it.arrivals, it.in_flight_max) for it in seen] == [(2, 2)] * 60


def test_a_board_that_was_stopped_for_a_minute_merges_what_the_workers_kept() -> None:
    aggregator = aggregator_of("gateway-1", "gateway-2")
    aggregator.tick(T0 + 60)
    for worker in ("gateway-1", "gateway-2"):
        reported = [load(T0 + it, in_flight_max=1) for it in range(60)]
        aggregator.take(report(worker, 3, *reported), T0 + 60.1)
    aggregator.tick(T0 + 63)
    assert [it.in_flight_max for it in aggregator.recent(CHAT, T0)] == [2] * 60


@pytest.mark.parametrize("jump_s", [3600, -3600], ids=["forward", "backward"])
def test_after_a_jump_of_the_clock_seconds_are_closed_as_before(jump_s: int) -> None:
    aggregator = aggregator_of("gateway-1")
    aggregator.take(report("gateway-1", 3, load(T0, arrivals=1)), T0 + 1)
    now = T0 + jump_s
    for later in range(5):
        reported = report("gateway-1", 4 + later, load(now + later, arrivals=2))
        aggregator.take(reported, now + later + 1)
    assert arrivals(aggregator, since=now) == {now + it: 2 for it in range(5)}
    assert aggregator.closed_through == now + 4


def test_a_second_in_the_future_is_counted_now() -> None:
    aggregator = aggregator_of("gateway-1")
    aggregator.take(report("gateway-1", 3, load(T0 + 5000, arrivals=1)), T0 + 1)
    aggregator.tick(T0 + 10)
    assert arrivals(aggregator) == {T0 + 1: 1}


def test_listeners_get_each_second_once_and_in_order() -> None:
    aggregator = aggregator_of("gateway-1", "gateway-2")
    closed: list[tuple[int, list[int]]] = []

    def listen(second: int, loads: Sequence[SecondLoad]) -> None:
        closed.append((second, sorted(it.arrivals for it in loads)))
        aggregator.recent(CHAT, second)  # a listener may ask

    aggregator.subscribe(listen)
    for second in range(T0, T0 + 3):
        for worker in ("gateway-1", "gateway-2"):
            reported = (load(second, arrivals=1), load(second, CODE, arrivals=5))
            aggregator.take(report(worker, 3 + second - T0, *reported), second + 1)
    assert closed == [(T0 + it, [2, 10]) for it in range(3)]


def test_reporting_ends_with_the_last_worker() -> None:
    aggregator = aggregator_of("gateway-1")
    assert aggregator.is_reporting(T0 + 1)
    assert not aggregator.is_reporting(T0 + 60)
    assert not LoadAggregator(T0).is_reporting(T0)


def test_a_quarter_of_an_hour_is_kept_and_names_are_forgotten_after_it() -> None:
    aggregator = aggregator_of("gateway-1")
    aggregator.take(report("gateway-1", 3, load(T0, CODE, arrivals=1)), T0 + 1)
    for later in range(1, HISTORY_S + 61):
        aggregator.take(report("gateway-1", 3 + later, load(T0 + later)), T0 + later + 1)
    assert len(aggregator.recent(CHAT, 0)) == HISTORY_S
    assert aggregator.keys() == [CHAT]


def test_thousands_of_names_stay_within_the_boards_bound() -> None:
    aggregator = LoadAggregator(T0 - 10, max_loads=10_000)
    keys = [replace(CHAT, component_name=f"c{it}") for it in range(3000)]
    for later in range(6):
        reported = tuple(load(T0 + later, key, arrivals=1) for key in keys)
        aggregator.take(report("gateway-1", 3 + later, *reported), T0 + later + 1)
    kept = aggregator.seconds(0)
    assert [(second - T0, len(loads)) for second, loads in kept] == [
        (3, 3000),
        (4, 3000),
        (5, 3000),
    ]


@cases(
    "members",
    case("a negative count", {"arrivals": -1}),
    case("no number", {"in_flight_mean": float("nan")}),
    case("no finite number", {"service_s": float("inf")}),
    case("a negative count of a copy", {"arrivals_by_copy": {"a": -1}}),
    case("a copy's negative errors", {"outcomes_by_copy": {"a": CopyOutcomes(errors_5xx=-1)}}),
    case("a copy's time is none", {"outcomes_by_copy": {"a": ended(1, 1.0, float("nan"))}}),
    case("a value without count", {"model_latency_us": Distribution(values=(1.0,), counts=())}),
)
def test_numbers_that_cannot_be_are_refused_whole(members: dict[str, Any]) -> None:
    aggregator = aggregator_of("gateway-1")
    bad = report("gateway-1", 3, load(T0, CODE, arrivals=7), load(T0, **members))
    with pytest.raises(ReportError):
        aggregator.take(bad, T0 + 1)
    aggregator.take(report("gateway-1", 4, first=T0, through=T0), T0 + 1)
    assert arrivals(aggregator, CODE) == {T0: 0}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=40), st.randoms())
def test_every_arrival_is_counted_once_however_reports_come(
    reported: list[tuple[int, int]], chance: random.Random
) -> None:
    """Reports are lost and repeated. Reports of a worker arrive in order, as its sender ensures."""
    aggregator = LoadAggregator(T0 - 10)
    sequences = [0, 0, 0]
    now = float(T0)
    for worker, count in reported:
        sequences[worker] += 1
        now += chance.choice([0.0, 0.3, 1.0, 4.0])
        sent = report(f"gateway-{worker}", sequences[worker], load(int(now), arrivals=count))
        for _ in range(chance.choice([1, 2])):
            aggregator.take(sent, now)
    aggregator.tick(now + 10)
    assert sum(arrivals(aggregator, since=0).values()) == sum(count for _, count in reported)


def test_threads_lose_nothing() -> None:
    aggregator = aggregator_of()

    def send_all(worker: str) -> None:
        for later in range(200):
            aggregator.take(report(worker, later + 1, load(T0 + later, arrivals=1)), T0 + 200)

    threads = [threading.Thread(target=send_all, args=(f"gateway-{it}",)) for it in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    aggregator.tick(T0 + 300)
    assert sum(arrivals(aggregator).values()) == 800


@cases(
    "one, other, most",
    case("nothing else is known", {"on_copies_max": 3}, {"on_copies_max": 4}, 7),
    case(
        "one caller whose requests went to both workers in turn",
        {"on_copies_max": 1, "seen_on_copies": 1},
        {"on_copies_max": 1, "seen_on_copies": 1},
        1,
    ),
    case(
        "both at once",
        {"on_copies_max": 2, "seen_on_copies": 2},
        {"on_copies_max": 2, "seen_on_copies": 4},
        4,
    ),
    case(
        "what was under way before the second, and ended early in it",
        {"on_copies_max": 2, "on_copies_first": 2},
        {"on_copies_max": 3, "on_copies_first": 2, "seen_on_copies": 3},
        4,
    ),
    case(
        "what waits is on no copy",
        {"on_copies_max": 5, "held_max": 5, "seen_on_copies": 1},
        {"on_copies_max": 2, "held_max": 2},
        7,
    ),
)
def test_the_most_at_once_is_what_workers_saw_together(
    one: dict[str, Any], other: dict[str, Any], most: int
) -> None:
    aggregator = aggregator_of("gateway-1", "gateway-2")
    aggregator.take(report("gateway-1", 3, load(T0, **one)), T0 + 1)
    aggregator.take(report("gateway-2", 3, load(T0, **other)), T0 + 1)
    (both,) = aggregator.recent(CHAT, T0)
    assert both.most_on_copies == most
