"""One fault, played: strike under load, watch it being seen and mended, count what was lost."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from signal import SIGKILL
from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import process_stat, uptime_s
from hostelry.chaos.ledger import Ledger, no_ledger
from hostelry.chaos.outcome import Limits, Outcome, judged, served
from hostelry.chaos.scene import Scene
from hostelry.chaos.sight import (
    Platform,
    ready_pids,
    records_in,
    stopped,
    wait_for,
)
from hostelry.fleet.host.processes import send
from hostelry.fleet.records import ProcessIdentity

WARM_UP_ANSWERS = 20
AFTERWARDS_S = 20.0
STATE_S = 20.0

LedgerOf = Callable[[Platform], AbstractContextManager[Ledger | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A signal drill's parts.

    `victims` are struck; `seen` tells at which instant the platform noticed, `mended` whether all
    is as it was: both are asked until they say so, for `watch_s` at most.
    """

    drill: str
    target: str
    limits: Limits
    hangs: bool
    victims: Sequence[ProcessIdentity]
    seen: Callable[[float], float | None]
    mended: Callable[[], bool]
    copies_may_restart: bool = False
    ledger: LedgerOf = no_ledger
    watch_s: float = 60.0


def play(scene: Scene, fault: Fault) -> Outcome:
    """Strike and measure."""
    platform = scene.platform
    before = platform.known_state()
    load = scene.load()
    missed: list[str] = []
    with fault.ledger(platform) as ledger, load.flowing():
        load.answers(WARM_UP_ANSWERS, AFTERWARDS_S)
        with ExitStack() as frozen:
            fault_at = monotonic_s()
            if fault.hangs:
                frozen.enter_context(stopped(fault.victims))
            else:
                send(fault.victims, SIGKILL)
            scene.say(f"{fault.drill}: struck {', '.join(f'pid {it.pid}' for it in fault.victims)}")
            seen_at = wait_for(lambda: fault.seen(fault_at), fault.watch_s)
            back_at = wait_for(lambda: monotonic_s() if fault.mended() else None, fault.watch_s)
        try:
            load.answers(WARM_UP_ANSWERS, AFTERWARDS_S)
        except TerminalError as error:
            missed.append(str(error))
    after = wait_for(platform.state, STATE_S)
    lost = lost_between(before, after, copies_may_restart=fault.copies_may_restart)
    if ledger is not None:
        lost += [f"{name}, which was acknowledged" for name in ledger.settle()]
    fared = served(load.calls, fault_at)
    detected_s = None if seen_at is None else max(0.0, seen_at - fault_at)
    back_s = None if back_at is None else back_at - fault_at
    outcome = Outcome(
        drill=fault.drill,
        target=fault.target,
        served=fared,
        detected_s=detected_s,
        back_s=back_s,
        lost=tuple(lost),
        kept=_kept(before, after, ledger),
        missed=tuple(missed),
    )
    return judged(outcome, fault.limits)


def started_at(process: ProcessIdentity) -> float | None:
    """When a process was started, on the clock of `monotonic_s`; None when it is gone."""
    stat = process_stat(process.pid)
    if stat is None or stat.start_ticks != process.start_ticks:
        return None
    return monotonic_s() - uptime_s(stat)


def lost_between(
    before: Mapping[str, Any], after: Mapping[str, Any] | None, *, copies_may_restart: bool
) -> list[str]:
    """What was recorded, and with it each copy's process, and is not there any more."""
    if after is None:
        return ["control's answer, so that nothing can be compared"]
    lost = sorted(records_in(before) - records_in(after))
    if not copies_may_restart:
        now = ready_pids(after)
        lost += [
            f"copy {name}'s process"
            for name, pid in ready_pids(before).items()
            if now.get(name) != pid
        ]
    return lost


def _kept(before: Mapping[str, Any], after: Mapping[str, Any] | None, ledger: Ledger | None) -> str:
    old, now = ready_pids(before), {} if after is None else ready_pids(after)
    same = sum(1 for name, pid in old.items() if now.get(name) == pid)
    words = [f"{same} of {len(old)} copies went on"]
    if same < len(old):
        words.append(f"{sum(1 for it in old if it in now) - same} started again")
    if ledger is not None:
        words.append(f"{len(ledger.acknowledged)} writes acknowledged")
    return ", ".join(words)
