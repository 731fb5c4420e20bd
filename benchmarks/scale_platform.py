"""Control's own code over a simulated fleet, in one process: store, API, reconciler, routes."""

import asyncio
import re
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hostelry.api.context import CallContext, Result
from hostelry.api.iam.execution_role import ensure_execution_role
from hostelry.api.operations import perform
from hostelry.base.clock import SystemClock
from hostelry.control.image_file import ImageFile
from hostelry.control.reports import CensusTaker
from hostelry.domain.routes import ComponentRoute, EndpointRoute
from hostelry.domain.scope import Scope
from hostelry.fleet.fake import FakeFleet, FakeSwitches
from hostelry.fleet.shapes import get_shape, instance_types
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.reconcile.reconciler import Reconciler, ReconcilerDeps
from hostelry.store.protocol import Change, Key, Record, RecordWrite, Store
from hostelry.store.records import State, open_state

HERE = Scope("123456789012", "us-west-2")
ROLE = f"arn:aws:iam::{HERE.account}:role/HostelryExecutionRole"
STATUS = re.compile(rb'"status":"(\w+)"')
MAX_THREADS = 32  # as in control
CENSUS_S = 1.0  # the interval at which the publisher of metrics takes it
Written = Callable[[Key, str | None], None]


class CountedStore:
    """A store that counts its calls and their bytes. It calls `written` for each component."""

    def __init__(self, store: Store) -> None:
        self.calls: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.bytes_written = 0
        self.num_batched = 0
        self.written: Written = lambda key, status: None
        self._store = store

    def get(self, key: Key) -> Record | None:
        """Like the store's method."""
        found: Record | None = self._timed("get", self._store.get, key)
        return found

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        """Like the store's method."""
        record: Record = self._timed(f"put {key.kind}", self._store.put, key, body, expect=expect)
        self.bytes_written += len(body)
        if key.kind == "component":
            found = STATUS.search(body)
            self.written(key, None if found is None else found[1].decode())
        return record

    def delete(self, key: Key, *, expect: int) -> None:
        """Like the store's method."""
        self._timed(f"delete {key.kind}", self._store.delete, key, expect=expect)
        if key.kind == "component":
            self.written(key, None)

    def write_all(self, writes: Sequence[RecordWrite]) -> None:
        """Like the store's method."""
        self._timed("write_all", self._store.write_all, writes)
        self.num_batched += len(writes)
        for write in writes:
            self.bytes_written += len(write.body or b"")
            if write.key.kind == "component":
                found = None if write.body is None else STATUS.search(write.body)
                self.written(write.key, None if found is None else found[1].decode())

    def list(self, kind: str, scope: Scope | None = None) -> Sequence[Record]:
        """Like the store's method."""
        found: Sequence[Record] = self._timed("list", self._store.list, kind, scope)
        return found

    def changes(self, since: int) -> Sequence[Change]:
        """Like the store's method."""
        found: Sequence[Change] = self._timed("changes", self._store.changes, since)
        return found

    def revision(self) -> int:
        """Like the store's method."""
        return self._store.revision()

    def wait(self, since: int, timeout_s: float) -> bool:
        """Like the store's method."""
        return self._store.wait(since, timeout_s)

    def num_writes(self) -> int:
        """The number of records written so far."""
        return self.num_commits() - self.calls["write_all"] + self.num_batched

    def num_commits(self) -> int:
        """The number of write transactions so far."""
        written = ("put", "delete", "write_all")
        return sum(count for name, count in self.calls.items() if name.startswith(written))

    def _timed(self, name: str, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return call(*given, **named)
        finally:
            self.calls[name] += 1
            self.seconds[name] += time.perf_counter() - started


class SimulatedControl:
    """One life of control over `store` and `fleet`. `running` may be entered once."""

    def __init__(self, store: CountedStore, fleet: FakeFleet, folder: Path) -> None:
        self.store = store
        self.clock = SystemClock()
        self.state: State = open_state(store)
        self._fleet = fleet
        self._metrics = MemoryMetrics(self.clock)
        ensure_execution_role(self.state, HERE, "HostelryExecutionRole", self.clock.now())
        self.reconciler = Reconciler(
            self.state,
            ReconcilerDeps(
                fleet=fleet,
                connect=fleet.connect,
                clock=self.clock,
                get_shape=get_shape,
                is_llm=ImageFile(folder / "images.toml").is_llm,
            ),
        )
        self.census = CensusTaker(
            self.state, lambda: self.reconciler.instances.facts, folder, time.monotonic
        )
        self.census_s: list[float] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Reconcile, publish and take the census, as control does."""
        threads = ThreadPoolExecutor(MAX_THREADS, "control")
        asyncio.get_running_loop().set_default_executor(threads)
        tasks = [
            asyncio.create_task(self.reconciler.run()),
            asyncio.create_task(self._take_census()),
        ]
        try:
            yield
        finally:
            self.reconciler.release()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            threads.shutdown(wait=False)  # one of them waits for the next change of the store

    async def call(self, operation: str, **params: Any) -> Result:
        """Call an operation of SageMaker's API in a thread, as control's application does."""
        return await asyncio.to_thread(self.call_now, operation, **params)

    def call_now(self, operation: str, **params: Any) -> Result:
        """Call an operation in this thread."""
        context = CallContext(
            scope=HERE,
            state=self.state,
            now=self.clock.now(),
            get_shape=get_shape,
            role_arn=ROLE,
            role_name="HostelryExecutionRole",
            metrics=self._metrics,
            instance_types=instance_types(),
        )
        return perform(context, "sagemaker", operation, params)

    async def _take_census(self) -> None:
        while True:
            await asyncio.sleep(CENSUS_S)
            started = time.perf_counter()
            await asyncio.to_thread(self.census.take)
            self.census_s.append(time.perf_counter() - started)


class Settlements:
    """When components became InService or were removed, as the store saw it. Thread-safe."""

    def __init__(self) -> None:
        self.in_service: set[str] = set()
        self._lock = threading.Lock()
        self._changed_at: dict[str, float] = {}

    def written(self, key: Key, status: str | None) -> None:
        """Record one write of a component's record. A status of None means that it was removed."""
        now = time.perf_counter()
        with self._lock:
            if status == "InService":
                self.in_service.add(key.name)
                self._changed_at[key.name] = now
            elif status is None:
                self.in_service.discard(key.name)
                self._changed_at[key.name] = now

    def since(self, name: str, at: float) -> float | None:
        """When the component settled after `at`, or None if it has not yet."""
        with self._lock:
            found = self._changed_at.get(name)
        return None if found is None or found < at else found


def component_route(endpoint: EndpointRoute | None, name: str) -> ComponentRoute | None:
    """The route of a component of an endpoint, whose routes are in the order of their names."""
    components = () if endpoint is None else endpoint.components
    place = bisect_left(components, name, key=lambda it: it.name)
    found = components[place : place + 1]
    return found[0] if found and found[0].name == name else None


def simulated_fleet(num_instances: int) -> FakeFleet:
    """Agents that answer at once, without sockets, with room for some more instances."""
    return FakeFleet(FakeSwitches(max_instances=2 * num_instances + 10))
