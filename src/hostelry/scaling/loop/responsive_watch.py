"""The loop of the responsive policy: each second of each target that chose it, and its proposals.

The learnt state is in memory only. After a restart it learns again, and until then only a call that
waits too long makes it act. Seconds come from a LoadAggregator, on any thread. `tick` handles them.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.metric import Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricWriter
from hostelry.scaling.decide.decision import Decision, Proposal
from hostelry.scaling.decide.responsive.estimates import build_expected_sample
from hostelry.scaling.decide.responsive.policy import (
    ResponsiveState,
    get_expected,
    learn,
    propose_capacity,
)
from hostelry.scaling.loop.responsive_targets import (
    ResponsiveTarget,
    ResponsiveTargets,
    find_responsive_targets,
)
from hostelry.scaling.loop.scaler import Scaler
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
BY = "responsive"
MAX_BEHIND = 120  # seconds that wait. Older ones are lost, as a gap
STALE_S = 15.0  # an older second is learnt from, but not acted on
IDLE_EVERY_S = 10  # how often the metric of a target without load is published
IDLE_CALLS = 0.01
COMPLAIN_EVERY_S = 60.0

Listener = Callable[[int, Sequence[SecondLoad]], None]


class Seconds(Protocol):
    """Source of closed seconds, as `metrics.sagemaker.load_aggregator.LoadAggregator`."""

    def subscribe(self, listener: Listener) -> None:
        """Have `listener` called with each second once it is closed, and what happened in it."""
        ...


class ResponsiveWatchDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the watch. `metrics` None publishes nothing. `steady` never jumps."""

    state: State
    scaler: Scaler
    clock: Clock
    steady: Clock
    metrics: MetricWriter | None = None


class ResponsiveWatch:
    """`wait` and `tick` are called by one thread, `record` and `overview` by any."""

    def __init__(self, deps: ResponsiveWatchDeps) -> None:
        self._deps = deps
        self._seconds: deque[tuple[int, Sequence[SecondLoad]]] = deque(maxlen=MAX_BEHIND)
        self._has_seconds = threading.Event()
        self._choices = ResponsiveTargets()
        self._revision: int | None = None
        self._learnt: dict[LoadKey, ResponsiveState] = {}
        self._complained_at: dict[str, float] = {}

    def listen(self, aggregator: Seconds) -> None:
        """Record every second that `aggregator` closes from now on."""
        aggregator.subscribe(self.record)

    def record(self, second: int, loads: Sequence[SecondLoad]) -> None:
        """Take a second. `loads` leaves out names without load. Quick, and never raises."""
        self._seconds.append((second, loads))
        self._has_seconds.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a second to handle, or for `timeout_s`."""
        self._has_seconds.wait(timeout_s)

    def end_wait(self) -> None:
        """End a `wait` at once."""
        self._has_seconds.set()

    def tick(self) -> None:
        """Handle the seconds that came."""
        self._has_seconds.clear()
        while True:
            try:
                second, loads = self._seconds.popleft()
            except IndexError:
                return
            self._follow()
            self._see(second, {it.key: it for it in loads})

    def overview(self) -> Mapping[LoadKey, tuple[ResponsiveTarget, ResponsiveState | None]]:
        """Every target of the policy, and its learnt state."""
        found = self._choices.watched
        return {key: (watched, self._learnt.get(key)) for key, watched in found.items()}

    def _follow(self) -> None:
        """Read the records again if any changed, and forget targets that are gone."""
        revision = self._deps.state.store.revision()
        if revision == self._revision:
            return
        before, found = self._choices, find_responsive_targets(self._deps.state)
        self._choices, self._revision = found, revision
        for arn, why in found.refused.items():
            if before.refused.get(arn) != why:
                LOG.warning("the responsive policy of %s does nothing: %s", arn, why)
        self._learnt = {key: it for key, it in self._learnt.items() if key in found.watched}

    def _see(self, second: int, loads: Mapping[LoadKey, SecondLoad]) -> None:
        now = self._deps.clock.now()
        is_stale = abs(now - second) > STALE_S
        samples: dict[Scope, list[Sample]] = {}
        for key, watched in self._choices.watched.items():
            known = self._learnt.get(key) or ResponsiveState(options=watched.options)
            if known.options != watched.options:
                known = replace(known, options=watched.options)
            load = loads.get(key) or SecondLoad(key=key, second=second)
            if key not in loads and _is_idle(known):
                if second % IDLE_EVERY_S:
                    continue  # thousands of names without a call cost nothing
            elif is_stale:
                known = learn(known, load)
            else:
                known = self._act(known, load, watched, now)
            self._learnt[key] = known
            sample = build_expected_sample(
                key, get_expected(known), watched.capacity.serving, second
            )
            if sample is not None:
                samples.setdefault(key.scope, []).append(sample)
        self._publish(samples)

    def _act(
        self, known: ResponsiveState, load: SecondLoad, target: ResponsiveTarget, now: float
    ) -> ResponsiveState:
        after, decision, may_lower = propose_capacity(
            known, load, target.capacity, now, is_tracked=target.is_tracked
        )
        if decision is not None:
            self._propose(build_proposal(load, target, decision, now, may_lower=may_lower))
        return after

    def _propose(self, made: Proposal) -> None:
        try:
            self._deps.scaler.propose(made)
        except HostelryError as error:
            self._warn(made.resource_id, f"could not be scaled: {error}")

    def _publish(self, samples: Mapping[Scope, Sequence[Sample]]) -> None:
        metrics = self._deps.metrics
        if metrics is None:
            return
        for scope, found in samples.items():
            metrics.emit(scope, found)

    def _warn(self, what: str, problem: str) -> None:
        """Log it, once a minute for the same thing."""
        now = self._deps.steady.now()
        if now - self._complained_at.get(what, -math.inf) >= COMPLAIN_EVERY_S:
            self._complained_at[what] = now
            LOG.warning("%s %s", what, problem)


def build_proposal(
    load: SecondLoad, watched: ResponsiveTarget, decision: Decision, now: float, *, may_lower: bool
) -> Proposal:
    """What is proposed after a second of load."""
    rose_s_ago = decision.signal.get("rose_s_ago")
    return Proposal(
        scope=load.key.scope,
        resource_id=watched.resource_id,
        dimension=watched.dimension,
        by=BY,
        decision=decision,
        load_rose_at=None if rose_s_ago is None else load.second + 1.0 - rose_s_ago,
        at=now,
        may_lower=may_lower,
    )


def _is_idle(known: ResponsiveState) -> bool:
    """Whether a second without anything would teach nothing."""
    rates = known.rates
    if known.options.scale_in_after_s is not None:
        return False
    return known.is_warm and rates.arrivals < IDLE_CALLS and rates.in_flight < IDLE_CALLS
