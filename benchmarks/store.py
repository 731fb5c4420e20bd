"""Latency of the store's operations, on SQLite and on PostgreSQL of the same machine and disk.

Each round measures both in turns. The table shows the medians, and the median of the rounds'
ratios. A wake lasts from the return of another store's `put` until a `wait` has returned.

``python -m benchmarks.store [--rounds N] [--calls N]``
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.postgres_rig import postgres_database

from benchmarks.record import print_table, write_result
from hostelry.domain.scope import Scope
from hostelry.store.database import open_database
from hostelry.store.protocol import Key
from hostelry.store.sql import SqlStore

SCOPE = Scope("123456789012", "us-west-2")
BODY = b"x" * 1000
NUM_RECORDS = 1000
WRITERS = 4
WAKES = 10


def key(name: str) -> Key:
    """A record's key."""
    return Key(kind="endpoint", scope=SCOPE, name=name)


class StoreBench:
    """One store with records, and a second one on the same database, as in another process."""

    def __init__(self, place: Path | str, calls: int) -> None:
        self._calls = calls
        self._store, self._other = (SqlStore(open_database(place)) for _ in range(2))
        self._version = 0
        for number in range(NUM_RECORDS):
            self._version = self._store.put(key(f"n{number}"), BODY, expect=None).version
        self._hot = self._store.put(key("hot"), BODY, expect=None).version

    def operations(self) -> dict[str, Callable[[], float]]:
        """For each operation, a function that measures its milliseconds."""
        return {
            "get": lambda: self._each(lambda: self._store.get(key("n7"))),
            "put": lambda: self._each(self._put),
            f"put, {WRITERS} threads": self._put_by_threads,
            f"list of {NUM_RECORDS}": lambda: self._each(lambda: self._store.list("endpoint"), 20),
            "changes, none": lambda: self._each(lambda: self._store.changes(self._hot)),
            "changes, 100": lambda: self._each(lambda: self._store.changes(self._version - 100)),
            "wake by another process": self._wake,
        }

    def close(self) -> None:
        """Close both stores."""
        self._store.close()
        self._other.close()

    def _each(self, act: Callable[[], object], calls: int | None = None) -> float:
        taken = []
        for _ in range(calls or self._calls):
            began = time.perf_counter()
            act()
            taken.append(time.perf_counter() - began)
        return statistics.median(taken) * 1000

    def _put(self) -> None:
        self._hot = self._store.put(key("hot"), BODY, expect=self._hot).version

    def _put_by_threads(self) -> float:
        """Milliseconds of a write while several threads write, each to its own record."""

        def write(number: int) -> None:
            record = self._store.get(key(f"own{number}"))
            version = record.version if record else None
            for _ in range(self._calls):
                version = self._store.put(key(f"own{number}"), BODY, expect=version).version

        threads = [threading.Thread(target=write, args=(it,)) for it in range(WRITERS)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = time.perf_counter() - began
        self._hot = self._store.put(key("hot"), BODY, expect=self._hot).version
        return taken * 1000 / (WRITERS * self._calls)

    def _wake(self) -> float:
        taken = []
        for _ in range(WAKES):
            since = self._store.revision()
            woken: list[float] = []

            def wait(since: int = since, woken: list[float] = woken) -> None:
                self._other.wait(since, 10.0)
                woken.append(time.perf_counter())

            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(0.05)  # time for the other store to begin its wait
            self._put()
            began = time.perf_counter()
            thread.join()
            taken.append(max(0.0, woken[0] - began))
        return statistics.median(taken) * 1000


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, postgres_database() as url:
        ours = StoreBench(Path(folder) / "state.db", given.calls)
        theirs = StoreBench(url, given.calls)
        rounds = [
            {
                name: (measure(), theirs.operations()[name]())
                for name, measure in ours.operations().items()
            }
            for _ in range(given.rounds)
        ]
        ours.close()
        theirs.close()
    rows = [
        {
            "operation": name,
            "sqlite_ms": round(statistics.median(it[name][0] for it in rounds), 3),
            "postgresql_ms": round(statistics.median(it[name][1] for it in rounds), 3),
            "ratio": round(statistics.median(it[name][1] / it[name][0] for it in rounds), 2),
        }
        for name in rounds[0]
    ]
    print_table("Operations of the store, milliseconds", rows)
    write_result("store", f"{given.rounds} rounds", 0, {"operations": rows})


if __name__ == "__main__":
    main()
