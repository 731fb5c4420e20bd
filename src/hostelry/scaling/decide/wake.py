"""Capacity from waiting requests: copies of a name, environments of a serverless variant."""

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec

from hostelry.domain.at_zero import Wakeable
from hostelry.domain.scaling import ScalableTarget
from hostelry.domain.serverless import ServerlessConfig
from hostelry.scaling.decide.decision import (
    Capacity,
    Decision,
    LastAct,
    get_remaining_s,
    keep_capacity,
)

CLEAR_S = 10.0  # in which what waits should be answered, once copies serve
MAX_FIRST = 4  # copies that one wake starts: a burst may be over before they serve


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that wait for a name: `held` requests, each taking `service_s` (None: unknown).

    `at_once` is how many of them one copy answers side by side. A concurrency target defines it.
    """

    held: int
    service_s: float | None = None
    at_once: float = 1.0


def wakeable(target: ScalableTarget | None) -> Wakeable:
    """Whether a request may have a copy started, by the target registered for the name.

    Zero copies without anything that may raise the number are intended: no request turns them on.
    """
    if target is None:
        return Wakeable.NO_TARGET
    if target.max_capacity < 1:
        return Wakeable.MAX_ZERO
    return Wakeable.SUSPENDED if target.suspended.scale_out else Wakeable.YES


def decide(waiting: Waiting, capacity: Capacity) -> Decision:
    """The copies for the waiting requests: one, or as many as answer them within `CLEAR_S`.

    Without a known service time there is one copy, because the number needed is unknown. Copies
    that are on their way count. A repeated wake asks for no more than the first.

    | requests wait, MaxCapacity | service time | copies |
    | --- | --- | --- |
    | none, or MaxCapacity is 0 | any | unchanged |
    | some | not known | 1 |
    | some | known | as many as answer them in `CLEAR_S`, `MAX_FIRST` at most |
    | fewer are needed than are desired already | any | unchanged |

    A wake raises and never lowers. The target's policies take the copies away again, but not all of
    them while the wake is young (`explain_awake`): an alarm that was low before still is low then.
    """
    signal = build_signal(waiting, capacity)
    if waiting.held < 1:
        return keep_capacity(capacity, "Nothing waits.", signal)
    if capacity.maximum < 1:
        return keep_capacity(capacity, "MaxCapacity is 0: nothing may be started.", signal)
    needed = count_needed_copies(waiting)
    desired = max(1, capacity.minimum, min(needed, MAX_FIRST, capacity.maximum))
    waits = f"{waiting.held} {'request waits' if waiting.held == 1 else 'requests wait'} for a copy"
    if desired <= capacity.desired:
        return keep_capacity(capacity, f"{waits}: {capacity.desired} on the way.", signal)
    why = "" if desired == 1 else f", {needed} would answer them in {CLEAR_S:g} s"
    return Decision(desired=desired, reason=f"{waits}{why}: {desired} started.", signal=signal)


def count_needed_copies(waiting: Waiting) -> int:
    """How many copies answer the waiting requests within `CLEAR_S`. One if that is unknown."""
    service_s = waiting.service_s
    if service_s is None or not math.isfinite(service_s) or service_s <= 0.0:
        return 1
    at_once = waiting.at_once if waiting.at_once >= 1.0 else 1.0  # also for NaN
    # In this order nothing grows beyond a float on both sides of a division.
    return max(1, math.ceil(min(waiting.held * (service_s / at_once / CLEAR_S), 1e6)))


def explain_awake(
    desired: int, woken: LastAct | None, cooldown_s: float, pace: float, now: float
) -> str | None:
    """Why capacity must not go back to zero at `now`. None if no wake speaks against it.

    `woken` is the newest wake that succeeded, `cooldown_s` the time for which a policy leaves a
    change alone (ScaleInCooldown, or Cooldown of a step policy).
    """
    if woken is None or desired > 0:
        return None
    left_s = get_remaining_s(woken, cooldown_s, pace, now)
    if left_s <= 0.0:
        return None
    return f"requests woke it a short time ago; it stays for {left_s:.0f} s more"


def build_signal(waiting: Waiting, capacity: Capacity) -> Mapping[str, float]:
    """The values that a wake was decided by."""
    signal = {"held": float(waiting.held), "desired": float(capacity.desired)}
    if waiting.service_s is not None:
        signal |= {"service_s": waiting.service_s, "at_once": waiting.at_once}
    return {name: value for name, value in signal.items() if math.isfinite(value)}


class EnvironmentUse(msgspec.Struct, frozen=True, kw_only=True):
    """An environment, and when it last had a request, was started or, not ready yet, waited for."""

    copy_id: str
    used_at: float


def count_environments(concurrency: int, now: int, config: ServerlessConfig) -> int:
    """The environments for `concurrency` requests under way, if `now` are desired already."""
    return max(now, min(concurrency, config.max_concurrency))


def list_ended_environments(
    environments: Sequence[EnvironmentUse],
    ending: Collection[str],
    config: ServerlessConfig,
    idle_s: float,
    now: float,
) -> tuple[str, ...]:
    """The ids of the environments to end now, the longest idle first.

    | an environment | result |
    | --- | --- |
    | had a request, or was waited for, within the idle time-out | stays |
    | idle for longer, more than ProvisionedConcurrency are there | ends, the longest idle first |
    | idle for longer, no more than those | stays |
    | is one that ends already | not counted |
    """
    staying = [it for it in environments if it.copy_id not in ending]
    idle = [it for it in staying if now - it.used_at >= idle_s]
    idle.sort(key=lambda it: (it.used_at, it.copy_id))
    may_go = max(0, len(staying) - config.provisioned_concurrency)
    return tuple(it.copy_id for it in idle[:may_go])
