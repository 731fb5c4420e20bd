"""A copy's batch by hand, and against a simulation that takes tiny steps."""

import heapq
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.sim.copies import NEVER, SimulatedAnswer, SimulatedCopy, SimulatedRequest
from hostelry.sim.outcome import Occupancy, step_means
from hostelry.sim.service import (
    Measured,
    ServiceModel,
    default_service,
    fit_service,
    load_service,
    save_service,
)

HALF = [1.0, 1.0, 2.0]  # of two requests each is half as fast


def answers(
    slowdowns: Sequence[float], asked: Sequence[SimulatedRequest]
) -> list[tuple[float, SimulatedAnswer]]:
    """When each request ended. The copy is advanced at its planned ends, as a replay does."""
    copy = SimulatedCopy("c", 0, "i", slowdowns)
    found: list[tuple[float, SimulatedAnswer]] = []
    arrivals = [(it.arrived_s, number, it) for number, it in enumerate(asked)]
    heapq.heapify(arrivals)
    next_s = NEVER
    while arrivals or next_s < NEVER:
        if arrivals and arrivals[0][0] <= next_s:
            at_s, _, it = heapq.heappop(arrivals)
            next_s = copy.take(it, at_s)
        else:
            now_s = next_s
            ended, next_s = copy.pass_to(now_s)
            found += [(now_s, it) for it in ended]
    assert copy.outstanding == 0
    return found


def asked(
    arrived_s: float, first_work_s: float, work_s: float, number: int = 0
) -> SimulatedRequest:
    return SimulatedRequest(arrived_s, first_work_s, work_s, number)


def test_a_request_alone_takes_its_work() -> None:
    ((ended_s, it),) = answers(HALF, [asked(10.0, 1.0, 4.0)])
    assert ended_s == pytest.approx(14.0)
    assert it.first_token_s == pytest.approx(11.0)
    assert it.service_s == pytest.approx(4.0)


def test_two_at_a_time_slow_each_other_down_while_both_are_there() -> None:
    # Alone until 1, half as fast until the first ends: 3 s of work left take 6 s. Then alone.
    found = answers(HALF, [asked(0.0, 2.0, 4.0, 1), asked(1.0, 1.0, 5.0, 2)])
    assert [ended_s for ended_s, _ in found] == pytest.approx([7.0, 9.0])
    assert [it.first_token_s for _, it in found] == pytest.approx([3.0, 3.0])


def test_what_is_beyond_the_batch_waits_and_its_time_on_the_copy_counts() -> None:
    found = answers([1.0, 1.0], [asked(0.0, 1.0, 3.0, 1), asked(1.0, 1.0, 2.0, 2)])
    assert [ended_s for ended_s, _ in found] == pytest.approx([3.0, 5.0])
    assert found[1][1].first_token_s == pytest.approx(4.0)
    assert found[1][1].service_s == pytest.approx(4.0)


works = st.floats(0.01, 5.0)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0.0, 10.0), works, works), min_size=1, max_size=8))
def test_it_agrees_with_a_simulation_in_tiny_steps(
    requests: list[tuple[float, float, float]],
) -> None:
    slowdowns = [1.0, 1.0, 1.5, 2.5]
    given_ = [
        asked(at_s, first_s, first_s + rest_s, number)
        for number, (at_s, first_s, rest_s) in enumerate(sorted(requests))
    ]
    found = {it.asked.number: (s, it.first_token_s) for s, it in answers(slowdowns, given_)}
    step_s = 0.002
    for number, wanted in stepwise(slowdowns, given_, step_s).items():
        assert found[number] == pytest.approx(wanted, abs=0.02 + 30 * step_s)


def stepwise(
    slowdowns: Sequence[float], given_: Sequence[SimulatedRequest], step_s: float
) -> dict[int, tuple[float, float]]:
    """Ends and first tokens by number, by adding up small steps."""
    waiting, batch = list(given_), dict[int, float]()
    firsts: dict[int, float] = {}
    ended: dict[int, tuple[float, float]] = {}
    by_number = {it.number: it for it in given_}
    now_s = 0.0
    while len(ended) < len(given_):
        while waiting and waiting[0].arrived_s <= now_s and len(batch) < len(slowdowns) - 1:
            batch[waiting.pop(0).number] = 0.0
        for number in list(batch):
            batch[number] += step_s / slowdowns[len(batch)]
        now_s += step_s
        for number, done_s in list(batch.items()):
            if done_s >= by_number[number].first_work_s:
                firsts.setdefault(number, now_s)
            if done_s >= by_number[number].work_s:
                ended[number] = (now_s, firsts[number])
                del batch[number]
    return ended


def test_slowdown_is_a_straight_line_between_points_and_goes_on_after_the_last() -> None:
    model = ServiceModel(
        prefill_s_per_token=0.0,
        token_s=0.1,
        max_concurrency=5,
        slowdown=((1, 1.0), (2, 1.5), (4, 2.5)),
    )
    assert model.slowdowns() == pytest.approx([1.0, 1.0, 1.5, 2.0, 2.5, 3.0])


def test_work_is_prefill_and_tokens() -> None:
    model = ServiceModel(prefill_s=1.0, prefill_s_per_token=0.1, token_s=0.5)
    assert model.first_work_s(20) == pytest.approx(3.5)
    assert model.work_s(20, 5) == pytest.approx(5.5)
    assert model.work_s(20, 0) == pytest.approx(3.5)


@cases(
    "members, message",
    case("time that runs back", {"token_s": -1.0}, "token_s is -1.0"),
    case("no number", {"token_s": float("nan")}, "token_s is nan"),
    case("no end", {"cold_start_s": float("inf")}, "cold_start_s is inf"),
    case("no batch", {"max_concurrency": 0}, "max_concurrency is 0"),
    case("no single request", {"slowdown": ((2, 1.0),)}, "must begin with"),
    case("faster in company", {"slowdown": ((1, 1.0), (2, 0.5))}, "must rise"),
    case("the same batch twice", {"slowdown": ((1, 1.0), (1, 2.0))}, "must rise"),
)
def test_a_service_model_that_cannot_be_is_refused(members: dict[str, float], message: str) -> None:
    given_ = {"prefill_s_per_token": 0.01, "token_s": 0.1, **members}
    with pytest.raises(ValueError, match=message):
        ServiceModel(**given_)  # type: ignore[arg-type]


def test_the_shipped_calibration_has_its_origin() -> None:
    assert "measured" in default_service().origin


def test_a_calibration_is_read_as_it_was_written_and_refused_where_it_is_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / "service.json"
    save_service(default_service(), path)
    assert load_service(path) == default_service()
    path.write_text('{"token_s": -3, "prefill_s_per_token": 0}')
    with pytest.raises(TerminalError, match=r"service.json is no calibration.*token_s is -3"):
        load_service(path)
    with pytest.raises(TerminalError, match="cannot be read"):
        load_service(tmp_path / "none.json")


def measured(truth: ServiceModel, input_tokens: int, beside: int = 1) -> Measured:
    slowdown = truth.slowdowns()[beside]
    return Measured(
        input_tokens=input_tokens,
        output_tokens=32,
        first_s=truth.first_work_s(input_tokens) * slowdown,
        last_s=truth.work_s(input_tokens, 32) * slowdown,
        beside=beside,
    )


def test_a_fit_finds_the_model_that_the_requests_came_from() -> None:
    truth = ServiceModel(
        prefill_s=0.05,
        prefill_s_per_token=0.002,
        token_s=0.03,
        max_concurrency=4,
        slowdown=((1, 1.0), (2, 1.3), (4, 2.0)),
    )
    grid = [measured(truth, it) for it in (10, 100, 400) for _ in range(3)]
    grid += [measured(truth, 100, beside=it) for it in (2, 4)]
    found = fit_service(grid, "a test")
    assert found.prefill_s == pytest.approx(0.05)
    assert found.prefill_s_per_token == pytest.approx(0.002)
    assert found.token_s == pytest.approx(0.03)
    assert found.slowdowns() == pytest.approx(truth.slowdowns(), rel=0.001)


def test_a_fit_of_answers_that_were_not_streamed_is_refused() -> None:
    whole = [
        Measured(input_tokens=num, output_tokens=8, first_s=1.0, last_s=1.0) for num in (10, 100)
    ]
    with pytest.raises(TerminalError, match="in one piece"):
        fit_service(whole, "a test")
    with pytest.raises(TerminalError, match="two lengths"):
        fit_service(whole[:1], "a test")


spans = st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 20.0)), max_size=20)


@given(spans)
def test_means_of_presence_are_sums_of_overlaps(found: list[tuple[float, float]]) -> None:
    begins = np.array([it[0] for it in found])
    ends = begins + np.array([it[1] for it in found])
    edges = [0.0, 7.0, 20.0, 100.0]
    overlaps = [
        sum(max(0.0, min(b, end) - max(a, begin)) for begin, end in zip(begins, ends, strict=True))
        / (b - a)
        for a, b in pairwise(edges)
    ]
    assert Occupancy(begins, ends).means(edges).tolist() == pytest.approx(overlaps, abs=1e-6)


def test_means_of_steps_are_areas() -> None:
    found = step_means(np.array([2.0, 4.0]), np.array([3.0, 1.0]), np.array([0.0, 4.0, 8.0]))
    assert found.tolist() == pytest.approx([1.5, 1.0])
    assert step_means(np.array([]), np.array([]), np.array([0.0, 1.0])).tolist() == [0.0]
