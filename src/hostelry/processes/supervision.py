"""Decisions of the supervisor: hung processes, delays of restarts, failed starts. Pure.

Instants are seconds of one clock. A check of a service's liveness:

| answered | supervisor late | next state |
| --- | --- | --- |
| yes | | it has answered, no misses |
| no | >= `late_s` | unchanged: the whole machine stood still |
| no | less | one miss more. Hung after `max_misses`, unless it is still starting |

A service that hangs is killed and started again, but at most MAX_HANG_KILLS times within
HANG_WINDOW_S. If it hangs again and again, it needs time or the operator, not another kill.

The death of a service that was not asked to stop:

| platform was ready | deaths within STEADY_S of a start, in a row | decision |
| --- | --- | --- |
| no | >= 3 | StartupFailure: the platform stops |
| no | fewer | RestartAfter 0.2 s, doubled for each death |
| yes | any | RestartAfter, at most 10 s, and a crash loop from 5 deaths on |
"""

import re
import signal
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import until_next_s

FIRST_DELAY_S = 0.2
MAX_DELAY_S = 10.0
# A process that ran this long resets the count of quick deaths.
STEADY_S = 30.0
# Before the platform was ever ready, this many deaths mean that it cannot start.
MAX_STARTUP_DEATHS = 3
# Afterwards it is restarted for ever. From this many deaths on, messages call it a crash loop.
CRASH_LOOP_DEATHS = 5
# Of one service. After these kills it is left alone until the window has passed.
MAX_HANG_KILLS = 3
HANG_WINDOW_S = 600.0
SHOWN_LOG_LINES = 8
# The line with the cause, before the stacks of a Go program's threads: F1128 11:48:12.088899 ...
GO_FATAL_CODE = 255
GO_FATAL = re.compile(r"F\d{4} \d\d:")


class LivenessPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Liveness checks of a service, and when it counts as hung.

    The service is checked each `every_s`, has `timeout_s` to answer, and is hung after
    `max_misses` misses in a row. A service that never answered is starting. It is checked each
    `starting_every_s`, and its misses do not count for `start_s`. A miss does not count either if
    the supervisor itself is `late_s` late, because then the whole machine stood still.
    """

    every_s: float = 1.0
    starting_every_s: float = 0.1
    timeout_s: float = 2.0
    max_misses: int = 5
    start_s: float = 120.0
    late_s: float = 1.0


# A hung gateway fails every request that reaches it, and its event loop is never busy for seconds.
GATEWAY_LIVENESS = LivenessPolicy(max_misses=3)
# No request waits for these services, so there is time to be sure, as on a machine that swaps.
PATIENT_LIVENESS = LivenessPolicy(max_misses=5)


class Liveness(msgspec.Struct, frozen=True, kw_only=True):
    """Results of the liveness checks of one process so far."""

    has_answered: bool = False
    misses: int = 0


def assume_liveness(age_s: float) -> Liveness:
    """The liveness of an adopted process. An old process is assumed to have answered before."""
    return Liveness(has_answered=age_s >= STEADY_S)


def after_check(
    liveness: Liveness, *, answered: bool, late_s: float, policy: LivenessPolicy
) -> Liveness:
    """The liveness after one more check, which ended `late_s` later than it was due."""
    if answered:
        return Liveness(has_answered=True)
    if late_s >= policy.late_s:
        return liveness
    return replace(liveness, misses=liveness.misses + 1)


def next_check_at(
    liveness: Liveness, last_at: float, now: float, wall: float, policy: LivenessPolicy
) -> float:
    """When to check next. Services that answer are checked together, at full seconds.

    `wall` is `now` in seconds since the epoch. Other periodic work is done at full seconds, too.
    """
    every_s = policy.every_s if liveness.has_answered else policy.starting_every_s
    if liveness.misses:
        return max(now, last_at + every_s)
    return now + until_next_s(wall, every_s)


def is_hung(liveness: Liveness, *, age_s: float, policy: LivenessPolicy) -> bool:
    """Whether a process that was started `age_s` ago is hung."""
    is_starting = not liveness.has_answered and age_s < policy.start_s
    return not is_starting and liveness.misses >= policy.max_misses


def may_be_killed(kills: Sequence[float], now: float) -> bool:
    """Whether to kill a hung service that was killed for hanging at the times `kills`."""
    return sum(now - at < HANG_WINDOW_S for at in kills) < MAX_HANG_KILLS


def hung_message(name: str, liveness: Liveness, policy: LivenessPolicy, pid: int | None) -> str:
    """The message to the operator on a hung service: it is killed, or left running as `pid`."""
    what = "stopped answering" if liveness.has_answered else "never answered"
    missed = f"{liveness.misses} checks of {policy.timeout_s:g} s in a row were missed"
    if pid is None:
        return f"{name} {what}: {missed}; killing it"
    return (
        f"{name} {what}: {missed}. It was killed {MAX_HANG_KILLS} times within"
        f" {HANG_WINDOW_S / 60:g} minutes for that, which did not help: it is left running. See its"
        f" log for what it does; `kill -9 {pid}` has it started again"
    )


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a process: its start, and the quick deaths just before."""

    started_at: float
    quick_deaths: int = 0


class Exit(msgspec.Struct, frozen=True):
    """The end of a process. `code` is subprocess's, or None for an adopted process."""

    code: int | None


class RestartAfter(msgspec.Struct, frozen=True, kw_only=True):
    """Restart of a service after `delay_s`. `quick_deaths` is for its next `Life`."""

    delay_s: float
    quick_deaths: int
    crash_looping: bool = False


class StartupFailure(msgspec.Struct, frozen=True):
    """A service cannot start, so the platform stops."""

    deaths: int


def after_death(
    life: Life, *, platform_was_ready: bool, now: float
) -> RestartAfter | StartupFailure:
    """The decision on a process that died at `now` without being asked to stop."""
    steady = now - life.started_at >= STEADY_S
    deaths = 1 if steady else life.quick_deaths + 1
    if not platform_was_ready and deaths >= MAX_STARTUP_DEATHS:
        return StartupFailure(deaths)
    return RestartAfter(
        delay_s=restart_delay_s(deaths),
        quick_deaths=deaths,
        crash_looping=deaths >= CRASH_LOOP_DEATHS,
    )


def restart_delay_s(deaths: int) -> float:
    """Delay of a restart after `deaths` quick deaths (>= 1): doubles from 0.2 s up to 10 s."""
    return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(deaths - 1, 16))


def exit_phrase(returncode: int | None) -> str:
    """Describe the end of a process by its returncode from subprocess (negative = signal)."""
    if returncode is None:
        return "ended (its exit code is unknown, as it was adopted)"
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    return f"was killed by {name}"


def death_message(
    name: str, how: Exit | str, decision: RestartAfter | StartupFailure, log_tail: str
) -> str:
    """The message to the operator on a death: its cause, the decision and the last log lines.

    `how` is the exit, or why the process could not start. If a Go program ended on an error, only
    the line with the error is shown.
    """
    ended = f"{name} {how if isinstance(how, str) else exit_phrase(how.code)}"
    if isinstance(decision, StartupFailure):
        head = f"{ended}, {decision.deaths} times in a row; it cannot start"
    elif decision.crash_looping:
        head = (
            f"{ended}, {decision.quick_deaths} times in a row (crash loop); "
            f"next try in {decision.delay_s:g} s"
        )
    else:
        head = f"{ended}; restarting in {decision.delay_s:g} s"
    lines = [line for line in log_tail.split("\n") if line.strip()]
    shown = lines[-SHOWN_LOG_LINES:]
    if how == Exit(GO_FATAL_CODE):
        shown = [line for line in lines if GO_FATAL.match(line)][-1:] or shown
    return "\n".join([head, *(f"    {name}| {line}" for line in shown)])
