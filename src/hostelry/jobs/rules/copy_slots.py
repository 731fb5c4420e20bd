"""Slots of an endpoint's copies: how many requests to claim, and the copy of the next one.

a copy                                                            free slots
---------------------------------------------------------------   --------------------------------
ready, with fewer requests in flight than the endpoint allows     the difference
with as many or more (the limit was lowered)                      none
that refused a connection a moment ago                            none until it may be tried again

Requests go to variants by weight, as InvokeEndpoint's do, among those with a free slot; of one
variant's copies to that with the fewest in flight.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hostelry.domain.routes import CopyRoute, EndpointRoute, VariantRoute
from hostelry.routing.variant_choice import choose_variant


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyUse:
    """Requests in flight by copy, and until when copies that refused are left alone."""

    in_flight: Mapping[str, int]
    blocked_until: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCopy:
    """The copy that gets a request, and its variant."""

    variant_name: str
    copy: CopyRoute


def free_slots(endpoint: EndpointRoute, use: CopyUse, now: float) -> int:
    """The requests that the copies of an asynchronous endpoint can take now."""
    copies = [copy for variant in endpoint.variants for copy in variant.copies]
    return sum(_free(endpoint, copy, use, now) for copy in copies)


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
    """The variant with those of its copies that have a free slot."""
    copies = tuple(it for it in variant.copies if _free(endpoint, it, use, now))
    return replace(variant, copies=copies)


def _free(endpoint: EndpointRoute, copy: CopyRoute, use: CopyUse, now: float) -> int:
    settings = endpoint.async_inference
    if settings is None or use.blocked_until.get(copy.id, now) > now:
        return 0
    return max(0, settings.max_concurrent_per_instance - use.in_flight.get(copy.id, 0))
