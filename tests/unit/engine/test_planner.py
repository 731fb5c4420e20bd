"""Plans of single steps: chunks, cached prefixes, pages, deadlines, cancels, hostile input."""

import math
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.engine.schedule import Drive, scheduler, weights

from hostelry.engine.scheduler.decisions import Chunk, Plan, SchedulerLimits, Submission


def chunks(plan: Plan) -> list[tuple[str, int, int, bool]]:
    return [(it.request_id, it.start, it.length, it.samples) for it in plan.chunks]


# Chunks and budgets


def test_a_long_prompt_is_computed_in_chunks_beside_decodes() -> None:
    drive = Drive(scheduler(max_batch_size=4, max_batched_tokens=10))
    drive.submit("a", 3, 20)
    drive.step()
    drive.submit("b", 25, 2)
    assert chunks(drive.step()) == [("a", 3, 1, True), ("b", 0, 9, False)]
    assert chunks(drive.step()) == [("a", 4, 1, True), ("b", 9, 9, False)]
    assert chunks(drive.step()) == [("a", 5, 1, True), ("b", 18, 7, True)]
    assert chunks(drive.step()) == [("a", 6, 1, True), ("b", 25, 1, True)]


def test_every_decode_goes_on_whatever_prompts_wait() -> None:
    drive = Drive(scheduler(num_pages=400, max_batch_size=8, max_batched_tokens=8))
    for number in range(7):
        drive.submit(f"d{number}", 1, 30)
    drive.steps(3)
    drive.submit("long", 100, 2)
    for _ in range(10):
        names = {chunk.request_id for chunk in drive.step().chunks}
        assert names == {f"d{number}" for number in range(7)} | {"long"}


def test_what_is_left_of_the_budget_goes_to_the_next_prompt() -> None:
    drive = Drive(scheduler(max_batched_tokens=10))
    drive.submit("a", 6, 2)
    drive.submit("b", 6, 2)
    drive.submit("c", 6, 2)
    assert chunks(drive.step()) == [("a", 0, 6, True), ("b", 0, 4, False)]
    assert chunks(drive.step()) == [("a", 6, 1, True), ("b", 4, 2, True), ("c", 0, 6, True)]


def test_no_more_requests_run_than_the_batch_may_have() -> None:
    drive = Drive(scheduler(max_batch_size=2))
    for number in range(5):
        drive.submit(f"r{number}", 2, 3)
    drive.step()
    assert drive.scheduler.num_running == 2
    assert drive.scheduler.num_waiting == 3
    drive.finish()
    drive.check_conserved()


def test_an_empty_scheduler_plans_nothing() -> None:
    assert scheduler().plan(0.0) == Plan()


def test_a_request_that_has_all_its_tokens_is_planned_no_more() -> None:
    subject = scheduler()
    subject.submit(Submission(id="r", tenant="t", num_prompt_tokens=3, max_tokens=4), 0.0)
    subject.commit(subject.plan(0.0), 0.0)
    assert subject.plan(0.1) == Plan()
    subject.remove("r", 0.2)
    assert subject.num_running == 0


def test_a_step_that_failed_is_planned_again() -> None:
    subject = scheduler()
    subject.submit(Submission(id="r", tenant="t", num_prompt_tokens=3, max_tokens=9), 0.0)
    assert subject.plan(0.0) == subject.plan(0.1)
    assert subject.counter("t") == 3


# Cached prefixes


def keys(number: int, salt: str = "s") -> tuple[bytes, ...]:
    return tuple(f"{salt}{index}".encode() for index in range(number))


@cases(
    "prompt, start",
    case("all of the prompt is cached: its last page is computed again", 8, 4),
    case("all but the last token is cached", 9, 8),
    case("the beginning is cached", 20, 12),
    case("a prompt shorter than a page", 3, 0),
)
def test_a_cached_prefix_is_not_computed_again(prompt: int, start: int) -> None:
    drive = Drive(scheduler())
    drive.submit("first", 13, 1, keys=keys(3))
    drive.finish()
    drive.submit("second", prompt, 2, keys=(keys(3) + keys(9, "x"))[: prompt // 4])
    assert chunks(drive.step()) == [("second", start, prompt - start, True)]
    drive.finish()
    drive.check_conserved()


def test_pages_of_a_prompt_are_shared_while_it_still_runs() -> None:
    drive = Drive(scheduler())
    drive.submit("first", 13, 9, keys=keys(3))
    drive.step()
    drive.submit("second", 13, 9, keys=keys(3))
    drive.step()
    pages = drive.scheduler.pages
    assert list(pages("first"))[:3] == list(pages("second"))[:3]
    assert not set(list(pages("first"))[3:]) & set(list(pages("second"))[3:])
    drive.finish()
    drive.check_conserved()


def test_pages_of_an_answer_are_cached_when_their_keys_come_with_its_end() -> None:
    drive = Drive(scheduler())
    drive.submit("first", 6, 9, keys=keys(1), end_at=99)
    drive.steps(8)
    drive.scheduler.remove("first", drive.now, keys(7))  # 13 tokens computed: 3 complete pages
    drive.live.clear()
    drive.submit("second", 17, 1, keys=keys(4))
    assert chunks(drive.step())[0][1] == 12


def test_prefixes_of_other_adapters_are_not_taken() -> None:
    drive = Drive(scheduler())
    drive.submit("first", 9, 1, keys=keys(2, "one"))
    drive.finish()
    drive.submit("second", 9, 1, keys=keys(2, "two"))
    assert chunks(drive.step()) == [("second", 0, 9, True)]


# Pages


def test_the_newest_request_is_sent_back_when_pages_run_out() -> None:
    drive = Drive(scheduler(num_pages=5))
    drive.submit("old", 4, 12)
    drive.submit("new", 4, 12)
    preempted: list[str] = []
    while drive.live:
        preempted += drive.step().preempted
    assert set(preempted) == {"new"}
    assert drive.ended == {"old": 1, "new": 1}
    drive.check_conserved()


def test_the_tenant_with_the_most_service_gives_way() -> None:
    drive = Drive(scheduler(num_pages=6, tenants=weights(modest=4.0)))
    drive.submit("greedy", 8, 12, tenant="greedy")
    drive.steps(2)
    drive.submit("modest", 4, 16, tenant="modest")
    preempted: list[str] = []
    while not preempted:
        preempted += drive.step().preempted
    assert preempted == ["greedy"]
    drive.finish()


def test_a_request_sent_back_finds_its_prompt_in_the_cache() -> None:
    drive = Drive(scheduler(num_pages=7))
    drive.submit("old", 4, 20)
    drive.submit("new", 9, 12, keys=keys(2))
    while not drive.step().preempted:
        pass
    drive.finish()
    assert drive.counts["cached"] > 0
    drive.check_conserved()


def test_no_request_is_admitted_into_the_reserve_of_the_running() -> None:
    drive = Drive(scheduler(num_pages=10, reserve_pages=2))
    drive.submit("a", 16, 8)
    drive.step()
    drive.submit("b", 16, 8)
    drive.step()
    assert drive.scheduler.num_running == 1
    drive.submit("c", 8, 2, tenant="u")
    drive.step()  # it fits in addition to the reserve, and may pass
    assert drive.running == {"a", "c"}
    drive.finish()


def test_no_other_request_passes_a_large_one_without_slack() -> None:
    drive = Drive(scheduler(num_pages=10, overtake_tokens=0.0))
    drive.submit("a", 24, 8)
    drive.step()
    drive.submit("large", 30, 8, tenant="large")
    drive.submit("small", 4, 2, tenant="busy")
    drive.submit("small2", 4, 2, tenant="busy")
    drive.step()
    assert drive.running == {"a", "small"}
    assert drive.scheduler.num_waiting == 2  # a second one would be ahead of the large one
    drive.finish()


def test_a_cancel_frees_pages_at_once_and_the_next_step_uses_them() -> None:
    drive = Drive(scheduler(num_pages=8))
    drive.submit("a", 20, 8)
    drive.step()
    drive.submit("b", 20, 8)
    drive.step()
    assert drive.running == {"a"}
    drive.cancel("a")
    assert drive.scheduler.pool.num_free == 8
    drive.step()
    assert drive.running == {"b"}


def test_a_commit_passes_over_what_was_removed_or_replaced_meanwhile() -> None:
    subject = scheduler()
    one = Submission(id="r", tenant="t", num_prompt_tokens=3, max_tokens=9)
    other = Submission(id="s", tenant="t", num_prompt_tokens=3, max_tokens=9)
    subject.submit(one, 0.0)
    subject.submit(other, 0.0)
    plan = subject.plan(0.0)
    subject.remove("r", 0.1)
    subject.remove("s", 0.1)
    subject.submit(one, 0.1)  # the same id, another request
    subject.commit(plan, 0.2)
    subject.check_integrity()
    assert subject.plan(0.3).chunks == (Chunk("r", 0, 3, True),)


def test_removing_an_unknown_request_changes_nothing() -> None:
    subject = scheduler()
    subject.remove("nobody", 0.0)
    subject.check_integrity()


def test_thousands_of_cancelled_requests_leave_no_memory() -> None:
    drive = Drive(scheduler(max_batch_size=1), check_every=1000)
    drive.submit("first", 4, 40)
    drive.step()
    drive.submit("head", 4, 4, deadline_at=1e9)
    for number in range(3000):
        drive.submit(f"r{number}", 4, 4, deadline_at=1e9)
        drive.cancel(f"r{number}")
    flow = drive.scheduler._by_id["head"].flow
    assert len(flow.requests) < 200
    assert len(drive.scheduler._deadlines._heap) < 300
    drive.finish()
    drive.check_conserved()


# Deadlines


def test_a_request_whose_deadline_passes_is_dropped() -> None:
    drive = Drive(scheduler(max_batch_size=1))
    drive.submit("a", 4, 20)
    drive.step()
    drive.submit("late", 4, 4, deadline_at=drive.now + 0.05)
    drive.steps(4)
    assert "late" in drive.live
    drive.steps(3)
    assert drive.reasons == {"late": "expired"}
    drive.finish()
    drive.check_conserved()


def test_a_prompt_still_being_computed_at_its_deadline_is_dropped() -> None:
    drive = Drive(scheduler(max_batched_tokens=8))
    drive.submit("late", 60, 4, deadline_at=0.035)
    drive.steps(3)
    assert drive.running == {"late"}
    drive.steps(2)
    assert drive.reasons == {"late": "expired"}
    drive.check_conserved()


def test_a_request_that_has_its_first_token_is_not_touched() -> None:
    drive = Drive(scheduler(num_pages=5))
    drive.submit("old", 4, 12)
    drive.submit("new", 4, 12, deadline_at=0.03)
    drive.finish()
    assert drive.counts["preempted"] > 0
    assert drive.reasons == {"old": "finished", "new": "finished"}


def overload(drive: Drive, number: int, *, deadline_s: float) -> None:
    for index in range(number):
        drive.submit(f"flood{index}", 4, 20, tenant="flood", deadline_at=drive.now + deadline_s)


def test_a_request_that_cannot_be_in_time_is_dropped_early() -> None:
    drive = Drive(scheduler(max_batch_size=2), check_every=20)
    overload(drive, 60, deadline_s=100.0)
    drive.steps(220)  # admissions are measured: two every 20 steps, 10 a second
    before = set(drive.done)
    drive.submit("hopeless", 4, 4, tenant="flood", deadline_at=drive.now + 0.5)
    drive.submit("hopeful", 4, 4, tenant="flood", deadline_at=drive.now + 50.0)
    drive.step()
    assert set(drive.done) - before == {"hopeless"}
    assert drive.reasons["hopeless"] == "expired"


def test_the_queue_of_one_tenant_does_not_count_against_another() -> None:
    drive = Drive(scheduler(max_batch_size=2), check_every=20)
    overload(drive, 60, deadline_s=100.0)
    drive.steps(220)
    drive.submit("steady", 4, 4, tenant="steady", deadline_at=drive.now + 0.5)
    drive.steps(60)
    assert drive.reasons["steady"] == "finished"


def test_no_request_is_dropped_early_before_a_rate_was_measured_under_load() -> None:
    drive = Drive(scheduler(max_batch_size=8))
    for number in range(20):
        drive.submit(f"slow{number}", 4, 2)
        drive.finish()
        drive.now += 1.0
    for number in range(16):
        drive.submit(f"burst{number}", 4, 2, deadline_at=drive.now + 1.0)
    drive.finish()
    assert set(drive.reasons.values()) == {"finished"}


# Hostile input


@cases(
    "fields, message",
    case("an empty prompt", {"num_prompt_tokens": 0}, "has 0 prompt tokens"),
    case("a negative prompt", {"num_prompt_tokens": -5}, "has -5 prompt tokens"),
    case("no token to generate", {"max_tokens": 4}, "leaves none to generate"),
    case("a negative maximum", {"max_tokens": -1}, "may have -1 in all"),
    case("pages without an adapter", {"adapter_pages": 3}, "3 adapter pages"),
    case("an adapter without pages", {"adapter": "a"}, "has 0 adapter pages"),
    case("negative pages", {"adapter": "a", "adapter_pages": -2}, "has -2 adapter pages"),
    case("a cost of nan", {"reload_cost_s": math.nan}, "reload cost of nan"),
    case("a negative cost", {"reload_cost_s": -1.0}, "reload cost of -1"),
    case("a deadline of nan", {"deadline_at": math.nan}, "the deadline nan"),
    case("an endless deadline", {"deadline_at": math.inf}, "the deadline inf"),
    case("too many keys", {"prefix_keys": (b"1", b"2")}, "2 prefix keys; its prompt has 1"),
    case(
        "a prompt larger than the pool",
        {"num_prompt_tokens": 500, "max_tokens": 501},
        "needs 126 pages for 501 tokens and 0 for its adapter; the pool has 64",
    ),
    case("an answer larger than the pool", {"max_tokens": 300}, "needs 75 pages for 300 tokens"),
    case(
        "an adapter that leaves no room",
        {"adapter": "a", "adapter_pages": 64},
        "needs 2 pages for 8 tokens and 64 for its adapter",
    ),
)
def test_a_senseless_request_is_refused(fields: dict[str, Any], message: str) -> None:
    subject = scheduler()
    values: dict[str, Any] = {"id": "r", "tenant": "t", "num_prompt_tokens": 4, "max_tokens": 8}
    with pytest.raises(ValueError, match=message):
        subject.submit(Submission(**{**values, **fields}), 0.0)
    assert subject.num_waiting == 0
    subject.check_integrity()


def test_an_id_is_queued_once_only() -> None:
    drive = Drive(scheduler())
    drive.submit("r")
    with pytest.raises(ValueError, match="r is already queued"):
        drive.submit("r")
    drive.step()
    with pytest.raises(ValueError, match="r is already queued"):
        drive.submit("r")
    drive.finish()
    drive.submit("r")


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_no_time_is_refused(now: float) -> None:
    drive = Drive(scheduler())
    drive.submit("r")
    plan = drive.scheduler.plan(0.0)
    for call in (
        lambda: drive.scheduler.plan(now),
        lambda: drive.scheduler.commit(plan, now),
        lambda: drive.scheduler.remove("r", now),
        lambda: drive.scheduler.fail_adapter("a", now),
        lambda: drive.scheduler.submit(
            Submission(id="s", tenant="t", num_prompt_tokens=1, max_tokens=2), now
        ),
    ):
        with pytest.raises(ValueError, match="must be finite"):
            call()
    drive.scheduler.check_integrity()


def test_a_time_before_the_last_one_is_taken_for_the_last_one() -> None:
    drive = Drive(scheduler(max_batch_size=1))
    drive.submit("a", 4, 8)
    drive.now = 10.0
    drive.step()
    drive.submit("b", 4, 8, deadline_at=9.0)
    drive.now = 1.0
    drive.step()
    assert drive.reasons == {"b": "expired"}


@cases(
    "fields, message",
    case("no requests", {"max_batch_size": 0}, "max_batch_size is 0"),
    case("negative pages", {"page_tokens": -1}, "page_tokens is -1"),
    case("too few tokens", {"max_batched_tokens": 3}, "at least max_batch_size, 8"),
    case("no adapters", {"max_adapters": 0}, "max_adapters is 0"),
    case("no queue", {"max_waiting": 0}, "max_waiting is 0"),
    case("no loads", {"prefetch_lookahead": 0}, "prefetch_lookahead is 0"),
    case("a wait of nan", {"max_wait_s": math.nan}, "max_wait_s is nan"),
    case("a negative wait", {"max_wait_s": -1.0}, "max_wait_s is -1"),
    case("a slack of nan", {"overtake_tokens": math.nan}, "overtake_tokens is nan"),
    case("a negative slack", {"overtake_tokens": -1.0}, "overtake_tokens is -1"),
    case("a negative reserve", {"reserve_pages": -1}, "reserve_pages is -1"),
    case("an endless charge", {"load_charge_tokens": math.inf}, "is inf"),
)
def test_senseless_limits_are_refused(fields: dict[str, Any], message: str) -> None:
    values = {"max_batch_size": 8, "max_batched_tokens": 64, "page_tokens": 4}
    with pytest.raises(ValueError, match=message):
        SchedulerLimits(**{**values, **fields})
