"""The schedule over simulated steps: every request ends once, and the pages add up."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases
from tests.selection import first_alone, runs_all
from tests.unit.engine.schedule import (
    STEP_S,
    Drive,
    Request,
    limited,
    scheduler,
    weights,
    zipf_choice,
)

from hostelry.engine.pages.unified import PagePool
from hostelry.engine.scheduler.decisions import Plan
from hostelry.engine.scheduler.planner import Scheduler

PAGE_TOKENS = 4
LONGEST_PROMPT, LONGEST_OUTPUT = 60, 40


def forget_host_copy(drive: Drive, rng: random.Random) -> None:
    """The host tier gives an adapter up that is not on its way into the pool."""
    busy = {key for _, _, key in drive.pending}
    free = sorted(drive.hosted - busy)
    if free:
        key = rng.choice(free)
        drive.hosted.discard(key)
        drive.scheduler.note_left_host(key)


def submit_any(drive: Drive, rng: random.Random, number: int) -> None:
    """A request of one of five tenants for one of twenty adapters, most for a few of them."""
    kind, beginning = zipf_choice(rng, 20), rng.randint(0, 3)
    prompt = rng.randint(1, LONGEST_PROMPT)
    output = rng.randint(1, LONGEST_OUTPUT)
    drive.submit(
        f"r{number}",
        prompt,
        output,
        tenant=f"t{zipf_choice(rng, 5)}",
        adapter=None if kind == 0 else f"a{kind}",
        adapter_pages=1 + kind % 12,
        keys=tuple(f"{kind}/{beginning}/{page}".encode() for page in range(prompt // PAGE_TOKENS)),
        deadline_at=drive.now + rng.uniform(0.0, 4.0) if rng.random() < 0.1 else None,
        end_at=prompt + rng.randint(1, output),
    )


def disturb(drive: Drive, rng: random.Random) -> None:
    """Cancels, broken adapters, and a host tier that forgets."""
    if drive.live and rng.random() < 0.02:
        drive.cancel(rng.choice(sorted(drive.live)))
    if rng.random() < 0.01:
        drive.broken = {f"a{rng.randint(1, 19)}"} if rng.random() < 0.3 else set()
    if rng.random() < 0.02:
        forget_host_copy(drive, rng)


def longest_wait(requests: dict[str, Request]) -> int:
    """Steps that the request waited that waited longest."""
    return max(
        request.started_step - request.submitted_step
        for request in requests.values()
        if request.started_step is not None
    )


def simulate(drive: Drive, rng: random.Random, steps: int, most_live: int) -> None:
    """Random requests, at most `most_live` at once, and disturbances. In the end all are done."""
    number = 0
    for _ in range(steps):
        while len(drive.live) < most_live and rng.random() < 0.3:
            submit_any(drive, rng, number)
            number += 1
        disturb(drive, rng)
        drive.step()
    drive.broken = set()
    drive.finish(within=10_000)
    drive.check_conserved()


@pytest.mark.slow
def test_a_hundred_thousand_steps_keep_every_promise(pytestconfig: pytest.Config) -> None:
    num_steps = 100_000 if runs_all(pytestconfig) else 20_000
    rng = random.Random(20261121)
    subject = scheduler(
        60,
        weights(t0=1.0, t1=2.0),
        max_adapters=4,
        prefetch_lookahead=4,
        max_wait_s=1.0,
        overtake_tokens=256.0,
    )
    drive = Drive(subject, fetch_steps=3, upload_steps=2, check_every=40)
    simulate(drive, rng, num_steps, most_live=24)
    assert drive.num_steps >= num_steps
    assert len(drive.done) > num_steps / 10
    for what in ("preempted", "evicted", "uploaded", "cached", "failed"):
        assert drive.counts[what] > num_steps / 500, f"the simulation has too few: {what}"
    reasons = Counter(drive.reasons.values())
    assert set(reasons) == {"finished", "cancelled", "failed", "expired"}
    # As if all that were there ran one after another, each with its loads, and its wait before.
    alone = LONGEST_PROMPT // 8 + LONGEST_OUTPUT + 5
    assert longest_wait(drive.done) <= 1.0 / STEP_S + 24 * alone


@pytest.mark.parametrize("seed", first_alone(range(8), 3))
@cases(
    "limits",
    case("strictly fair", {"overtake_tokens": 0.0}),
    case("reservations only", {"overtake_tokens": 1e9, "max_wait_s": 0.1}),
    case("one place, one load", {"max_adapters": 1, "prefetch_lookahead": 1}),
    case("no reserve, few tokens", {"reserve_pages": 0, "max_batched_tokens": 8}),
    case("one at a time", {"max_batch_size": 1, "max_adapters": 1}),
    case("loads are charged", {"load_charge_tokens": 5.0, "max_batch_size": 32}),
)
def test_random_schedules_keep_every_promise(seed: int, limits: dict[str, float]) -> None:
    rng = random.Random(seed)
    drive = Drive(limited(40, limits), fetch_steps=rng.randint(1, 6), upload_steps=seed % 3 + 1)
    simulate(drive, rng, 150, most_live=30)


REQUEST = st.fixed_dictionaries(
    {
        "prompt": st.integers(1, 60),
        "output": st.integers(1, 40),
        "tenant": st.sampled_from("abc"),
        "adapter": st.sampled_from([None, "x", "y", "z"]),
        "deadline_s": st.one_of(st.none(), st.floats(0, 2)),
    }
)
EVENT = st.one_of(
    st.tuples(st.just("submit"), REQUEST),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("steps"), st.integers(1, 12)),
    st.tuples(st.just("break"), st.sampled_from("xyz")),
    st.tuples(st.just("mend"), st.none()),
    st.tuples(st.just("forget"), st.integers(0, 9)),
)
LIMITS = st.fixed_dictionaries(
    {
        "max_batch_size": st.integers(1, 8),
        "max_adapters": st.one_of(st.none(), st.integers(1, 2)),
        "max_wait_s": st.sampled_from([0.0, 0.1, 10.0]),
        "prefetch_lookahead": st.integers(1, 4),
        "overtake_tokens": st.sampled_from([0.0, 32.0, 1e9]),
        "reserve_pages": st.integers(0, 2),
    }
)
ADAPTER_PAGES = {"x": 1, "y": 5, "z": 11, None: 0}


def apply(drive: Drive, number: int, what: str, value: Any) -> None:
    if what == "submit":
        deadline_s = value["deadline_s"]
        kind = f"{value['adapter']}/{value['prompt'] % 2}"
        drive.submit(
            f"r{number}",
            value["prompt"],
            value["output"],
            tenant=value["tenant"],
            adapter=value["adapter"],
            adapter_pages=ADAPTER_PAGES[value["adapter"]],
            keys=tuple(f"{kind}/{page}".encode() for page in range(value["prompt"] // 4)),
            deadline_at=None if deadline_s is None else drive.now + deadline_s,
        )
    elif what == "cancel" and drive.live:
        drive.cancel(sorted(drive.live)[value % len(drive.live)])
    elif what == "steps":
        drive.steps(value)
    elif what == "break":
        drive.broken.add(value)
    elif what == "mend":
        drive.broken.clear()
    elif what == "forget":
        forget_host_copy(drive, random.Random(value))


@settings(deadline=None, max_examples=60)
@given(
    limits=LIMITS,
    loads=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    events=st.lists(EVENT, max_size=60),
)
def test_every_request_ends_once_and_pages_are_conserved(
    limits: dict[str, float], loads: tuple[int, int], events: list[tuple[str, Any]]
) -> None:
    drive = Drive(limited(36, limits), fetch_steps=loads[0], upload_steps=loads[1])
    for number, (what, value) in enumerate(events):
        apply(drive, number, what, value)
    drive.finish(within=10_000)
    drive.steps(max(loads))  # loads that no request waits for any more
    drive.check_conserved()
    submitted = sum(what == "submit" for what, _ in events)
    assert len(drive.ended) == submitted


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 30), st.sampled_from("abcd")),
        min_size=1,
        max_size=40,
    ),
    st.integers(25, 80),
)
def test_no_request_waits_that_could_run(
    requests: list[tuple[int, int, str]], num_pages: int
) -> None:
    subject = scheduler(num_pages, overtake_tokens=1e12, max_wait_s=1e9)
    drive = Drive(subject)
    for number, (prompt, output, tenant) in enumerate(requests):
        drive.submit(f"{number:02}", prompt, output, tenant=tenant)
    limits = subject.limits

    def look(plan: Plan) -> None:
        num_tokens = sum(chunk.length for chunk in plan.chunks)
        if plan.preempted or num_tokens == limits.max_batched_tokens:
            return
        if subject.num_running == limits.max_batch_size:
            return
        heads: dict[str, int] = {}
        for name in sorted(drive.live):
            if not subject.pages(name):
                request = drive.live[name]
                heads.setdefault(request.submission.tenant, request.num_tokens)
        room = subject.pool.num_available - subject.num_running
        for num_tokens in heads.values():
            assert limits.count_pages(num_tokens) > room, "one waits for whom there is room"

    while drive.live:
        drive.step(look)
    drive.check_conserved()


def test_the_same_calls_give_the_same_plans() -> None:
    histories = []
    for _ in range(2):
        rng = random.Random(7)
        drive = Drive(scheduler(40, max_adapters=3))
        plans = []
        for number in range(200):
            if rng.random() < 0.5:
                submit_any(drive, rng, number)
            plans.append(drive.step())
        histories.append(plans)
    assert histories[0] == histories[1]


def test_pins_that_come_later_do_not_strand_what_was_accepted() -> None:
    pool = PagePool(40, pin_budget_pages=10)
    drive = Drive(Scheduler(scheduler().limits, pool))
    with pytest.raises(ValueError, match="the pool has 40, of which 10 may be pinned"):
        drive.submit("too large", 100, 20, adapter="a", adapter_pages=1)
    drive.submit("fits", 100, 12, adapter="a", adapter_pages=2)
    pool.pin_adapter("pinned", 10)
    pool.reserve_adapter("pinned", 10, reload_cost_s=1.0, now=0.0)
    drive.scheduler.note_uploaded("pinned")
    drive.finish()
    drive.check_conserved()
