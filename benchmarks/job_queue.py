"""Durable submissions and ends of asynchronous requests, on SQLite and on PostgreSQL.

Many callers write at once, as in the jobs process, and their writes share commits. Each round
measures both databases in turn on the same machine and disk. The table shows the medians. If
several workers share a queue, each is a thread of this process with a separate connection.

``python -m benchmarks.job_queue [--rounds N] [--requests N]``
"""

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.postgres_rig import postgres_database

from benchmarks.record import print_table, write_result
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.jobs.queue.durable_queue import DurableQueue
from hostelry.jobs.queue.protocol import Claim, QueueCommits, QueueWrites, RequestCompleted
from hostelry.store.database import open_database

SCOPE = Scope("123456789012", "us-west-2")
CALLERS = 64
BODY = b"x" * 1000
LEASE_S = 600.0


def request(name: str) -> AsyncRequest:
    """A request of a kilobyte."""
    now = time.time()
    return AsyncRequest(
        id=name,
        inference_id=name,
        scope=SCOPE,
        endpoint_name="e",
        body=BODY,
        output_uri="s3://b/out",
        failure_uri="s3://b/error",
        accepted_at=now,
        expires_at=now + 3600.0,
        timeout_s=60.0,
    )


async def submit_all(queue: DurableQueue, names: list[str]) -> None:
    """Submit every request by a separate call, many at once."""
    commits, left = QueueCommits(queue), iter(names)

    def kept(name: str) -> Callable[[QueueWrites], None]:
        return lambda writes: writes.submit([request(name)])

    async def caller() -> None:
        for name in left:
            await commits.write(kept(name))

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


async def end_all(queue: DurableQueue, owner: str) -> None:
    """Claim and end requests by separate calls, until none waits."""
    commits = QueueCommits(queue)

    def claimed(writes: QueueWrites) -> list[Claim]:
        return writes.claim(SCOPE, "e", owner, 1, time.time(), LEASE_S)

    def ended(claim: Claim) -> Callable[[QueueWrites], bool]:
        return lambda writes: writes.complete(claim, RequestCompleted(), time.time(), [])

    async def worker() -> None:
        while found := await commits.write(claimed):
            for claim in found:
                await commits.write(ended(claim))

    await asyncio.gather(*(worker() for _ in range(CALLERS)))


def seconds(act: Callable[[], object]) -> float:
    """Seconds that `act` takes."""
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def measure_queues(places: list[Path | str], num_requests: int, prefix: str) -> tuple[float, float]:
    """Submissions and ends a second, by as many queues at once as there are `places`."""
    queues = [DurableQueue(open_database(it), is_shared=len(places) > 1) for it in places]

    def at_once(act: Callable[[int, DurableQueue], None]) -> float:
        threads = [threading.Thread(target=act, args=it) for it in enumerate(queues)]

        def run() -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return num_requests / seconds(run)

    def submit(number: int, queue: DurableQueue) -> None:
        names = [f"{prefix}-{number}-{it}" for it in range(num_requests // len(queues))]
        asyncio.run(submit_all(queue, names))

    found = (
        at_once(submit),
        at_once(lambda number, queue: asyncio.run(end_all(queue, f"host-{number}/jobs"))),
    )
    for queue in queues:
        queue.close()
    return found


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=2000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, postgres_database() as url:
        file = Path(folder) / "jobs.db"
        kinds: dict[str, list[Path | str]] = {
            "SQLite": [file],
            "PostgreSQL": [url],
            "PostgreSQL, shared by two": [url, url],
        }
        rates: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for number in range(arguments.rounds):
            for kind, places in kinds.items():
                rates[kind].append(measure_queues(places, arguments.requests, f"{kind}-{number}"))
    medians = {
        kind: tuple(statistics.median(it[side] for it in found) for side in (0, 1))
        for kind, found in rates.items()
    }
    base = medians["SQLite"]
    rows = [
        {
            "queue": kind,
            "submitted_per_s": round(submitted),
            "claimed_and_ended_per_s": round(ended),
            "submitted_of_sqlite": round(submitted / base[0], 2),
            "ended_of_sqlite": round(ended / base[1], 2),
        }
        for kind, (submitted, ended) in medians.items()
    ]
    print_table("Asynchronous requests a second", rows)
    setting = f"{arguments.rounds} rounds of {arguments.requests} requests, {CALLERS} callers"
    write_result("job_queue", setting, 0, {"queues": rows})


if __name__ == "__main__":
    main()
