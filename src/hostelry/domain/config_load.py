"""Requests of a variant on the copies of one configuration, while an endpoint is updated."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from hostelry.domain.distribution import EMPTY, Distribution, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLoad:
    """The part of a second's load that copies of one configuration, or one container, served.

    Fields are as those of SecondLoad; a request that was retried arrived at both copies.
    """

    arrivals: int = 0
    finished: int = 0
    errors_4xx: int = 0
    errors_5xx: int = 0
    model_errors: int = 0
    broken_streams: int = 0
    model_latency_us: Distribution = EMPTY
    overhead_latency_us: Distribution = EMPTY
    first_chunk_latency_us: Distribution = EMPTY
    first_chunk_model_latency_us: Distribution = EMPTY
    first_chunk_overhead_latency_us: Distribution = EMPTY


NAMES = tuple(it.name for it in fields(ConfigLoad))
COUNTS = tuple(it.name for it in fields(ConfigLoad) if it.default == 0)
LoadByConfig = Mapping[str, ConfigLoad]
NO_CONFIGS: LoadByConfig = {}


def configs_of_both(one: LoadByConfig, other: LoadByConfig) -> LoadByConfig:
    """The loads of both, added up by configuration."""
    if not one or not other:
        return one or other
    found = dict(one)
    for config, load in other.items():
        found[config] = _added(found[config], load) if config in found else load
    return found


def rest_of(whole: object, parts: LoadByConfig) -> ConfigLoad:
    """The part of `whole`, a SecondLoad, that is in none of `parts`: such as began before them."""
    rest: dict[str, Any] = {}
    for name in NAMES:
        here, there = getattr(whole, name), [getattr(it, name) for it in parts.values()]
        rest[name] = max(0, here - sum(there)) if name in COUNTS else _without(here, there)
    return ConfigLoad(**rest)


def _without(whole: Distribution, parts: Iterable[Distribution]) -> Distribution:
    left = Counter(dict(zip(whole.values, whole.counts, strict=True)))
    for part in parts:
        left.subtract(dict(zip(part.values, part.counts, strict=True)))
    left = +left
    return Distribution(values=tuple(left), counts=tuple(left.values()))


def _added(one: ConfigLoad, other: ConfigLoad) -> ConfigLoad:
    sums: dict[str, Any] = {}
    for name in NAMES:
        here, there = getattr(one, name), getattr(other, name)
        sums[name] = here + there if name in COUNTS else joined(here, there)
    return ConfigLoad(**sums)
