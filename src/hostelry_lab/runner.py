"""Runs one signal fault under load: inject, await detection and recovery, count losses."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from signal import SIGKILL
from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import ProcessIdentity, process_stat, uptime_s
from hostelry.fleet.host.processes import send
from hostelry_lab.context import DrillContext
from hostelry_lab.ledger import WriteLedger, no_ledger
from hostelry_lab.observer import (
    PlatformObserver,
    ready_pids,
    records_in,
    stop_processes,
    wait_for,
)
from hostelry_lab.outcome import DrillLimits, DrillOutcome, judge, served_calls

WARM_UP_ANSWERS = 20
AFTERWARDS_S = 20.0
STATE_S = 20.0

LedgerFactory = Callable[[PlatformObserver], AbstractContextManager[WriteLedger | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault by signal: SIGKILL of `victims`, or SIGSTOP if it `hangs`.

    `detected` returns the instant at which the platform noticed the fault, or None. `recovered`
    returns whether all is as before. Both are polled for at most `watch_s`.
    """

    drill: str
    target: str
    limits: DrillLimits
    hangs: bool
    victims: Sequence[ProcessIdentity]
    detected: Callable[[float], float | None]
    recovered: Callable[[], bool]
    copies_may_restart: bool = False
    ledger: LedgerFactory = no_ledger
    watch_s: float = 60.0


def run_fault(context: DrillContext, fault: Fault) -> DrillOutcome:
    """Inject the fault and measure its effects."""
    platform = context.platform
    before = platform.known_state()
    load = context.load()
    missed: list[str] = []
    with fault.ledger(platform) as ledger, load.flowing():
        load.answers(WARM_UP_ANSWERS, AFTERWARDS_S)
        with ExitStack() as hangs:
            fault_at = monotonic_s()
            if fault.hangs:
                hangs.enter_context(stop_processes(fault.victims))
            else:
                send(fault.victims, SIGKILL)
            context.progress(
                f"{fault.drill}: signalled {', '.join(f'pid {it.pid}' for it in fault.victims)}"
            )
            detected_at = wait_for(lambda: fault.detected(fault_at), fault.watch_s)
            back_at = wait_for(lambda: monotonic_s() if fault.recovered() else None, fault.watch_s)
        try:
            load.answers(WARM_UP_ANSWERS, AFTERWARDS_S)
        except TerminalError as error:
            missed.append(str(error))
    after = wait_for(platform.state, STATE_S)
    lost = lost_between(before, after, copies_may_restart=fault.copies_may_restart)
    if ledger is not None:
        lost += [f"{name}, which was acknowledged" for name in ledger.settle()]
    summary = served_calls(load.calls, fault_at)
    detected_s = None if detected_at is None else max(0.0, detected_at - fault_at)
    back_s = None if back_at is None else back_at - fault_at
    outcome = DrillOutcome(
        drill=fault.drill,
        target=fault.target,
        served=summary,
        detected_s=detected_s,
        back_s=back_s,
        lost=tuple(lost),
        kept=_describe_kept(before, after, ledger),
        missed=tuple(missed),
    )
    return judge(outcome, fault.limits)


def started_at(process: ProcessIdentity) -> float | None:
    """Start of a process, on the clock of `monotonic_s`, or None if it is gone."""
    stat = process_stat(process.pid)
    if stat is None or stat.start_ticks != process.start_ticks:
        return None
    return monotonic_s() - uptime_s(stat)


def lost_between(
    before: Mapping[str, Any], after: Mapping[str, Any] | None, *, copies_may_restart: bool
) -> list[str]:
    """Records of `before` that `after` lacks, and copies whose process changed."""
    if after is None:
        return ["control's answer, without which nothing can be compared"]
    lost = sorted(records_in(before) - records_in(after))
    if not copies_may_restart:
        now = ready_pids(after)
        lost += [
            f"copy {name}'s process"
            for name, pid in ready_pids(before).items()
            if now.get(name) != pid
        ]
    return lost


def _describe_kept(
    before: Mapping[str, Any], after: Mapping[str, Any] | None, ledger: WriteLedger | None
) -> str:
    old, now = ready_pids(before), {} if after is None else ready_pids(after)
    same = sum(1 for name, pid in old.items() if now.get(name) == pid)
    words = [f"{same} of {len(old)} copies kept running"]
    if same < len(old):
        words.append(f"{sum(1 for it in old if it in now) - same} restarted")
    if ledger is not None:
        words.append(f"{len(ledger.acknowledged)} writes acknowledged")
    return ", ".join(words)
