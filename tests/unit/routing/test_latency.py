import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.routing.adapter_choice import (
    LOAD_MS_RANGE,
    PRIOR_LOAD_MS,
    PRIOR_SERVICE_MS,
    LatencyEstimate,
)


def test_before_any_answer_the_priors_hold() -> None:
    latency = LatencyEstimate()
    assert (latency.service_ms, latency.load_ms) == (PRIOR_SERVICE_MS, PRIOR_LOAD_MS)


@cases(
    "answers, expected_ms",
    case("a queue of one at a time: time over places", [(400.0, 3)], 100.0),
    case("a batch: the share of each", [(200.0, 15)], 12.5),
    case("an idle copy: the service time", [(10.0, 0), (10.0, 0)], 10.0),
)
def test_pace_is_what_each_request_adds(
    answers: list[tuple[float, int]], expected_ms: float
) -> None:
    latency = LatencyEstimate()
    for _ in range(500):
        for took_ms, outstanding in answers:
            latency.answered(took_ms, outstanding, loaded=False)
    assert latency.service_ms == pytest.approx(expected_ms, rel=0.01)


@pytest.mark.parametrize("load_ms", [5.0, 300.0, 4400.0])
def test_the_cost_of_a_load_is_learned_from_answers_of_long_tailed_length(load_ms: float) -> None:
    latency, source = LatencyEstimate(), random.Random(5)
    for _ in range(4000):
        took_ms, loaded = source.lognormvariate(3.0, 1.0), source.random() < 0.3
        latency.answered(took_ms + (load_ms if loaded else 0.0), 0, loaded)
    assert latency.load_ms == pytest.approx(load_ms, rel=0.3, abs=15)


def test_a_load_does_not_make_the_copy_look_slow() -> None:
    latency = LatencyEstimate()
    for _ in range(100):
        latency.answered(5000.0, 0, loaded=True)
    assert latency.service_ms == PRIOR_SERVICE_MS


@given(st.lists(st.tuples(st.floats(0, 1e7), st.integers(0, 5000), st.booleans())))
def test_whatever_comes_it_stays_within_bounds(answers: list[tuple[float, int, bool]]) -> None:
    latency = LatencyEstimate()
    for answer in answers:
        latency.answered(*answer)
    assert latency.service_ms >= 0
    assert LOAD_MS_RANGE[0] <= latency.load_ms <= LOAD_MS_RANGE[1]
