"""Slots of copies that this process has taken, and copies that refused a connection."""

from collections.abc import Callable

from hostelry.domain.routes import EndpointRoute
from hostelry.domain.scope import Scope
from hostelry.jobs.rules.copy_slots import ChosenCopy, CopyUse, choose_slot, free_slots
from hostelry.routing.even_draws import next_position

REFUSED_S = 1.0  # a copy that refused a connection is left alone for so long


class CopySlots:
    """Requests in flight by copy; only this process sends to asynchronous endpoints.

    Args:
        draw: uniform random numbers in [0, 1).
        now_s: seconds of a clock that never goes back.
    """

    def __init__(self, draw: Callable[[], float], now_s: Callable[[], float]) -> None:
        self._draw = draw
        self._now_s = now_s
        self._in_flight: dict[str, int] = {}
        self._blocked_until: dict[str, float] = {}
        self._positions: dict[tuple[Scope, str], dict[str, float]] = {}
        self._freed: Callable[[], None] = lambda: None

    def listen(self, freed: Callable[[], None]) -> None:
        """Have `freed` called after each slot that is given back."""
        self._freed = freed

    def free(self, endpoint: EndpointRoute) -> int:
        """The requests that the endpoint's copies can take now."""
        return free_slots(endpoint, self._use(endpoint), self._now_s())

    def take(self, endpoint: EndpointRoute) -> ChosenCopy | None:
        """A copy with a free slot, which is taken then; `give_back` must be called once."""
        found = choose_slot(endpoint, self._use(endpoint), self._now_s(), self._draw())
        if found is not None:
            self._pass_turn(endpoint, found.variant_name)
            self._in_flight[found.copy.id] = self.on(found.copy.id) + 1
        return found

    def give_back(self, chosen: ChosenCopy) -> None:
        """End a slot."""
        left = self.on(chosen.copy.id) - 1
        if left > 0:
            self._in_flight[chosen.copy.id] = left
        else:
            self._in_flight.pop(chosen.copy.id, None)
        self._freed()

    def refused(self, chosen: ChosenCopy) -> None:
        """Leave a copy alone for a moment."""
        now_s = self._now_s()
        known = self._blocked_until.items()
        self._blocked_until = {copy_id: until for copy_id, until in known if until > now_s}
        self._blocked_until[chosen.copy.id] = now_s + REFUSED_S

    def on(self, copy_id: str) -> int:
        """The requests in flight on a copy."""
        return self._in_flight.get(copy_id, 0)

    def _use(self, endpoint: EndpointRoute) -> CopyUse:
        return CopyUse(
            in_flight=self._in_flight,
            blocked_until=self._blocked_until,
            positions=self._positions.get((endpoint.scope, endpoint.name), {}),
        )

    def _pass_turn(self, endpoint: EndpointRoute, variant_name: str) -> None:
        """Move to the variant's next position, where its traffic shifts."""
        place = (endpoint.scope, endpoint.name)
        shifting = {it.name for it in endpoint.variants if it.shift is not None}
        if not shifting:
            self._positions.pop(place, None)
        elif variant_name in shifting:
            mine = self._positions.setdefault(place, {})
            mine[variant_name] = next_position(mine.get(variant_name, 0.0))
