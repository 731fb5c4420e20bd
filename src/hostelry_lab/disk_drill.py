"""Drill of a full disk, run only on a small filesystem that holds nothing but the home."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.fleet.host.processes import send
from hostelry_lab.context import DrillContext
from hostelry_lab.ledger import WriteLedger, control_ledger
from hostelry_lab.observer import PlatformObserver, wait_for
from hostelry_lab.outcome import DrillLimits, DrillOutcome, judge, served_calls
from hostelry_lab.process_drills import service
from hostelry_lab.runner import lost_between

MOST_BYTES = 2 * 1024**3
BALLAST = "drill-ballast"
PIECE_BYTES = 64 * 1024
TARGET = (
    "loaded models keep answering; refusals name the disk; no acknowledged write lost; "
    "writes work again afterwards"
)
ROOM_S, WATCH_S = 10.0, 60.0
ANSWERS = 40
DISK = "disk is full"
HOW = "mount -t tmpfs -o size=512m tmpfs FOLDER && hostelry up --home FOLDER/home"


def disk_full(context: DrillContext) -> DrillOutcome:
    """The home's filesystem is full for a while."""
    platform = context.platform
    root = platform.home.root
    why_not = why_not_filled(root)
    if why_not is not None:
        return DrillOutcome(drill="disk-full", target=TARGET, not_run=why_not)
    before, load = platform.known_state(), context.load()
    with control_ledger(platform) as ledger, load.flowing():
        load.answers(ANSWERS, WATCH_S)
        wait_for(lambda: ledger.acknowledged or None, WATCH_S)
        fault_at = monotonic_s()
        with full(root):
            context.progress(f"disk-full: {root} has no byte left")
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
        late.append(
            f"writes work {back_at - room_at:.1f} s after space was freed (target {ROOM_S:g} s)"
        )
    outcome = DrillOutcome(
        drill="disk-full",
        target=TARGET,
        served=served_calls(load.calls, fault_at),
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
    return judge(outcome, DrillLimits(detected_s=WATCH_S, back_s=2 * WATCH_S))


def _control_again(platform: PlatformObserver) -> float:
    """Kill control. Returns the seconds until its successor answers on the full disk.

    Raises TerminalError if it does not answer.
    """
    killed_at = monotonic_s()
    send([service(platform, "control")], SIGKILL)
    if wait_for(platform.state, WATCH_S) is None:
        raise TerminalError("control does not start on a full disk")
    return monotonic_s() - killed_at


def why_not_filled(root: Path) -> str | None:
    """The reason not to fill the filesystem of a home, or None if it may be filled."""
    shown = os.statvfs(root)
    size_bytes = shown.f_frsize * shown.f_blocks
    if size_bytes > MOST_BYTES or os.stat(root).st_dev == os.stat("/").st_dev:
        return (
            f"{root} lies on a filesystem of {size_bytes / 1024**3:.1f} GiB that may be shared; "
            f"the drill fills one of at most {MOST_BYTES / 1024**3:g} GiB made for it, for "
            f"example: {HOW}"
        )
    return None


@contextmanager
def full(root: Path) -> Iterator[None]:
    """Fill the home's filesystem for the block, and free the space after it.

    Raises TerminalError if it cannot be filled.
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
    raise TerminalError(f"{ballast.parent} still has space after {MOST_BYTES} bytes")


def _written_since(ledger: WriteLedger, num_before: int) -> float | None:
    return monotonic_s() if len(ledger.acknowledged) > num_before else None
