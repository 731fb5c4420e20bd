"""The scheduler over simulated steps: budgets, order, preemption, progress."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.engine.pages.pool import PagePool
from hostelry.engine.scheduler.plan import Chunk, Plan
from hostelry.engine.scheduler.scheduler import Limits, Scheduler


@dataclass
class Simulation:
    """Runs plans without a model: every sampling chunk yields a token."""

    scheduler: Scheduler
    wanted: dict[str, int] = field(default_factory=dict)  # tokens each request ends at
    lengths: dict[str, int] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)
    first_tokens: list[str] = field(default_factory=list)
    num_steps: int = 0

    def add(self, request_id: str, prompt: int, output: int, adapter: str | None = None) -> None:
        self.scheduler.add(request_id, prompt, adapter)
        self.wanted[request_id] = prompt + output
        self.lengths[request_id] = prompt
        self.computed[request_id] = 0

    def abort(self, request_id: str) -> None:
        self.scheduler.remove(request_id)
        self.wanted.pop(request_id, None)

    def step(self) -> Plan:
        plan = self.scheduler.plan()
        for request_id in plan.preempted:
            self.computed[request_id] = 0
        self._check(plan)
        self.scheduler.commit(plan)
        for chunk in plan.chunks:
            self._advance(chunk)
        self.scheduler.check_integrity()
        self.num_steps += 1
        return plan

    def _check(self, plan: Plan) -> None:
        limits = self.scheduler.limits
        ids = [chunk.request_id for chunk in plan.chunks]
        assert len(ids) == len(set(ids)) <= limits.max_batch_size
        assert plan.num_tokens <= limits.max_batched_tokens
        assert len(set(plan.new_pages)) == len(plan.new_pages)
        assert plan.chunks or not self.wanted, "work, but nothing is planned"
        for chunk in plan.chunks:
            assert chunk.start == self.computed[chunk.request_id], "a token skipped or repeated"
            assert chunk.length >= 1
            pages = self.scheduler.pages(chunk.request_id)
            assert len(pages) * limits.page_tokens >= chunk.start + chunk.length
            ends = chunk.start + chunk.length == self.lengths[chunk.request_id]
            assert chunk.samples == ends

    def _advance(self, chunk: Chunk) -> None:
        name = chunk.request_id
        self.computed[name] += chunk.length
        if not chunk.samples:
            return
        if name not in self.first_tokens:
            self.first_tokens.append(name)
        self.lengths[name] += 1
        if self.lengths[name] >= self.wanted[name]:
            self.abort(name)

    def finish(self) -> None:
        while self.wanted:
            self.step()


def simulation(num_pages: int = 64, **limits: int | None) -> Simulation:
    fields: dict[str, int | None] = {
        "max_batch_size": 8,
        "max_batched_tokens": 32,
        "page_tokens": 4,
    }
    return Simulation(Scheduler(Limits(**{**fields, **limits}), PagePool(num_pages)))  # type: ignore[arg-type]  # a mixed table of limits


@settings(max_examples=150, deadline=None)
@given(
    num_pages=st.integers(8, 40),
    page_tokens=st.integers(1, 5),
    max_batch_size=st.integers(1, 6),
    extra_tokens=st.integers(0, 20),
    max_adapters=st.none() | st.integers(1, 2),
    seed=st.integers(0, 2**32),
)
def test_random_schedules_keep_every_promise(
    num_pages: int,
    page_tokens: int,
    max_batch_size: int,
    extra_tokens: int,
    max_adapters: int | None,
    seed: int,
) -> None:
    chance = random.Random(seed)
    run = simulation(
        num_pages,
        page_tokens=page_tokens,
        max_batch_size=max_batch_size,
        max_batched_tokens=max_batch_size + extra_tokens,
        max_adapters=max_adapters,
    )
    room = num_pages * page_tokens
    for number in range(40):
        for _ in range(chance.randrange(3)):
            prompt = chance.randint(1, room - 1)
            output = chance.randint(1, min(room - prompt, 20))
            adapter = chance.choice([None, "x", "y", "z"])
            run.add(f"{number}-{len(run.wanted)}", prompt, output, adapter)
        if run.wanted and chance.random() < 0.2:
            run.abort(chance.choice(list(run.wanted)))
        run.step()
    run.finish()
    assert run.scheduler.pool.num_free == num_pages
    assert run.scheduler.num_running == run.scheduler.num_waiting == 0


def test_fifty_thousand_steps() -> None:
    chance = random.Random(1)
    run = simulation(48, max_batched_tokens=24)
    while run.num_steps < 50_000:
        if len(run.wanted) < 12 and chance.random() < 0.3:
            run.add(str(run.num_steps), chance.randint(1, 60), chance.randint(1, 40))
        run.step()
    run.finish()
    assert run.scheduler.pool.num_free == 48


def test_first_tokens_come_in_order_of_arrival() -> None:
    run = simulation(20, max_batch_size=3, max_batched_tokens=6)
    names = [f"r{number:02}" for number in range(30)]
    for number, name in enumerate(names):
        run.add(name, 1 + (number * 7) % 30, 1 + number % 5)
    run.finish()
    assert run.first_tokens == names


def test_prefill_and_decode_share_a_step() -> None:
    run = simulation(max_batched_tokens=10)
    run.add("a", 4, 9)
    run.step()
    run.add("b", 20, 2)
    assert [(c.request_id, c.length) for c in run.step().chunks] == [("a", 1), ("b", 9)]
    assert [(c.request_id, c.length) for c in run.step().chunks] == [("a", 1), ("b", 9)]
    assert [(c.request_id, c.length, c.samples) for c in run.step().chunks] == [
        ("a", 1, True),
        ("b", 2, True),
    ]


def test_decoding_never_waits_for_a_long_prompt() -> None:
    run = simulation(200, max_batch_size=8, max_batched_tokens=8)
    run.add("long", 400, 1)
    for number in range(6):
        run.add(f"short {number}", 1, 50)
    for _ in range(40):
        plan = run.step()
        running = run.scheduler.num_running
        assert len(plan.chunks) == running


def test_the_newest_is_preempted_and_recomputed_whole() -> None:
    run = simulation(8)
    run.add("old", 11, 12)
    run.add("new", 9, 12)
    preempted: list[str] = []
    while not preempted:
        plan = run.step()
        preempted += plan.preempted
    assert preempted == ["new"]
    known = run.lengths["new"]
    again: list[Chunk] = []
    while not again:
        again = [chunk for chunk in run.step().chunks if chunk.request_id == "new"]
    assert [(chunk.start, chunk.length) for chunk in again] == [(0, known)]
    run.finish()


def test_removing_frees_pages_before_the_next_step() -> None:
    run = simulation(10)
    run.add("a", 30, 5)
    run.step()
    assert run.scheduler.pool.num_free == 2
    run.abort("a")
    assert run.scheduler.pool.num_free == 10
    run.scheduler.remove("unknown")
    run.scheduler.check_integrity()


def test_a_request_removed_while_its_step_runs_is_forgotten() -> None:
    scheduler = simulation().scheduler
    scheduler.add("a", 5)
    plan = scheduler.plan()
    scheduler.remove("a")
    scheduler.commit(plan)
    scheduler.check_integrity()
    assert scheduler.plan() == Plan(chunks=())


def test_at_most_so_many_adapters_run_together() -> None:
    run = simulation(max_adapters=1)
    for number, adapter in enumerate(["x", "x", None, "y", "x"]):
        run.add(str(number), 3, 4, adapter)
    plan = run.step()
    assert [chunk.request_id for chunk in plan.chunks] == ["0", "1", "2"]
    run.finish()
    assert run.first_tokens == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"max_batch_size": 0}, "max_batch_size is 0", id="an empty batch"),
        pytest.param({"page_tokens": 0}, "page_tokens is 0", id="empty pages"),
        pytest.param({"max_adapters": 0}, "max_adapters is 0", id="no adapters at all"),
        pytest.param(
            {"max_batched_tokens": 7}, "at least max_batch_size, 8", id="fewer tokens than requests"
        ),
    ],
)
def test_impossible_limits(fields: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulation(**fields)


@pytest.mark.parametrize(
    ("num_tokens", "message"),
    [
        pytest.param(0, "has no tokens", id="an empty prompt"),
        pytest.param(33, "needs 9 pages; the pool has 8", id="a prompt beyond the pool"),
    ],
)
def test_refused_requests(num_tokens: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simulation(8).scheduler.add("a", num_tokens)


def test_the_same_id_twice_is_refused() -> None:
    scheduler = simulation().scheduler
    scheduler.add("a", 1)
    with pytest.raises(ValueError, match="already queued"):
        scheduler.add("a", 1)
