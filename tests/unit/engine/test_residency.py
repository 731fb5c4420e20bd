"""Loads of adapters into the pool, adapter slots, and that no request starves for one."""

import pytest
from tests.unit.engine.schedule import STEP_S, Drive, limited, scheduler

from hostelry.engine.pages.adapters import AdapterState
from hostelry.engine.scheduler.decisions import Plan


def waited(drive: Drive, name: str) -> int:
    """Steps until the request started."""
    request = drive.done.get(name) or drive.live[name]
    assert request.started_step is not None, f"{name} never started"
    return request.started_step - request.submitted_step


# Loads


def test_an_adapter_is_fetched_uploaded_and_then_used() -> None:
    drive = Drive(scheduler(), fetch_steps=3, upload_steps=2)
    drive.submit("r", 4, 2, adapter="a", adapter_pages=3)
    plans = [drive.step() for _ in range(6)]
    assert plans[0].fetches == ("a",)
    assert all(not plan.fetches for plan in plans[1:])
    assert [upload.adapter for plan in plans for upload in plan.uploads] == ["a"]
    assert len(plans[3].uploads[0].pages) == 3
    assert [bool(plan.chunks) for plan in plans] == [False] * 5 + [True]
    drive.finish()
    drive.check_conserved()


def test_others_run_while_an_adapter_is_on_its_way() -> None:
    drive = Drive(scheduler(), fetch_steps=10, upload_steps=10)
    drive.submit("waits", 4, 2, adapter="a")
    for number in range(10):
        drive.submit(f"base{number}", 4, 8)
    drive.steps(21)
    assert sum(name.startswith("base") for name in drive.done) == 10
    assert waited(drive, "waits") == 20


def test_an_adapter_that_is_resident_is_used_at_once() -> None:
    drive = Drive(scheduler())
    drive.submit("first", 4, 2, adapter="a")
    drive.finish()
    drive.submit("second", 4, 2, adapter="a", tenant="u")
    drive.step()
    assert waited(drive, "second") == 0


def test_one_load_serves_all_that_wait_for_it() -> None:
    drive = Drive(scheduler(), fetch_steps=4)
    for number in range(6):
        drive.submit(f"r{number}", 4, 4, adapter="a", tenant=f"t{number}")
    drive.finish()
    assert drive.counts["fetched"] == drive.counts["uploaded"] == 1
    assert {waited(drive, f"r{number}") for number in range(6)} == {5}


def test_an_adapter_in_host_memory_is_not_fetched() -> None:
    drive = Drive(scheduler())
    drive.hosted.add("a")
    drive.scheduler.note_in_host("a")
    drive.submit("r", 4, 2, adapter="a")
    plan = drive.step()
    assert plan.fetches == ()
    assert [upload.adapter for upload in plan.uploads] == ["a"]
    drive.finish()


def test_an_adapter_that_left_host_memory_is_fetched_again() -> None:
    drive = Drive(scheduler(num_pages=8))
    drive.submit("first", 4, 8, adapter="a", adapter_pages=5)
    drive.steps(4)
    drive.submit("r", 4, 8, adapter="b", adapter_pages=5)
    drive.steps(2)
    drive.hosted.discard("b")
    drive.scheduler.note_left_host("b")
    plan = drive.step()
    assert plan.fetches == ("b",)
    drive.finish()
    drive.check_conserved()


def test_as_many_adapters_are_on_their_way_as_the_look_ahead_allows() -> None:
    drive = Drive(scheduler(prefetch_lookahead=3), fetch_steps=5, upload_steps=5)
    for number in range(10):
        drive.submit(f"r{number}", 4, 2, adapter=f"a{number}")
    assert drive.step().fetches == ("a0", "a1", "a2")
    assert all(not drive.step().fetches for _ in range(4))
    plan = drive.step()
    assert plan.fetches == ("a3", "a4", "a5")
    assert [upload.adapter for upload in plan.uploads] == ["a0", "a1", "a2"]
    drive.finish()
    drive.check_conserved()


def test_the_next_adapters_are_fetched_while_the_batch_is_full() -> None:
    drive = Drive(scheduler(max_batch_size=1))
    drive.submit("runs", 4, 30)
    drive.step()
    drive.submit("next", 4, 2, adapter="a")
    drive.steps(5)
    assert drive.scheduler.pool.adapter_state("a") is AdapterState.RESIDENT
    drive.finish()


def test_an_adapter_in_use_is_never_evicted() -> None:
    drive = Drive(scheduler(num_pages=12))
    drive.submit("a", 4, 20, adapter="a", adapter_pages=6)
    drive.steps(3)
    drive.submit("b", 4, 20, adapter="b", adapter_pages=6)
    while "a" in drive.live:
        drive.step()
        assert drive.scheduler.pool.adapter_state("a") is AdapterState.RESIDENT
    drive.finish()
    drive.check_conserved()


def test_adapters_that_do_not_fit_together_take_turns() -> None:
    drive = Drive(scheduler(num_pages=12), upload_steps=3)
    for number in range(12):
        drive.submit(f"r{number}", 4, 4, adapter=f"a{number % 4}", adapter_pages=8)
    drive.finish(within=400)
    assert drive.counts["uploaded"] <= 12
    drive.check_conserved()


def test_what_was_loaded_stays_until_its_request_starts() -> None:
    drive = Drive(scheduler(num_pages=26, max_batch_size=1))
    drive.submit("runs", 4, 10)
    drive.step()
    for number in range(6):
        drive.submit(f"r{number}", 4, 2, adapter=f"a{number}", adapter_pages=4)
    drive.finish()
    assert drive.counts["uploaded"] == 6
    drive.check_conserved()


def test_pages_kept_for_a_load_are_given_up_before_anybody_is_sent_back() -> None:
    drive = Drive(scheduler(num_pages=14, max_batch_size=1))
    drive.submit("runs", 4, 48)
    drive.step()
    drive.submit("next", 4, 2, adapter="a", adapter_pages=6)
    drive.finish()
    assert drive.counts["preempted"] == 0
    drive.check_conserved()


# Failures


def test_a_failed_fetch_ends_those_who_waited_for_it() -> None:
    drive = Drive(scheduler(), broken={"bad"})
    drive.submit("r1", adapter="bad")
    drive.submit("r2", adapter="bad", tenant="u")
    drive.submit("good", adapter="good")
    drive.finish()
    assert drive.reasons == {"r1": "failed", "r2": "failed", "good": "finished"}
    drive.check_conserved()


def test_a_failed_upload_gives_its_pages_back() -> None:
    drive = Drive(scheduler())
    drive.hosted.add("bad")
    drive.scheduler.note_in_host("bad")
    drive.broken.add("bad")
    drive.submit("r", adapter="bad", adapter_pages=9)
    drive.step()
    assert drive.scheduler.pool.num_available == 64 - 9
    drive.finish()
    assert drive.reasons == {"r": "failed"}
    assert drive.scheduler.pool.num_free == 64
    drive.broken.clear()
    drive.submit("again", adapter="bad", adapter_pages=9)
    drive.finish()
    assert drive.reasons["again"] == "finished"


def test_a_failure_is_no_matter_to_those_who_run() -> None:
    drive = Drive(scheduler())
    drive.submit("r", 4, 8, adapter="a")
    drive.steps(4)
    assert drive.scheduler.fail_adapter("a", drive.now) == ()
    drive.finish()
    assert drive.reasons == {"r": "finished"}


def test_reports_about_unknown_adapters_change_nothing() -> None:
    subject = scheduler()
    subject.note_in_host("x")
    subject.note_left_host("y")
    assert subject.fail_adapter("z", 0.0) == ()
    with pytest.raises(ValueError, match="w is absent, not loading"):
        subject.note_uploaded("w")
    assert subject.plan(0.0) == Plan()
    subject.check_integrity()


def test_a_load_that_no_request_waits_for_any_more_is_kept_as_cache() -> None:
    drive = Drive(scheduler(), upload_steps=3)
    drive.submit("r", adapter="a")
    drive.steps(3)
    drive.cancel("r")
    drive.steps(3)
    pool = drive.scheduler.pool
    assert pool.adapter_state("a") is AdapterState.RESIDENT
    assert pool.num_available == pool.num_pages
    drive.check_conserved()


def test_a_request_that_arrives_during_an_abandoned_load_gets_it() -> None:
    drive = Drive(scheduler(num_pages=12), upload_steps=3)
    drive.submit("gone", adapter="a", adapter_pages=5)
    drive.steps(2)
    drive.cancel("gone")
    drive.submit("r", adapter="a", adapter_pages=5)
    drive.submit("s", adapter="b", adapter_pages=8, tenant="u")
    drive.finish()
    assert drive.counts["uploaded"] == 2
    drive.check_conserved()


def test_an_adapter_that_the_engine_loaded_itself_is_used() -> None:
    drive = Drive(scheduler())
    pool = drive.scheduler.pool
    pool.reserve_adapter("a", 3, reload_cost_s=0.1, now=0.0)
    drive.submit("r", adapter="a", adapter_pages=3)
    drive.pending.append((3, "upload", "a"))
    drive.finish()
    assert drive.counts["uploaded"] == 0
    assert waited(drive, "r") == 3


# Places


def test_no_more_adapters_run_than_there_are_places() -> None:
    drive = Drive(scheduler(max_adapters=2))
    for number in range(12):
        drive.submit(f"r{number}", 4, 6, adapter=f"a{number % 4}")
    drive.submit("base", 4, 6)
    while drive.live:
        names = {chunk.request_id for chunk in drive.step().chunks}
        known = drive.live | drive.done
        assert len({known[name].submission.adapter for name in names} - {None}) <= 2
    drive.check_conserved()


# No request starves


def flooded(drive: Drive, kinds: list[str], steps: int, *, tenants: bool) -> None:
    """Keep a dozen requests waiting for resident adapters, of new tenants each time if wanted.

    A new tenant starts level with those that wait, so fairness alone lets it go first or second.
    """
    for _ in range(steps):
        while len(drive.live) < 12:
            number = len(drive.ended) + len(drive.live)
            drive.submit(
                f"flood{number}",
                6,
                4 + 5 * number % 11,
                adapter=kinds[number % len(kinds)],
                tenant=f"f{number}" if tenants else "flood",
                adapter_pages=2,
            )
        drive.step()


STARVING = [
    pytest.param(30, {}, 16, ["a", "b"], id="a large adapter, and no pages"),
    pytest.param(64, {"max_adapters": 2}, 2, ["a", "b"], id="no slot free"),
    pytest.param(34, {"max_adapters": 2}, 18, ["a", "b"], id="neither pages nor a slot"),
    pytest.param(64, {"max_adapters": 1}, 2, ["a"], id="one slot, which one adapter keeps"),
]


@pytest.mark.parametrize("tenants", [True, False], ids=["tenants without end", "one tenant"])
@pytest.mark.parametrize(("num_pages", "limits", "adapter_pages", "kinds"), STARVING)
def test_a_rare_adapter_waits_a_bounded_number_of_steps(
    num_pages: int, limits: dict[str, float], adapter_pages: int, kinds: list[str], tenants: bool
) -> None:
    max_wait_s, load_steps, longest = 0.5, 2, 20
    free = {"max_wait_s": max_wait_s, "overtake_tokens": 1e12}
    subject = limited(num_pages, limits | free)
    drive = Drive(subject, check_every=10)
    flooded(drive, kinds, 100, tenants=tenants)
    drive.submit("rare", 6, 6, adapter="rare", adapter_pages=adapter_pages, tenant="rare")
    flooded(drive, kinds, 300, tenants=tenants)
    # Its wait, the running requests with prompt and answer, the load, and some steps in between.
    assert waited(drive, "rare") <= max_wait_s / STEP_S + longest + load_steps + 8


@pytest.mark.parametrize(
    ("num_pages", "limits", "adapter_pages", "kinds"), [STARVING[0], *STARVING[2:]]
)
def test_without_a_reservation_it_would_starve(
    num_pages: int, limits: dict[str, float], adapter_pages: int, kinds: list[str]
) -> None:
    subject = limited(num_pages, limits | {"max_wait_s": 1e6, "overtake_tokens": 1e12})
    drive = Drive(subject, check_every=100)
    flooded(drive, kinds, 100, tenants=True)
    drive.submit("rare", 6, 6, adapter="rare", adapter_pages=adapter_pages, tenant="rare")
    flooded(drive, kinds, 1000, tenants=True)
    assert "rare" in drive.live


def test_a_small_slack_serves_it_before_any_reservation() -> None:
    subject = scheduler(num_pages=30, max_wait_s=1e6, overtake_tokens=64.0)
    drive = Drive(subject, check_every=10)
    flooded(drive, ["a", "b"], 100, tenants=False)
    drive.submit("rare", 6, 6, adapter="rare", adapter_pages=16, tenant="rare")
    flooded(drive, ["a", "b"], 300, tenants=False)
    assert waited(drive, "rare") <= 40


def test_a_large_prompt_waits_a_bounded_number_of_steps() -> None:
    subject = scheduler(num_pages=24, max_wait_s=0.5, overtake_tokens=1e12)
    drive = Drive(subject, check_every=10)
    for step in range(400):
        if step == 100:
            drive.submit("large", 80, 4, tenant="large")
        while len(drive.live) < 12:
            number = len(drive.ended) + len(drive.live)
            drive.submit(f"flood{number}", 6, 4 + 5 * number % 11, tenant=f"f{number}")
        drive.step()
    assert waited(drive, "large") <= 50 + 20 + 8


def test_several_that_starve_are_served_one_after_another() -> None:
    subject = scheduler(num_pages=30, max_wait_s=0.5, overtake_tokens=1e12)
    drive = Drive(subject, check_every=10)
    flooded(drive, ["a", "b"], 100, tenants=True)
    for number in range(4):
        name = f"rare{number}"
        drive.submit(name, 6, 6, adapter=name, adapter_pages=16, tenant=name)
    flooded(drive, ["a", "b"], 400, tenants=True)
    for number in range(4):
        assert waited(drive, f"rare{number}") <= 4 * (50 + 20 + 10)


def test_a_reservation_ends_when_its_request_is_cancelled() -> None:
    subject = scheduler(num_pages=30, max_wait_s=0.1, overtake_tokens=1e12)
    drive = Drive(subject)
    flooded(drive, ["a", "b"], 50, tenants=True)
    drive.submit("rare", 6, 6, adapter="rare", adapter_pages=20, tenant="rare")
    flooded(drive, ["a", "b"], 14, tenants=True)
    drive.cancel("rare")
    before = len(drive.ended)
    flooded(drive, ["a", "b"], 60, tenants=True)
    assert len(drive.ended) > before + 8
    drive.finish()
    drive.check_conserved()


def test_while_a_place_is_drained_other_adapters_go_on() -> None:
    subject = scheduler(max_adapters=2, max_wait_s=0.1, overtake_tokens=1e12)
    drive = Drive(subject)
    drive.submit("long", 4, 60, adapter="a")
    drive.submit("short", 4, 30, adapter="b")
    drive.steps(4)
    drive.submit("rare", 4, 4, adapter="rare")
    drive.steps(14)  # from here on it has a reservation, and b is drained
    drive.submit("more of a", 4, 4, adapter="a")
    drive.submit("more of b", 4, 4, adapter="b")
    drive.step()
    assert "more of a" in drive.running
    assert "more of b" not in drive.running
    drive.finish()
    starts = {name: it.started_step for name, it in drive.done.items()}
    assert starts["rare"] is not None
    assert starts["more of b"] is not None
    assert starts["rare"] <= starts["more of b"]
