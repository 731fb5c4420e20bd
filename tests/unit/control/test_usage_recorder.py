"""The recorder of instance time, over restarts of control, and the route of its sums."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.control.cost_routes import CostRoutes
from hostelry.control.usage_recorder import UsageRecorder, find_start, measure_folder
from hostelry.cost.holding import WHOLE, HeldInstance
from hostelry.domain.scope import Scope
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

HERE = Scope("111122223333", "us-east-1")
STARTED = 1_700_000_000.0 // 3600 * 3600


class Rig:
    """A recorder with one instance, and control's route."""

    def __init__(self, objects: Path | None = None) -> None:
        self.clock = ManualClock(STARTED)
        self.metrics = MemoryMetrics(self.clock)
        self.objects = objects
        self.start()

    def start(self) -> None:
        """A new control."""
        self.recorder = UsageRecorder(HERE, self.metrics, self.list_held, self.objects, self.clock)

    def list_held(self) -> list[HeldInstance]:
        return [
            HeldInstance(
                scope=HERE,
                endpoint="chat",
                variant="all",
                instance_type="ml.a",
                since=STARTED,
                shares=WHOLE,
            )
        ]

    def run(self, seconds: float, step_s: float = 10.0) -> None:
        """Record at once, and then after each step."""
        self.recorder.record()
        for _ in range(int(seconds // step_s)):
            self.clock.advance(step_s)
            self.recorder.record()

    def ask(self, since: object = 0, until: object = 4_000_000_000) -> httpx.Response:
        state = open_state(MemoryStore())

        async def ask() -> httpx.Response:
            routes = CostRoutes(HERE, state, self.metrics, self.clock).routes()
            transport = httpx.ASGITransport(app=Starlette(routes=list(routes)))
            async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
                return await client.get(f"/internal/cost-usage?from={since}&to={until}")

        return asyncio.run(ask())

    def total(self, metric: str) -> float:
        sums: list[dict[str, Any]] = self.ask().json()["sums"]
        hours = [it["hours"] for it in sums if it["metric"] == metric]
        return float(sum(value for them in hours for _, value in them))


def test_time_is_recorded_once_over_restarts() -> None:
    rig = Rig()
    rig.run(65.0, 13.0)
    rig.start()
    rig.recorder.record()
    rig.start()
    rig.clock.advance(120)
    rig.run(10)
    assert rig.total("UsageInstanceTime") == 65 + 120 + 10
    assert rig.total("UsageReservedTime") == 65 + 120 + 10
    assert rig.total("UsageRecordedTime") == 65 + 120 + 10


def test_a_long_gap_has_no_records() -> None:
    rig = Rig()
    rig.run(20)
    rig.clock.advance(3600)
    rig.start()
    rig.run(20)
    rig.clock.advance(3600)
    rig.run(20)
    assert rig.total("UsageInstanceTime") == 60
    assert rig.total("UsageRecordedTime") == 60


def test_the_object_store_is_measured(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(b"x" * 500)
    (tmp_path / "b").write_bytes(b"x" * 500)
    (tmp_path / "link").symlink_to(tmp_path / "b")
    rig = Rig(tmp_path)
    rig.run(30)
    assert rig.total("UsageStorageTime") == 30_000
    assert measure_folder(tmp_path / "none") is None


@cases(
    "through, now, expected",
    case("the next second", 100.0, 110.0, 100.0),
    case("a short gap", 100.0, 400.0, 100.0),
    case("a long gap", 100.0, 401.0, 401.0),
    case("the same instant", 100.0, 100.0, None),
    case("the clock was set back a little", 100.0, 50.0, None),
    case("the clock was set back far", 1000.0, 50.0, 50.0),
)
def test_where_records_begin(through: float, now: float, expected: float | None) -> None:
    assert find_start(through, now) == expected


@cases(
    "since, until",
    case("no number", "x", 1),
    case("NaN", "nan", 1),
    case("infinity", 0, "inf"),
    case("negative", -1, 1),
    case("missing", "", 1),
)
def test_invalid_instants_are_refused(since: object, until: object) -> None:
    answer = Rig().ask(since, until)
    assert answer.status_code == 400
    assert "is not an instant" in answer.text


def test_hours_outside_the_period_are_left_out() -> None:
    rig = Rig()
    rig.run(20)
    assert rig.ask(STARTED + 3600).json()["sums"] == []
    assert len(rig.ask(STARTED + 1800, STARTED + 1801).json()["sums"]) == 3
