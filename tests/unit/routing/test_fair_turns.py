"""Turns of tenants at a busy destination: shares by weight, order by priority, no saved-up time."""

import heapq
from collections import Counter

from tests.cases import case, cases

from hostelry.domain.quota import Priority
from hostelry.routing.fair_turns import FairTurns, WaitingTurn, find_limit, may_send

HIGH, NORMAL, LOW = Priority.HIGH, Priority.NORMAL, Priority.LOW


class Simulation:
    """A copy with `places`, which works on requests in the order of their arrival.

    Each caller of a tenant sends its next request once the last one was answered. `is_fair` False
    sends each request at once, as without turns.
    """

    def __init__(self, places: int, *, is_fair: bool = True) -> None:
        self.places = places
        self.is_fair = is_fair
        self.turns: FairTurns[float] = FairTurns()
        self.waits_s: dict[str, list[float]] = {}
        self.works: Counter[str] = Counter()
        self._free_at = [0.0] * places
        self._events: list[tuple[float, int, str, object]] = []
        self._number = 0
        self._tenants: dict[str, tuple[float, float, Priority]] = {}

    def add(
        self,
        name: str,
        callers: int,
        service_s: float = 0.05,
        weight: float = 1.0,
        priority: Priority = NORMAL,
        at_s: float = 0.0,
    ) -> None:
        self._tenants[name] = (service_s, weight, priority)
        for _ in range(callers):
            self._push(at_s, "arrive", name)

    def run(self, until_s: float) -> None:
        while self._events and self._events[0][0] < until_s:
            now_s, _, what, about = heapq.heappop(self._events)
            if what == "arrive":
                self._arrive(now_s, str(about))
            else:
                self._answer(now_s, about)

    def _push(self, at_s: float, what: str, about: object) -> None:
        self._number += 1
        heapq.heappush(self._events, (at_s, self._number, what, about))

    def _arrive(self, now_s: float, name: str) -> None:
        _, weight, priority = self._tenants[name]
        tenant = self.turns.begin(name, weight)
        self.turns.wait(tenant, now_s, priority)
        self._release(now_s)

    def _release(self, now_s: float) -> None:
        sent = self.turns.num_sent
        while self.turns.num_waiting and (
            not self.is_fair or may_send(sent, sent, find_limit(self.places), 1)
        ):
            waiting = self.turns.pop()
            assert waiting is not None
            request = self.turns.send(waiting.tenant, self.places, now_s)
            sent = self.turns.num_sent
            begins_s = max(now_s, heapq.heappop(self._free_at))
            ends_s = begins_s + self._tenants[waiting.tenant.name][0]
            heapq.heappush(self._free_at, ends_s)
            self._push(ends_s, "answer", (waiting, request))

    def _answer(self, now_s: float, about: object) -> None:
        assert isinstance(about, tuple)
        waiting, request = about
        assert isinstance(waiting, WaitingTurn)
        name = waiting.tenant.name
        self.turns.end(request, self.places, now_s)
        self.waits_s.setdefault(name, []).append(now_s - waiting.item)
        self.works[name] += 1
        self._push(now_s, "arrive", name)
        self._release(now_s)


@cases(
    "places, is_fair, least_ms, most_ms",
    case("one place, without turns", 1, False, 3000, 3300),
    case("one place", 1, True, 50, 210),
    case("four places, without turns", 4, False, 750, 900),
    case("four places", 4, True, 50, 110),
)
def test_a_caller_beside_a_flood_waits_no_longer_than_a_few_answers(
    places: int, is_fair: bool, least_ms: float, most_ms: float
) -> None:
    simulation = Simulation(places, is_fair=is_fair)
    simulation.add("flood", 64)
    simulation.add("victim", 1, at_s=1.01)
    simulation.run(60.0)
    waits_s = simulation.waits_s["victim"]
    assert least_ms <= 1000 * max(waits_s) <= most_ms
    assert sum(simulation.works.values()) >= 59.5 * places / 0.05, "no place is idle"


def test_tenants_get_time_by_their_weights_whatever_their_requests_take() -> None:
    simulation = Simulation(2)
    simulation.add("short", 20, service_s=0.02)
    simulation.add("long", 20, service_s=0.2)
    simulation.add("heavy", 20, service_s=0.05, weight=3.0)
    simulation.run(200.0)
    time_s = {
        name: simulation.works[name] * service_s
        for name, service_s in (("short", 0.02), ("long", 0.2), ("heavy", 0.05))
    }
    whole = sum(time_s.values())
    shares = {name: round(it / whole, 1) for name, it in time_s.items()}
    assert shares == {"short": 0.2, "long": 0.2, "heavy": 0.6}


def test_higher_priorities_go_first() -> None:
    simulation = Simulation(1)
    for name, priority in (("batch", LOW), ("people", HIGH), ("others", NORMAL)):
        simulation.add(name, 8, priority=priority)
    simulation.run(30.0)
    assert simulation.works["people"] > 0.9 * simulation.works.total()
    quiet = Simulation(1)
    quiet.add("batch", 8, priority=LOW)
    quiet.run(30.0)
    assert quiet.works["batch"] > 590, "alone, the lowest priority gets everything"


def test_idle_time_is_not_saved_up() -> None:
    simulation = Simulation(1)
    simulation.add("old", 8)
    simulation.add("new", 8, at_s=50.0)
    simulation.run(50.0)
    before = simulation.works["old"]
    simulation.run(100.0)
    assert abs(simulation.works["new"] - (simulation.works["old"] - before)) <= 3


def test_of_a_full_queue_the_tenant_with_the_most_leaves() -> None:
    turns: FairTurns[str] = FairTurns()
    flood, victim = turns.begin("flood", 1.0), turns.begin("victim", 1.0)
    for number in range(3):
        turns.wait(flood, f"f{number}", NORMAL)
    last = turns.wait(flood, "low", LOW)
    assert turns.find_evicted(victim) is last
    assert turns.find_evicted(flood) is None, "it has the most itself"
    for _ in range(3):
        turns.wait(victim, "v", NORMAL)
    assert turns.find_evicted(victim) is None, "one less than the most is as many"


def test_tenants_that_are_gone_are_forgotten() -> None:
    turns: FairTurns[str] = FairTurns()
    for number in range(1000):
        tenant = turns.begin(f"t{number}", 1.0)
        turns.end(turns.send(tenant, 1, 0.0), 1, 0.1)
    assert len(turns._tenants) <= 256
    assert turns.pop() is None


@cases(
    "own, total, workers, expected",
    case("there is room", 2, 2, 4, True),
    case("other workers have filled it, and this worker has none", 0, 99, 4, True),
    case("other workers have filled it, and this worker has its part", 1, 6, 4, False),
    case("the only worker", 6, 6, 1, False),
)
def test_a_worker_may_send(own: int, total: int, workers: int, expected: bool) -> None:
    assert may_send(own, total, find_limit(4), workers) is expected
