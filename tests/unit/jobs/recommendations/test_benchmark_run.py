"""A load on a local model server: its windows, and its end."""

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.recommendations.jobs import SCOPE

from hostelry.base.clock import SystemClock
from hostelry.dataplane.metering.meter import Meter
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.log_source import DataLogReport
from hostelry.domain.recommendation_job import (
    BenchmarkEnd,
    BenchmarkTask,
    SamplePayload,
    StoppingRules,
    TrafficPhase,
)
from hostelry.domain.routes import CopyRoute, EndpointRoute, VariantRoute
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.control_client import ControlDownError
from hostelry.jobs.data_log import DataLog
from hostelry.jobs.objects.object_store import ObjectMissingError, ObjectStoreDownError
from hostelry.jobs.recommendations.benchmark_run import BenchmarkRun
from hostelry.jobs.recommendations.sample_requests import MAX_ARCHIVE_BYTES
from hostelry.jobs.snapshot_work import SnapshotDeps

CLOCK = SystemClock()
TASK = BenchmarkTask(
    scope=SCOPE,
    job_name="sizes",
    number=1,
    endpoint_name="recommendation-job/sizes/1",
    payload=SamplePayload(uri="s3://b/rows.tar.gz", content_types=("text/csv",)),
    traffic=tuple(TrafficPhase(initial_users=it, duration_s=0.2) for it in (1, 2)),
    stopping=StoppingRules(),
    until_at=4e9,
)


def rows() -> bytes:
    """An archive of two bodies."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as files:
        for name, body in (("a.csv", b"1,2\n"), ("b.csv", b"3,4\n")):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            files.addfile(member, io.BytesIO(body))
    return content.getvalue()


@dataclass
class ModelServer:
    """Answers with `status`, and hangs up after `lifetime` answers."""

    status: int = 200
    lifetime: int = 1_000_000
    service_s: float = 0.002
    bodies: set[bytes] = field(default_factory=set)
    heads: set[bytes] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.add(head)
                self.bodies.add(await reader.readexactly(4))
                self.lifetime -= 1
                if self.lifetime < 0:
                    break
                await asyncio.sleep(self.service_s)
                writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 4\r\n\r\ntorn".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class Objects:
    """An object store with one object, after a few failures."""

    def __init__(self, content: bytes, *errors: Exception, size_bytes: int | None = None) -> None:
        self._content, self._errors = content, list(errors)
        self.size_bytes = len(content) if size_bytes is None else size_bytes

    def acting_for(self, _: str) -> "Objects":
        return self

    async def open(self, uri: str) -> "Objects":
        del uri
        if self._errors:
            raise self._errors.pop(0)
        return self

    async def whole(self) -> bytes:
        return self._content

    def close(self) -> None:
        """Nothing is open."""


class Control:
    """Takes the end of a load, after a few failures."""

    def __init__(self, num_failures: int = 0) -> None:
        self.ends: list[BenchmarkEnd] = []
        self._num_failures = num_failures

    async def report_benchmark_end(self, end: BenchmarkEnd) -> None:
        if self._num_failures:
            self._num_failures -= 1
            raise ControlDownError("away")
        self.ends.append(end)


class ShortClock(SystemClock):
    """Waits between attempts are short."""

    async def sleep(self, delay_s: float) -> None:
        del delay_s
        await asyncio.sleep(0.01)


class Rig:
    """The dependencies of one load. Routes have the server's copy once it listens."""

    def __init__(self, server: ModelServer, store: Objects, control: Control) -> None:
        self.server, self.control = server, control
        self.routes: list[EndpointRoute] = []
        self.pool = UpstreamPool()
        self.reports: list[DataLogReport] = []
        self.log = DataLog(self._take, CLOCK)
        table = SimpleNamespace(endpoint=lambda *_: self.routes[0] if self.routes else None)
        self.deps = SnapshotDeps(
            store=cast(Any, store),
            routes=cast(Any, SimpleNamespace(table=table)),
            pool=self.pool,
            meter=Meter(CLOCK.now),
            control=cast(Any, control),
            data_log=self.log,
            clock=ShortClock(),
        )

    async def _take(self, report: DataLogReport) -> None:
        self.reports.append(report)

    async def lines(self) -> list[str]:
        """The lines about the load."""
        await self.log.flush()
        return [it.text for report in self.reports for it in report.lines]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        found = await asyncio.start_server(self.server.serve, "127.0.0.1", 0)
        port = found.sockets[0].getsockname()[1]
        copy = CopyRoute(id="c-1", address=f"http://127.0.0.1:{port}", key="k")
        variant = VariantRoute(
            name="AllTraffic", weight=1.0, routing=RoutingStrategy.RANDOM, copies=(copy,)
        )
        self.routes.append(
            EndpointRoute(
                scope=SCOPE, name=TASK.endpoint_name, takes_components=False, variants=(variant,)
            )
        )
        async with found:
            yield
        self.pool.close()


def measure(
    task: BenchmarkTask = TASK,
    server: ModelServer | None = None,
    store: Objects | None = None,
    control: Control | None = None,
) -> tuple[BenchmarkEnd, list[str]]:
    """The end of a load, and the lines about it."""

    async def main() -> tuple[BenchmarkEnd, list[str]]:
        rig = Rig(server or ModelServer(), store or Objects(rows()), control or Control())
        async with rig.listening():
            await BenchmarkRun(task, rig.deps).carry_out()
        (end,) = rig.control.ends
        return end, await rig.lines()

    return asyncio.run(main())


def test_a_load_has_a_window_for_each_phase_and_reports_the_best() -> None:
    server = ModelServer()
    assert TASK.payload is not None
    payload = replace(TASK.payload, accept="text/csv")
    end, lines = measure(replace(TASK, payload=payload), server)
    assert (end.job_name, end.number, end.reason) == ("sizes", 1, None)
    assert end.best is not None
    assert end.best.num_users == 2
    assert end.best.invocations_per_minute > 60
    assert 2 <= end.best.latency_ms < 200
    assert end.load_began_at is not None
    assert end.load_ended_at is not None
    assert end.load_began_at <= end.best.began_at < end.best.ended_at <= end.load_ended_at
    assert [it.split(",")[0] for it in lines] == [
        "Step 1: 1 concurrent user",
        "Step 1: 2 concurrent users",
        "Step 1: The load has ended: the traffic is over.",
    ]
    assert server.bodies == {b"1,2\n", b"3,4\n"}, "the files are sent in turn"
    (head,) = {it.lower() for it in server.heads}
    for line in (b"content-type: text/csv", b"accept: text/csv", b"x-hostelry-copy-key: k"):
        assert line in head


@cases(
    "server, reason",
    case("an error", ModelServer(status=400), "invocations failed. The first: 400: torn"),
    case("a copy that dies at once", ModelServer(lifetime=0), "gave no whole answer"),
)
def test_a_load_without_a_success_fails_with_the_first_error(
    server: ModelServer, reason: str
) -> None:
    end, lines = measure(server=server)
    assert end.best is None
    assert reason in (end.reason or "")
    assert lines[-1] == "Step 1: The load has ended: every invocation failed."


def test_a_load_keeps_its_results_when_the_job_is_over() -> None:
    traffic = (TrafficPhase(initial_users=1, duration_s=3600.0),)
    end, lines = measure(replace(TASK, traffic=traffic, until_at=CLOCK.now() + 0.4))
    assert end.best is not None
    assert lines[-1] == "Step 1: The load has ended: the job's duration is over."


def test_a_load_ends_at_a_stopping_condition() -> None:
    rules = StoppingRules(max_invocations=60)
    end, lines = measure(replace(TASK, stopping=rules))
    assert end.best is not None
    assert lines[-1] == "Step 1: The load has ended: MaxInvocations 60 is reached."


@cases(
    "store, reason",
    case(
        "a missing payload",
        Objects(b"", ObjectMissingError("s3://b/rows.tar.gz: 404")),
        "The sample payload cannot be used: s3://b/rows.tar.gz: 404",
    ),
    case("a payload of another form", Objects(b"1,2\n"), "is not gzip"),
    case("too large a payload", Objects(b"", size_bytes=MAX_ARCHIVE_BYTES + 1), "the limit is"),
)
def test_a_payload_that_cannot_be_used_fails_the_step(store: Objects, reason: str) -> None:
    end, _ = measure(store=store)
    assert end.best is None
    assert end.load_began_at is None
    assert reason in (end.reason or "")


def test_a_load_waits_for_the_object_store_and_for_control() -> None:
    store = Objects(rows(), ObjectStoreDownError("away"), ObjectStoreDownError("away"))
    end, _ = measure(store=store, control=Control(num_failures=2))
    assert end.best is not None


@pytest.mark.parametrize("has_copy", [False, True], ids=["before a copy", "under load"])
def test_a_load_that_is_cancelled_leaves_no_task(has_copy: bool) -> None:
    async def main() -> None:
        rig = Rig(ModelServer(), Objects(rows()), Control())
        async with rig.listening():
            if not has_copy:
                rig.routes.clear()
            own = asyncio.all_tasks()
            run = asyncio.create_task(BenchmarkRun(TASK, rig.deps).carry_out())
            await asyncio.sleep(0.05)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            left = [it for it in asyncio.all_tasks() - own if "_worker" in repr(it)]
            assert left == []
        assert rig.control.ends == []

    asyncio.run(main())


def test_users_wait_while_there_is_no_copy() -> None:
    async def main() -> BenchmarkEnd:
        rig = Rig(ModelServer(), Objects(rows()), Control())
        async with rig.listening():
            routes = list(rig.routes)
            run = asyncio.create_task(BenchmarkRun(TASK, rig.deps).carry_out())
            await asyncio.sleep(0.1)
            rig.routes.clear()
            await asyncio.sleep(0.1)
            rig.routes.extend(routes)
            await run
        return rig.control.ends[0]

    end = asyncio.run(main())
    assert end.best is not None, "missing copies are no errors of the model"
