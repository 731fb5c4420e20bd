"""Shares of instances that copies reserve, at one instant. Pure."""

import math
from collections.abc import Iterable, Mapping

import msgspec

from hostelry.domain.scope import Scope
from hostelry.domain.shape import Requirements, Shape


class HeldInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that runs for an endpoint since `since`, in seconds since the epoch.

    `shares` has the reserved share of each component, from 0 to 1. None stands for the model of a
    variant, which has the whole instance. The shares sum to at most 1.
    """

    scope: Scope
    endpoint: str
    variant: str
    instance_type: str
    since: float
    shares: Mapping[str | None, float]


WHOLE: Mapping[str | None, float] = {None: 1.0}


def divide_instance(
    shape: Shape, copies: Iterable[tuple[str, Requirements]]
) -> Mapping[str | None, float]:
    """The share of an instance that each component's copies reserve.

    A copy's share is its largest share of the CPUs, the memory or the accelerators, because others
    cannot use the rest of them without it. If the shares exceed the instance, all are reduced.
    """
    shares: dict[str | None, float] = {}
    for component, needs in copies:
        shares[component] = shares.get(component, 0.0) + _find_share(shape, needs)
    total = math.fsum(shares.values())
    return {name: it / total for name, it in shares.items()} if total > 1 else shares


def _find_share(shape: Shape, needs: Requirements) -> float:
    parts = (
        (needs.cpus, shape.cpus),
        (needs.min_memory_bytes, shape.memory_bytes),
        (needs.accelerators, shape.accelerators),
    )
    return max((part / whole for part, whole in parts if whole), default=0.0)
