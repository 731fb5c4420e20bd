"""Free slots of copies, for asynchronous requests and for batches. PURE.

The slots of an asynchronous endpoint's copies:

a copy                                                            free slots
---------------------------------------------------------------   --------------------------------
is ready, with fewer requests in flight than the limit            the difference
has as many requests or more, because the limit was lowered       none
refused a connection a moment ago                                 none until the pause is over

Requests go to variants by weight, as with InvokeEndpoint, and to the copy with the fewest requests
in flight. Variants and copies without a free slot are skipped. While a variant's traffic shifts:

fleet whose turn it is   its free slots   state of the fleets           fleet of the request
----------------------   --------------   ---------------------------   ---------------------
old or new               some                                           the fleet of the turn
new                      none             old has a free slot           old
old                      none             old refuses connections       new
old                      none             old is busy                   old, later
"""

import heapq
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.routes import CopyRoute, EndpointRoute, VariantRoute
from hostelry.routing.copy_choice import choose_variant, next_position, takes_new


def has_endpoint(request: AsyncRequest, endpoint: EndpointRoute) -> bool:
    """True if `endpoint` accepted the request, and has not been deleted and created again since.

    True also if the creation time is unknown, because an earlier version wrote the request.
    """
    known = request.endpoint_created_at and endpoint.created_at
    return not known or request.endpoint_created_at == endpoint.created_at


def was_accepted_before(request: AsyncRequest, endpoint: EndpointRoute) -> bool:
    """True if a deleted predecessor of `endpoint` accepted the request, which must fail.

    If a later endpoint accepted the request, `endpoint` comes from old routes, and the request
    waits for newer routes.
    """
    return 0.0 < request.endpoint_created_at < endpoint.created_at


OLD, NEW = 0, 1  # fleets


class CopyUse(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in flight by copy, and until when copies that refused connections are paused.

    `positions` has the next request's position, by name of a variant whose traffic shifts.
    """

    in_flight: Mapping[str, int]
    blocked_until: Mapping[str, float]
    positions: Mapping[str, float] = msgspec.field(default_factory=dict)


class ChosenCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The copy that gets a request, and its variant."""

    variant_name: str
    copy: CopyRoute


def count_free_slots(endpoint: EndpointRoute, use: CopyUse, now: float) -> int:
    """Count the requests that the copies of an asynchronous endpoint can take now."""
    return sum(_slots(endpoint, variant, use, now) for variant in endpoint.variants)


def choose_slot(
    endpoint: EndpointRoute, use: CopyUse, now: float, draw: float
) -> ChosenCopy | None:
    """Choose the copy for the next request. None if no copy has a free slot.

    `draw` is a uniform random number in [0, 1), for the choice of a variant.
    """
    open_variants = [_open(endpoint, it, use, now) for it in endpoint.variants]
    variant = choose_variant(open_variants, draw)
    if variant is None:
        return None
    copy = min(variant.copies, key=lambda it: (use.in_flight.get(it.id, 0), it.id))
    return ChosenCopy(variant_name=variant.name, copy=copy)


def count_copies(endpoint: EndpointRoute) -> int:
    """Count the ready copies of an endpoint, of all variants."""
    return sum(len(it.copies) for it in endpoint.variants)


def _open(endpoint: EndpointRoute, variant: VariantRoute, use: CopyUse, now: float) -> VariantRoute:
    """Return the variant with only the copies that have a free slot for the next request."""
    copies = tuple(it for it in variant.copies if _free(endpoint, it, use, now))
    shift = variant.shift
    if shift is not None:
        new_ids = set(shift.new_ids)
        sides = [[it for it in copies if (it.id in new_ids) is is_new] for is_new in (False, True)]
        old_is_there = any(it.id not in new_ids for it in _connecting(variant, use, now))
        position = use.positions.get(variant.name, 0.0)
        side = _next_side(takes_new(position, shift.share), [*map(len, sides)], old_is_there)
        copies = () if side is None else tuple(sides[side])
    return replace(variant, copies=copies)


def _slots(endpoint: EndpointRoute, variant: VariantRoute, use: CopyUse, now: float) -> int:
    """Count the requests that a variant can take now, one after the other."""
    free = {it.id: _free(endpoint, it, use, now) for it in variant.copies}
    shift = variant.shift
    if shift is None:
        return sum(free.values())
    new_ids = set(shift.new_ids)
    left = [sum(free.values()), sum(free[it] for it in new_ids if it in free)]
    left[OLD] -= left[NEW]
    old_is_there = any(it.id not in new_ids for it in _connecting(variant, use, now))
    position, num = use.positions.get(variant.name, 0.0), 0
    while (side := _next_side(takes_new(position, shift.share), left, old_is_there)) is not None:
        left[side] -= 1
        num += 1
        position = next_position(position)
    return num


def _next_side(is_new_turn: bool, free: Sequence[int], old_is_there: bool) -> int | None:
    """Choose the fleet for the next request, by the module's table. None if the request waits."""
    if is_new_turn and free[NEW]:
        return NEW
    if free[OLD]:
        return OLD
    return NEW if free[NEW] and not old_is_there else None


def _connecting(variant: VariantRoute, use: CopyUse, now: float) -> list[CopyRoute]:
    """List the copies that have not refused a connection a moment ago."""
    return [it for it in variant.copies if use.blocked_until.get(it.id, now) <= now]


def _free(endpoint: EndpointRoute, copy: CopyRoute, use: CopyUse, now: float) -> int:
    settings = endpoint.async_inference
    if settings is None or use.blocked_until.get(copy.id, now) > now:
        return 0
    return max(0, settings.max_concurrent_per_instance - use.in_flight.get(copy.id, 0))


# A copy says how many requests of batches it wants at once in its answer to GET
# /execution-parameters (MaxConcurrentTransforms). The LLM server's number is an eighth above the
# batch size of its engine, so that requests wait in the engine for each step.
UNKNOWN_AT_ONCE = 36  # default: a batch of 32, and an eighth
MAX_AT_ONCE = 1024
HELD = 4  # requests that wait for a copy of a model without copies


class ModelQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A model's requests of one batch: the numbers of waiting lines, and the requests in flight.

    `pool` names the model's copies, which a base shares with its adapters. None without copies.
    """

    model: str
    pool: str | None
    waiting: Sequence[int]
    in_flight: int


def limit_wanted(reported: int | None) -> int:
    """Return the number of requests that keep a copy full. `reported` is the copy's number."""
    return UNKNOWN_AT_ONCE if not reported else max(1, min(reported, MAX_AT_ONCE))


def compute_room(wanted: Sequence[int], num_batches: int, in_flight: int) -> int:
    """Return the number of requests that a batch may add to a pool.

    Each copy of the pool wants `wanted` requests, `num_batches` share the pool evenly, and the
    batch has `in_flight` requests there.
    """
    share = -(-sum(wanted) // max(1, num_batches))
    return max(0, max(1, share) - in_flight) if wanted else 0


def choose_models(queues: Sequence[ModelQueue], room: dict[str, int]) -> list[str]:
    """Choose the models whose next lines are sent now, in the order of the lines in the file.

    `room` is the number of requests that each pool takes. For a model without a copy, `HELD` lines
    are sent, which wait for a copy and wake it.
    """
    left = dict(room)
    held = {it.model: HELD - it.in_flight for it in queues if it.pool is None}
    firsts = [(it.waiting[0], index, 0) for index, it in enumerate(queues) if it.waiting]
    heapq.heapify(firsts)
    chosen: list[str] = []
    while firsts:
        _, index, position = heapq.heappop(firsts)
        queue = queues[index]
        place, rooms = (queue.model, held) if queue.pool is None else (queue.pool, left)
        if rooms.get(place, 0) <= 0:
            continue  # the model's further lines have no room either
        rooms[place] -= 1
        chosen.append(queue.model)
        if position + 1 < len(queue.waiting):
            heapq.heappush(firsts, (queue.waiting[position + 1], index, position + 1))
    return chosen
