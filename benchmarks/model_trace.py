"""Models of a multi-model endpoint, and requests: Zipf, drift, rare models, scans, bursts."""

import math
import random
from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, count

MB = 1024 * 1024
PER_S = 20.0  # requests for all models together
DRIFT_EVERY, DRIFT_SHARE = 2000, 0.05  # requests, then this share of models trades places
RARE_SHARE = 0.2  # of the requests is for models that are requested once
SCAN_EVERY, SCAN_STEP = 15_000, 3  # requests. During a scan, every SCAN_STEP-th is part of it
BURST_LENGTH, BURST_GAP_S = 8, 5.0  # mean requests of a burst, and seconds between them


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelKind:
    """A model's size in memory and on disk, and the time of its load and download."""

    memory_bytes: int
    disk_bytes: int
    load_s: float
    download_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTrace:
    """Requests in order: when, and for which of `kinds`.

    The first `num_regular` kinds are requested again and again.
    """

    name: str
    kinds: list[ModelKind]
    num_regular: int
    at_s: list[float]
    models: list[int]

    @property
    def regular_bytes(self) -> int:
        """Memory that all regular models would take."""
        return sum(kind.memory_bytes for kind in self.kinds[: self.num_regular])


Chosen = Iterator[tuple[float, int]]


def some_kind(chance: random.Random) -> ModelKind:
    """A model of 3 to 600 MB, median 20 MB, which loads in 40 ms and at some 400 MB/s.

    Sizes and speeds vary by model, independently of its popularity.
    """
    megabytes = min(max(math.exp(chance.gauss(math.log(20), 1.0)), 3.0), 600.0)
    return ModelKind(
        memory_bytes=int(megabytes * MB),
        disk_bytes=int(megabytes * MB * math.exp(chance.gauss(-0.3, 0.3))),
        load_s=0.04 * math.exp(chance.gauss(0, 0.4))
        + megabytes / 400 * math.exp(chance.gauss(0, 0.3)),
        download_s=0.03 + megabytes / 100 * math.exp(chance.gauss(-0.3, 0.3)),
    )


def traces(num_models: int, num_requests: int, seed: int) -> Iterator[ModelTrace]:
    """Each of TRACES once. The same seed gives the same requests."""
    for name, make in TRACES.items():
        chance = random.Random(f"{seed} {name}")
        kinds = [some_kind(chance) for _ in range(num_models)]
        at_s, models = [], []
        for instant_s, model in make(chance, num_models, num_requests):
            at_s.append(instant_s)
            models.append(model)
        rare = max([*models, num_models - 1]) + 1 - num_models
        kinds += [some_kind(chance) for _ in range(rare)]
        yield ModelTrace(name=name, kinds=kinds, num_regular=num_models, at_s=at_s, models=models)


def zipf(exponent: float, chance: random.Random, num_models: int, num_requests: int) -> Chosen:
    """Independent requests, by Zipf's law."""
    ranks = _ranks(chance, num_models)
    draw = _by_zipf(exponent, chance, num_models)
    for at_s in _instants(chance, num_requests):
        yield at_s, ranks[draw()]


def drift(
    chance: random.Random, num_models: int, num_requests: int, every: int = DRIFT_EVERY
) -> Chosen:
    """Zipf's law, with models trading places after `every` requests."""
    ranks = _ranks(chance, num_models)
    draw = _by_zipf(0.9, chance, num_models)
    for number, at_s in enumerate(_instants(chance, num_requests)):
        if number % every == every - 1:
            places = chance.sample(range(num_models), max(int(num_models * DRIFT_SHARE), 2))
            moved = [ranks[place] for place in places]
            chance.shuffle(moved)
            for place, model in zip(places, moved, strict=True):
                ranks[place] = model
        yield at_s, ranks[draw()]


def _rare(chance: random.Random, num_models: int, num_requests: int) -> Chosen:
    """Zipf's law, but every fifth request is for a model that is requested only once."""
    fresh = count(num_models)
    for at_s, model in zipf(0.9, chance, num_models, num_requests):
        yield at_s, next(fresh) if chance.random() < RARE_SHARE else model


def _scans(chance: random.Random, num_models: int, num_requests: int) -> Chosen:
    """Zipf's law, and now and then a scan of every model, which takes every third request."""
    scan: list[int] = []
    for number, (at_s, model) in enumerate(zipf(0.9, chance, num_models, num_requests)):
        if number % SCAN_EVERY == SCAN_EVERY // 2:
            scan = _ranks(chance, num_models)
        yield at_s, scan.pop() if scan and number % SCAN_STEP == 0 else model


def _bursts(chance: random.Random, num_models: int, num_requests: int) -> Chosen:
    """Sessions: a model by Zipf's law gets some requests, seconds apart."""
    draw, ranks = _by_zipf(0.9, chance, num_models), _ranks(chance, num_models)
    found: list[tuple[float, int]] = []
    start_s = 0.0
    while len(found) < num_requests:
        start_s += chance.expovariate(PER_S / BURST_LENGTH)
        at_s, model = start_s, ranks[draw()]
        while True:
            at_s += chance.expovariate(1 / BURST_GAP_S)
            found.append((at_s, model))
            if chance.random() < 1 / BURST_LENGTH:
                break
    yield from sorted(found)


def _ranks(chance: random.Random, num_models: int) -> list[int]:
    return chance.sample(range(num_models), num_models)


def _by_zipf(exponent: float, chance: random.Random, num_models: int) -> Callable[[], int]:
    sums = list(accumulate((rank + 1) ** -exponent for rank in range(num_models)))
    return lambda: min(bisect(sums, chance.random() * sums[-1]), num_models - 1)


def _instants(chance: random.Random, num_requests: int) -> Iterator[float]:
    return accumulate(chance.expovariate(PER_S) for _ in range(num_requests))


TRACES: dict[str, Callable[[random.Random, int, int], Chosen]] = {
    "Zipf 0.6": partial(zipf, 0.6),
    "Zipf 0.9": partial(zipf, 0.9),
    "Zipf 1.2": partial(zipf, 1.2),
    "Zipf 0.9, drift": drift,
    "Zipf 0.9, one in five rare": _rare,
    "Zipf 0.9, scans": _scans,
    "bursts": _bursts,
}
