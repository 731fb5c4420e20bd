"""Fleet growth: the instances, by type, that requests without a place need.

    a request                                              result
    ----------------------------------------------------   -----------------------------------------
    fits with others on a new instance                     shares it
    fits on no new instance yet, below the maximum         a new instance of the first pool, by
                                                           priority, that is available and holds it
    ... at the maximum                                     AT_MAXIMUM
    only unavailable types could hold it                   NO_CAPACITY
    no type could hold it                                  TYPE_TOO_SMALL

Several orders of filling are tried and the fewest instances win. This is a heuristic: a test shows
that in small cases it is at most one instance above the optimum.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hostelry.domain.shape import Shape
from hostelry.placement.preference import (
    Size,
    add_up_shares,
    build_fit_key,
    get_cpu_share,
    get_largest_share,
    get_memory_share,
)
from hostelry.placement.room import Need, Room, build_rooms, fits_shape, to_needs
from hostelry.placement.shortage import find_too_small
from hostelry.placement.values import (
    CopyRequest,
    Growth,
    Host,
    NewInstance,
    Obstacle,
    Pool,
    WhyNot,
    format_request,
    join_words,
)

SIZES: tuple[Size, ...] = (get_largest_share, add_up_shares, get_memory_share, get_cpu_share)
MORE_ORDERS_UP_TO = 400  # requests. Beyond this the time is worth more than one instance


class _Filling:
    """New instances being filled. Their types are tried in order of priority."""

    def __init__(self, pools: Sequence[Pool], max_more: int, *, tightest: bool) -> None:
        self.rooms: list[Room] = []
        self.requests: list[list[int]] = []
        self.left_out: list[int] = []
        self._pools = pools
        self._max_more = max_more
        self._tightest = tightest

    @property
    def cost(self) -> tuple[int, int]:
        return (len(self.left_out), len(self.rooms))

    def add(self, index: int, needs: Mapping[str, Need], owner: str) -> None:
        position = self._choose(needs)
        if position is None and len(self.rooms) < self._max_more:
            position = self._open(needs)
        if position is None:
            self.left_out.append(index)
            return
        room = self.rooms[position]
        room.take(needs[room.host.instance_type], owner)
        self.requests[position].append(index)

    def _choose(self, needs: Mapping[str, Need]) -> int | None:
        fitting = (
            position
            for position, room in enumerate(self.rooms)
            if room.host.instance_type in needs and room.fits(needs[room.host.instance_type])
        )
        if not self._tightest:
            return next(fitting, None)
        return min(
            fitting,
            key=lambda it: build_fit_key(self.rooms[it], needs[self.rooms[it].host.instance_type]),
            default=None,
        )

    def _open(self, needs: Mapping[str, Need]) -> int:
        pool = next(it for it in self._pools if _holds(it, needs))
        host = Host(
            instance_id=f"new-{len(self.rooms):06}",
            instance_type=pool.instance_type,
            shape=pool.shape,
        )
        self.rooms += build_rooms([host], ())
        self.requests.append([])
        return len(self.rooms) - 1


def plan_growth(
    requests: Sequence[CopyRequest],
    pools: Sequence[Pool],
    *,
    max_more: int,
    unavailable: frozenset[str] = frozenset(),
) -> Growth:
    """The instances to launch for `requests`, none of which fits on the present instances.

    `pools` are in order of priority. At most `max_more` are launched, for large copies before
    small ones, and none of a type in `unavailable` (without capacity now).
    """
    there = [it for it in pools if it.instance_type not in unavailable]
    needs = [to_needs(it) for it in requests]
    possible = [it for it, by_type in enumerate(needs) if any(_holds(p, by_type) for p in there)]
    impossible = sorted(set(range(len(requests))).difference(possible))
    refused = {it: _no_capacity(requests[it], pools, unavailable) for it in impossible}
    best = _best_filling(requests, needs, possible, there, max_more)
    refused |= {it: _at_maximum(requests[it], max_more) for it in best.left_out}
    return Growth(
        instances=tuple(
            NewInstance(instance_type=room.host.instance_type, requests=tuple(sorted(mine)))
            for room, mine in zip(best.rooms, best.requests, strict=True)
        ),
        why_not=dict(sorted(refused.items())),
    )


def explain_growth(now: WhyNot, refused: WhyNot) -> WhyNot:
    """Why a copy fits on no present instance (`now`), and gets no new one (`refused`)."""
    if refused.obstacle not in (Obstacle.AT_MAXIMUM, Obstacle.NO_CAPACITY):
        return refused
    tail = refused.text.removeprefix(format_request(refused.asked))
    return replace(now, obstacle=refused.obstacle, text=now.text + tail)


def _best_filling(
    requests: Sequence[CopyRequest],
    needs: Sequence[Mapping[str, Need]],
    possible: Sequence[int],
    pools: Sequence[Pool],
    max_more: int,
) -> _Filling:
    shapes = {it.instance_type: it.shape for it in pools}
    sizes = SIZES if len(possible) <= MORE_ORDERS_UP_TO else SIZES[:1]
    fillings: list[_Filling] = []
    for size in sizes:
        order = _largest_first(size, requests, needs, possible, shapes)
        fillings += [_fill(order, requests, needs, pools, max_more)]
        fillings += [_fill(order, requests, needs, pools, max_more, tightest=True)]
    return min(fillings, key=lambda it: it.cost)


def _fill(
    order: Sequence[int],
    requests: Sequence[CopyRequest],
    needs: Sequence[Mapping[str, Need]],
    pools: Sequence[Pool],
    max_more: int,
    *,
    tightest: bool = False,
) -> _Filling:
    filling = _Filling(pools, max_more, tightest=tightest)
    for index in order:
        filling.add(index, needs[index], requests[index].owner)
    return filling


def _largest_first(
    size: Size,
    requests: Sequence[CopyRequest],
    needs: Sequence[Mapping[str, Need]],
    possible: Sequence[int],
    shapes: Mapping[str, Shape],
) -> list[int]:
    return sorted(possible, key=lambda it: (size(needs[it], shapes), requests[it].owner, it))


def _holds(pool: Pool, needs: Mapping[str, Need]) -> bool:
    need = needs.get(pool.instance_type)
    return need is not None and fits_shape(need, pool.shape)


def _no_capacity(
    request: CopyRequest, pools: Sequence[Pool], unavailable: frozenset[str]
) -> WhyNot:
    never = find_too_small(request, pools)
    if never is not None:
        return never
    needs = to_needs(request)
    gone = [it.instance_type for it in pools if _holds(it, needs)]
    return WhyNot(
        obstacle=Obstacle.NO_CAPACITY,
        text=f"{format_request(request.requirements_by_type)}; "
        f"no instance of type {join_words(gone)} is available now",
        owner=request.owner,
        asked=request.requirements_by_type,
    )


def _at_maximum(request: CopyRequest, max_more: int) -> WhyNot:
    allowed = f"the {max_more} more that MaxInstanceCount allows are full"
    limit = "MaxInstanceCount allows no more instances" if max_more <= 0 else allowed
    return WhyNot(
        obstacle=Obstacle.AT_MAXIMUM,
        text=f"{format_request(request.requirements_by_type)}; {limit}",
        owner=request.owner,
        asked=request.requirements_by_type,
    )
