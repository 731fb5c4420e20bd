"""A component in simulated time: requests find a copy by the real routing, wait, or fail."""

import random
from collections import deque
from collections.abc import Callable

import msgspec

from hostelry.domain.at_zero import AtZero
from hostelry.domain.load import Distribution, LoadKey, SecondLoad
from hostelry.routing.copy_choice import choose_copy
from hostelry.sim.copies import SimulatedAnswer, SimulatedCopy, SimulatedRequest, Timeline
from hostelry.sim.fleet import SimulatedDeployment, SimulatedFleet
from hostelry.sim.ledger import ReplayLedger, RequestFate
from hostelry.sim.trace import NO_SESSION

MICRO = 1e6


class LoadMeter:
    """Counts of the second that is under way. `second` closes it.

    Args:
        key: the component.
        begins_at: the wall time of second 0.
    """

    __slots__ = (
        "_begins_at",
        "_integral_s",
        "_key",
        "_most",
        "_since_s",
        "arrivals",
        "delayed",
        "errors",
        "fewest",
        "finished",
        "first_us",
        "in_flight",
        "latencies_us",
        "no_capacity",
        "service_s",
        "touched",
    )  # fmt: skip

    def __init__(self, key: LoadKey, begins_at: float) -> None:
        self._key = key
        self._begins_at = begins_at
        self.in_flight = self._most = self.fewest = 0
        self._since_s = self._integral_s = 0.0
        self.arrivals = self.finished = self.delayed = self.errors = self.no_capacity = 0
        self.service_s = 0.0
        self.latencies_us: list[float] = []
        self.first_us: list[float] = []
        self.touched = False

    def count_arrival(self, now_s: float) -> None:
        """A request is in flight from now on."""
        self._integral_s += self.in_flight * (now_s - self._since_s)
        self._since_s = now_s
        self.in_flight += 1
        self.arrivals += 1
        self.touched = True
        if self.in_flight > self._most:
            self._most = self.in_flight

    def count_end(self, now_s: float) -> None:
        """A request is no longer in flight."""
        self._integral_s += self.in_flight * (now_s - self._since_s)
        self._since_s = now_s
        self.in_flight -= 1
        self.finished += 1
        self.touched = True
        if self.in_flight < self.fewest:
            self.fewest = self.in_flight

    def second(self, now_s: float, held: int, oldest_held_s: float) -> SecondLoad:
        """The load of the second that ends at `now_s`. The next second begins."""
        self._integral_s += self.in_flight * (now_s - self._since_s)
        self._since_s = now_s
        load = SecondLoad(
            key=self._key,
            second=round(self._begins_at + now_s) - 1,
            arrivals=self.arrivals,
            finished=self.finished,
            in_flight_mean=self._integral_s,
            in_flight_min=self.fewest,
            in_flight_max=self._most,
            held=held,
            oldest_held_s=oldest_held_s,
            delayed=self.delayed,
            service_s=self.service_s,
            errors_5xx=self.errors,
            no_capacity=self.no_capacity,
            model_latency_us=_distribution(self.latencies_us),
            first_chunk_latency_us=_distribution(self.first_us),
        )
        self._clear()
        return load

    def _clear(self) -> None:
        self._integral_s = 0.0
        self._most = self.fewest = self.in_flight
        self.arrivals = self.finished = self.delayed = self.errors = self.no_capacity = 0
        self.service_s = 0.0
        self.latencies_us = []
        self.first_us = []
        self.touched = False


def _distribution(values: list[float]) -> Distribution:
    if not values:
        return _EMPTY
    return Distribution(values=tuple(values), counts=(1,) * len(values))


_EMPTY = Distribution()


LOADS_KEPT_S = 900


class ComponentDeps(msgspec.Struct, kw_only=True):
    """What all components of a simulation share."""

    deployment: SimulatedDeployment
    timeline: Timeline
    fleet: SimulatedFleet
    ledger: ReplayLedger
    source: random.Random


class SimulatedComponent:
    """One model's copies, the requests that wait for one, and the measures of both.

    Args:
        model: its position among the trace's models.
        key: the name of its loads.
        deps: the parts that all components share.
        begins_at: the wall time of second 0.
        woken: called with the number of requests that wait, when one begins to.
    """

    def __init__(
        self,
        model: int,
        key: LoadKey,
        deps: ComponentDeps,
        begins_at: float,
        woken: Callable[["SimulatedComponent", int], None],
    ) -> None:
        self.model = model
        self.key = key
        self.desired = 0
        self.serving: list[SimulatedCopy] = []
        self.outstanding: list[int] = []
        self.held: deque[SimulatedRequest] = deque()
        self.loads: deque[SecondLoad] = deque(maxlen=LOADS_KEPT_S)
        self.meter = LoadMeter(key, begins_at)
        self.ever: list[SimulatedCopy] = []
        self._deps = deps
        self._woken = woken
        self._coming: list[SimulatedCopy] = []
        self._leaving: dict[str, SimulatedCopy] = {}
        self._sessions: dict[int, SimulatedCopy] = {}
        self._num_there = 0

    def arrive(self, asked: SimulatedRequest, session: int, now_s: float) -> None:
        """A request: to a copy, to those that wait, or refused."""
        self.meter.count_arrival(now_s)
        if self.serving:
            self._send(asked, session, now_s)
        else:
            self._hold(asked, now_s)

    def advance(self, copy: SimulatedCopy, now_s: float) -> None:
        """Answer the requests that have ended on a copy, and plan its next end."""
        ended, next_s = copy.pass_to(now_s)
        for answer in ended:
            self._end(copy, answer, now_s)
        if copy.place >= 0:
            self.outstanding[copy.place] = copy.outstanding
        elif not copy.outstanding and copy.id in self._leaving:
            self._remove(copy, now_s)
        self._plan(copy, next_s)

    def want(self, desired: int, now_s: float) -> None:
        """Have `desired` copies from now on: more are started, surplus ones drain."""
        fleet = self._deps.fleet
        self.desired = desired
        there = len(self.serving) + len(self._coming) + fleet.num_waiting(self.model)
        if desired > there:
            fleet.start(self.model, desired - there, now_s)
        elif desired < there:
            surplus = there - desired
            surplus -= fleet.forget(self.model, surplus)
            for copy in self._surplus(surplus):
                self._leave(copy, now_s)

    def handle_placed(self, copy: SimulatedCopy, now_s: float) -> None:
        """A copy has a place, and is coming up."""
        self._coming.append(copy)
        self.ever.append(copy)
        self._count(+1, now_s)

    def ready(self, copy: SimulatedCopy, now_s: float) -> None:
        """A copy has come up: it serves, and first what waits."""
        if copy not in self._coming:
            return  # it was taken back meanwhile
        self._coming.remove(copy)
        copy.place = len(self.serving)
        self.serving.append(copy)
        self.outstanding.append(0)
        self._serve_held(now_s)

    def second(self, now_s: float) -> SecondLoad:
        """The load of the second that has ended."""
        oldest_s = now_s - self.held[0].arrived_s if self.held else 0.0
        load = self.meter.second(now_s, len(self.held), oldest_s)
        self.loads.append(load)
        return load

    @property
    def is_quiet(self) -> bool:
        """Whether nothing happens and nothing has in this second."""
        return not self.meter.touched and not self.meter.in_flight

    def _serve_held(self, now_s: float) -> None:
        """Send what waits for a copy to those that serve."""
        while self.held:
            asked = self.held.popleft()
            self.meter.delayed += 1
            self._send(asked._replace(delayed=True), NO_SESSION, now_s)

    def _send(self, asked: SimulatedRequest, session: int, now_s: float) -> None:
        deps = self._deps
        copy = self._sessions.get(session) if session != NO_SESSION else None
        if copy is None or copy.place < 0:
            place = choose_copy(deps.deployment.routing, self.outstanding, deps.source.random())
            copy = self.serving[place]
            if session != NO_SESSION:
                self._sessions[session] = copy
        self._begin(copy, asked, now_s)

    def _begin(self, copy: SimulatedCopy, asked: SimulatedRequest, now_s: float) -> None:
        """Give a request to a copy that serves."""
        next_s = copy.take(asked, now_s)
        if copy.place >= 0:
            self.outstanding[copy.place] = copy.outstanding
        self._plan(copy, next_s)

    def _plan(self, copy: SimulatedCopy, next_s: float) -> None:
        """Plan an event for the end of the copy's next request.

        An event that comes too early finds no ended request and is planned again. So a later end,
        as after each arrival, needs no further event.
        """
        if next_s < copy.wakes_s:
            copy.wakes_s = next_s
            self._deps.timeline.at(next_s, copy)

    def _hold(self, asked: SimulatedRequest, now_s: float) -> None:
        deployment = self._deps.deployment
        if deployment.at_zero is AtZero.COMPAT:
            self.meter.no_capacity += 1
            self._fail(asked, RequestFate.REFUSED, now_s)
        elif len(self.held) >= deployment.max_held:
            self._fail(asked, RequestFate.OVERFLOWN, now_s)
        else:
            self.held.append(asked)
            self._deps.timeline.at(now_s + deployment.hold_s, self._expire)
            self._woken(self, len(self.held))

    def _expire(self, now_s: float) -> None:
        limit_s = self._deps.deployment.hold_s
        while self.held and self.held[0].arrived_s + limit_s <= now_s:
            self._fail(self.held.popleft(), RequestFate.TIMED_OUT, now_s)

    def _fail(self, asked: SimulatedRequest, fate: RequestFate, now_s: float) -> None:
        self.meter.errors += fate is not RequestFate.REFUSED
        self.meter.count_end(now_s)
        took_s, ledger = now_s - asked.arrived_s, self._deps.ledger
        ledger.add_request(self.model, asked, fate, took_s, took_s)
        ledger.delayed[-1] = took_s > 0.0

    def _end(self, copy: SimulatedCopy, it: SimulatedAnswer, now_s: float) -> None:
        """A request on `copy` has ended."""
        self._answer(it, now_s)

    def _answer(self, it: SimulatedAnswer, now_s: float) -> None:
        meter, arrived_s = self.meter, it.asked.arrived_s
        meter.count_end(now_s)
        meter.service_s += it.service_s
        first_s = it.first_token_s - arrived_s
        meter.latencies_us.append(it.service_s * MICRO)
        meter.first_us.append(first_s * MICRO)
        ledger = self._deps.ledger
        took_s = now_s - arrived_s
        ledger.add_request(self.model, it.asked, RequestFate.ANSWERED, took_s, first_s)
        if it.asked.delayed:
            ledger.delayed[-1] = True

    def _surplus(self, num: int) -> list[SimulatedCopy]:
        """The copies that go: those still coming up, then those that came last."""
        newest_first = [*reversed(self._coming), *reversed(self.serving)]
        return newest_first[:num]

    def _leave(self, copy: SimulatedCopy, now_s: float) -> None:
        if copy in self._coming:
            self._coming.remove(copy)
            self._count(-1, now_s)
            self._deps.fleet.remove_copy(copy, now_s)
            return
        del self.serving[copy.place]
        del self.outstanding[copy.place]
        for place, it in enumerate(self.serving):
            it.place = place
        copy.place = -1
        self._leaving[copy.id] = copy
        if not copy.outstanding:
            self._remove(copy, now_s)

    def _remove(self, copy: SimulatedCopy, now_s: float) -> None:
        del self._leaving[copy.id]
        self._count(-1, now_s)
        self._deps.fleet.remove_copy(copy, now_s)

    def _count(self, change: int, now_s: float) -> None:
        self._num_there += change
        self._deps.ledger.copies_now(self.model, now_s, self._num_there)
