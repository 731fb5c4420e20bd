"""The load of a component, one a second, as gateway workers report it."""

from hostelry.domain.distribution import Distribution
from hostelry.domain.load import LoadKey, SecondLoad

MICRO = 1e6


class LoadMeter:
    """Counts of the second that is under way; `second` closes it.

    Args:
        key: the component.
        begins_at: the wall time of second 0.
    """

    __slots__ = (
        "_begins_at",
        "_integral_s",
        "_key",
        "_most",
        "_since_s",
        "arrivals",
        "delayed",
        "errors",
        "fewest",
        "finished",
        "first_us",
        "in_flight",
        "latencies_us",
        "no_capacity",
        "service_s",
        "touched",
    )  # fmt: skip

    def __init__(self, key: LoadKey, begins_at: float) -> None:
        self._key = key
        self._begins_at = begins_at
        self.in_flight = self._most = self.fewest = 0
        self._since_s = self._integral_s = 0.0
        self.arrivals = self.finished = self.delayed = self.errors = self.no_capacity = 0
        self.service_s = 0.0
        self.latencies_us: list[float] = []
        self.first_us: list[float] = []
        self.touched = False

    def arrived(self, now_s: float) -> None:
        """A request is in flight from now on."""
        self._integral_s += self.in_flight * (now_s - self._since_s)
        self._since_s = now_s
        self.in_flight += 1
        self.arrivals += 1
        self.touched = True
        if self.in_flight > self._most:
            self._most = self.in_flight

    def ended(self, now_s: float) -> None:
        """A request is no longer in flight."""
        self._integral_s += self.in_flight * (now_s - self._since_s)
        self._since_s = now_s
        self.in_flight -= 1
        self.finished += 1
        self.touched = True
        if self.in_flight < self.fewest:
            self.fewest = self.in_flight

    def second(self, now_s: float, held: int, oldest_held_s: float) -> SecondLoad:
        """The load of the second that ends at `now_s`; the next one begins."""
        self._integral_s += self.in_flight * (now_s - self._since_s)
        self._since_s = now_s
        load = SecondLoad(
            key=self._key,
            second=round(self._begins_at + now_s) - 1,
            arrivals=self.arrivals,
            finished=self.finished,
            in_flight_mean=self._integral_s,
            in_flight_min=self.fewest,
            in_flight_max=self._most,
            held=held,
            oldest_held_s=oldest_held_s,
            delayed=self.delayed,
            service_s=self.service_s,
            errors_5xx=self.errors,
            no_capacity=self.no_capacity,
            model_latency_us=_distribution(self.latencies_us),
            first_chunk_latency_us=_distribution(self.first_us),
        )
        self._clear()
        return load

    def _clear(self) -> None:
        self._integral_s = 0.0
        self._most = self.fewest = self.in_flight
        self.arrivals = self.finished = self.delayed = self.errors = self.no_capacity = 0
        self.service_s = 0.0
        self.latencies_us = []
        self.first_us = []
        self.touched = False


def _distribution(values: list[float]) -> Distribution:
    if not values:
        return _EMPTY
    return Distribution(values=tuple(values), counts=(1,) * len(values))


_EMPTY = Distribution()
