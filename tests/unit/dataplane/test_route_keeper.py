"""Routes on disk: when newer routes are written, and the file after a fault."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.dataplane import routes as route_keeper
from hostelry.dataplane.route_table import RouteTable
from hostelry.dataplane.routes import (
    KEEP_RETRY_S,
    KeptRoutes,
    RouteKeeper,
    compute_rest,
    pause_after,
)
from hostelry.domain.routes import RouteSnapshot

NOW = 1000.0
WAIT_S = 30.0


@cases(
    "cpu_s, took_s, pause_s",
    case("a quick write is followed by others at once", 0.001, 0.004, 0.0),
    case("a slow disk has a rest", 0.0001, 0.02, 0.4),
    case("large routes take 0.2 % of a core", 0.008, 0.025, 4.0),
    case("huge routes are a minute old at most", 0.5, 2.0, 60.0),
)
def test_a_pause_is_a_share_of_the_last_write(cpu_s: float, took_s: float, pause_s: float) -> None:
    assert pause_after(cpu_s, took_s) == pytest.approx(pause_s)


@cases(
    "written_at, left_s",
    case("what any process wrote counts", NOW - 3.0, 7.0),
    case("a pause that is over", NOW - 10.0, 0.0),
    case("a clock that was set back", NOW + 60.0, 0.0),
    case("no file", None, 0.0),
)
def test_a_pause_is_since_the_last_write(written_at: float | None, left_s: float) -> None:
    kept = None if written_at is None else KeptRoutes(version="1", written_at=written_at)
    assert compute_rest(10.0, kept, NOW) == left_s


class FakeFile:
    """A file in memory. The next writes raise `failures`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._tried = asyncio.Event()
        self._kept: KeptRoutes | None = None
        self.written: list[str] = []
        self.failures: list[OSError] = []

    def get_version(self) -> KeptRoutes | None:
        return self._kept

    def put(self, version: str) -> None:
        """A write, of this process or another."""
        self._kept = KeptRoutes(version=version, written_at=self._clock.now())

    def save(self, snapshot: RouteSnapshot) -> None:
        try:
            if self.failures:
                raise self.failures.pop()
            self.written.append(snapshot.version)
            self.put(snapshot.version)
        finally:
            self._loop.call_soon_threadsafe(self._tried.set)

    async def tried(self) -> None:
        """Return after the next try to write."""
        await self._tried.wait()
        self._tried.clear()


Scenario = Callable[[RouteKeeper, FakeFile, ManualClock], Awaitable[None]]


def kept_by(scenario: Scenario) -> list[str]:
    """The versions that a keeper writes in `scenario`, and when it is stopped after it."""

    async def run() -> list[str]:
        clock = ManualClock()
        file = FakeFile(clock)
        keeper = RouteKeeper(file, clock, lambda: 0.5)
        keeping = asyncio.create_task(keeper.run())
        async with asyncio.timeout(WAIT_S):
            await scenario(keeper, file, clock)
        keeping.cancel()
        await asyncio.wait({keeping})
        return file.written

    return asyncio.run(run())


def table(version: str) -> RouteTable:
    return RouteTable(RouteSnapshot(version=version, endpoints=()))


async def yielded() -> None:
    """Let ready tasks run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def each_change(keeper: RouteKeeper, file: FakeFile, clock: ManualClock) -> None:
    for version in ("1", "2"):
        keeper.note(table(version))
        await file.tried()


async def anothers_write(keeper: RouteKeeper, file: FakeFile, clock: ManualClock) -> None:
    file.put("1")
    keeper.note(table("1"))
    await yielded()
    keeper.note(table("2"))
    await file.tried()


async def a_failure(keeper: RouteKeeper, file: FakeFile, clock: ManualClock) -> None:
    file.failures = [OSError("disk full")]
    started = clock.now()
    keeper.note(table("1"))
    await file.tried()
    await file.tried()
    assert clock.now() == started + KEEP_RETRY_S


@cases(
    "scenario, written",
    case("each change, where writing is quick", each_change, ["1", "2"]),
    case("nothing that another process has written", anothers_write, ["2"]),
    case("again, a while after a failure", a_failure, ["1"]),
)
def test_newer_routes_are_kept(
    monkeypatch: pytest.MonkeyPatch, scenario: Scenario, written: list[str]
) -> None:
    monkeypatch.setattr(route_keeper, "pause_after", lambda *_: 0.0)
    assert kept_by(scenario) == written


async def paused(keeper: RouteKeeper, file: FakeFile, clock: ManualClock) -> None:
    """A first write, and a change in the pause after it."""
    keeper.note(table("1"))
    await file.tried()
    await yielded()
    keeper.note(table("2"))
    await yielded()
    assert file.written == ["1"]


async def loss_of_control(keeper: RouteKeeper, file: FakeFile, clock: ManualClock) -> None:
    await paused(keeper, file, clock)
    keeper.set_urgent(True)
    await file.tried()
    assert file.written == ["1", "2"]
    keeper.set_urgent(False)
    keeper.note(table("3"))
    await yielded()
    assert file.written == ["1", "2"], "control is back"


async def anothers_write_in_the_pause(
    keeper: RouteKeeper, file: FakeFile, clock: ManualClock
) -> None:
    await paused(keeper, file, clock)
    file.put("2")
    keeper.set_urgent(True)
    await yielded()


@cases(
    "scenario, written",
    case("a process that stops keeps the newest", paused, ["1", "2"]),
    case("one that loses control, at once", loss_of_control, ["1", "2", "3"]),
    case("what another wrote is kept", anothers_write_in_the_pause, ["1"]),
)
def test_large_routes_are_kept_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, scenario: Scenario, written: list[str]
) -> None:
    monkeypatch.setattr(route_keeper, "pause_after", lambda *_: 10 * WAIT_S)
    assert kept_by(scenario) == written
