"""Decisions of the supervisor, as values: what hangs, when to restart what died, when to give up.

Pure: instants are seconds of one clock and passed in; nothing here starts or signals a process.
"""

import signal
from dataclasses import dataclass, replace

FIRST_DELAY_S = 0.2
MAX_DELAY_S = 10.0
# A process that ran this long before it died starts again with a clean slate.
STEADY_S = 30.0
# Before the platform was ever ready, more deaths than this mean that it cannot start.
MAX_STARTUP_DEATHS = 3
# Afterwards it is tried for ever, but called by its name.
CRASH_LOOP_DEATHS = 5
SHOWN_LOG_LINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessPolicy:
    """How long a service may be silent before it counts as hung.

    It is asked each `every_s`, has `timeout_s` to answer, and is hung after `max_misses` in a row.
    One that never answered is starting: it is asked each `starting_every_s`, so that it counts as
    started as soon as it can hang, and nothing is held against it for `start_s`. A miss that came
    while the supervisor itself was `late_s` behind says that the machine stood still, and counts
    for nothing.
    """

    every_s: float = 1.0
    starting_every_s: float = 0.1
    timeout_s: float = 2.0
    max_misses: int = 5
    start_s: float = 120.0
    late_s: float = 1.0


# A door that hangs fails every request that reaches it, and its loop never works for seconds.
DOOR_LIVENESS = LivenessPolicy(max_misses=3)
# Nothing that serves waits for these: there is time to be sure, as on a machine that swaps.
PATIENT_LIVENESS = LivenessPolicy(max_misses=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """What the checks of one process's life said so far."""

    has_answered: bool = False
    misses: int = 0


def liveness_of_adopted(age_s: float) -> Liveness:
    """What is assumed of a process that was adopted: one of that age has answered before."""
    return Liveness(has_answered=age_s >= STEADY_S)


def after_check(
    liveness: Liveness, *, answered: bool, late_s: float, policy: LivenessPolicy
) -> Liveness:
    """The liveness after one more check, which ended `late_s` later than the supervisor meant."""
    if answered:
        return Liveness(has_answered=True)
    if late_s >= policy.late_s:
        return liveness
    return replace(liveness, misses=liveness.misses + 1)


def pause_s(liveness: Liveness, policy: LivenessPolicy) -> float:
    """How long after a check the next one begins, at the earliest."""
    return policy.every_s if liveness.has_answered else policy.starting_every_s


def is_hung(liveness: Liveness, *, age_s: float, policy: LivenessPolicy) -> bool:
    """Whether a process that was started `age_s` ago is to be killed for its silence."""
    is_starting = not liveness.has_answered and age_s < policy.start_s
    return not is_starting and liveness.misses >= policy.max_misses


def hung_message(name: str, liveness: Liveness, policy: LivenessPolicy) -> str:
    """What the operator reads when a service is killed because it hangs."""
    what = "stopped answering" if liveness.has_answered else "never answered"
    return (
        f"{name} {what}: {liveness.misses} checks of {policy.timeout_s:g} s in a row were missed; "
        "killing it"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One process's present life: when it started, and the quick deaths just before."""

    started_at: float
    quick_deaths: int = 0


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a process; `code` as subprocess gives it, None for one that was adopted."""

    code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Start it again after `delay_s`; `quick_deaths` goes into its next `Life`."""

    delay_s: float
    quick_deaths: int
    crash_looping: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It cannot start; the platform stops."""

    deaths: int


def after_death(life: Life, *, platform_was_ready: bool, now: float) -> Restart | GiveUp:
    """What to do about a process that died at `now` without being asked to."""
    steady = now - life.started_at >= STEADY_S
    deaths = 1 if steady else life.quick_deaths + 1
    if not platform_was_ready and deaths >= MAX_STARTUP_DEATHS:
        return GiveUp(deaths)
    return Restart(
        delay_s=restart_delay_s(deaths),
        quick_deaths=deaths,
        crash_looping=deaths >= CRASH_LOOP_DEATHS,
    )


def restart_delay_s(deaths: int) -> float:
    """Wait before a start after `deaths` quick deaths (>= 1): doubles from 0.2 s up to 10 s."""
    return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(deaths - 1, 16))


def exit_phrase(returncode: int | None) -> str:
    """How a process ended, in words; `returncode` as subprocess gives it (negative = signal)."""
    if returncode is None:
        return "ended (it was adopted, so how is not known)"
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    return f"was killed by {name}"


def death_message(name: str, how: Exit | str, decision: Restart | GiveUp, log_tail: str) -> str:
    """What the operator reads when a process died: how, what follows, and its last log lines.

    `how` is its exit, or what else happened to it, in words.
    """
    ended = f"{name} {how if isinstance(how, str) else exit_phrase(how.code)}"
    if isinstance(decision, GiveUp):
        head = f"{ended}, {decision.deaths} times in a row; it cannot start"
    elif decision.crash_looping:
        head = (
            f"{ended}, {decision.quick_deaths} times in a row (crash loop); "
            f"next try in {decision.delay_s:g} s"
        )
    else:
        head = f"{ended}; restarting in {decision.delay_s:g} s"
    lines = [line for line in log_tail.splitlines() if line.strip()][-SHOWN_LOG_LINES:]
    return "\n".join([head, *(f"    {name}| {line}" for line in lines)])
