"""Samples of usage, from which costs are computed: requests, instances and reservations.

Usage is in Hostelry's namespace, as sums per 5 minutes. The store keeps it as any metric, counts a
repeated report once, and bounds it. `cost/usage.py` lists the metrics.

The numbers of target models and tenants are limited, because clients choose their names. Further
names share the metrics of OTHERS.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping

from hostelry.cost.holding import HeldInstance
from hostelry.cost.usage import (
    AI_RECOMMENDATION_PREFIX,
    BASE,
    COMPONENT,
    ENDPOINT,
    ENERGY,
    ENERGY_TIME,
    INSTANCE_TIME,
    MODEL,
    OPERATION,
    RECOMMENDATION_PREFIX,
    RECORDED_TIME,
    REQUESTS,
    RESERVED_TIME,
    SOURCE,
    STEPS,
    STORAGE_TIME,
    TENANT,
    TRANSFORM_PREFIX,
    TYPE,
    VARIANT,
)
from hostelry.domain.hidden_endpoint import HiddenKind, find_hidden_kind, get_job_name
from hostelry.domain.load import LoadKey, PartLoad, SecondLoad
from hostelry.domain.metric import OWN_NAMESPACE, Metric, Sample, StatisticSet
from hostelry.domain.scope import Scope
from hostelry.metrics.sagemaker.census import Census, ScopedSample
from hostelry.metrics.sagemaker.load_metrics import census_base

JOB_PREFIXES = {
    HiddenKind.TRANSFORM: TRANSFORM_PREFIX,
    HiddenKind.RECOMMENDATION: RECOMMENDATION_PREFIX,
    HiddenKind.AI_RECOMMENDATION: AI_RECOMMENDATION_PREFIX,
}
GRAIN_S = 300  # sums of a minute would take five times the memory
MAX_PARTS_PER_NAME = 1_000
MAX_PARTS = 10_000
OTHERS = "(others)"
THROUGH = "UsageRecordedThrough"  # the newest instant with records, in seconds since the epoch
UNITS = {
    "UsageServiceTime": "Seconds",
    INSTANCE_TIME: "Seconds",
    RESERVED_TIME: "Seconds",
    RECORDED_TIME: "Seconds",
    ENERGY_TIME: "Seconds",
    "UsageBytesIn": "Bytes",
    "UsageBytesOut": "Bytes",
}


class PartNames:
    """The target models and tenants that have metrics, up to a limit. Thread-safe."""

    def __init__(self, most_per_name: int = MAX_PARTS_PER_NAME, most: int = MAX_PARTS) -> None:
        self._lock = threading.Lock()
        self._most_per_name = most_per_name
        self._most = most
        self._parts: dict[tuple[str, str | None, str], set[str]] = {}
        self._num = 0

    def know(self, metrics: Iterable[Metric]) -> None:
        """Note the names that metrics of an earlier process have."""
        for metric in metrics:
            dimensions = dict(metric.dimensions)
            for kind in (MODEL, TENANT):
                if kind in dimensions and ENDPOINT in dimensions:
                    owner = (dimensions[ENDPOINT], dimensions.get(COMPONENT))
                    self._limit(owner, kind, dimensions[kind])

    def limit(self, key: LoadKey, kind: str, name: str) -> str:
        """The name itself, or OTHERS if there are too many."""
        return self._limit((key.endpoint_name, key.component_name), kind, name)

    def _limit(self, owner: tuple[str, str | None], kind: str, name: str) -> str:
        with self._lock:
            known = self._parts.setdefault((*owner, kind), set())
            if name not in known:
                if self._num >= self._most or len(known) >= self._most_per_name:
                    return OTHERS
                known.add(name)
                self._num += 1
            return name


def sample_calls(load: SecondLoad, census: Census, names: PartNames) -> Iterator[ScopedSample]:
    """Sums over the requests of one second, and over its parts by target model and tenant."""
    key = load.key
    base = census_base(key, census)
    whole = {ENDPOINT: _name_endpoint(key.endpoint_name), VARIANT: key.variant_name}
    if key.component_name is not None:
        whole[COMPONENT] = key.component_name
    if base is not None and base.component_name is not None:
        whole[BASE] = base.component_name
    sums = {
        REQUESTS: load.finished,
        "UsageServiceTime": load.service_s,
        "UsageBytesIn": load.bytes_in,
        "UsageBytesOut": load.bytes_out,
        "UsageTokenRequests": load.token_requests,
        "UsageTokensIn": load.tokens_in,
        "UsageTokensOut": load.tokens_out,
    }
    yield from _sample_sums(key.scope, whole, load.second, sums)
    for kind, parts in ((MODEL, load.by_model), (TENANT, load.by_tenant)):
        for name, part in parts.items():
            dimensions = {**whole, kind: names.limit(key, kind, name)}
            yield from _sample_sums(key.scope, dimensions, load.second, _list_sums(part))


def _name_endpoint(name: str) -> str:
    """The endpoint's name in metrics. A hidden endpoint counts for its job."""
    kind = find_hidden_kind(name)
    return name if kind is None else JOB_PREFIXES[kind] + get_job_name(name)


def _list_sums(part: PartLoad) -> dict[str, float]:
    return {
        REQUESTS: part.finished,
        "UsageServiceTime": part.service_s,
        "UsageTokenRequests": part.token_requests,
        "UsageTokensIn": part.tokens_in,
        "UsageTokensOut": part.tokens_out,
    }


def sample_instances(
    held: Iterable[HeldInstance], since: float, until: float
) -> Iterator[ScopedSample]:
    """Instance time and reserved time of the instances held between two instants.

    An instance counts from its start. Time is divided at multiples of GRAIN_S.
    """
    sums: dict[tuple[Scope, tuple[tuple[str, str], ...], str, int], float] = {}
    for instance in held:
        name = _name_endpoint(instance.endpoint)
        fleet = {ENDPOINT: name, VARIANT: instance.variant, TYPE: instance.instance_type}
        for start, seconds in divide_periods(max(since, instance.since), until):
            key = (instance.scope, tuple(fleet.items()), INSTANCE_TIME, start)
            sums[key] = sums.get(key, 0.0) + seconds
            for component, share in instance.shares.items():
                own = fleet if component is None else {**fleet, COMPONENT: component}
                key = (instance.scope, tuple(own.items()), RESERVED_TIME, start)
                sums[key] = sums.get(key, 0.0) + seconds * share
    for (scope, dimensions, metric, start), value in sums.items():
        yield from _sample_sums(scope, dict(dimensions), start, {metric: value})


def sample_energy(
    scope: Scope, joules: Mapping[str, float], since: float, until: float
) -> Iterator[ScopedSample]:
    """The measured energy by source, and the time for which it was measured. Or nothing."""
    for source, value in joules.items():
        yield from _sample_sums(scope, {SOURCE: source}, until, {ENERGY: value})
    if joules:
        yield from _sample_sums(scope, {}, until, {ENERGY_TIME: until - since})


def sample_step(scope: Scope, endpoint: str, operation: str, at: float) -> Iterator[ScopedSample]:
    """A step. `endpoint` is empty for models and configurations."""
    own = {ENDPOINT: endpoint} if endpoint else {}
    yield from _sample_sums(scope, {**own, OPERATION: operation}, at, {STEPS: 1.0})


def sample_recorded(
    scope: Scope, stored_bytes: int | None, since: float, until: float
) -> Iterator[ScopedSample]:
    """The time with records, its end, and the stored bytes over that time (None: unknown)."""
    for start, seconds in divide_periods(since, until):
        stored = {} if stored_bytes is None else {STORAGE_TIME: stored_bytes * seconds}
        yield from _sample_sums(scope, {}, start, {RECORDED_TIME: seconds, **stored})
    yield from _sample_sums(scope, {}, until, {THROUGH: until})


def divide_periods(since: float, until: float) -> Iterator[tuple[int, float]]:
    """Yield the start of each period of GRAIN_S, and its seconds between two instants."""
    at = since
    while at < until:
        start = int(at // GRAIN_S) * GRAIN_S
        end = min(until, start + GRAIN_S)
        yield start, end - at
        at = end


def _sample_sums(
    scope: Scope, dimensions: dict[str, str], at: float, sums: dict[str, float]
) -> Iterator[ScopedSample]:
    """Samples of the sums that are not 0. A statistic set takes less memory than a value."""
    for name, value in sums.items():
        if value:
            yield (
                scope,
                Sample(
                    metric=Metric.of(OWN_NAMESPACE, name, dimensions),
                    at=at - at % GRAIN_S,
                    statistics=StatisticSet(
                        sample_count=1, sum=value, minimum=value, maximum=value
                    ),
                    unit=UNITS.get(name, "Count"),
                ),
            )
