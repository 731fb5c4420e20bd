"""The table of quotas' use: exact among processes, and no hold outlives its worker."""

import fcntl
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases
from tests.unit.quotas.quota_sample import ANA, BEN, NOON, call, counted, index, quota

from hostelry.base.clock import monotonic_s
from hostelry.dataplane.shared.quota_table import QuotaTable, clear_worker, decode_label
from hostelry.domain.quota import GrantedShares
from hostelry.quotas.estimate import Tokens
from hostelry.quotas.measures import (
    CONCURRENCY,
    DAY_COST,
    DAY_TOKENS,
    GENERATED,
    NANO,
    NUM_MEASURES,
    PROMPT,
    REQUESTS,
    count_amounts,
)

CALL = count_amounts(Tokens(10, 20), 1.0)
ALL: dict[str, Any] = {
    "requests_per_minute": 4,
    "prompt_tokens_per_minute": 100,
    "generated_tokens_per_minute": 100,
    "concurrency": 4,
    "tokens_per_day": 1000,
    "cost_per_day": 8.0,
}


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def table(
    folder: Path, worker: int = 0, num: int = 2, now_s: Any = monotonic_s, num_slots: int = 8
) -> QuotaTable:
    return QuotaTable(folder / "quotas", folder / "used", (worker, num), now_s, num_slots=num_slots)


def read_use(opened: QuotaTable, now: float = NOON) -> tuple[tuple[int, ...], tuple[int, ...]]:
    (use,) = opened.list_uses(now)
    return use.used, use.held


def test_a_call_holds_its_estimate_and_is_charged_its_use(tmp_path: Path) -> None:
    one, two = table(tmp_path), table(tmp_path, 1)
    counts = counted(quota(**ALL))
    taken = one.take(counts, CALL, NOON)
    assert taken.refusal is None
    assert read_use(two) == ((1, 0, 0, 0, 0, 0), (0, 10, 20, 1, 30, NANO))
    one.settle(taken.holds, count_amounts(Tokens(11, 2), 0.5), NOON)
    assert read_use(two) == ((1, 11, 2, 0, 13, NANO // 2), (0,) * NUM_MEASURES)


@cases(
    "limits, amounts, num, measure",
    case("requests", {"requests_per_minute": 3}, (1, 0, 0, 1, 0, 0), 3, REQUESTS),
    case("concurrency", {"concurrency": 2}, (1, 0, 0, 1, 0, 0), 2, CONCURRENCY),
    case("prompt tokens", {"prompt_tokens_per_minute": 35}, CALL, 3, PROMPT),
    case("generated tokens", {"generated_tokens_per_minute": 35}, CALL, 1, GENERATED),
    case("more than a whole limit", {"generated_tokens_per_minute": 5}, CALL, 1, GENERATED),
    case("tokens of a day", {"tokens_per_day": 60}, CALL, 2, DAY_TOKENS),
    case("cost of a day", {"cost_per_day": 3.5}, CALL, 3, DAY_COST),
)
def test_a_limit_admits(
    tmp_path: Path, limits: dict[str, Any], amounts: tuple[int, ...], num: int, measure: int
) -> None:
    workers = [table(tmp_path), table(tmp_path, 1)]
    counts = counted(quota(**limits))
    for number in range(num):
        assert workers[number % 2].take(counts, amounts, NOON).refusal is None
    refusal = workers[num % 2].take(counts, amounts, NOON).refusal
    assert refusal is not None
    assert refusal.use.measure == measure
    (use,) = workers[0].list_uses(NOON)
    assert use.refused[measure] == 1


def test_a_call_counts_for_all_its_quotas_or_for_none(tmp_path: Path) -> None:
    opened = table(tmp_path)
    narrow = quota("narrow", requests_per_minute=1, principal="*")
    counts = counted(quota("wide", requests_per_minute=9, concurrency=9), narrow)
    assert opened.take(counts, CALL, NOON).refusal is None
    assert opened.take(counts, CALL, NOON).refusal is not None
    other = index(quota("wide", requests_per_minute=9, concurrency=9), narrow).find(call(BEN))
    assert opened.take(other.counts, CALL, NOON).refusal is None
    uses = {decode_label(it.label): it.used[REQUESTS] for it in opened.list_uses(NOON)}
    assert uses == {("wide", ()): 2, ("narrow", (ANA,)): 1, ("narrow", (BEN,)): 1}


def test_a_quota_that_only_warns_admits_and_counts(tmp_path: Path) -> None:
    opened = table(tmp_path)
    counts = counted(quota(requests_per_minute=1, warn_only=True))
    taken = [opened.take(counts, CALL, NOON) for _ in range(3)]
    assert [(it.refusal, len(it.warnings)) for it in taken] == [(None, 0), (None, 1), (None, 1)]
    (use,) = opened.list_uses(NOON)
    assert (use.used[REQUESTS], use.warned[REQUESTS]) == (3, 2)


def test_a_window_moves_and_a_day_ends(tmp_path: Path) -> None:
    clock = Clock()
    opened = table(tmp_path, now_s=clock)
    counts = counted(quota(requests_per_minute=2, tokens_per_day=50))
    for wait_s, is_refused in ((0, False), (30, True), (31, True)):
        clock.now_s += wait_s
        taken = opened.take(counts, CALL, NOON)
        assert (taken.refusal is not None) == is_refused
        opened.settle(taken.holds, CALL, NOON)
    assert opened.take(counts, CALL, NOON + 43_200).refusal is None
    clock.now_s = 5.0  # the machine has started again
    assert opened.take(counts, (1, 0, 0, 1, 0, 0), NOON + 43_200).refusal is None
    (use,) = opened.list_uses(NOON + 43_200)
    assert use.used[REQUESTS] == 1


def test_a_dead_workers_calls_hold_nothing_and_their_day_is_kept(tmp_path: Path) -> None:
    one, two = table(tmp_path), table(tmp_path, 1)
    counts = counted(quota(concurrency=3, tokens_per_day=1000))
    one.settle(one.take(counts, CALL, NOON).holds, CALL, NOON)
    for worker in (one, two, two):
        worker.take(counts, CALL, NOON)
    clear_worker(tmp_path / "quotas", 1, 2, num_slots=8)
    assert read_use(one) == ((0, 0, 0, 0, 30, 0), (0, 0, 0, 1, 30, 0))
    one.close()
    successor = table(tmp_path)
    assert read_use(successor) == ((0, 0, 0, 0, 30, 0), (0,) * NUM_MEASURES)
    other_number = table(tmp_path, 2, 3)
    assert read_use(other_number)[0][DAY_TOKENS] == 30, "the day's use outlives the columns"


def take_forever(folder: Path, worker: int, admitted: Any, limit: int) -> None:
    """Take and settle calls until killed, and count the admitted ones."""
    opened = table(folder, worker, 4)
    counts = counted(quota(requests_per_minute=limit, concurrency=2))
    while True:
        taken = opened.take(counts, (1, 0, 0, 1, 0, 0), NOON)
        if taken.refusal is None:
            with admitted.get_lock():
                admitted.value += 1
            opened.settle(taken.holds, CALL, NOON)


def test_processes_admit_exactly_the_limit_though_one_is_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    admitted, limit = context.Value("q", 0), 3000
    watcher = table(tmp_path, 3, 4)
    workers = [
        context.Process(target=take_forever, args=(tmp_path, number, admitted, limit))
        for number in range(3)
    ]
    for worker in workers:
        worker.start()
    try:
        while admitted.value < limit // 3:
            os.sched_yield()
        assert workers[0].pid is not None
        os.kill(workers[0].pid, signal.SIGKILL)
        workers[0].join()
        clear_worker(tmp_path / "quotas", 0, 4, num_slots=8)
        while read_use(watcher)[0][REQUESTS] < limit:
            os.sched_yield()
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    # The killed one may have died between its count in the table and its count for the test.
    assert limit - 1 <= admitted.value <= limit
    assert read_use(watcher)[0][REQUESTS] == limit


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.booleans()), max_size=40))
def test_the_table_has_what_the_calls_under_way_hold(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("quotas")
    workers = [table(folder), table(folder, 1)]
    known = index(quota(principal="*", concurrency=3, tokens_per_day=10_000))
    held: list[tuple[int, int, Any]] = []
    for worker, number, begins in steps:
        if begins or not held:
            counts = known.find(call(f"p{number}")).counts
            taken = workers[worker].take(counts, CALL, NOON)
            is_full = sum(who == number for _, who, _ in held) == 3
            assert (taken.refusal is not None) == is_full
            if not is_full:
                held.append((worker, number, taken.holds))
        else:
            owner, _, holds = held.pop(number % len(held))
            workers[owner].settle(holds, CALL, NOON)
    found = {decode_label(it.label)[1]: it.held for it in workers[0].list_uses(NOON)}
    for number in range(4):
        num = sum(who == number for _, who, _ in held)
        assert found.get((f"p{number}",), (0,) * 6)[CONCURRENCY] == num
        assert found.get((f"p{number}",), (0,) * 6)[DAY_TOKENS] == 30 * num


def test_idle_counts_make_room_and_without_room_a_quota_limits_nothing(tmp_path: Path) -> None:
    clock = Clock()
    opened = table(tmp_path, now_s=clock, num_slots=2)
    known = index(quota(principal="*", concurrency=1))

    def take(who: str) -> Any:
        return opened.take(known.find(call(who)).counts, CALL, NOON)

    first = take("a")
    take("b")
    assert [take("c").holds for _ in range(2)] == [(), ()], "it is not counted"
    opened.settle(first.holds, CALL, NOON)
    clock.now_s += 200
    assert take("c").refusal is None
    assert take("c").refusal is not None, "c has the place of a"
    assert take("b").refusal is not None, "b still holds its own"


def test_a_host_keeps_to_its_share(tmp_path: Path) -> None:
    opened = QuotaTable(None, None, (0, 1), monotonic_s, lambda: 2, num_slots=8)
    (one,) = counts = counted(quota(concurrency=10))

    def count_admitted() -> int:
        taken = [opened.take(counts, CALL, NOON) for _ in range(12)]
        for one_call in taken:
            opened.settle(one_call.holds, CALL, NOON)
        return sum(it.refusal is None for it in taken)

    assert count_admitted() == 5, "an even part of two hosts, without a granted share"
    for share in (7, 0):
        shares = tuple(share if it == CONCURRENCY else -1 for it in range(NUM_MEASURES))
        grant = GrantedShares(key=one.key.hex(), quota_id="q", values=(), shares=shares)
        opened.grant([grant], NOON)
        assert count_admitted() == share


def test_a_lock_that_hangs_is_not_waited_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = table(tmp_path, now_s=Clock())
    counts = counted(quota(requests_per_minute=2))
    descriptor = os.open(tmp_path / "quotas.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        taken = [opened.take(counts, CALL, NOON).refusal is None for _ in range(3)]
    finally:
        os.close(descriptor)
    assert taken == [True, True, False]
    assert caplog.text.count("without the lock") == 1


def test_files_that_cannot_be_made_leave_a_worker_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = table(tmp_path / "missing")
    counts = counted(quota(requests_per_minute=1))
    taken = [opened.take(counts, CALL, NOON).refusal is None for _ in range(2)]
    assert taken == [True, False]
    assert "counts quotas alone" in caplog.text
