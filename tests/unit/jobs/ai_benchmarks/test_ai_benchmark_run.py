"""An AI benchmark on a local model server: its requests, its results, and its failures."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.recommendations.jobs import SCOPE

from hostelry.base.clock import SystemClock
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.route_table import RouteTable
from hostelry.domain.ai_benchmark_job import (
    AiBenchmarkEnd,
    AiBenchmarkJob,
    AiBenchmarkStatus,
    AiWorkload,
)
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.log_source import DataLogReport
from hostelry.domain.routes import (
    ComponentRoute,
    CopyRoute,
    EndpointRoute,
    RouteSnapshot,
    VariantRoute,
)
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.ai_benchmarks.ai_benchmark_run import AiBenchmarkRun
from hostelry.jobs.ai_benchmarks.ai_benchmark_work import run_ai_benchmark
from hostelry.jobs.ai_benchmarks.aiperf_load import Aiperf
from hostelry.jobs.control_client import ControlDownError
from hostelry.jobs.data_log import DataLog
from hostelry.jobs.objects.object_store import ObjectMissingError, ObjectStoreDownError
from hostelry.jobs.snapshot_work import SnapshotDeps

CLOCK = SystemClock()
WORKLOAD = AiWorkload(
    prompt_tokens_mean=60.0,
    prompt_tokens_stddev=10.0,
    output_tokens_mean=3.0,
    concurrency=2,
    request_count=20,
    warm_up_count=4,
)
JOB = AiBenchmarkJob(
    scope=SCOPE,
    name="chat",
    arn=SCOPE.arn("ai-benchmark-job", "chat"),
    created_at=5.0,
    modified_at=5.0,
    status=AiBenchmarkStatus.IN_PROGRESS,
    workload_name="short",
    workload=WORKLOAD,
    endpoint_name="ep",
    endpoint_created_at=4.0,
    output_uri="s3://out/results/",
    given={},
)
AROUND = 7  # tokens of the chat template
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass
class Llm:
    """A model server that answers each word of a prompt with two tokens of usage.

    It refuses requests after `lifetime` of them, and chats unless it `has_template`.
    """

    has_template: bool = True
    has_usage: bool = True
    lifetime: int = 1_000_000
    is_llm: bool = True
    has_lines: bool = False
    heads: list[bytes] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    pids: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                self.heads.append(head)
                self.bodies.append(body)
                if "pid" in body:
                    self.pids.put_nowait(body["pid"])
                self.lifetime -= 1
                if self.lifetime < 0:
                    self._answer(writer, 500, b'{"message": "out of pages"}')
                elif "messages" in body and not self.has_template:
                    self._answer(writer, 400, b'{"message": "no chat template"}')
                elif not self.is_llm:
                    self._answer(writer, 200, b"0.5\n")
                else:
                    await self._stream(writer, body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _answer(self, writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    async def _stream(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        text = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        num_tokens = body.get("max_tokens", 5)
        kind = b"application/jsonlines" if self.has_lines else b"text/event-stream"
        writer.write(b"HTTP/1.1 200 X\r\nContent-Type: %b\r\n" % kind + CHUNKED)
        for _ in range(num_tokens):
            self._event(writer, {"choices": [{"delta": {"content": "a"}}]})
            await asyncio.sleep(0.001)
        usage = {
            "prompt_tokens": 2 * len(text.split()) + AROUND,
            "completion_tokens": num_tokens,
        }
        self._event(writer, {"choices": [], **({"usage": usage} if self.has_usage else {})})
        writer.write(b"0\r\n\r\n")

    def _event(self, writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
        text = json.dumps(event).encode()
        line = text + b"\n" if self.has_lines else b"data: " + text + b"\n\n"
        writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


class Bucket:
    """An object store that keeps objects, after a few failures."""

    def __init__(self, *errors: Exception) -> None:
        self.objects: dict[str, Any] = {}
        self._errors = list(errors)

    def acting_for(self, _: str) -> "Bucket":
        return self

    async def put(self, uri: str, body: bytes, settings: Any) -> None:
        assert settings.content_type == "application/json"
        if self._errors:
            raise self._errors.pop(0)
        self.objects[uri] = json.loads(body)


class Ends:
    """Takes the end of a job, after a few failures."""

    def __init__(self, num_failures: int = 0) -> None:
        self.ends: list[AiBenchmarkEnd] = []
        self._num_failures = num_failures

    async def report_ai_benchmark_end(self, end: AiBenchmarkEnd) -> None:
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
    """The dependencies of one job. Routes have the servers' copies once they listen."""

    def __init__(
        self,
        *servers: Llm,
        store: Bucket | None = None,
        num_failures: int = 0,
        aiperf: Aiperf | None = None,
    ) -> None:
        self.servers = servers
        self.aiperf = aiperf
        self.store = store or Bucket()
        self.control = Ends(num_failures)
        self.pool = UpstreamPool()
        self.meter = Meter(CLOCK.now)
        self.reports: list[DataLogReport] = []
        self.log = DataLog(self._take, CLOCK)
        self.routes = SimpleNamespace(table=RouteTable(RouteSnapshot(version="1", endpoints=())))
        self.deps = SnapshotDeps(
            store=cast(Any, self.store),
            routes=cast(Any, self.routes),
            pool=self.pool,
            meter=self.meter,
            control=cast(Any, self.control),
            data_log=self.log,
            clock=ShortClock(),
        )

    async def _take(self, report: DataLogReport) -> None:
        self.reports.append(report)

    async def lines(self) -> list[str]:
        """The lines about the job."""
        await self.log.flush()
        return [it.text for report in self.reports for it in report.lines]

    @asynccontextmanager
    async def listening(self, *, has_components: bool = False) -> AsyncIterator[None]:
        found = [await asyncio.start_server(it.serve, "127.0.0.1", 0) for it in self.servers]
        addresses = [f"http://127.0.0.1:{it.sockets[0].getsockname()[1]}" for it in found]
        copies = tuple(
            CopyRoute(id=f"c-{number}", address=it, key="k") for number, it in enumerate(addresses)
        )
        made = make_components(copies) if has_components else make_variant(copies)
        self.routes.table = RouteTable(RouteSnapshot(version="2", endpoints=(made,)))
        try:
            yield
        finally:
            for server in found:
                server.close()
            self.pool.close()


def make_variant(copies: tuple[CopyRoute, ...]) -> EndpointRoute:
    variant = VariantRoute(
        name="AllTraffic", weight=1.0, routing=RoutingStrategy.RANDOM, copies=copies
    )
    return EndpointRoute(scope=SCOPE, name="ep", takes_components=False, variants=(variant,))


def make_components(copies: tuple[CopyRoute, ...]) -> EndpointRoute:
    """A base and an adapter on the same copies."""
    base = ComponentRoute(
        name="base", variant_name="v", routing=RoutingStrategy.RANDOM, copies=copies
    )
    adapter = replace(base, name="es", adapter_id="es-1", base_name="base")
    return EndpointRoute(scope=SCOPE, name="ep", takes_components=True, components=(base, adapter))


def measure(
    rig: Rig, job: AiBenchmarkJob = JOB, *, has_components: bool = False
) -> tuple[AiBenchmarkEnd, list[str]]:
    """The end of a job, and the lines about it."""

    async def main() -> tuple[AiBenchmarkEnd, list[str]]:
        async with rig.listening(has_components=has_components):
            await run_ai_benchmark(job, rig.deps, lambda: rig.aiperf)
        (end,) = rig.control.ends
        return end, await rig.lines()

    return asyncio.run(main())


def test_a_job_writes_its_results_to_s3() -> None:
    llm = Llm()
    rig = Rig(llm)
    end, lines = measure(rig)
    assert end == AiBenchmarkEnd(scope=SCOPE, name="chat", created_at=5.0)
    ((uri, results),) = rig.store.objects.items()
    assert uri == "s3://out/results/chat/results.json"
    assert lines[-2:] == [f"The results are in {uri}.", "The job is done."]
    assert (results["load"], results["target"], results["workload_config"]) == (
        "hostelry", "ep", "short",
    )  # fmt: skip
    assert results["options"]["concurrency"] == 2
    assert results["ok"] == results["requests"] == 20
    assert len(llm.bodies) == 2 + 4 + 20, "probes, warm-up, load"
    assert results["tokens_per_request"] == 3.0
    assert 45 < results["prompt_tokens_per_request"] < 75, "the mean of normal lengths around 60"
    for name in ("latency_ms", "first_token_ms", "inter_token_ms"):
        assert results[name]["p50"] > 0, name
    assert results["first_token_ms"]["p50"] < results["latency_ms"]["p50"]
    head = llm.heads[0].lower()
    for line in (b"content-type: application/json", b"x-hostelry-copy-key: k"):
        assert line in head
    assert llm.bodies[-1]["stream"] is True


def aiperf(folder: Path, act: str) -> Aiperf:
    command = (sys.executable, str(Path(__file__).with_name("aiperf_program.py")), act)
    return Aiperf(command, "0.13.0", folder / "aiperf")


@pytest.mark.parametrize("has_lines", [False, True], ids=["events", "JSON lines"])
def test_aiperf_sends_the_load_if_it_is_installed(has_lines: bool, tmp_path: Path) -> None:
    llm = Llm(lifetime=2 + 4 + 19, has_lines=has_lines)
    rig = Rig(llm, aiperf=aiperf(tmp_path, "send"))
    end, lines = measure(rig)
    assert end.reason is None
    assert "AIPerf 0.13.0 sends the load." in lines
    results = rig.store.objects["s3://out/results/chat/results.json"]
    assert rig.store.objects["s3://out/results/chat/profile_export_aiperf.json"] == {"by": "AIPerf"}
    assert results["load"] == "aiperf 0.13.0"
    assert results["client"] is results["bytes_per_s"] is None, "AIPerf does not say"
    assert (results["ok"], results["errors"]) == (19, {"500": 1})
    assert results["first_token_ms"]["p50"] == 1.5
    assert results["inter_token_ms"]["mean"] == 3.0
    assert results["tokens_per_request"] == 3.0
    assert 45 < results["prompt_tokens_per_request"] < 75
    assert len(llm.bodies) == 2 + 4 + 20, "probes, warm-up, load"
    assert llm.bodies[-1]["stream"] is True
    assert list((tmp_path / "aiperf").iterdir()) == [], "its files are gone"


@cases(
    "act, reason",
    case(
        "it ends with an error after its results",
        "break",
        "AIPerf ended with code 1, so its results are not whole. It says: A worker is gone",
    ),
    case("it ends without results", "fail", "AIPerf ended with code 1 and without results. It"
        " says: Failed to load tokenizer"),
    case("its requests have another key", "guess", "20 of 20 requests failed. The first: 401: The"
        " key of this benchmark is missing or wrong."),
)  # fmt: skip
def test_a_load_of_aiperf_that_fails_is_the_end_of_the_job(
    act: str, reason: str, tmp_path: Path
) -> None:
    llm = Llm()
    rig = Rig(llm, aiperf=aiperf(tmp_path, act))
    end, _ = measure(rig)
    assert end.reason == reason
    results = rig.store.objects.get("s3://out/results/chat/results.json")
    assert results is None or results["ok"] == 0


def test_a_cancelled_job_ends_aiperf(tmp_path: Path) -> None:
    async def main() -> int:
        llm = Llm()
        rig = Rig(llm, aiperf=aiperf(tmp_path, "hang"))
        async with rig.listening():
            running = asyncio.create_task(run_ai_benchmark(JOB, rig.deps, lambda: rig.aiperf))
            pid = await llm.pids.get()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        return pid

    pid = asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list((tmp_path / "aiperf").iterdir()) == []


def test_the_same_seed_sends_the_same_requests() -> None:
    sent = []
    for seed in (1, 1, 2):
        llm = Llm()
        one_user = replace(WORKLOAD, concurrency=1, seed=seed)
        measure(Rig(llm), replace(JOB, workload=one_user))
        sent.append([json.dumps(it) for it in llm.bodies])
    assert sent[0] == sent[1] != sent[2]


def test_requests_go_to_components_in_turn_and_to_the_copy_with_the_fewest() -> None:
    servers = (Llm(), Llm())
    job = replace(JOB, component_names=("base", "es"))
    end, _ = measure(Rig(*servers), job, has_components=True)
    assert end.reason is None
    heads = [head.lower() for llm in servers for head in llm.heads]
    adapters = Counter(b"x-amzn-sagemaker-adapter-identifier: es-1" in it for it in heads)
    assert abs(adapters[True] - adapters[False]) <= 3
    assert all(llm.heads for llm in servers)


def test_a_model_without_a_chat_template_gets_prompts() -> None:
    llm = Llm(has_template=False)
    end, lines = measure(Rig(llm))
    assert end.reason is None
    assert all("prompt" in it for it in llm.bodies[1:])
    assert "prompts of texts" in lines[0]


def test_a_rate_and_a_duration_limit_the_load() -> None:
    rig = Rig(Llm())
    limited = replace(
        WORKLOAD, request_count=None, duration_s=0.5, request_rate_per_s=20.0, warm_up_count=0
    )
    end, _ = measure(rig, replace(JOB, workload=limited))
    (results,) = rig.store.objects.values()
    assert end.reason is None
    assert 5 <= results["ok"] <= 10


@cases(
    "server, reason",
    case("no LLM", Llm(is_llm=False), "The model answers no request."),
    case("no counts of tokens", Llm(has_usage=False), "do not state their number of prompt tokens"),
    case("a model that fails under load", Llm(lifetime=2), "requests failed. The first: 500: out"),
    case("a model that is broken", Llm(lifetime=0), "1 of 1 requests failed. The first: 500: out"),
)
def test_a_model_that_cannot_be_measured_fails_the_job(server: Llm, reason: str) -> None:
    end, lines = measure(Rig(server))
    assert reason in (end.reason or "")
    assert lines[-1] == f"The job has failed: {end.reason}"


def test_some_errors_are_results() -> None:
    rig = Rig(Llm(lifetime=16))
    end, lines = measure(rig)
    (results,) = rig.store.objects.values()
    assert end.reason is None
    assert results["errors"] == {"500": 10}
    assert results["ok"] == 10
    assert any("errors: " in it and "out of pages" in it for it in lines)


def test_a_missing_bucket_fails_the_job() -> None:
    end, _ = measure(Rig(Llm(), store=Bucket(ObjectMissingError("s3://out: no such bucket"))))
    assert end.reason == "s3://out: no such bucket"


def test_a_job_waits_for_the_object_store_and_for_control() -> None:
    rig = Rig(Llm(), store=Bucket(*[ObjectStoreDownError("away")] * 2), num_failures=2)
    end, _ = measure(rig)
    assert end.reason is None
    assert rig.store.objects


def test_a_defect_ends_the_job_and_not_the_process() -> None:
    end, _ = measure(Rig(Llm(), store=Bucket(ZeroDivisionError())))
    assert (end.reason or "").startswith("InternalServerError")


@pytest.mark.parametrize("has_copy", [False, True], ids=["before a copy", "under load"])
def test_a_job_that_is_cancelled_leaves_no_task(has_copy: bool) -> None:
    async def main() -> None:
        rig = Rig(Llm())
        async with rig.listening():
            if not has_copy:
                rig.routes.table = RouteTable(RouteSnapshot(version="3", endpoints=()))
            own = asyncio.all_tasks()
            endless = replace(WORKLOAD, request_count=1_000_000)
            run = AiBenchmarkRun(replace(JOB, workload=endless), rig.deps, rig.aiperf)
            running = asyncio.create_task(run.carry_out())
            await asyncio.sleep(0.1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            left = [it for it in asyncio.all_tasks() - own if "_worker" in repr(it)]
            assert left == []
        assert rig.control.ends == []

    asyncio.run(main())
