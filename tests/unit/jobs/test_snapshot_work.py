"""The work of control's snapshots: begun, ended, and kept over faults of control."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from hostelry.base.clock import ManualClock
from hostelry.jobs.control_client import ControlDownError
from hostelry.jobs.snapshot_work import Piece, SnapshotWork


@dataclass(frozen=True)
class NamedPieces:
    """A snapshot: the names of pieces of work."""

    version: str
    names: tuple[str, ...]


class Runner:
    """A control that answers in turn, and pieces that note their begin and end in `events`."""

    def __init__(self, *answers: NamedPieces | Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[str | None] = []
        self.events: list[str] = []
        self.has_answered = asyncio.Event()

    async def get_snapshot(self, have: str | None) -> NamedPieces | None:
        """The next answer. Without one, the runner is cancelled while it waits."""
        self.asked.append(have)
        await asyncio.sleep(0)  # pieces take their turn
        if not self.answers:
            self.has_answered.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def list_pieces(self, snapshot: NamedPieces) -> Mapping[str, Piece]:
        """A piece for each name."""
        return {it: partial(self._run, it) for it in snapshot.names}

    async def _run(self, name: str) -> None:
        self.events.append(f"{name} begins")
        if name == "short":
            return
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append(f"{name} ends")

    def follow(self) -> list[str]:
        """Follow all answers, then cancel. Return the events until the cancellation."""

        def forget(snapshot: NamedPieces) -> None:
            self.events.append(f"forgets all except {' '.join(snapshot.names)}")

        work = SnapshotWork("pieces", ManualClock(), self.get_snapshot, self.list_pieces, forget)

        async def run() -> list[str]:
            (following,) = (asyncio.create_task(it) for it in work.tasks().values())
            await self.has_answered.wait()
            seen = list(self.events)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            return seen

        return asyncio.run(run())


def test_a_piece_ends_before_the_one_that_takes_its_place_begins() -> None:
    runner = Runner(NamedPieces("1", ("job",)), NamedPieces("2", ("stop job",)))
    events = [it for it in runner.follow() if not it.startswith("forgets")]
    assert events == ["job begins", "job ends", "stop job begins"]
    assert runner.asked == [None, "1", "2"]


def test_a_piece_runs_once_while_it_is_named() -> None:
    runner = Runner(*(NamedPieces(str(it), ("short", "job")) for it in range(3)))
    events = [it for it in runner.follow() if not it.startswith("forgets")]
    assert sorted(events) == ["job begins", "short begins"]


def test_a_fault_of_control_ends_no_piece() -> None:
    runner = Runner(
        NamedPieces("1", ("job",)), ControlDownError("killed"), ZeroDivisionError(), None
    )
    events = [it for it in runner.follow() if not it.startswith("forgets")]
    assert events == ["job begins"]
    assert runner.asked == [None, *["1"] * 4]
    assert runner.events[-1] == "job ends"  # once the runner is cancelled


def test_ended_work_is_forgotten_after_the_first_snapshot_and_each_end() -> None:
    runner = Runner(*(NamedPieces(str(n), it) for n, it in enumerate([("a",), ("a", "b"), ("b",)])))
    runner.follow()
    forgotten = [it for it in runner.events if it.startswith("forgets")]
    assert forgotten == ["forgets all except a", "forgets all except b"]
