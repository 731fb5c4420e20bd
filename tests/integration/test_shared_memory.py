"""Memory that gateway workers share, with real processes that are killed in mid-write."""

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.servers.shared_memory import CAPACITY, NUM_COPIES, NUM_KEYS, expiry_of

from hostelry.base.clock import SystemClock
from hostelry.dataplane.shared.count_table import CountTable
from hostelry.dataplane.shared.counts import SharedCounts
from hostelry.dataplane.shared.map import SharedMap

pytestmark = pytest.mark.integration
PROGRAM = Path(__file__).parent / "servers" / "shared_memory.py"


class Hammer:
    """One process of `servers/shared_memory.py`."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.answer() == "ready"

    def ask(self, command: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        return self.answer()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> str:
        """Kill the process, and return its output until then."""
        self.process.kill()
        return self.process.communicate()[0]


@contextlib.contextmanager
def hammers(*each: tuple[object, ...]) -> Iterator[list[Hammer]]:
    started = [Hammer(*arguments) for arguments in each]
    try:
        yield started
    finally:
        for hammer in started:
            hammer.kill()


def test_no_entry_is_torn_or_lost_by_processes_that_are_killed_while_they_write(
    tmp_path: Path,
) -> None:
    path = tmp_path / "map"
    table = SharedMap(path, SystemClock().now, CAPACITY)
    for number in range(NUM_KEYS):
        table.put(b"key-%d" % number, number, expiry_of(number))
    source = random.Random(20261121)
    output = ""
    with hammers(*[("map", path)] * 3) as running:
        for _ in range(12):
            time.sleep(0.05 + source.random() * 0.1)
            victim = source.randrange(len(running))
            output += running[victim].kill()
            running[victim] = Hammer("map", path)
        output += "\n".join(hammer.ask("stop") for hammer in running)
    assert "torn" not in output
    assert "lost" not in output
    found = [table.get(b"key-%d" % number) for number in range(NUM_KEYS)]
    assert all(
        it and it[0] % NUM_KEYS == n and it[1] == expiry_of(it[0]) for n, it in enumerate(found)
    )
    assert table.num_live() == NUM_KEYS
    assert output.count("stopped after") == 3
    assert "after 0 puts" not in output


def test_counts_are_exact_over_processes_and_a_killed_ones_are_cleared(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    looker = SharedCounts(CountTable(path, 4), 3)
    with hammers(*[("counts", path, 4, worker) for worker in range(3)]) as running:
        time.sleep(0.5)
        held = [[int(it) for it in hammer.ask("hold").split()] for hammer in running]
        assert sum(map(sum, held)) > 0
        assert seen(looker) == [sum(column) for column in zip(*held, strict=True)]

        running[1].kill()
        assert seen(looker) == [sum(column) for column in zip(*held, strict=True)]
        CountTable(path, 4).clear(1)
        assert seen(looker) == [a + b for a, b in zip(held[0], held[2], strict=True)]

        running[1] = Hammer("counts", path, 4, 1)
        assert [hammer.ask("hold" if at == 1 else "free") for at, hammer in enumerate(running)]
        assert running[1].ask("free") == "free"
        assert looker.total == 0


def seen(counts: SharedCounts) -> list[int]:
    return [counts.of(f"c-{number}") for number in range(NUM_COPIES)]
