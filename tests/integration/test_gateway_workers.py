"""A platform with three gateway workers: counts are exact, also when a worker is killed."""

import contextlib
import http.client
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
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
