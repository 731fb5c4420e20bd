"""The page pool under random calls: it agrees with a naive model of it, and loses no page."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.engine.page_pool_model import ModelledPool

from hostelry.engine.pages.adapters import AdapterState

OWNERS = st.sampled_from("abcd")
ADAPTERS = st.sampled_from("uvwxyz")
PATHS = st.lists(st.sampled_from(range(2)), max_size=6).map(bytes)
COSTS_S = st.sampled_from([0.0, 0.001, 0.02, 1.0])


class PoolMachine(RuleBasedStateMachine):
    """All calls in any order, careless ones included, against the model."""

    @initialize(num_pages=st.integers(1, 16), budget=st.integers(0, 8))
    def start(self, num_pages: int, budget: int) -> None:
        self.modelled = ModelledPool(num_pages, min(budget, num_pages))

    @rule(owner=OWNERS, path=PATHS)
    def begin(self, owner: str, path: bytes) -> None:
        self.modelled.begin(owner, path)

    @rule(owner=OWNERS, num_pages=st.integers(0, 18))
    def grow(self, owner: str, num_pages: int) -> None:
        self.modelled.grow(owner, num_pages)

    @rule(owner=OWNERS, path=PATHS, num_published=st.integers(0, 6))
    def compute(self, owner: str, path: bytes, num_published: int) -> None:
        """Compute a request: find, grow, publish."""
        self.modelled.release(owner)
        self.modelled.begin(owner, path)
        self.modelled.grow(owner, len(path))
        for index in range(min(num_published, len(self.modelled.pool.pages(owner)))):
            self.modelled.publish(owner, index)

    @rule(owner=OWNERS, index=st.integers(0, 8))
    def publish(self, owner: str, index: int) -> None:
        self.modelled.publish(owner, index)

    @rule(owner=OWNERS)
    def release(self, owner: str) -> None:
        self.modelled.release(owner)

    @rule(key=ADAPTERS, num_pages=st.integers(-1, 9), cost_s=COSTS_S)
    def reserve(self, key: str, num_pages: int, cost_s: float) -> None:
        self.modelled.reserve(key, num_pages, cost_s)

    @rule(key=ADAPTERS)
    def activate(self, key: str) -> None:
        self.modelled.activate(key)

    @rule(key=ADAPTERS, num_pages=st.integers(1, 5), cost_s=COSTS_S)
    def load(self, key: str, num_pages: int, cost_s: float) -> None:
        self.modelled.reserve(key, num_pages, cost_s)
        self.modelled.activate(key)

    @rule(key=ADAPTERS)
    def drop(self, key: str) -> None:
        self.modelled.drop(key)

    @rule(key=ADAPTERS)
    def hold(self, key: str) -> None:
        self.modelled.hold(key)

    @rule(key=ADAPTERS)
    def unhold(self, key: str) -> None:
        self.modelled.unhold(key)

    @rule(key=ADAPTERS, num_pages=st.integers(-1, 6))
    def pin(self, key: str, num_pages: int) -> None:
        self.modelled.pin(key, num_pages)

    @rule(key=ADAPTERS)
    def unpin(self, key: str) -> None:
        self.modelled.unpin(key)

    @rule()
    def take_evicted(self) -> None:
        self.modelled.take_evicted()

    @rule(seconds=st.sampled_from([0.5, 60.0, 1000.0]))
    def wait(self, seconds: float) -> None:
        self.modelled.now += seconds

    @invariant()
    def nothing_is_lost(self) -> None:
        self.modelled.check()

    def teardown(self) -> None:
        if hasattr(self, "modelled"):
            self.modelled.give_everything_back()


TestAnyOrderOfCalls = PoolMachine.TestCase
TestAnyOrderOfCalls.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_hundred_thousand_random_calls_agree_with_the_model() -> None:
    draw = random.Random(20)
    modelled = ModelledPool(240, 40)
    owners = [f"request-{number}" for number in range(24)]
    adapters = [f"adapter-{number}" for number in range(40)]
    for number in range(100_000):
        modelled.now += 0.01
        _random_call(modelled, draw, draw.choice(owners), draw.choice(adapters))
        if number % 250 == 0:
            modelled.check()
    counts = modelled.pool.stats().counts
    assert counts.num_evicted_adapters > 1000
    assert counts.num_evicted_prefix_pages > 1000
    assert counts.num_prefix_hits > 1000
    assert counts.num_duplicate_pages > 1000
    modelled.give_everything_back()


def _random_call(modelled: ModelledPool, draw: random.Random, owner: str, key: str) -> None:
    pool = modelled.pool
    kind = draw.random()
    if not pool.pages(owner):
        modelled.begin(owner, bytes(draw.randrange(3) for _ in range(draw.randrange(1, 20))))
        modelled.grow(owner, len(modelled.sequences[owner].path))
    elif kind < 0.4:
        modelled.grow(owner, len(pool.pages(owner)) + draw.randrange(3))
    elif kind < 0.7:
        modelled.publish(owner, modelled.sequences[owner].num_published)
    elif kind < 0.75:
        modelled.release(owner)
    elif kind < 0.78:
        draw.choice([modelled.pin, modelled.reserve])(key, draw.randrange(1, 12))
    elif kind < 0.80:
        draw.choice([modelled.unpin, modelled.drop])(key)
    elif pool.adapter_state(key) is AdapterState.ABSENT:
        modelled.reserve(key, int(key[8:]) % 11 + 1, 0.001 * int(key[8:]))
    elif pool.adapter_state(key) is AdapterState.LOADING:
        modelled.activate(key)
    else:
        draw.choice([modelled.hold, modelled.unhold])(key)
