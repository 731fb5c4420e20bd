"""A platform with three gateway workers: counts are exact, also when a worker is killed."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from benchmarks.gateway_load import signed_request
from benchmarks.quota_table import Callers
from benchmarks.stack import Stack
from tests.integration.drill import (
    COMPONENT,
    ENDPOINT,
    NO_RETRIES,
    OK,
    Traffic,
    copies_of,
    create_component,
    create_endpoint,
    wait_ready,
    write_image_rule,
)
from tests.integration.platform import Platform, until

from hostelry.dataplane.shared.count_table import CountTable

pytestmark = [pytest.mark.integration, pytest.mark.slow]
WORKERS = 3
COPIES = 3
KILLED = ("gateway-2", "control")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    root = tmp_path_factory.mktemp("workers") / "home"
    write_image_rule(root)
    with Platform(root, "--gateway-workers", str(WORKERS)) as running:
        create_endpoint(running)
        create_component(running, COMPONENT, copies=COPIES)
        wait_ready(running, COMPONENT, copies=COPIES)
        yield running


@pytest.fixture
def table(platform: Platform) -> Iterator[CountTable]:
    """The counts of the workers, as any process of the owner may read them."""
    with closing(CountTable(platform.home.counts, WORKERS)) as opened:
        until(lambda: opened.total == 0, "nothing is counted any more")
        yield opened


class Stream:
    """A long stream over a separate connection. `copy` is the pid of the copy that sends it."""

    def __init__(self, platform: Platform) -> None:
        client = platform.boto3("sagemaker-runtime", retries=NO_RETRIES)
        answer = client.invoke_endpoint_with_response_stream(
            EndpointName=ENDPOINT,
            InferenceComponentName=COMPONENT,
            ContentType="application/json",
            Body=b'{"chunks": 1200, "chunk_wait_s": 0.05}',
        )
        self.copy = int(answer["CustomAttributes"])
        self._body: Any = answer["Body"]
        self._client = client

    def close(self) -> None:
        self._body.close()
        self._client.close()


def test_no_copy_gets_a_second_stream_while_another_has_none(
    platform: Platform, table: CountTable
) -> None:
    pids = set(copies_of(platform, COMPONENT).values())
    streams: list[Stream] = []
    try:
        for number in range(1, 3 * COPIES + 1):
            streams.append(Stream(platform))
            assert table.total == number
            counts = Counter(stream.copy for stream in streams)
            assert max(counts.values()) == -(-number // COPIES), counts
        assert set(counts) == pids
        assert sum(connections > 0 for connections, _ in table.presences()) == WORKERS
        left = streams[0].copy  # one copy loses all of its streams, and gets the next ones
        for stream in [it for it in streams if it.copy == left]:
            stream.close()
            streams.remove(stream)
        until(lambda: table.total == len(streams), "the places are given back")
        streams += [Stream(platform) for _ in range(3)]
        assert [stream.copy for stream in streams[-3:]] == [left] * 3
    finally:
        for stream in streams:
            stream.close()
    until(lambda: table.total == 0, "the places are given back")


def test_a_killed_worker_breaks_its_own_connections_and_no_other_is_refused(
    platform: Platform, table: CountTable
) -> None:
    with Traffic(platform).flowing(6) as traffic, knocking(platform) as knocks:
        until(lambda: all(connections for connections, _ in table.presences()), "all are busy")
        held = table.presences()[1][0]
        old = platform.kill("gateway-2")
        traffic.goes_on(100)
        platform.back("gateway-2", old)
        until(lambda: table.presences()[1][1], "its successor takes connections")
        traffic.goes_on(100)
    broken = sum(count for outcome, count in traffic.outcomes.items() if outcome != OK)
    assert traffic.errors <= {"ConnectionClosedError"}, traffic.outcomes
    assert broken <= held
    assert set(knocks) <= {"answered", "cut off"}, "no connection is refused"
    assert knocks["cut off"] <= 1
    until(lambda: table.total == 0, "the dead worker's requests are not counted")


def test_a_hung_worker_takes_no_new_connections(platform: Platform, table: CountTable) -> None:
    pid = platform.pid("gateway-1")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert [knock(platform, timeout_s=5) for _ in range(20)] == ["answered"] * 20
        assert Traffic(platform).once() == OK
    finally:
        with contextlib.suppress(ProcessLookupError):  # the supervisor may have killed it by now
            os.kill(pid, signal.SIGCONT)


def test_connections_wait_while_no_worker_lives(platform: Platform, table: CountTable) -> None:
    old = {name: platform.kill(name) for name in platform.gateway_workers}
    assert knock(platform, timeout_s=30) == "answered"
    for name, pid in old.items():
        platform.back(name, pid)
    assert Traffic(platform).once() == OK
    until(lambda: table.total == 0, "what they counted is gone with them")


def test_any_worker_finds_the_calls_of_all_and_a_killed_one_has_lost_its_own(
    platform: Platform, table: CountTable
) -> None:
    def called() -> dict[str, dict[str, Any]] | None:
        """A call of each worker, by its name."""
        assert Traffic(platform).once() == OK
        listed = platform.cli("trace", "--slowest", ENDPOINT, "--limit", "100", "--json").stdout
        found = {it["worker"]: it for it in json.loads(listed)["calls"]}
        return found if len(found) == WORKERS else None

    calls = until(called, "each worker has had a call")
    for name, call in calls.items():
        shown = platform.cli("trace", call["request_id"]).stdout
        assert shown.splitlines()[1].endswith(f"; {name}")
        assert f"of {COPIES} copies by LEAST_OUTSTANDING_REQUESTS; requests in flight:" in shown
    lost, left = calls["gateway-2"]["request_id"], calls["gateway-1"]["request_id"]
    platform.back("gateway-2", platform.kill("gateway-2"))
    refused = platform.cli("trace", lost, code=1).stderr
    assert f"No call {lost} is kept." in refused
    assert "gateway-2" in refused
    assert left in platform.cli("trace", left).stdout


def test_a_quota_is_exact_over_all_workers_through_kills_of_a_worker_and_of_control(
    platform: Platform, table: CountTable
) -> None:
    limit = 600
    per_minute = ("--requests-per-minute", str(limit))
    platform.quotas("set", "exact", "--endpoint", ENDPOINT, *per_minute)
    platform.quotas("set", "seen", "--requests-per-minute", "1", "--warn-only")
    try:
        num_before = wait_for_quotas(platform)
        callers = Callers(platform.port, invocation(platform), pause_s=0.2)

        async def run() -> dict[str, int]:
            calling = asyncio.create_task(callers.send_calls(4.0))
            await asyncio.sleep(0.6)
            old = {name: await asyncio.to_thread(platform.kill, name) for name in KILLED}
            await calling
            return old

        for name, pid in asyncio.run(run()).items():
            platform.back(name, pid)
        num_answered = num_before + callers.statuses[200]
        assert callers.statuses.keys() <= {200, 429}, callers.statuses
        assert callers.statuses[429] > 0
        assert limit - callers.num_lost <= num_answered <= limit, callers.statuses
        shown = until(lambda: find_use(platform, "exact"), "a worker reports to the new control")
        assert shown["used"] == limit
        assert "quota exact: requests_per_minute of 600 is reached" in platform.cli("status").stdout
        assert "quota exact: requests_per_minute" in platform.cli("explain").stdout
    finally:
        for name in ("exact", "seen"):
            platform.quotas("delete", name)
    until(lambda: Traffic(platform).once() == OK, "no quota is left")
    until(lambda: table.total == 0, "nothing is counted any more")


def invocation(
    platform: Platform,
    component: str = COMPONENT,
    body: bytes = b'{"wait_s": 0.01}',
    headers: dict[str, str] | None = None,
) -> bytes:
    """A signed call, which may be sent again."""
    stack = Stack(
        credentials=platform.credentials,
        gateway_port=platform.port,
        echo_port=0,
        echo_pid=0,
        gateway_pids=(),
    )
    given = {
        "Content-Type": "application/json",
        "X-Amzn-SageMaker-Inference-Component": component,
        **(headers or {}),
    }
    return signed_request(stack, "invocations", body, given, ENDPOINT)


def wait_for_quotas(platform: Platform) -> int:
    """Wait until every worker holds the quotas. Returns the number of calls that this took."""
    message, num_calls = invocation(platform), 0

    def is_held() -> bool:
        nonlocal num_calls
        with contextlib.ExitStack() as connections:  # open at once, so that all workers get some
            address = ("127.0.0.1", platform.port)
            opened = [
                connections.enter_context(socket.create_connection(address, 10))
                for _ in range(4 * WORKERS)
            ]
            for connection in opened:
                connection.sendall(message)
            num_calls += len(opened)
            answers = [connection.recv(65536) for connection in opened]
        assert all(it.startswith(b"HTTP/1.1 200 ") for it in answers)
        return sum(b"x-hostelry-quota-warning" in it for it in answers) >= len(opened) - 1

    until(is_held, "every worker holds the quotas")
    return num_calls


def find_use(platform: Platform, name: str) -> dict[str, Any] | None:
    """The use of the only limit of a quota, or None before the first report."""
    (quota,) = json.loads(platform.quotas("show", name, "--json"))["quotas"]
    uses = [use for it in quota["counts"] for use in it["limits"].values()]
    return uses[0] if uses else None


def test_a_flood_of_one_tenant_does_not_starve_another(
    platform: Platform, table: CountTable
) -> None:
    create_component(platform, "trees", copies=1, environment={"DRILL_PLACES": "2"})
    wait_ready(platform, "trees", copies=1)

    def build(tenant: str) -> Callers:
        headers = {"X-Hostelry-Tenant": tenant}
        message = invocation(platform, "trees", b'{"wait_s": 0.05}', headers)
        return Callers(platform.port, message, num_callers=64 if tenant == "flood" else 1)

    def measure_victim(flood: Callers | None) -> list[float]:
        """Seconds that each call of the victim takes, alone or within the flood."""
        victim = build("victim")

        async def run() -> None:
            calling = [asyncio.create_task(flood.send_calls(5.0))] if flood else []
            await asyncio.sleep(0.5 if flood else 0.0)
            await victim.send_calls(4.0 if flood else 1.0)
            await asyncio.gather(*calling)

        asyncio.run(run())
        assert victim.statuses.keys() == {200}
        return sorted(victim.took_s)

    alone = measure_victim(None)
    flood = build("flood")
    within = measure_victim(flood)
    assert flood.statuses.keys() == {200}
    middle = within[len(within) // 2]
    unfair_s = 64 * 0.05 / 2
    assert middle < unfair_s / 4, (alone, within)
    # Two places of 50 ms, for 5 s, with the victim's calls: the flood gets all that is left.
    assert flood.statuses[200] + len(within) > 0.7 * 5 * 2 / 0.05
    queued = platform.cli("trace", "--slowest", ENDPOINT, "--limit", "100", "--json").stdout
    spans = [it["name"] for call in json.loads(queued)["calls"] for it in call["spans"]]
    assert "queue" in spans
    sagemaker = platform.boto3("sagemaker")
    sagemaker.delete_inference_component(InferenceComponentName="trees")


def test_the_workers_are_shown_and_their_logs_found_together(platform: Platform) -> None:
    shown = platform.cli("status").stdout
    assert all(name in shown for name in platform.gateway_workers)
    logs = platform.cli("logs", "gateway").stdout
    assert all(f"==> {name} <==" in logs for name in platform.gateway_workers)


def knock(platform: Platform, timeout_s: float) -> str:
    """The outcome of a request over a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", platform.port, timeout=timeout_s)
    with closing(connection):
        try:
            connection.request("GET", "/ping")
            return "answered" if connection.getresponse().status == 200 else "failed"
        except ConnectionRefusedError:
            return "refused"
        except (ConnectionError, http.client.HTTPException):
            return "cut off"
        except TimeoutError:
            return "not answered"


@contextlib.contextmanager
def knocking(platform: Platform) -> Iterator[Counter[str]]:
    """Open connections one after another, and return their outcomes."""
    outcomes: Counter[str] = Counter()
    done = threading.Event()

    def go_on() -> None:
        while not done.wait(0.02):
            outcomes[knock(platform, timeout_s=10)] += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield outcomes
    finally:
        done.set()
        thread.join()
