"""The drill's requests, files and kills, which follow from sizes and a seed. Pure.

The model answers a text with its digest, and refuses a text that asks for a refusal. So every byte
of each answer and each failure is known beforehand.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

REQUESTS_A_REFUSAL = 1000
REQUESTS_A_LARGE_ONE = 1000
SMALL_BYTES, MEDIUM_BYTES, LARGE_BYTES = 2_000, 60_000, 9 * 1024**2
MEDIUM_SHARE = 0.05
RECORDS_A_FILE = 250  # on average
MIN_FILES = 4
FILES_A_REFUSAL = 20
RECORD_BYTES = 200  # at most
FIRST_KILL, LAST_KILL = 0.02, 0.9  # shares of the finished work


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsSizes:
    """Sizes of the drill. The same sizes and seed give the same work and kills."""

    num_requests: int
    num_records: int
    num_kills: int
    seed: int


FULL = JobsSizes(num_requests=10_000, num_records=100_000, num_kills=20, seed=1)
SHORT = JobsSizes(num_requests=400, num_records=4_000, num_kills=14, seed=1)


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """An asynchronous request of `filler_bytes`. Some requests give their input by its location."""

    name: str
    filler_bytes: int
    by_location: bool
    is_refused: bool

    @property
    def body(self) -> bytes:
        """The input."""
        return _instruction(self.name, self.filler_bytes, self.is_refused)

    @property
    def answer(self) -> bytes:
        """The output, or the model's reason if it refuses the request."""
        return _answer(self.name, self.filler_bytes, self.is_refused)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """An input of the batch. `refused` is the number of the record that the model refuses."""

    name: str
    num_records: int
    refused: int | None

    def inputs(self) -> Iterator[bytes]:
        """Each record, without the end of its line."""
        for number in range(self.num_records):
            yield _instruction(
                self._record(number), self._filler_bytes(number), number == self.refused
            )

    def answers(self) -> Iterator[bytes]:
        """Each record's answer, without the end of its line."""
        for number in range(self.num_records):
            yield _answer(self._record(number), self._filler_bytes(number), is_refused=False)

    @property
    def refusal(self) -> bytes:
        """The reason that the model gives for the record that it refuses."""
        return _answer(self._record(self.refused or 0), 0, is_refused=True)

    def _record(self, number: int) -> str:
        return f"{self.name}-{number:06}"

    def _filler_bytes(self, number: int) -> int:
        return number * 37 % RECORD_BYTES


@dataclass(frozen=True, slots=True)
class PlannedKill:
    """A kill of a process of that kind, once that share of the work is done."""

    kind: str
    at_share: float


def planned_requests(sizes: JobsSizes) -> Sequence[PlannedRequest]:
    """The requests. A thousandth, and at least one, is refused, and as many have 9 MiB."""
    random, count = Random(f"{sizes.seed} requests"), sizes.num_requests
    drawn = random.sample(range(count), min(count, 2 * max(1, count // REQUESTS_A_REFUSAL)))
    refused, large = set(drawn[::2]), set(drawn[1::2])
    found = []
    for number in range(count):
        most_bytes = MEDIUM_BYTES if random.random() < MEDIUM_SHARE else SMALL_BYTES
        filler_bytes, by_location = random.randrange(most_bytes), random.random() < 0.5
        if number in large:
            filler_bytes, by_location = LARGE_BYTES, True
        found.append(PlannedRequest(f"r{number:06}", filler_bytes, by_location, number in refused))
    return found


def planned_files(sizes: JobsSizes) -> Sequence[PlannedFile]:
    """The files, of random sizes. A twentieth, and at least one, has a record that is refused."""
    random = Random(f"{sizes.seed} files")
    count = min(sizes.num_records, max(MIN_FILES, sizes.num_records // RECORDS_A_FILE))
    cuts = [0, *sorted(random.sample(range(1, sizes.num_records), count - 1)), sizes.num_records]
    refused = set(random.sample(range(count), max(1, count // FILES_A_REFUSAL)))
    found = []
    for number, (begin, end) in enumerate(pairwise(cuts)):
        record = random.randrange(end - begin)
        found.append(
            PlannedFile(f"f{number:05}", end - begin, record if number in refused else None)
        )
    return found


def planned_kills(sizes: JobsSizes, kinds: Sequence[str]) -> Sequence[PlannedKill]:
    """The kills in random order, with equally many of every kind as far as possible."""
    random, drawn = Random(f"{sizes.seed} kills"), list[str]()
    while len(drawn) < sizes.num_kills:
        drawn += random.sample(kinds, len(kinds))
    shares = sorted(random.uniform(FIRST_KILL, LAST_KILL) for _ in range(sizes.num_kills))
    return [PlannedKill(kind, share) for kind, share in zip(drawn, shares, strict=False)]


def _instruction(name: str, filler_bytes: int, is_refused: bool) -> bytes:
    if is_refused:
        asked = {"refuse": _answer(name, filler_bytes, is_refused=True).decode()}
    else:
        asked = {"digest": _text(name, filler_bytes)}
    return json.dumps(asked).encode()


def _answer(name: str, filler_bytes: int, is_refused: bool) -> bytes:
    if is_refused:
        return f"the drill has {name} refused".encode()
    text = _text(name, filler_bytes)
    return f"{hashlib.sha256(text.encode()).hexdigest()} {text}".encode()


def _text(name: str, filler_bytes: int) -> str:
    """A text of that name and `filler_bytes` more bytes, which differ for other names."""
    seed = hashlib.sha256(name.encode()).hexdigest()
    return f"{name} {(seed * (filler_bytes // len(seed) + 1))[:filler_bytes]}"
