"""A day of mixed traffic in a shorter time: tenants whose requests follow the sun. Pure."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

DAY_HOURS = 24
AT_NIGHT = 0.1  # of the rate at the peak


@dataclass(frozen=True, slots=True, kw_only=True)
class DayStream:
    """The requests of a tenant for the targets of a fleet.

    Args:
        tenant: the name in X-Hostelry-Tenant.
        fleet: the fleet that is called.
        per_hour: requests in the hour of the peak.
        peak_hour: the hour of the day with the most requests.
        zipf: exponent of the targets' popularity. 0 calls all targets alike.
        open_hours: hours around the peak outside of which nothing is sent.
    """

    tenant: str
    fleet: str
    per_hour: float
    peak_hour: float
    zipf: float = 0.9
    open_hours: float = DAY_HOURS


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCall:
    """A request at an hour of the day, for the target of this number."""

    hour: float
    tenant: str
    fleet: str
    target: int


STREAMS = (
    DayStream(tenant="shop", fleet="multi-model", per_hour=5.0, peak_hour=14.0),
    DayStream(tenant="warehouse", fleet="multi-model", per_hour=2.0, peak_hour=7.0),
    DayStream(tenant="search", fleet="components", per_hour=4.0, peak_hour=20.0, zipf=0.5),
    DayStream(tenant="support-europe", fleet="adapters", per_hour=2.0, peak_hour=10.0),
    DayStream(tenant="support-america", fleet="adapters", per_hour=2.0, peak_hour=18.0),
    DayStream(
        tenant="accounts", fleet="serverless", per_hour=3.0, peak_hour=3.0, open_hours=4.0
    ),
)  # fmt: skip


def find_rate(stream: DayStream, hour: float) -> float:
    """Requests per hour at an hour of the day: a cosine between the night and the peak."""
    away = abs((hour - stream.peak_hour + DAY_HOURS / 2) % DAY_HOURS - DAY_HOURS / 2)
    if away > stream.open_hours / 2:
        return 0.0
    sun = (1 + math.cos(2 * math.pi * away / DAY_HOURS)) / 2
    return stream.per_hour * (AT_NIGHT + (1 - AT_NIGHT) * sun * sun)


def draw_day(
    streams: Sequence[DayStream], num_targets: dict[str, int], source: random.Random
) -> list[DayCall]:
    """The requests of a day in order. `num_targets` has the number of targets of each fleet."""
    calls = [
        call for stream in streams for call in _draw(stream, num_targets[stream.fleet], source)
    ]
    return sorted(calls, key=lambda it: it.hour)


def _draw(stream: DayStream, num_targets: int, source: random.Random) -> Iterator[DayCall]:
    """Arrivals of a Poisson process at the peak's rate, thinned to the rate of their hour."""
    weights = [1 / place**stream.zipf for place in range(1, num_targets + 1)]
    hour = source.expovariate(stream.per_hour)
    while hour < DAY_HOURS:
        if source.random() * stream.per_hour < find_rate(stream, hour):
            (target,) = source.choices(range(num_targets), weights)
            yield DayCall(hour=hour, tenant=stream.tenant, fleet=stream.fleet, target=target)
        hour += source.expovariate(stream.per_hour)
