"""Models on one instance of a multi-model endpoint, decisions on room for them, and popularity.

The popularity of a model is the probability that the next request is for it. Requests are counted
with weights that halve in each of HALF_LIVES_S. A short half-life follows bursts, a long one keeps
the regular models through a scan. A request is taken to come from one of these counts, picked by
their weights. The weights are learned from the requests, so that there is nothing to set. Of the
shortest half-life only a model's last request counts, as a burst's length says little about whether
it is over.

Source: the weights of a mixture by online EM, Cappe and Moulines 2009.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from math import log

import msgspec

HALF_LIVES_S = (8.0, 120.0, 1800.0, 28_800.0)
FADING_PER_S = tuple(-1 / half_life_s for half_life_s in HALF_LIVES_S)  # of 2 ** (rate * age)
NONE = (0.0,) * len(HALF_LIVES_S)
EQUAL = (1 / len(HALF_LIVES_S),) * len(HALF_LIVES_S)
LEARNED = 0.005  # of a weight, at each request: the last 200 requests decide
SHARED = 0.01  # of the learned weight goes to all alike, so that no weight is lost for good
LEAST_PROBABILITY = 1e-9
LN_2 = log(2)


class DecayedCounts(msgspec.Struct, frozen=True):
    """Requests until `at_s`, one count for each of HALF_LIVES_S."""

    counts: tuple[float, ...] = NONE
    at_s: float = 0.0

    def decay_to(self, now_s: float) -> tuple[float, ...]:
        """The counts at `now_s`. A clock that went back fades nothing."""
        age_s = max(now_s - self.at_s, 0.0)
        return tuple(
            [
                count * 2.0 ** (rate * age_s)
                for count, rate in zip(self.counts, FADING_PER_S, strict=True)
            ]
        )

    def after_request(self, now_s: float) -> "DecayedCounts":
        """The counts of a model with one request more, at `now_s`."""
        _, *longer = self.decay_to(now_s)
        return DecayedCounts((1.0, *[count + 1.0 for count in longer]), max(now_s, self.at_s))

    def expected_requests(self, within_s: float, now_s: float) -> float:
        """The requests to expect within `within_s` seconds, by the requests of the last minutes."""
        return self.decay_to(now_s)[1] * LN_2 / HALF_LIVES_S[1] * within_s


class Demand(msgspec.Struct, frozen=True):
    """Counts of all models of an instance together, and the weight of each half-life."""

    total: DecayedCounts = DecayedCounts()
    weights: tuple[float, ...] = EQUAL

    def after_request(self, model: DecayedCounts, now_s: float) -> "Demand":
        """The demand after a further request. `model` counts the earlier requests for its model."""
        now_s = max(now_s, self.total.at_s)
        before, totals = model.decay_to(now_s), self.total.decay_to(now_s)
        _, *longer = totals
        counts = (totals[0] - before[0] + 1.0, *[total + 1.0 for total in longer])
        return Demand(DecayedCounts(counts, now_s), self._learn(before, totals))

    @property
    def burstiness(self) -> float:
        """Share of the requests that come from bursts of seconds, 0 to 1."""
        return self.weights[0]

    def factors(self, now_s: float) -> tuple[float, ...]:
        """Factors that make a model's counts at `now_s` a probability, by their scalar product."""
        totals = self.total.decay_to(now_s)
        return tuple(
            weight / total if total > 0 else 0.0
            for weight, total in zip(self.weights, totals, strict=True)
        )

    def _learn(self, before: tuple[float, ...], totals: tuple[float, ...]) -> tuple[float, ...]:
        if not any(before):
            return self.weights  # a model without a past says nothing about the half-lives
        origins = [
            weight * (count / total + LEAST_PROBABILITY if total > 0 else LEAST_PROBABILITY)
            for weight, count, total in zip(self.weights, before, totals, strict=True)
        ]
        kept, scale = 1 - LEARNED, LEARNED * (1 - SHARED) / sum(origins)
        floor = LEARNED * SHARED / len(origins)
        return tuple(
            [
                kept * weight + scale * origin + floor
                for weight, origin in zip(self.weights, origins, strict=True)
            ]
        )


def probabilities(models: Iterable[DecayedCounts], demand: Demand, now_s: float) -> list[float]:
    """For each model the probability that the next request is for it."""
    factor_a, factor_b, factor_c, factor_d = demand.factors(now_s)
    rate_a, rate_b, rate_c, rate_d = FADING_PER_S
    found = []
    for model in models:  # written out: this is the inner loop of an eviction
        age_s = now_s - model.at_s if now_s > model.at_s else 0.0
        count_a, count_b, count_c, count_d = model.counts
        found.append(
            factor_a * count_a * 2.0 ** (rate_a * age_s)
            + factor_b * count_b * 2.0 ** (rate_b * age_s)
            + factor_c * count_c * 2.0 ** (rate_c * age_s)
            + factor_d * count_d * 2.0 ** (rate_d * age_s)
        )
    return found


MIB = 1024 * 1024


class ModelTier(Enum):
    """A place that models take bytes of: loaded in memory, or unpacked on the instance's disk.

    A loaded model may also take a declared part of an accelerator's memory.
    """

    MEMORY = "memory"
    ACCELERATOR = "accelerator"
    DISK = "disk"


class CachedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that one instance has served, loaded or not.

    Args:
        key: its TargetModel and the version of its object.
        on_disk: whether its files are there, or being made.
        loaded: whether it is in memory, or being loaded.
        disk_bytes: of its unpacked files.
        memory_bytes: measured after its last load, and estimated before.
        accelerator_bytes: its declared accelerator memory while it is loaded.
        download_s: measured, unpacking included.
        load_s: measured.
        popularity: its requests.
        in_flight: requests, loads and downloads that use it now.
        pinned: kept whatever comes.
        hits: requests that found it loaded.
    """

    key: str
    on_disk: bool = False
    loaded: bool = False
    disk_bytes: int = 0
    memory_bytes: int = 0
    accelerator_bytes: int = 0
    download_s: float = 0.0
    load_s: float = 0.0
    popularity: DecayedCounts = msgspec.field(default_factory=DecayedCounts)
    in_flight: int = 0
    pinned: bool = False
    hits: int = 0

    @property
    def evictable(self) -> bool:
        """Whether it may be evicted now."""
        return not self.pinned and not self.in_flight

    @property
    def last_used_at_s(self) -> float:
        """When it was last requested."""
        return self.popularity.at_s

    def held_bytes(self, tier: ModelTier) -> int:
        """Bytes of `tier` that it takes now."""
        if tier is ModelTier.DISK:
            return self.disk_bytes if self.on_disk else 0
        return self.size_bytes(tier) if self.loaded else 0

    def size_bytes(self, tier: ModelTier) -> int:
        """Bytes of `tier` that it takes when it is there."""
        match tier:
            case ModelTier.MEMORY:
                return self.memory_bytes
            case ModelTier.ACCELERATOR:
                return self.accelerator_bytes
            case ModelTier.DISK:
                return self.disk_bytes


class ModelCacheState(msgspec.Struct, frozen=True, kw_only=True):
    """One tier of an instance: its bytes, the models of the instance, and their demand."""

    tier: ModelTier
    capacity_bytes: int
    models: Sequence[CachedModel]
    demand: Demand = msgspec.field(default_factory=Demand)

    def held_bytes(self) -> list[int]:
        """Bytes of the tier that each model takes now."""
        if self.tier is ModelTier.MEMORY:
            return [model.memory_bytes if model.loaded else 0 for model in self.models]
        if self.tier is ModelTier.ACCELERATOR:
            return [model.accelerator_bytes if model.loaded else 0 for model in self.models]
        return [model.disk_bytes if model.on_disk else 0 for model in self.models]

    @property
    def used_bytes(self) -> int:
        """Bytes of the models that are there."""
        return sum(self.held_bytes())

    @property
    def free_bytes(self) -> int:
        """Bytes left. Less than zero if models grew beyond the capacity."""
        return self.capacity_bytes - self.used_bytes


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """A model to remove from a tier, and why."""

    key: str
    tier: ModelTier
    freed_bytes: int
    reason: str


class RoomMade(msgspec.Struct, frozen=True, kw_only=True):
    """There is room once `evictions`, possibly none, are carried out in their order."""

    evictions: tuple[Eviction, ...] = ()

    @property
    def freed_bytes(self) -> int:
        """Bytes that the evictions free, both tiers together."""
        return sum(eviction.freed_bytes for eviction in self.evictions)


class ModelTooLarge(msgspec.Struct, frozen=True, kw_only=True):
    """No wait and no eviction makes room. `text` names the sizes."""

    text: str


class ModelsInUse(msgspec.Struct, frozen=True, kw_only=True):
    """There is room once models that are in use are idle.

    `drain` names the models that must go, including idle models. A caller that has waited for long
    sends these no new requests until they are evicted. Otherwise one of them might always be in
    use.
    """

    text: str
    lacking_bytes: int
    drain: tuple[str, ...]


RoomPlan = RoomMade | ModelTooLarge | ModelsInUse


def size_text(num_bytes: int) -> str:
    """Bytes as text, in MB of 1024 KB as AWS's shapes count them."""
    return f"{num_bytes / MIB:.1f} MB"
