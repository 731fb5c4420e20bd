"""Loads of a multi-model endpoint's models: how many requests found theirs, and what loads took."""

from dataclasses import dataclass

from hostelry.domain.distribution import EMPTY, Distribution, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoads:
    """Of `lookups` requests `hits` found their model loaded; times are in microseconds.

    `waiting_us` are those of requests that waited for their model; the others of its copies.
    """

    lookups: int = 0
    hits: int = 0
    waiting_us: Distribution = EMPTY
    downloading_us: Distribution = EMPTY
    loading_us: Distribution = EMPTY
    unloading_us: Distribution = EMPTY


NO_MODEL_LOADS = ModelLoads()


def loads_of_both(one: ModelLoads, other: ModelLoads) -> ModelLoads:
    """Both as one."""
    if not other.lookups or not one.lookups:
        return one if one.lookups else other
    return ModelLoads(
        lookups=one.lookups + other.lookups,
        hits=one.hits + other.hits,
        waiting_us=joined(one.waiting_us, other.waiting_us),
        downloading_us=joined(one.downloading_us, other.downloading_us),
        loading_us=joined(one.loading_us, other.loading_us),
        unloading_us=joined(one.unloading_us, other.unloading_us),
    )
