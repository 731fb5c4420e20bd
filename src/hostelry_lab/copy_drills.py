"""Drills on one copy of the load's target: its model server killed and hung."""

from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry_lab.context import DrillContext
from hostelry_lab.observer import RouteWatch
from hostelry_lab.outcome import DrillLimits, DrillOutcome
from hostelry_lab.runner import Fault, run_fault

# Errors that a client may see when a model server dies or hangs during its request.
NO_MODEL = frozenset({"ModelError", "ServiceUnavailable"})
SILENT_MODEL = NO_MODEL | {"ReadTimeoutError"}
WATCH_S = 60.0


def copy_kill(context: DrillContext) -> DrillOutcome:
    """Kill -9 of a model server."""
    return _copy(context, "copy-kill", hangs=False, detected_s=1.0)


def copy_hang(context: DrillContext) -> DrillOutcome:
    """SIGSTOP of a model server."""
    return _copy(context, "copy-hang", hangs=True, detected_s=5.0)


def _copy(context: DrillContext, name: str, *, hangs: bool, detected_s: float) -> DrillOutcome:
    platform = context.platform
    copies = context.copies(platform.known_state())
    victim = next(iter(copies), None)
    record = None if victim is None else platform.copy_record(victim)
    if victim is None or record is None or record.process is None:
        raise TerminalError(
            f"{context.load_target} has no copy whose process is recorded on this machine"
        )
    others = len(copies) - 1

    def now(copy_id: str) -> dict[str, Any] | None:
        state = platform.state()
        ready = [] if state is None else context.copies(state)
        return next((it for it in ready if it["id"] == copy_id), None)

    def recovered() -> bool:
        found = now(victim["id"])
        return found is not None and found["pid"] not in (None, victim["pid"])

    def back_already() -> float | None:
        """Now, if a successor serves: it may run before the routes are read again."""
        return monotonic_s() if recovered() else None

    alone = "" if others else "; the only copy: calls wait until it is back"
    with RouteWatch(platform).watching() as routes:
        return run_fault(
            context,
            Fault(
                drill=name,
                target=f"out of the routes in {detected_s:g} s, then no error{alone}",
                limits=DrillLimits(
                    detected_s=detected_s,
                    back_s=WATCH_S,
                    all_served_s=detected_s if others else WATCH_S,
                    errors=(SILENT_MODEL if hangs else NO_MODEL)
                    | (frozenset() if others else {"ValidationError"}),
                ),
                hangs=hangs,
                victims=[record.process],
                detected=lambda since: routes.left_at(victim["id"], since) or back_already(),
                recovered=recovered,
                copies_may_restart=True,
                watch_s=WATCH_S,
            ),
        )
