"""Capacity from waiting requests: copies of a name, environments of a serverless variant."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hostelry.domain.at_zero import Wakeable
from hostelry.domain.scaling import ScalableTarget
from hostelry.domain.serverless import ServerlessConfig
from hostelry.scaling.decide.cooldown import remaining_s
from hostelry.scaling.decide.decision import Capacity, Decision, LastAct, unchanged

# Waking: how many copies a name without one gets because requests wait for it.
#
# | requests wait, MaxCapacity | service time | copies |
# | --- | --- | --- |
# | none, or MaxCapacity is 0 | any | unchanged |
# | some | not known | 1 |
# | some | known | as many as answer them in `CLEAR_S`, `MAX_FIRST` at most |
# | fewer are needed than are desired already | any | unchanged |
#
# A wake raises and never lowers. What takes the copies away again are the target's own policies,
# but none of them all at once while the wake is young: an alarm that was low before still is low
# then.


CLEAR_S = 10.0  # in which what waits should be answered, once copies serve
MAX_FIRST = 4  # copies that one wake starts: a burst may be over before they serve


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits for a name. `held` requests, of which each takes `service_s` (None: not known).

    `at_once` is how many of them one copy answers side by side; a concurrency target knows it.
    """

    held: int
    service_s: float | None = None
    at_once: float = 1.0


def wakeable(target: ScalableTarget | None) -> Wakeable:
    """Whether a request may have a copy started, by what is registered for the name.

    Zero copies that nothing may raise are off on purpose: a request must not turn them on.
    """
    if target is None:
        return Wakeable.NO_TARGET
    if target.max_capacity < 1:
        return Wakeable.MAX_ZERO
    return Wakeable.SUSPENDED if target.suspended.scale_out else Wakeable.YES


def decide(waiting: Waiting, capacity: Capacity) -> Decision:
    """The copies to have for what waits: one, or as many as answer it within `CLEAR_S`.

    Without a known service time there is one: how many a load needs cannot be known then. Copies
    that are on their way count; a wake that comes again asks for no more than it did.
    """
    signal = build_signal(waiting, capacity)
    if waiting.held < 1:
        return unchanged(capacity, "Nothing waits.", signal)
    if capacity.maximum < 1:
        return unchanged(capacity, "MaxCapacity is 0: nothing may be started.", signal)
    needed = copies_needed(waiting)
    desired = max(1, capacity.minimum, min(needed, MAX_FIRST, capacity.maximum))
    waits = f"{waiting.held} {'request waits' if waiting.held == 1 else 'requests wait'} for a copy"
    if desired <= capacity.desired:
        return unchanged(capacity, f"{waits}: {capacity.desired} on the way.", signal)
    why = "" if desired == 1 else f", {needed} would answer them in {CLEAR_S:g} s"
    return Decision(desired=desired, reason=f"{waits}{why}: {desired} started.", signal=signal)


def copies_needed(waiting: Waiting) -> int:
    """How many copies answer what waits within `CLEAR_S`; one where that cannot be known."""
    service_s = waiting.service_s
    if service_s is None or not math.isfinite(service_s) or service_s <= 0.0:
        return 1
    at_once = waiting.at_once if waiting.at_once >= 1.0 else 1.0  # also where it is no number
    # In this order nothing grows beyond a float on both sides of a division.
    return max(1, math.ceil(min(waiting.held * (service_s / at_once / CLEAR_S), 1e6)))


def keeps_awake(
    desired: int, woken: LastAct | None, cooldown_s: float, pace: float, now: float
) -> str | None:
    """Why capacity must not go back to zero at `now`; None where a wake does not speak against it.

    `woken` is the newest wake that succeeded, `cooldown_s` the time for which a policy leaves a
    change alone (ScaleInCooldown, or Cooldown of a step policy).
    """
    if woken is None or desired > 0:
        return None
    left_s = remaining_s(woken, cooldown_s, pace, now)
    if left_s <= 0.0:
        return None
    return f"requests woke it a short time ago; it stays for {left_s:.0f} s more"


def build_signal(waiting: Waiting, capacity: Capacity) -> Mapping[str, float]:
    """The values that a wake was decided by."""
    signal = {"held": float(waiting.held), "desired": float(capacity.desired)}
    if waiting.service_s is not None:
        signal |= {"service_s": waiting.service_s, "at_once": waiting.at_once}
    return {name: value for name, value in signal.items() if math.isfinite(value)}


# Number of environments of a serverless variant: more as requests come, fewer in idleness. Pure.
#
# | environments now, requests under way, MaxConcurrency | environments after a wake |
# | --- | --- |
# | as many as the requests, or more | unchanged |
# | fewer | one for each request, MaxConcurrency at most |
#
# | an environment | result |
# | --- | --- |
# | had a request, or was waited for, within the idle time-out | stays |
# | idle for longer, more than ProvisionedConcurrency are there | ends, the longest idle first |
# | idle for longer, no more than those | stays |
# | is one that ends already | not counted |


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentUse:
    """An environment, and when it last had a request, was started or, not ready yet, waited for."""

    copy_id: str
    used_at: float


def environments_for(concurrency: int, now: int, config: ServerlessConfig) -> int:
    """The environments to have for `concurrency` requests under way; `now` are desired already."""
    return max(now, min(concurrency, config.max_concurrency))


def to_end(
    environments: Sequence[EnvironmentUse],
    ending: Collection[str],
    config: ServerlessConfig,
    idle_s: float,
    now: float,
) -> tuple[str, ...]:
    """The ids of the environments to end now, the longest idle first."""
    staying = [it for it in environments if it.copy_id not in ending]
    idle = [it for it in staying if now - it.used_at >= idle_s]
    idle.sort(key=lambda it: (it.used_at, it.copy_id))
    may_go = max(0, len(staying) - config.provisioned_concurrency)
    return tuple(it.copy_id for it in idle[:may_go])
