"""Controllers of a component's number of copies, on the virtual clock."""

import math
from collections import deque
from typing import Protocol

from hostelry.domain.load import SecondLoad
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.scaling.decide.responsive.policy import ResponsiveState, propose_capacity
from hostelry.sim.peers import (
    KnativeRule,
    KnativeState,
    RayServeRule,
    RayServeState,
    knative,
    ray_serve,
)
from hostelry.sim.target import SimulatedTarget


class Controller(Protocol):
    """A rule that sets a component's number by its load, second by second.

    `needs_quiet`: it also needs the seconds in which nothing happened.
    """

    needs_quiet: bool

    def second(self, load: SecondLoad, now: float) -> None:
        """A second has ended, at the wall time `now`."""
        ...


class ResponsiveController:
    """The responsive policy. If `is_tracked`, a target-tracking policy scales in."""

    needs_quiet = True

    def __init__(
        self, target: SimulatedTarget, options: ResponsiveOptions, *, is_tracked: bool
    ) -> None:
        self._target = target
        self._is_tracked = is_tracked
        self._state = ResponsiveState(options=options)

    def second(self, load: SecondLoad, now: float) -> None:
        """Let it decide by one more second."""
        self._state, decision, may_lower = propose_capacity(
            self._state, load, self._target.capacity, now, is_tracked=self._is_tracked
        )
        if decision is not None:
            self._target.propose("responsive", decision, now, may_lower=may_lower)


class KnativeController:
    """Knative's rule, looking every `tick_s`."""

    needs_quiet = True

    def __init__(self, target: SimulatedTarget, rule: KnativeRule) -> None:
        self._target = target
        self._rule = rule
        self._state = KnativeState()
        self._in_flight: deque[float] = deque(maxlen=rule.stable_window_s)

    def second(self, load: SecondLoad, now: float) -> None:
        """Take a second's concurrency. At each tick, set the number that the rule wants."""
        self._in_flight.append(load.in_flight_mean)
        if round(now) % self._rule.tick_s:
            return
        ready = self._target.capacity.serving
        seen = tuple(self._in_flight)
        self._state, wanted = knative(self._rule, self._state, seen, ready, now)
        self._target.set("knative", wanted, f"{seen[-1]:.3g} in flight", now)


class RayServeController:
    """Ray Serve's rule, which sees what replicas have pushed."""

    needs_quiet = True

    def __init__(self, target: SimulatedTarget, rule: RayServeRule) -> None:
        self._target = target
        self._rule = rule
        self._state = RayServeState()
        self._measured: deque[float] = deque(maxlen=rule.look_back_s)
        self._pushed: tuple[float, ...] = ()

    def second(self, load: SecondLoad, now: float) -> None:
        """Take a second's concurrency, and set the number that the rule wants."""
        self._measured.append(load.in_flight_mean)
        if math.floor(now) % self._rule.push_every_s == 0:
            self._pushed = tuple(self._measured)
        replicas = self._target.capacity.desired
        self._state, wanted = ray_serve(self._rule, self._state, self._pushed, replicas, now)
        if wanted != replicas:
            self._target.set("ray serve", wanted, "its look-back period", now)
