"""Slots of an endpoint's copies, and whether a request's endpoint is still the same. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.routes import CopyRoute, EndpointRoute, VariantRoute
from hostelry.routing.copy_choice import choose_variant, next_position, takes_new

# A request and the endpoint that serves its name now: is it the one that accepted it?
#
# the endpoint, by when it was created      the request
# ---------------------------------------   ------------------------------------------
# the one that it was accepted for          goes there
# a later one of the same name              fails: its own endpoint was deleted
# an earlier one: these routes are old      waits for newer routes
# not known: an earlier version wrote it    goes there


def has_endpoint(request: AsyncRequest, endpoint: EndpointRoute) -> bool:
    """True if the request may go to `endpoint`."""
    known = request.endpoint_created_at and endpoint.created_at
    return not known or request.endpoint_created_at == endpoint.created_at


def was_accepted_before(request: AsyncRequest, endpoint: EndpointRoute) -> bool:
    """True if the request was accepted for a predecessor of `endpoint`, deleted since."""
    return 0.0 < request.endpoint_created_at < endpoint.created_at


# Slots of an endpoint's copies: how many requests to claim, and the copy of the next one.
#
# a copy                                                            free slots
# ---------------------------------------------------------------   --------------------------------
# ready, with fewer requests in flight than the endpoint allows     the difference
# with as many or more (the limit was lowered)                      none
# that refused a connection a moment ago                            none until it may be tried again
#
# Requests go to variants by weight, as InvokeEndpoint's do, among those with a free slot; of one
# variant's copies to that with the fewest in flight. While a variant's traffic shifts:
#
# whose turn it is    a free slot there    elsewhere                           the request
# -----------------   ------------------   ---------------------------------   -------------
# either fleet's      yes                                                      goes there
# the new fleet's     no                   a free slot of the old one          goes there
# the old fleet's     no                   the old one takes no connections    to the new one
# the old fleet's     no                   the old one is busy                 waits for it, so that
#                                                                              the new one gets its
#                                                                              share and no more


OLD, NEW = 0, 1  # fleets


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyUse:
    """Requests in flight by copy, and until when copies that refused are left alone.

    `positions` are those of the next requests of variants whose traffic shifts, by variant name.
    """

    in_flight: Mapping[str, int]
    blocked_until: Mapping[str, float]
    positions: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCopy:
    """The copy that gets a request, and its variant."""

    variant_name: str
    copy: CopyRoute


def free_slots(endpoint: EndpointRoute, use: CopyUse, now: float) -> int:
    """The requests that the copies of an asynchronous endpoint can take now."""
    return sum(_slots(endpoint, variant, use, now) for variant in endpoint.variants)


def choose_slot(
    endpoint: EndpointRoute, use: CopyUse, now: float, draw: float
) -> ChosenCopy | None:
    """The copy for the next request; None where none has a free slot.

    `draw` is a uniform random number in [0, 1), for the choice of a variant.
    """
    open_variants = [_open(endpoint, it, use, now) for it in endpoint.variants]
    variant = choose_variant(open_variants, draw)
    if variant is None:
        return None
    copy = min(variant.copies, key=lambda it: (use.in_flight.get(it.id, 0), it.id))
    return ChosenCopy(variant_name=variant.name, copy=copy)


def num_copies(endpoint: EndpointRoute) -> int:
    """The ready copies of an endpoint, of all variants."""
    return sum(len(it.copies) for it in endpoint.variants)


def _open(endpoint: EndpointRoute, variant: VariantRoute, use: CopyUse, now: float) -> VariantRoute:
    """The variant with those of its copies that have a free slot for the next request."""
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
    """The requests that a variant can take now, one after the other."""
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
    """The fleet that gets the next request, by the table above; None where it waits."""
    if is_new_turn and free[NEW]:
        return NEW
    if free[OLD]:
        return OLD
    return NEW if free[NEW] and not old_is_there else None


def _connecting(variant: VariantRoute, use: CopyUse, now: float) -> list[CopyRoute]:
    """The copies that have not refused a connection a moment ago."""
    return [it for it in variant.copies if use.blocked_until.get(it.id, now) <= now]


def _free(endpoint: EndpointRoute, copy: CopyRoute, use: CopyUse, now: float) -> int:
    settings = endpoint.async_inference
    if settings is None or use.blocked_until.get(copy.id, now) > now:
        return 0
    return max(0, settings.max_concurrent_per_instance - use.in_flight.get(copy.id, 0))
