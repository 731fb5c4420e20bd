"""Drills of one copy of what the load invokes: its model server killed and hung."""

from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.chaos.outcome import Limits, Outcome
from hostelry.chaos.play import Fault, play
from hostelry.chaos.scene import Scene
from hostelry.chaos.sight import RouteWatch

# What a client may see of a model server that died or hung under its request.
NO_MODEL = frozenset({"ModelError", "ServiceUnavailable"})
SILENT_MODEL = NO_MODEL | {"ReadTimeoutError"}
WATCH_S = 60.0


def copy_kill(scene: Scene) -> Outcome:
    """Kill -9 of a model server."""
    return _copy(scene, "copy-kill", hangs=False, seen_s=1.0)


def copy_hang(scene: Scene) -> Outcome:
    """A model server, stopped."""
    return _copy(scene, "copy-hang", hangs=True, seen_s=5.0)


def _copy(scene: Scene, name: str, *, hangs: bool, seen_s: float) -> Outcome:
    platform = scene.platform
    copies = scene.copies(platform.known_state())
    victim = next(iter(copies), None)
    record = None if victim is None else platform.copy_record(victim)
    if victim is None or record is None or record.process is None:
        raise TerminalError(f"{scene.aim} has no copy whose process is recorded on this machine")
    others = len(copies) - 1

    def now(copy_id: str) -> dict[str, Any] | None:
        state = platform.state()
        ready = [] if state is None else scene.copies(state)
        return next((it for it in ready if it["id"] == copy_id), None)

    def mended() -> bool:
        found = now(victim["id"])
        return found is not None and found["pid"] not in (None, victim["pid"])

    def back_already() -> float | None:
        """Now, where a successor serves: it may be there before the routes are looked at again."""
        return monotonic_s() if mended() else None

    alone = "" if others else "; the only copy: calls wait until it is back"
    with RouteWatch(platform).watching() as routes:
        return play(
            scene,
            Fault(
                drill=name,
                target=f"out of the routes in {seen_s:g} s, then no error{alone}",
                limits=Limits(
                    detected_s=seen_s,
                    back_s=WATCH_S,
                    all_served_s=seen_s if others else WATCH_S,
                    errors=(SILENT_MODEL if hangs else NO_MODEL)
                    | (frozenset() if others else {"ValidationError"}),
                ),
                hangs=hangs,
                victims=[record.process],
                seen=lambda since: routes.left_at(victim["id"], since) or back_already(),
                mended=mended,
                copies_may_restart=True,
                watch_s=WATCH_S,
            ),
        )
