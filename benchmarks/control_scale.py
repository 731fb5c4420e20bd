"""Control's own code at 10, 100 and 1,000 instances: the cost and the duration of a change.

A real store, the real operations, reconciler, placement, route board and census run over a fleet of
simulated agents that answer at once. Everything runs in one process, so its processor time includes
the simulated agents and this script.

``python -m benchmarks.control_scale [--setting smoke|10|100|1000] [--folder DIR] [--profile]``
"""

import argparse
import asyncio
import contextlib
import gc
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.record import print_table, write_result
from benchmarks.sampling import Sampler
from benchmarks.scale_changes import Call, Models, Sent, Shape, in_order
from benchmarks.scale_platform import (
    CountedStore,
    Settlements,
    SimulatedControl,
    component_route,
    simulated_fleet,
)
from benchmarks.scale_seed import grow_endpoint, seed, staff
from hostelry.dataplane.route_table import RouteTable
from hostelry.dataplane.routes import decode_delta, decode_snapshot
from hostelry.domain.routes import RouteSnapshot
from hostelry.reconcile.record import list_keys
from hostelry.store.database import open_database
from hostelry.store.records import open_state
from hostelry.store.sql import SqlStore

SEED = 20261126
WHOLE_TIMEOUT_S = 3600.0
LOOK_S = 0.25
IDLE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The endpoints that are brought up, and the changes made to them then."""

    shapes: tuple[Shape, ...]
    alike: int = 0  # similar endpoints that are only written to the store
    joined: int = 0  # one more endpoint, with this many times the records
    changes_per_s: float
    load_s: float

    def total(self, of: Callable[[Shape], int]) -> int:
        """The sum over all endpoints."""
        times = 1 + self.alike + self.joined
        return times * sum(it.endpoints * of(it) for it in self.shapes)


SETTINGS = {
    "smoke": Setting(
        shapes=(Shape(endpoints=1, components=10, adapters=4),),
        alike=2,
        joined=2,
        changes_per_s=20,
        load_s=0.5,
    ),
    "10": Setting(
        shapes=(Shape(endpoints=1, components=100, adapters=1_000),), changes_per_s=5, load_s=10
    ),
    "100": Setting(
        shapes=(Shape(endpoints=1, components=100, adapters=1_000),),
        alike=7,
        joined=2,
        changes_per_s=20,
        load_s=15,
    ),
    "1000": Setting(
        shapes=(Shape(endpoints=1, components=100, adapters=1_000),),
        alike=79,
        joined=20,
        changes_per_s=100,
        load_s=30,
    ),
}


@dataclass(slots=True)
class Found:
    """What was measured, by phase."""

    rows: dict[str, Any] = field(default_factory=dict)

    def note(self, **values: float) -> None:
        """Keep and print values."""
        for name, value in values.items():
            self.rows[name] = round(value, 4)
            print(f"  {name} = {value:,.4g}", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_scale", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="10")
    parser.add_argument("--smoke", action="store_true", help="seconds; for the tests")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--folder", type=Path, help="where the store's file is; default /tmp")
    parser.add_argument("--store", help="postgresql://..., an empty database; default a file")
    parser.add_argument("--changes-per-s", type=float)
    parser.add_argument(
        "--profile", choices=("create", "load", "restart"), help="print where time went"
    )
    given = parser.parse_args(argv)
    name = "smoke" if given.smoke else given.setting
    setting = SETTINGS[name]
    if given.changes_per_s:
        setting = replace(setting, changes_per_s=given.changes_per_s)
    found = Found()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        source = random.Random(given.seed)
        run = Run(setting, Path(folder), given.store, source, given.profile, found)
        asyncio.run(run.whole())
    found.rows["max_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = [{"what": what, "measured": value} for what, value in found.rows.items()]
    print_table(f"Control at setting {name}", rows)
    measured = {"setting": asdict(setting), "found": found.rows}
    write_result("control_scale", name, given.seed, measured)


class Run:
    """One run: bring everything up, change it, query it, and restart."""

    def __init__(
        self,
        setting: Setting,
        folder: Path,
        store: str | None,
        source: random.Random,
        profiled: str | None,
        found: Found,
    ) -> None:
        self._setting = setting
        self._rate = setting.changes_per_s
        self._folder = folder
        self._source = source
        self._profiled = profiled
        self._found = found
        self._fleet = simulated_fleet(setting.total(lambda it: it.instances))
        self._file = SqlStore(open_database(store or folder / "state.db"))
        self._store = CountedStore(self._file)
        self._settled = Settlements()
        self._store.written = self._settled.written
        self._models = Models(source)
        self._earlier: RouteSnapshot | None = None
        self._latest: RouteSnapshot | None = None
        self._asked: dict[str, list[float]] = {"describe": [], "list": []}

    async def whole(self) -> None:
        """Run every phase."""
        control = SimulatedControl(self._store, self._fleet, self._folder)
        async with control.running():
            await self._phase("create", lambda: self._create(control))
            await control.reconciler.queue.quiet()
        await self._phase("seed", self._seed)
        control = SimulatedControl(self._store, self._fleet, self._folder)
        gc.collect()
        async with control.running():
            await self._phase("restart", lambda: self._restart(control))
            await self._phase("load", lambda: self._load(control))
            await self._idle(control)
            self._gateway(control)
        self._file.close()

    async def _seed(self) -> None:
        """Write the records of the other endpoints, and create their agents."""
        alike = [f"-a{number:02}" for number in range(self._setting.alike)]
        joined = [f"-j{number:02}" for number in range(self._setting.joined)]
        # All are copies of the running endpoints. The joined one is first, while no other exists.
        names = list(self._models.bases)
        for suffixes, name in ((joined, "-joined"), (alike, None)):
            if suffixes:
                seed(self._store, names, suffixes, name)
                self._models.cloned(names, suffixes, name)
        state = open_state(self._store)
        if joined:
            grow_endpoint(state, f"{names[0]}-joined", len(joined))
        staff(self._fleet, state)

    async def _phase(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        print(f"== {name}", flush=True)
        sampler = Sampler() if self._profiled == name else None
        calls, written = self._store.num_writes(), self._store.bytes_written
        commits = self._store.num_commits()
        started, used = time.perf_counter(), time.process_time()
        with sampler or contextlib.nullcontext():
            await run()
        if sampler is not None:
            sampler.show()
        self._found.note(
            **{
                f"{name}_s": time.perf_counter() - started,
                f"{name}_cpu_s": time.process_time() - used,
                f"{name}_writes": self._store.num_writes() - calls,
                f"{name}_commits": self._store.num_commits() - commits,
                f"{name}_written_mib": (self._store.bytes_written - written) / 2**20,
                f"{name}_rss_mib": rss_mib(),
            }
        )

    async def _create(self, control: SimulatedControl) -> None:
        started = time.perf_counter()
        made, later = await self._models.planned(control, self._setting.shapes)
        await in_order(made)
        self._found.note(create_components_s=time.perf_counter() - started)
        await self._until(lambda: len(self._settled.in_service) >= len(made))
        self._found.note(components_in_service_s=time.perf_counter() - started)
        await in_order(later)
        self._found.note(create_adapters_s=time.perf_counter() - started)
        await self._until(lambda: len(self._settled.in_service) >= len(made) + len(later))
        self._found.note(all_in_service_s=time.perf_counter() - started)
        await self._until(lambda: self._routed(control) >= len(made) + len(later))
        self._found.note(all_in_routes_s=time.perf_counter() - started)

    async def _load(self, control: SimulatedControl) -> None:
        """Send changes at a fixed rate, whatever their outcome. Wait until all are published."""
        sent: list[Sent] = []
        watch = asyncio.create_task(self._watch(control, sent))
        asked = asyncio.create_task(self._ask(control))
        started = time.perf_counter()
        calls: list[asyncio.Task[None]] = []
        changes = self._models.changes(control)
        for number in range(max(1, int(self._rate * self._setting.load_s))):
            await asyncio.sleep(max(0.0, started + number / self._rate - time.perf_counter()))
            calls.append(asyncio.create_task(self._send(next(changes), sent)))
        await asyncio.gather(*calls)
        self._found.note(changes=len(sent), offered_s=time.perf_counter() - started)
        await self._until(lambda: all(it.published_at for it in sent))
        for task in (watch, asked):
            task.cancel()
        for change in sent:
            change.settled_at = self._settled.since(change.name, change.asked_at)
        self._report(sent)

    async def _send(self, change: tuple[Sent, Call], sent: list[Sent]) -> None:
        note, call = change
        note.asked_at = time.perf_counter()
        await call()
        note.acknowledged_at = time.perf_counter()
        sent.append(note)

    async def _watch(self, control: SimulatedControl, sent: list[Sent]) -> None:
        """Note when the published routes show each change."""
        have: str | None = None
        while True:
            newer = await control.reconciler.routes.newer_than(have, LOOK_S)
            if newer is not None:
                self._earlier, self._latest = self._latest, newer
            snapshot, now = self._latest, time.perf_counter()
            if snapshot is None:
                continue
            # A change may be published before its call is answered, so search the snapshot again.
            have = snapshot.version
            waiting = [it for it in sent if it.published_at is None]
            endpoints = {it.name: it for it in snapshot.endpoints}
            for change in waiting:
                route = component_route(endpoints.get(change.endpoint), change.name)
                copies = 0 if route is None else len(route.copies)
                if copies == change.copies:
                    change.published_at = now

    async def _ask(self, control: SimulatedControl) -> None:
        """Describe and list while the changes are made."""
        while True:
            await asyncio.sleep(LOOK_S)
            name = self._source.choice(self._source.choice(list(self._models.plain.values())))
            started = time.perf_counter()
            await control.call("DescribeInferenceComponent", InferenceComponentName=name)
            described = time.perf_counter()
            await control.call("ListInferenceComponents", MaxResults=100)
            self._asked["describe"].append(described - started)
            self._asked["list"].append(time.perf_counter() - described)

    def _report(self, sent: Sequence[Sent]) -> None:
        for kind in ("create", "delete", "scale"):
            mine = [it for it in sent if it.kind == kind]
            published = [it.published_at - it.acknowledged_at for it in mine if it.published_at]
            settled = [it.settled_at - it.acknowledged_at for it in mine if it.settled_at]
            self._note_times(f"{kind}_published", published)
            if kind != "delete":
                self._note_times(f"{kind}_settled", settled)
        self._note_times("call", [it.acknowledged_at - it.asked_at for it in sent])
        for name, times in self._asked.items():
            self._note_times(name, times)

    def _note_times(self, name: str, times: Sequence[float]) -> None:
        if times:
            ordered = sorted(times)
            self._found.note(
                **{
                    f"{name}_p50_ms": 1e3 * statistics.median(ordered),
                    f"{name}_p99_ms": 1e3 * ordered[int(0.99 * (len(ordered) - 1))],
                }
            )

    async def _idle(self, control: SimulatedControl) -> None:
        """The costs of one pass and one publication while nothing changes."""
        print("== idle", flush=True)
        await control.reconciler.queue.quiet()
        for _ in range(2):
            used = time.process_time()
            await control.reconciler.publish()
            self._found.note(publish_unchanged_cpu_ms=1e3 * (time.process_time() - used))
        snapshot = control.reconciler.routes.snapshot
        assert snapshot is not None
        if control.census_s:
            self._note_times("census", control.census_s)
        started = time.perf_counter()
        for key in list_keys(control.state):
            control.reconciler.queue.add(key)
        await control.reconciler.queue.quiet()
        self._found.note(pass_over_all_s=time.perf_counter() - started)
        used = time.process_time()
        idle_s = min(IDLE_S, self._setting.load_s)
        await asyncio.sleep(idle_s)
        self._found.note(idle_cores=(time.process_time() - used) / idle_s)

    def _gateway(self, control: SimulatedControl) -> None:
        """The time that a gateway spends on a whole snapshot."""
        snapshot, earlier = control.reconciler.routes.snapshot, self._earlier
        assert snapshot is not None
        started = time.perf_counter()
        body = msgspec.json.encode(snapshot)
        encoded = time.perf_counter()
        again = decode_snapshot(body)
        decoded = time.perf_counter()
        table = RouteTable(again)
        indexed = time.perf_counter()
        table.counted_ids()
        self._found.note(
            snapshot_mib=len(body) / 2**20,
            snapshot_encode_ms=1e3 * (encoded - started),
            snapshot_decode_ms=1e3 * (decoded - encoded),
            snapshot_index_ms=1e3 * (indexed - decoded),
            snapshot_ids_ms=1e3 * (time.perf_counter() - indexed),
        )
        delta = None if earlier is None else control.reconciler.routes.delta_since(earlier.version)
        if delta is None or earlier is None:
            return
        before, body = RouteTable(earlier), msgspec.json.encode(delta)
        before.counted_ids()
        started = time.perf_counter()
        after = before.apply(decode_delta(body))
        changed = time.perf_counter()
        after.counted_ids()
        self._found.note(
            delta_endpoints=len(delta.changed),
            delta_parts=sum(len(it.components) + len(it.gone) for it in delta.changed),
            delta_kib=len(body) / 2**10,
            delta_take_ms=1e3 * (changed - started),
            delta_ids_ms=1e3 * (time.perf_counter() - changed),
        )

    async def _restart(self, control: SimulatedControl) -> None:
        started = time.perf_counter()
        await control.reconciler.routes.newer_than(None, WHOLE_TIMEOUT_S)
        self._found.note(restart_to_routes_s=time.perf_counter() - started)

    @staticmethod
    def _routed(control: SimulatedControl) -> int:
        snapshot = control.reconciler.routes.snapshot
        if snapshot is None:
            return 0
        return sum(1 for it in snapshot.endpoints for one in it.components if one.copies)

    @staticmethod
    async def _until(is_done: Callable[[], bool]) -> None:
        async with asyncio.timeout(WHOLE_TIMEOUT_S):
            while not is_done():  # noqa: ASYNC110 - the store's threads set it
                await asyncio.sleep(0.02)


def rss_mib() -> float:
    """This process's resident memory now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


if __name__ == "__main__":
    main()
