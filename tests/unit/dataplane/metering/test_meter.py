"""The meter gives the same seconds for random requests as a naive count."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.dataplane.metering.meter import Measurement, Meter
from hostelry.domain.load import CopyOutcomes, LoadKey, SecondLoad, add_configs
from hostelry.domain.metric import StatisticSet
from hostelry.domain.scope import Scope

T0 = 1_700_000_000
SECOND_NS = 1_000_000_000
CHAT = LoadKey(
    scope=Scope("111122223333", "us-west-2"),
    endpoint_name="ep",
    variant_name="all",
    component_name="chat",
)
CODE = LoadKey(
    scope=Scope("111122223333", "us-west-2"),
    endpoint_name="ep",
    variant_name="all",
    component_name="code",
)


@dataclass
class Rig:
    """A meter over two clocks that move together, except where a test sets the wall clock."""

    now_ns: int = 5 * SECOND_NS
    wall_ahead_ns: int = T0 * SECOND_NS
    loads: list[SecondLoad] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.wall_ahead_ns -= self.now_ns
        self.meter = Meter(lambda: (self.now_ns + self.wall_ahead_ns) / SECOND_NS, self.clock_ns)

    def clock_ns(self) -> int:
        return self.now_ns

    def wait(self, delay_s: float) -> None:
        self.now_ns += round(delay_s * SECOND_NS)

    def seconds(self, key: LoadKey = CHAT) -> list[SecondLoad]:
        """All closed seconds of a name so far."""
        for span in self.meter.take_closed():
            self.spans.append((span.first - T0, span.through - T0))
            self.loads += span.loads
        return [it for it in self.loads if it.key == key]

    def last(self, key: LoadKey = CHAT) -> SecondLoad:
        """The newest closed second of a name, once the present one is over."""
        self.wait(self.meter.until_next_s)
        return self.seconds(key)[-1]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def one_time(value_us: float) -> StatisticSet:
    return StatisticSet(sample_count=1, sum=value_us, minimum=value_us, maximum=value_us)


def test_a_second_has_its_requests_with_their_times(rig: Rig) -> None:
    rig.wait(0.1)
    request = rig.meter.begin(CHAT)
    rig.wait(0.05)
    request.record_copy("c-1")
    rig.wait(0.2)
    request.record_answer()
    rig.wait(0.01)
    request.end()
    second = rig.last()
    assert (second.second, second.arrivals, second.finished) == (T0, 1, 1)
    assert (second.in_flight_min, second.in_flight_max) == (0, 1)
    assert second.in_flight_mean == pytest.approx(0.26)
    assert second.service_s == pytest.approx(0.21)
    assert second.model_latency_us.values[0] == pytest.approx(200_000, rel=0.004)
    assert second.overhead_latency_us.values[0] == pytest.approx(60_000, rel=0.004)
    assert second.arrivals_by_copy == second.in_flight_max_by_copy == {"c-1": 1}
    assert second.first_answer_at_by_copy == {"c-1": pytest.approx(T0 + 0.36)}
    ended = second.outcomes_by_copy["c-1"]
    assert ended.finished == 1
    assert ended.model_latency_us == one_time(2e5)
    assert ended.overhead_latency_us == one_time(6e4)


def test_outcomes_are_reported_by_copy_and_second(rig: Rig) -> None:
    waits = [(0.1, "c-1"), (0.3, "c-1"), (0.2, "c-2"), (0.05, "c-1")]
    for wait_s, copy_id in waits:
        request = rig.meter.begin(CHAT)
        request.record_copy("refused-it")
        request.record_copy(copy_id)
        rig.wait(wait_s)
        request.record_answer()
        request.end()
    ended = rig.last().outcomes_by_copy
    assert {it: here.finished for it, here in ended.items()} == {"c-1": 3, "c-2": 1}
    times = ended["c-1"].model_latency_us
    assert times == StatisticSet(sample_count=3, sum=4.5e5, minimum=5e4, maximum=3e5)
    another = rig.meter.begin(CHAT)
    another.record_copy("c-1")
    another.record_broken_stream()
    another.end()
    assert rig.last().outcomes_by_copy == {"c-1": CopyOutcomes(finished=1, broken_streams=1)}


@cases(
    "record, field",
    case("refused with 400", lambda it: it.record_model_error(400), "errors_4xx"),
    case("refused with 500", lambda it: it.record_model_error(500), "errors_5xx"),
    case("without an answer", Measurement.record_no_answer, "model_errors"),
    case("broken off", Measurement.record_broken_stream, "broken_streams"),
)
def test_an_outcome_is_counted_in_the_second_in_which_its_request_ends(
    rig: Rig, record: Callable[[Measurement], None], field: str
) -> None:
    request = rig.meter.begin(CHAT)
    request.record_copy("c-1")
    record(request)
    before = rig.last()
    request.end()
    after = rig.last()
    assert (before.finished, getattr(before, field)) == (0, 0)
    assert (after.finished, getattr(after, field)) == (1, 1)


def test_requests_on_copies_of_two_configurations_are_counted_apart_too(rig: Rig) -> None:
    for copy_id, config, wait_s in (("o", "c1", 0.1), ("o", "c1", 0.1), ("n", "c2", 0.3)):
        request = rig.meter.begin(CHAT)
        request.record_copy(copy_id, 1, config)
        rig.wait(wait_s)
        request.record_answer()
        request.end()
    failed = rig.meter.begin(CHAT)
    failed.record_copy("n", 1, "c2")
    failed.record_model_error(500)
    failed.end()
    second = rig.last()
    assert (second.arrivals, second.finished, second.errors_5xx) == (4, 4, 1)
    old, new = second.by_config["c1"], second.by_config["c2"]
    assert (old.arrivals, old.finished, old.errors_5xx, old.model_errors) == (2, 2, 0, 0)
    assert (new.arrivals, new.finished, new.errors_5xx, new.model_errors) == (2, 2, 1, 1)
    assert old.model_latency_us.counts == (2,)
    assert old.model_latency_us.values[0] == pytest.approx(100_000, rel=0.004)
    assert new.model_latency_us.values[0] == pytest.approx(300_000, rel=0.004)
    both = add_configs(second.by_config, {"c2": new})
    assert (both["c1"], both["c2"].errors_5xx, both["c2"].model_latency_us.counts) == (old, 2, (2,))


def test_a_request_that_spans_seconds_counts_where_it_arrives_and_where_it_ends(rig: Rig) -> None:
    request = rig.meter.begin(CHAT)
    request.record_copy("dead", 1, "c2")
    request.record_copy("o", 1, "c1")
    first = rig.last()
    assert {name: it.arrivals for name, it in first.by_config.items()} == {"c1": 1, "c2": 1}
    request.record_first_chunk()
    request.record_broken_stream()
    request.end()
    assert rig.last().by_config["c1"].broken_streams == 1
    held = rig.meter.begin(CHAT)
    held.record_copy("n", 1, "c2")
    held.hold()
    held.record_no_answer()
    held.end()
    assert rig.last().by_config["c2"].errors_5xx == 0, "no copy had it in the end"


def test_a_stream_is_in_flight_until_its_last_byte(rig: Rig) -> None:
    request = rig.meter.begin(CHAT)
    request.record_copy("c-1")
    rig.wait(0.5)
    request.record_first_chunk()
    rig.wait(3)
    request.record_answer()
    request.end()
    rig.wait(1)
    seconds = rig.seconds()
    assert [it.in_flight_mean for it in seconds] == pytest.approx([1, 1, 1, 0.5])
    assert [it.finished for it in seconds] == [0, 0, 0, 1]
    assert [it.in_flight_max_by_copy for it in seconds] == [{"c-1": 1}] * 4
    assert seconds[0].first_chunk_model_latency_us.values[0] == pytest.approx(5e5, rel=0.004)
    assert seconds[3].model_latency_us.values[0] == pytest.approx(35e5, rel=0.004)


def test_a_name_without_requests_takes_no_room(rig: Rig) -> None:
    for number in range(3000):
        key = LoadKey(scope=CHAT.scope, endpoint_name="ep", variant_name=f"v{number}")
        rig.meter.begin(key).end()
    rig.wait(1)
    (busy,) = rig.meter.take_closed()
    rig.wait(1)
    (idle,) = rig.meter.take_closed()
    assert (len(busy.loads), len(idle.loads)) == (3000, 0)


def test_queued_requests_are_in_flight_and_their_age_is_reported(rig: Rig) -> None:
    first, second = rig.meter.begin(CHAT), rig.meter.begin(CHAT)
    first.hold()
    rig.wait(0.4)
    second.hold()
    waiting = rig.last()
    assert (waiting.held, waiting.in_flight_max, waiting.delayed) == (2, 2, 0)
    assert waiting.oldest_held_s == pytest.approx(1.0)
    first.release()
    first.release()
    second.end()  # the client went away
    after = rig.last()
    assert (after.held, after.oldest_held_s, after.delayed, after.finished) == (0, 0, 1, 1)


def test_a_request_that_is_sent_to_another_copy_is_on_that_one(rig: Rig) -> None:
    request = rig.meter.begin(CHAT)
    request.record_copy("dead")
    request.record_copy("c-2")
    rig.last()
    assert rig.last().in_flight_max_by_copy == {"c-2": 1}
    request.end()


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [
        # Source: SageMaker developer guide, "Monitor Amazon SageMaker AI with CloudWatch".
        pytest.param(lambda it: it.record_answer(), (0, 0, 0), id="an answer is no error"),
        pytest.param(lambda it: it.record_model_error(400), (1, 0, 1), id="400 of the model"),
        pytest.param(lambda it: it.record_model_error(503), (0, 1, 1), id="503 of the model"),
        pytest.param(lambda it: it.record_model_error(302), (0, 0, 1), id="302 of the model"),
        pytest.param(lambda it: it.record_no_answer(), (0, 1, 1), id="no answer is a 5XX"),
        pytest.param(lambda it: it.record_no_capacity(), (0, 0, 0), id="no capacity is neither"),
        pytest.param(
            lambda it: it.record_broken_stream(), (0, 0, 0), id="a broken stream is neither"
        ),
        pytest.param(lambda it: None, (0, 0, 0), id="a client that went away is neither"),
    ],
)
def test_errors_are_counted_by_what_they_are(
    rig: Rig, outcome: Callable[[Measurement], None], counted: tuple[int, int, int]
) -> None:
    request = rig.meter.begin(CHAT)
    request.record_copy("c-1")
    outcome(request)
    request.end()
    request.end()
    second = rig.last()
    assert (second.errors_4xx, second.errors_5xx, second.model_errors) == counted
    ended = second.outcomes_by_copy["c-1"]
    assert (ended.errors_4xx, ended.errors_5xx, ended.model_errors) == counted
    assert second.finished == 1


def test_no_capacity_and_broken_streams_have_counts_of_their_own(rig: Rig) -> None:
    refused, broken = rig.meter.begin(CHAT), rig.meter.begin(CHAT)
    refused.record_no_capacity()
    broken.record_broken_stream()
    refused.end()
    broken.end()
    second = rig.last()
    assert (second.no_capacity, second.broken_streams, second.service_s) == (1, 1, 0.0)


@pytest.mark.parametrize("jump_s", [3600, -3600], ids=["forward", "backward"])
def test_a_jump_of_the_wall_clock_begins_another_span_and_loses_nothing(
    rig: Rig, jump_s: int
) -> None:
    request = rig.meter.begin(CHAT)
    rig.wait(1.5)
    rig.wall_ahead_ns += jump_s * SECOND_NS
    rig.wait(1)
    rig.meter.begin(CHAT).end()
    rig.wait(2)
    request.end()
    rig.wait(1)
    seconds = rig.seconds()
    assert sum(it.arrivals for it in seconds) == sum(it.finished for it in seconds) == 2
    assert rig.spans[0] == (0, 1)
    assert rig.spans[1][0] in (jump_s + 2, jump_s + 3)
    assert all(it.in_flight_mean <= 2 for it in seconds)


def test_a_clock_that_drifts_is_followed(rig: Rig) -> None:
    for _ in range(20):
        rig.wait(1)
        rig.wall_ahead_ns += SECOND_NS // 20  # 5 % fast
        rig.meter.begin(CHAT).end()
    rig.seconds()
    assert len(rig.spans) == 1
    assert rig.spans[0][1] in (19, 20)


def test_a_worker_that_stood_still_leaves_a_gap(rig: Rig) -> None:
    request = rig.meter.begin(CHAT)
    rig.wait(600)
    request.end()
    rig.wait(1)
    rig.seconds()
    assert rig.spans == [(0, 0), (600, 600)]


def test_the_last_second_of_a_process_is_reported_before_it_is_over(rig: Rig) -> None:
    rig.meter.begin(CHAT)
    rig.wait(0.3)
    (span,) = rig.meter.close_now()
    assert [(it.second, it.arrivals, it.in_flight_mean) for it in span.loads] == [(T0, 1, 1.0)]


@dataclass
class Naive:
    """Records every instant with its events. Sums are made only at the end."""

    changes: list[tuple[int, LoadKey, int]] = field(default_factory=list)

    def second(self, key: LoadKey, begin_ns: int) -> tuple[int, int, float, int, int]:
        """Arrivals, finished, mean, min and max of the second that begins there."""
        end_ns = begin_ns + SECOND_NS
        mine = [(at, by) for at, whose, by in self.changes if whose == key and at < end_ns]
        level = sum(by for at, by in mine if at < begin_ns)
        levels, area, at_ns = [level], 0, begin_ns
        inside = [(at, by) for at, by in mine if at >= begin_ns]
        for at, by in inside:
            area += level * (at - at_ns)
            level, at_ns = level + by, at
            levels.append(level)
        area += level * (end_ns - at_ns)
        arrived = sum(by > 0 for _, by in inside)
        return arrived, len(inside) - arrived, area / SECOND_NS, min(levels), max(levels)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 999, 1_000_000, 200_000_000, 999_999_999, 10**9, 2_500_000_000]),
        st.sampled_from([CHAT, CODE]),
        st.booleans(),
    ),
    max_size=60,
)


@given(STEPS)
def test_seconds_are_those_of_a_naive_integral(
    steps: list[tuple[int, LoadKey, bool]],
) -> None:
    rig, naive = Rig(), Naive()
    under_way: dict[LoadKey, list[Measurement]] = {CHAT: [], CODE: []}
    for delay_ns, key, comes in steps:
        rig.now_ns += delay_ns
        if comes:
            under_way[key].append(rig.meter.begin(key))
            naive.changes.append((rig.now_ns, key, 1))
        elif under_way[key]:
            under_way[key].pop(0).end()
            naive.changes.append((rig.now_ns, key, -1))
    rig.wait(1)
    reported = {(it.key, it.second): it for key in (CHAT, CODE) for it in rig.seconds(key)}
    num_seconds = math.floor(rig.now_ns / SECOND_NS) - 5
    for number in range(num_seconds):
        for key in (CHAT, CODE):
            expected = naive.second(key, (5 + number) * SECOND_NS)
            seen = reported.pop((key, T0 + number), SecondLoad(key=key, second=T0 + number))
            reported.pop((key, T0 + number), None)
            assert (
                seen.arrivals,
                seen.finished,
                seen.in_flight_mean,
                seen.in_flight_min,
                seen.in_flight_max,
            ) == pytest.approx(expected)
    assert not reported


def test_a_base_has_its_adapters_requests_on_its_copies(rig: Rig) -> None:
    own, first = rig.meter.begin(CHAT), rig.meter.begin(CODE, CHAT)
    first.end()
    second = rig.meter.begin(CODE, CHAT)
    base, adapter = rig.last(), rig.seconds(CODE)[-1]
    assert (base.in_flight_max, base.on_copies_min, base.on_copies_max) == (1, 0, 2)
    assert (adapter.in_flight_max, adapter.on_copies_max) == (1, 0)
    own.end()
    rig.last()
    base = rig.last()
    assert (base.in_flight_max, base.on_copies_min, base.on_copies_max) == (0, 1, 1)
    second.end()
    rig.last()
    rig.wait(1)
    (idle,) = rig.meter.take_closed()
    assert idle.loads == ()


def test_requests_on_copies_count_queued_ones_and_those_of_other_workers(rig: Rig) -> None:
    own, adapters = rig.meter.begin(CHAT), rig.meter.begin(CODE, CHAT)
    own.record_copy("c-1", 4)
    adapters.hold()
    first = rig.last()
    assert (first.on_copies_first, first.seen_on_copies, first.held_max) == (0, 4, 1)
    adapters.release()
    adapters.record_copy("c-1", 7)
    second = rig.last()
    assert (second.on_copies_first, second.seen_on_copies, second.held_max) == (2, 7, 1)
    adapters.end()
    own.end()
    third = rig.last()
    assert (third.on_copies_first, third.seen_on_copies, third.held_max) == (2, 0, 0)


def test_loads_that_are_not_collected_are_bounded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostelry.dataplane.metering.meter.MAX_LOADS", 10)
    for _ in range(100):
        rig.meter.begin(CHAT).end()
        rig.wait(1)
    kept = rig.seconds()
    assert 5 <= len(kept) <= 11
    assert kept[-1].second == T0 + 99


def test_each_request_is_billed_by_whole_milliseconds_and_its_bytes(rig: Rig) -> None:
    for taken_s in (0.0101, 0.02):
        measured = rig.meter.begin(CHAT)
        rig.wait(0.5)  # waiting for a copy is not billed
        measured.record_copy("c")
        measured.add_bytes(100, 0)
        measured.add_bytes(0, 7)
        rig.wait(taken_s)
        measured.end()
    rig.last()
    seconds = rig.seconds()
    assert sum(it.billed_ms for it in seconds) == 11 + 20
    assert (sum(it.bytes_in for it in seconds), sum(it.bytes_out for it in seconds)) == (200, 14)


def test_the_containers_of_a_pipeline_are_measured_one_by_one() -> None:
    rig = Rig()
    request = rig.meter.begin(CHAT)
    rig.wait(0.001)
    request.enter_container("one")
    request.enter_container("one")  # another copy of it is tried
    request.record_copy("c-1")
    rig.wait(0.010)
    request.leave_container()
    rig.wait(0.002)
    request.enter_container("two")
    assert request.since_chosen_s() == pytest.approx(0.012)
    rig.wait(0.020)
    request.record_answer()
    request.record_model_error(500)
    rig.wait(0.004)
    request.end()
    rig.wait(1)
    load = rig.last()
    one, two = load.by_container["one"], load.by_container["two"]
    assert (one.arrivals, one.finished, one.errors_5xx) == (1, 1, 0)
    assert (two.arrivals, two.finished, two.errors_5xx) == (1, 1, 1)
    seen = [one.model_latency_us, one.overhead_latency_us, two.model_latency_us]
    seen += [two.overhead_latency_us, load.model_latency_us, load.overhead_latency_us]
    times_us = [it.values[0] for it in seen]
    assert times_us == pytest.approx([10_000, 1_000, 20_000, 6_000, 30_000, 7_000], rel=0.01)


def test_a_container_that_gives_no_answer_has_no_latency() -> None:
    rig = Rig()
    request = rig.meter.begin(CHAT)
    request.enter_container("two")
    request.record_copy("c-1")
    request.record_no_answer()
    request.end()
    rig.wait(1)
    load = rig.last().by_container["two"]
    assert (load.finished, load.errors_5xx, load.model_latency_us.values) == (1, 1, ())
