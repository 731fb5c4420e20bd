"""Several processes, as of several hosts, work on one queue in PostgreSQL."""

import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.contract.jobs.test_request_queue import DONE, NOW, asked, claims, ids
from tests.postgres_rig import postgres_database, postgres_server

from hostelry.jobs.queue.durable_queue import DurableQueue
from hostelry.jobs.queue.request_rows import RequestRows, RowFilter
from hostelry.store.database import open_database
from hostelry.store.protocol import StoreUnavailable

pytestmark = pytest.mark.integration
# Claims, ends and prints requests until none waits: one that cannot be ended is claimed again.
WORKER = """
import sys, time
from tests.contract.jobs.test_request_queue import DONE, HERE
from hostelry.jobs.queue.durable_queue import DurableQueue
from hostelry.store.database import open_database
from hostelry.store.protocol import StoreUnavailable

owner, queue = sys.argv[2] + "/jobs", None
while True:
    try:
        if queue is None:  # the server may be away from the start on
            queue = DurableQueue(open_database(sys.argv[1]), is_shared=True)
        queue.release_host(sys.argv[2])
        found = queue.claim(HERE, "e", owner, 7, time.time(), 30.0)
        if not found and not queue.backlog():
            break
        for claim in found:
            if queue.complete(claim, DONE, time.time(), []):
                print(claim.request.id, flush=True)
    except StoreUnavailable:
        time.sleep(0.05)
        continue
    if not found:
        time.sleep(0.05)
"""
NUM_REQUESTS = 150


@pytest.fixture
def url() -> Iterator[str]:
    with postgres_database() as made:
        yield made


@contextlib.contextmanager
def worker(url: str, host: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WORKER, url, host]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return [line.strip() for line in process.stdout if line.endswith("\n")]


@pytest.fixture
def queue(url: str) -> Iterator[DurableQueue]:
    with contextlib.closing(DurableQueue(open_database(url), is_shared=True)) as made:
        yield made


def fill(queue: DurableQueue) -> None:
    queue.submit([asked(str(it), ttl_s=1e9) for it in range(NUM_REQUESTS)])


def test_two_processes_end_each_request_once_though_one_of_them_is_killed(
    url: str, queue: DurableQueue
) -> None:
    fill(queue)
    ended = Counter[str]()
    with worker(url, "host-1") as first, worker(url, "host-2") as second:
        assert first.stdout is not None
        ended.update(first.stdout.readline().strip() for _ in range(20))
        first.send_signal(signal.SIGKILL)
        ended.update(lines_of(first))
        with worker(url, "host-1") as successor:  # takes over the claims of its host
            ended.update(lines_of(successor))
        ended.update(lines_of(second))
    rows = RequestRows(queue).page(RowFilter(limit=NUM_REQUESTS + 1))
    assert [it.state for it in rows] == ["completed"] * NUM_REQUESTS
    assert max(ended.values()) == 1
    # The kill may have come between the end of a request and its line.
    assert NUM_REQUESTS - 1 <= len(ended) <= NUM_REQUESTS


def test_a_server_that_restarts_in_the_middle_loses_nothing_and_repeats_nothing(
    url: str, queue: DurableQueue
) -> None:
    fill(queue)
    server, ended = postgres_server(), Counter[str]()
    with worker(url, "host-1") as first, worker(url, "host-2") as second:
        assert first.stdout is not None
        ended.update([first.stdout.readline().strip()])
        server.kill()
        server.start()
        ended.update(lines_of(first))
        ended.update(lines_of(second))
        assert (first.wait(), second.wait()) == (0, 0)
    rows = RequestRows(queue).page(RowFilter(limit=NUM_REQUESTS + 1))
    assert [it.state for it in rows] == ["completed"] * NUM_REQUESTS
    assert max(ended.values()) == 1


def test_a_queue_whose_database_is_away_refuses_and_takes_requests_again(
    queue: DurableQueue,
) -> None:
    server = postgres_server()
    queue.submit([asked("before")])
    server.stop()
    try:
        with pytest.raises(StoreUnavailable):
            queue.submit([asked("during")])
        assert queue.database.trouble is not None
    finally:
        server.start()
    queue.submit([asked("after")])
    assert queue.database.trouble is None
    found = claims(queue)
    assert ids(found) == ["before", "after"]
    assert all(queue.complete(it, DONE, NOW, []) for it in found)
    assert claims(queue) == []
