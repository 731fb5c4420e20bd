"""A process that uses shared memory without pause: `counts PATH WORKERS WORKER` or `map PATH`.

Standard input has one command per line, standard output the answers. With a map, the process checks
each value that it reads: it names its key, and determines its expiry.
"""

import random
import select
import sys
from collections.abc import Callable
from pathlib import Path

from hostelry.base.clock import SystemClock
from hostelry.dataplane.shared.count_table import CountTable
from hostelry.dataplane.shared.counts import SharedCounts
from hostelry.dataplane.shared.map import SharedMap

NUM_KEYS = 40
NUM_COPIES = 6
CAPACITY = 64


def expiry_of(value: int) -> float:
    """The expiry that is always put with `value`."""
    return 4e9 + value % 1_000_003


def say(text: str) -> None:
    print(text, flush=True)


def asked() -> str | None:
    """The next command, or None."""
    return sys.stdin.readline().strip() if select.select([sys.stdin], [], [], 0)[0] else None


def work_on_map(path: Path) -> None:
    """Put and read existing keys, until a command says stop."""
    table = SharedMap(path, SystemClock().now, CAPACITY)
    source = random.Random()
    num_puts = 0
    say("ready")
    while True:
        for _ in range(50):
            number = source.randrange(NUM_KEYS)
            value = source.randrange(1 << 40) * NUM_KEYS + number
            num_puts += table.put(b"key-%d" % number, value, expiry_of(value))
            number = source.randrange(NUM_KEYS)
            found = table.get(b"key-%d" % number)
            if found is None:
                say(f"key {number} was lost")
            elif found[0] % NUM_KEYS != number or found[1] != expiry_of(found[0]):
                say(f"torn: key {number} has {found}")
        if asked() == "stop":
            break
    say(f"stopped after {num_puts} puts")


def work_on_counts(path: Path, num_workers: int, worker: int) -> None:
    """Take and give back places. "hold" answers the number of held places, "free" frees them."""
    counts = SharedCounts(CountTable(path, num_workers), worker)
    source = random.Random()
    held: list[tuple[int, Callable[[], None]]] = []
    say("ready")
    while (command := asked()) != "stop":
        if command == "hold":
            say(" ".join(str(sum(n == it for n, _ in held)) for it in range(NUM_COPIES)))
            command = sys.stdin.readline().strip()
        if command == "free":
            for _, give_back in held:
                give_back()
            say("free")
            return
        for _ in range(200):
            if held and source.random() < len(held) / 100:
                held.pop(source.randrange(len(held)))[1]()
            else:
                number = source.randrange(NUM_COPIES)
                held.append((number, counts.reserve(f"c-{number}")))
        counts.retain({f"c-{number}" for number in range(source.randrange(NUM_COPIES))})


if __name__ == "__main__":
    what, given = sys.argv[1], Path(sys.argv[2])
    if what == "map":
        work_on_map(given)
    else:
        work_on_counts(given, int(sys.argv[3]), int(sys.argv[4]))
