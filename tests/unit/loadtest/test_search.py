"""The search for a concurrency, against simulated servers on virtual time."""

import heapq
import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from math import inf

import msgspec
import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.loadtest.search import (
    MAX_WINDOWS,
    SearchCause,
    SearchLimits,
    SearchOutcome,
    SearchSettings,
    SearchStep,
    are_stable,
    build_step,
    choose_action,
    interrupted_outcome,
    is_step_over,
    is_warm_up_over,
    is_window_over,
)
from hostelry.loadtest.tally import LoadTally

SETTINGS = SearchSettings(limits=SearchLimits(latency_ms=310.0), max_concurrency=256, step_s=20.0)
SEEDS = (1, 2, 3)
MAX_STEPS = 30  # 9 doublings and 5 halvings, most of them measured twice
TOKENS = 10
Answer = tuple[float, float, float, bool]  # end, latency, service time, and whether it succeeded


class SimulatedServer(msgspec.Struct, frozen=True):
    """A queue in front of `num_places`, that serve for `service_s` each.

    Args:
        noise: relative half-width of service times. None: they are exponential.
        max_requests: further requests are refused.
        failing: the share of answers that are errors.
        slow_steps: the share of steps that take twice as long, as when a machine is busy.
        lifetime: the number of answers after which every request fails.
    """

    num_places: int
    service_s: float
    noise: float | None = 0.3
    max_requests: float = inf
    failing: float = 0.0
    slow_steps: float = 0.0
    lifetime: float = inf

    def answers(self, concurrency: int, num_before: int, chance: random.Random) -> Iterator[Answer]:
        """The answers of clients that each send after their last answer, in order of time."""
        factor = 2.0 if chance.random() < self.slow_steps else 1.0
        waiting: deque[float] = deque()
        events: list[tuple[float, float, float, bool]] = []
        num_free, num_done = self.num_places, num_before

        def start(now_s: float, sent_s: float) -> None:
            nonlocal num_free
            num_free -= 1
            service_s = factor * self.service_time_s(chance)
            heapq.heappush(events, (now_s + service_s, sent_s, service_s, True))

        def send(now_s: float) -> None:
            num_inside = self.num_places - num_free + len(waiting)
            if num_inside >= self.max_requests or num_done >= self.lifetime:
                heapq.heappush(events, (now_s + 0.1, now_s, 0.0, False))
            elif num_free:
                start(now_s, now_s)
            else:
                waiting.append(now_s)

        for _ in range(concurrency):
            send(0.0)
        while True:
            end_s, sent_s, service_s, is_served = heapq.heappop(events)
            num_done += 1
            if is_served:
                num_free += 1
            is_ok = is_served and chance.random() >= self.failing
            yield end_s, end_s - sent_s, service_s, is_ok
            if is_served and waiting:
                start(end_s, waiting.popleft())
            send(end_s)

    def service_time_s(self, chance: random.Random) -> float:
        """A service time."""
        if self.noise is None:
            return chance.expovariate(1 / self.service_s)
        return self.service_s * chance.uniform(1 - self.noise, 1 + self.noise)


def add_answer(tally: LoadTally, answer: Answer) -> None:
    """Record an answer, as the runner does."""
    _, latency_s, service_s, is_ok = answer
    if not is_ok:
        tally.fail("503 no_capacity")
        return
    tally.num_ok += 1
    tally.num_tokens += TOKENS
    tally.latencies.append(latency_s)
    tally.first.append(latency_s - service_s * (TOKENS - 1) / TOKENS)
    tally.gaps.extend([service_s / TOKENS] * (TOKENS - 1))


def measure_step(
    server: SimulatedServer, settings: SearchSettings, concurrency: int, chance: random.Random,
    num_before: int = 0,
) -> SearchStep:  # fmt: skip
    """Measure one step on virtual time."""
    windows: list[LoadTally] = []
    tally, opened_s, is_warm = LoadTally(), 0.0, False
    for answer in server.answers(concurrency, num_before, chance):
        end_s = answer[0]
        add_answer(tally, answer)
        is_over = is_window_over if is_warm else is_warm_up_over
        is_late = end_s >= settings.step_s
        if not is_late and not is_over(settings, concurrency, tally.num_requests, end_s - opened_s):
            continue
        tally.measured_s = end_s - opened_s
        if is_warm:
            windows.append(tally)
        if is_warm and is_step_over(settings, windows, end_s):
            break
        tally, opened_s, is_warm = LoadTally(), end_s, True
    return build_step(settings, concurrency, windows)


def search(
    server: SimulatedServer, settings: SearchSettings, seed: int
) -> tuple[list[SearchStep], SearchOutcome]:
    """Run a whole search on virtual time."""
    chance, num_done = random.Random(seed), 0
    steps: list[SearchStep] = []
    while isinstance(action := choose_action(settings, steps), int):
        assert len(steps) < MAX_STEPS, "the search ends"
        steps.append(measure_step(server, settings, action, chance, num_done))
        num_done += steps[-1].measured.num_requests
    return steps, action


FOUR = SimulatedServer(4, 0.1)
FEW = replace(SETTINGS, max_concurrency=64)


def limited(**limits: float) -> SearchSettings:
    return replace(SETTINGS, limits=SearchLimits(**limits))


@cases(
    "server, settings, found, cause",
    case("latency grows with the queue until the limit", FOUR, SETTINGS, 10, SearchCause.LIMIT),
    case("service times vary as in M/M/c", SimulatedServer(4, 0.02, None),
        limited(latency_ms=221.0), 32, SearchCause.LIMIT),
    case("a large server", SimulatedServer(100, 0.1), limited(latency_ms=171.0), 142,
        SearchCause.LIMIT),
    case("a time to the first token", FOUR, limited(first_token_ms=209.0), 10, SearchCause.LIMIT),
    case("clients in step, whose requests wait for whole rounds", replace(FOUR, noise=0.01),
        limited(latency_ms=250.0), 8, SearchCause.LIMIT),
    case("a server that refuses requests above 20", SimulatedServer(30, 0.1, max_requests=20),
        SETTINGS, 20, SearchCause.LIMIT),
    case("a server that is busy in some steps", replace(FOUR, slow_steps=0.1), SETTINGS, 10,
        SearchCause.LIMIT),
    case("errors within their limit", replace(FOUR, failing=0.02),
        limited(latency_ms=310.0, errors_percent=8.0), 10, SearchCause.LIMIT),
    case("flat throughput, and a limit that the queue does not touch", SimulatedServer(8, 0.1),
        limited(token_ms=20.0), 8, SearchCause.THROUGHPUT),
    case("flat throughput, and a limit of errors only", SimulatedServer(8, 0.1),
        limited(errors_percent=1.0), 8, SearchCause.THROUGHPUT),
    case("a server without a limit within the bound", SimulatedServer(1000, 0.1), FEW, 64,
        SearchCause.UPPER_BOUND),
    case("a bound that is no power of two", SimulatedServer(1000, 0.1),
        replace(SETTINGS, max_concurrency=50), 50, SearchCause.UPPER_BOUND),
    case("a limit that only one request at a time keeps", SimulatedServer(1, 0.1),
        limited(latency_ms=145.0), 1, SearchCause.LIMIT),
    case("answers that take longer than a window", SimulatedServer(2, 3.0, 0.05),
        limited(latency_ms=6500.0), 4, SearchCause.LIMIT),
)  # fmt: skip
def test_the_search_finds_the_highest_concurrency_that_keeps_the_limits(
    server: SimulatedServer, settings: SearchSettings, found: int, cause: SearchCause
) -> None:
    answers = []
    # A percentile of exponential times has an error of some percent itself.
    error = max(1.0, found * (0.1 if server.noise is None else 0.05))
    for seed in SEEDS:
        steps, outcome = search(server, settings, seed)
        assert outcome.best is not None
        assert abs(outcome.best.concurrency - found) <= error, seed
        assert outcome.cause is cause
        assert all(len(it.windows) <= MAX_WINDOWS for it in steps)
        answers.append(outcome.best.concurrency)
    assert max(answers) - min(answers) <= error, "three runs agree"


@cases(
    "server, settings, name, value",
    case("a model that is too slow", FOUR, limited(latency_ms=50.0), "latency p95", 128.0),
    case(
        "a model that fails at times",
        replace(FOUR, failing=0.5),
        SETTINGS,
        "errors",
        50.0,
    ),
    case("a model with slow tokens", FOUR, limited(token_ms=5.0), "inter-token p95", 12.8),
)
def test_a_limit_that_no_concurrency_keeps_is_named(
    server: SimulatedServer, settings: SearchSettings, name: str, value: float
) -> None:
    steps, outcome = search(server, settings, 1)
    assert [it.concurrency for it in steps] == [1, 1], "the broken limit was measured again"
    assert (outcome.cause, outcome.best) == (SearchCause.LIMIT, None)
    assert outcome.broken is not None
    (broken,) = outcome.broken.broken
    assert broken.name == name
    assert broken.value == pytest.approx(value, rel=0.4)


def test_a_server_that_dies_ends_the_search_with_the_best_so_far() -> None:
    steps, outcome = search(replace(FOUR, lifetime=400), SETTINGS, 1)
    assert outcome.cause is SearchCause.NO_ANSWERS
    assert outcome.best is not None
    assert outcome.best.concurrency < steps[-1].concurrency
    assert steps[-1].is_dead


def test_a_server_that_is_dead_from_the_start_has_no_best() -> None:
    steps, outcome = search(replace(FOUR, lifetime=0), SETTINGS, 1)
    assert (outcome.cause, outcome.best, len(steps)) == (SearchCause.NO_ANSWERS, None, 2)


def test_a_broken_limit_is_believed_after_a_second_measurement() -> None:
    chance = random.Random(1)
    good = measure_step(FOUR, SETTINGS, 4, chance)
    bad = measure_step(replace(FOUR, slow_steps=1.0), limited(latency_ms=150.0), 4, chance)
    assert not bad.holds
    assert choose_action(SETTINGS, [bad]) == 4, "it is measured again"
    assert choose_action(SETTINGS, [bad, good]) == 4, "a third measurement decides"
    assert choose_action(SETTINGS, [bad, good, good]) == 8, "the first one was noise"
    assert choose_action(SETTINGS, [bad, good, bad]) == 2, "the second one was noise"
    assert choose_action(SETTINGS, [bad, bad]) == 2, "it is believed"


def test_a_client_at_its_limit_is_the_cause() -> None:
    chance = random.Random(1)
    steps = [measure_step(FOUR, SETTINGS, it, chance) for it in (1, 2, 4, 8, 10, 12, 12)]
    steps += [measure_step(replace(FOUR, slow_steps=1.0), SETTINGS, 11, chance)] * 2
    steps[-1].measured.cpu_s = 0.95 * steps[-1].measured.measured_s
    outcome = choose_action(SETTINGS, steps)
    assert isinstance(outcome, SearchOutcome)
    assert outcome.cause is SearchCause.CLIENT


def test_an_interrupted_search_keeps_its_bounds() -> None:
    chance = random.Random(1)
    steps = [measure_step(FOUR, SETTINGS, it, chance) for it in (1, 2, 4, 8, 16)]
    outcome = interrupted_outcome(steps)
    assert outcome.cause is SearchCause.INTERRUPTED
    assert outcome.best is not None
    assert outcome.broken is not None
    assert (outcome.best.concurrency, outcome.broken.concurrency) == (8, 16)
    assert interrupted_outcome([]) == SearchOutcome(SearchCause.INTERRUPTED, None, None)


def window(num_ok: int, latency_s: float) -> LoadTally:
    tally = LoadTally(num_ok=num_ok, measured_s=1.0)
    tally.latencies.extend([latency_s] * num_ok)
    return tally


@cases(
    "windows, are",
    case("two are too few", [window(100, 0.1)] * 2, False),
    case("three alike", [window(100, 0.1)] * 3, True),
    case("only the last three count", [window(10, 1.0), *[window(100, 0.1)] * 3], True),
    case("throughput differs", [window(100, 0.1), window(100, 0.1), window(130, 0.1)], False),
    case("latency differs", [window(100, 0.1), window(100, 0.1), window(100, 0.15)], False),
    case("within a tenth", [window(100, 0.1), window(105, 0.095), window(95, 0.105)], True),
    case("windows without answers", [LoadTally(measured_s=1.0)] * 3, False),
)
def test_windows_are_stable_if_the_last_three_agree(
    windows: Sequence[LoadTally], are: bool
) -> None:
    assert are_stable(windows) is are


def test_without_stable_windows_all_of_them_count_and_their_spread_is_known() -> None:
    step = build_step(SETTINGS, 4, [window(100, 0.1), window(100, 0.1), window(160, 0.1)])
    assert not step.is_stable
    assert step.measured.num_ok == 360
    assert step.spread == pytest.approx(1 / 3)


@cases(
    "step_requests, is_over",
    case("no limit of requests", None, False),
    case("the windows have fewer", 210, False),
    case("the windows have as many", 200, True),
)
def test_a_step_ends_with_its_requests(step_requests: int | None, is_over: bool) -> None:
    settings = replace(SETTINGS, step_requests=step_requests)
    assert is_step_over(settings, [window(100, 0.1)] * 2, 2.0) is is_over


DEAD = LoadTally(errors=Counter({"404": 500}), measured_s=1.0)


@cases(
    "windows, is_over",
    case("no answer in three windows", [DEAD] * 3, True),
    case("no answer in two windows", [DEAD] * 2, False),
    case("answers before the model was gone", [window(100, 0.1), *[DEAD] * 3], True),
    case("answers come again", [*[DEAD] * 2, window(100, 0.1)], False),
    case("no request has ended yet", [LoadTally(measured_s=1.0)] * 3, False),
)
def test_a_step_ends_once_no_request_is_answered(
    windows: Sequence[LoadTally], is_over: bool
) -> None:
    assert is_step_over(SETTINGS, windows, 4.0) is is_over


def test_a_measure_without_values_does_not_keep_its_limit() -> None:
    step = build_step(limited(token_ms=20.0), 1, [window(100, 0.1)] * 3)
    assert [(it.name, it.value) for it in step.broken] == [("inter-token p95", None)]
