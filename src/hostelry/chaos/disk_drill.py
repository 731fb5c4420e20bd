"""The drill of a full disk. It fills only a small filesystem that holds nothing but the home."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.chaos.ledger import Ledger, control_ledger
from hostelry.chaos.outcome import Limits, Outcome, judged, served
from hostelry.chaos.play import lost_between
from hostelry.chaos.process_drills import service
from hostelry.chaos.scene import Scene
from hostelry.chaos.sight import Platform, wait_for
from hostelry.fleet.host.processes import send

MOST_BYTES = 2 * 1024**3
BALLAST = "drill-ballast"
PIECE_BYTES = 64 * 1024
TARGET = "what is loaded answers on; refusals name the disk; no acknowledged write lost; well after"
ROOM_S, WATCH_S = 10.0, 60.0
ANSWERS = 40
DISK = "disk is full"
HOW = "mount -t tmpfs -o size=512m tmpfs FOLDER && hostelry up --home FOLDER/home"


def disk_full(scene: Scene) -> Outcome:
    """The home's filesystem has no byte left for a while."""
    platform = scene.platform
    root = platform.home.root
    why_not = why_not_filled(root)
    if why_not is not None:
        return Outcome(drill="disk-full", target=TARGET, not_run=why_not)
    before, load = platform.known_state(), scene.load()
    with control_ledger(platform) as ledger, load.flowing():
        load.answers(ANSWERS, WATCH_S)
        wait_for(lambda: ledger.acknowledged or None, WATCH_S)
        fault_at = monotonic_s()
        with full(root):
            scene.say(f"disk-full: {root} has no byte left")
            refusal = wait_for(lambda: ledger.refusal, WATCH_S)
            seen_at = monotonic_s()
            control_s = _control_again(platform)
            load.answers(ANSWERS, WATCH_S)
        room_at, num_kept = monotonic_s(), len(ledger.acknowledged)
        back_at = wait_for(lambda: _written_since(ledger, num_kept), WATCH_S)
        load.answers(ANSWERS, WATCH_S)
    lost = lost_between(before, platform.known_state(), copies_may_restart=False)
    lost += [f"{name}, which was acknowledged" for name in ledger.settle()]
    late, missed = [], []
    if refusal is not None and DISK not in refusal:
        missed.append(f"the refusal does not name the disk: {refusal}")
    if back_at is not None and back_at - room_at > ROOM_S:
        late.append(f"writes {back_at - room_at:.1f} s after there was room (target {ROOM_S:g} s)")
    outcome = Outcome(
        drill="disk-full",
        target=TARGET,
        served=served(load.calls, fault_at),
        detected_s=None if refusal is None else seen_at - fault_at,
        back_s=None if back_at is None else back_at - fault_at,
        lost=tuple(lost),
        kept=f"{len(ledger.acknowledged)} writes acknowledged",
        missed=tuple(missed),
        late=tuple(late),
        details={
            "full for": f"{room_at - fault_at:.1f} s",
            "control": f"killed meanwhile, answered again {control_s:.1f} s later",
            "refusal": refusal or "none",
        },
    )
    return judged(outcome, Limits(detected_s=WATCH_S, back_s=2 * WATCH_S))


def _control_again(platform: Platform) -> float:
    """Kill control; the seconds until the next one answers, without a byte on the disk.

    Raises TerminalError when it does not.
    """
    killed_at = monotonic_s()
    send([service(platform, "control")], SIGKILL)
    if wait_for(platform.state, WATCH_S) is None:
        raise TerminalError("control does not start on a full disk")
    return monotonic_s() - killed_at


def why_not_filled(root: Path) -> str | None:
    """Why the filesystem of a home may not be filled; None where it may."""
    shown = os.statvfs(root)
    size_bytes = shown.f_frsize * shown.f_blocks
    if size_bytes > MOST_BYTES or os.stat(root).st_dev == os.stat("/").st_dev:
        return (
            f"{root} lies on a filesystem of {size_bytes / 1024**3:.1f} GiB that others may use; "
            f"the drill fills one of at most {MOST_BYTES / 1024**3:g} GiB made for it, for "
            f"example: {HOW}"
        )
    return None


@contextmanager
def full(root: Path) -> Iterator[None]:
    """No byte is left on the home's filesystem for the block; there is room again after it.

    Raises TerminalError when it cannot be filled.
    """
    ballast = root / BALLAST
    try:
        _fill(ballast)
        yield
    finally:
        ballast.unlink(missing_ok=True)


def _fill(ballast: Path) -> None:
    piece = bytes(PIECE_BYTES)
    with ballast.open("wb", buffering=0) as file:
        try:
            for _ in range(MOST_BYTES // PIECE_BYTES + 1):
                file.write(piece)
        except OSError:
            return
    raise TerminalError(f"{ballast.parent} still has room after {MOST_BYTES} bytes")


def _written_since(ledger: Ledger, num_before: int) -> float | None:
    return monotonic_s() if len(ledger.acknowledged) > num_before else None
