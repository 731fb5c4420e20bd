"""Turns closed seconds of load into the samples to publish. Knows neither clock nor store.

metrics                                             published
-------------------------------------------------   --------------------------------------------
counts, of up to MAX_NAMES_AT_ONCE names            each second
counts, of more names                               every GAUGE_PERIOD_S, seconds merged
gauges (in flight, concurrency, capacity)           every GAUGE_PERIOD_S
zeros, for names in service without requests        at the end of the name's request period
counts that arrive after their second was closed    at once, for that second, without gauges
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.load_sums import one_after_the_other
from hostelry.metrics.sagemaker import serverless
from hostelry.metrics.sagemaker.census import Census, ScopedSample, find_metrics, get_host_key
from hostelry.metrics.sagemaker.enhanced import (
    ServingLocation,
    concurrency_by_location,
    count_arrivals,
    idle_locations,
    list_outcomes,
    requests_by_location,
)
from hostelry.metrics.sagemaker.fleets import (
    concurrency_by_fleet,
    concurrency_by_type,
    idle_fleets,
    idle_types,
    invocations_by_fleet,
    invocations_by_type,
    places_by_type,
    shares_by_fleet,
    shares_by_type,
)
from hostelry.metrics.sagemaker.load_metrics import (
    GAUGE_PERIOD_S,
    IDLE,
    Activity,
    InFlight,
    capacity,
    concurrency,
    copy_owners,
    invocations_per_copy,
    names_in_service,
    own_counts,
    own_metrics,
    requests,
    zeros,
)
from hostelry.metrics.sagemaker.usage import PartNames, sample_calls

MAX_NAMES_AT_ONCE = 50  # names whose counts are published each second
COUNT_PERIODS_S = (10, 30, 60)  # request periods. A minute is the default


class _Gauge(msgspec.Struct):
    """Requests in flight of one name, over the seconds of a period in which it had any."""

    num_seconds: int = 0
    mean_sum: float = 0.0
    least: float = float("inf")
    most: float = 0
    most_by_copy: dict[str, list[int]] = msgspec.field(default_factory=dict)  # of each second

    def note(self, mean: float, least: float, most: float) -> None:
        """Add a second."""
        self.num_seconds += 1
        self.mean_sum += mean
        self.least = min(self.least, least)
        self.most = max(self.most, most)


class _Period(msgspec.Struct):
    """A gauge period, of which `num_seconds` were reported."""

    start: int
    num_seconds: int = 0
    gauges: dict[LoadKey | ServingLocation, _Gauge] = msgspec.field(default_factory=dict)


class _Counts(msgspec.Struct):
    """Names and locations with counts in a period. Others in service get zeros."""

    start: int
    arrived: set[LoadKey] = msgspec.field(default_factory=set)
    arrived_on_copies: set[LoadKey] = msgspec.field(default_factory=set)
    finished: set[LoadKey] = msgspec.field(default_factory=set)
    refused: set[LoadKey] = msgspec.field(default_factory=set)
    busy: set[ServingLocation] = msgspec.field(default_factory=set)
    busy_types: set[ServingLocation] = msgspec.field(
        default_factory=set
    )  # of a base by adapters, too
    ended: set[ServingLocation] = msgspec.field(default_factory=set)


class Publication:
    """The state of publishing. Takes closed seconds in order, and yields samples."""

    def __init__(self, part_names: PartNames | None = None) -> None:
        self._part_names = part_names or PartNames()
        self._period: _Period | None = None
        self._counts: dict[int, _Counts] = {}  # by the period's length
        self._waiting: dict[LoadKey, SecondLoad] = {}

    def take(
        self, second: int, loads: Sequence[SecondLoad], census: Census
    ) -> Iterator[ScopedSample]:
        """The samples of this second, and of the periods that it ends."""
        yield from self._begin(second, census)
        assert self._period is not None
        self._period.num_seconds += 1
        shares = shares_by_type(loads, census)
        for load in loads:
            self._note(load, census)
            self._note_parts(load, shares.get(load.key, {}), census)
            self._note_parts(load, shares_by_fleet(load, census), census)
        if len(self._waiting) <= MAX_NAMES_AT_ONCE:
            yield from self._publish_counts(census)
        if second % GAUGE_PERIOD_S == GAUGE_PERIOD_S - 1:
            yield from self._end_period(census)
        for length_s in COUNT_PERIODS_S:
            if second % length_s == length_s - 1:
                yield from self._end_counts(length_s, census)

    def late(self, loads: Iterable[SecondLoad], census: Census) -> Iterator[ScopedSample]:
        """The samples to add to seconds that were published before: counts, no gauges."""
        for load in loads:
            yield from requests(load, census)
            yield from serverless.sample_second(load, census)
            yield from sample_calls(load, census, self._part_names)
            yield from invocations_per_copy((load,), census)
            yield from invocations_by_type((load,), census)
            yield from invocations_by_fleet((load,), census)
            yield from requests_by_location(load, census)
            yield from own_counts(load)

    def sample_jobs(self, loads: Iterable[SecondLoad], census: Census) -> Iterator[ScopedSample]:
        """The usage of jobs' requests to their own endpoints."""
        for load in loads:
            yield from sample_calls(load, census, self._part_names)

    def _begin(self, second: int, census: Census) -> Iterator[ScopedSample]:
        """End periods left open by a gap, or by a jump of the clock, and begin the present ones."""
        period = second - second % GAUGE_PERIOD_S
        if self._period is not None and self._period.start != period:
            yield from self._end_period(census)
        self._period = self._period or _Period(period)
        for length_s in COUNT_PERIODS_S:
            start = second - second % length_s
            if length_s in self._counts and self._counts[length_s].start != start:
                yield from self._end_counts(length_s, census)
            self._counts.setdefault(length_s, _Counts(start))

    def _note(self, load: SecondLoad, census: Census) -> None:
        assert self._period is not None
        key = load.key
        known = self._waiting.get(key)
        self._waiting[key] = load if known is None else one_after_the_other(known, load)
        on_copies = copy_owners(key, census)
        self._note_counts(load, on_copies, census)
        is_adapter = len(on_copies) > 1
        gauge = self._period.gauges.setdefault(key, _Gauge())
        gauge.note(load.in_flight_mean, *_extremes(load, is_adapter))
        if find_metrics(key, census).is_enhanced:
            for copy_id, most in load.in_flight_max_by_copy.items():
                gauge.most_by_copy.setdefault(copy_id, []).append(most)
        if is_adapter:
            self._period.gauges.setdefault(on_copies[1], _Gauge()).mean_sum += load.in_flight_mean

    def _note_parts(
        self, load: SecondLoad, shares: Mapping[ServingLocation, float], census: Census
    ) -> None:
        """Note the share of the load of each instance type in pools, or of each fleet."""
        assert self._period is not None
        on_copies = copy_owners(load.key, census)
        least, most = _extremes(load, len(on_copies) > 1)
        for part, share in shares.items():
            own, *base = (replace(part, key=it) for it in on_copies)
            gauge = self._period.gauges.setdefault(own, _Gauge())
            gauge.note(load.in_flight_mean * share, least * share, most * share)
            for place in base:
                more = self._period.gauges.setdefault(place, _Gauge())
                more.mean_sum += load.in_flight_mean * share

    def _note_counts(self, load: SecondLoad, on_copies: Iterable[LoadKey], census: Census) -> None:
        """Note that a name, and the variant that it is on, had something to count."""
        key = load.key
        counts = self._counts[find_metrics(key, census).request_period_s]
        both = {key, get_host_key(key)}
        if load.arrivals:
            counts.arrived |= both
            counts.arrived_on_copies.update(on_copies)
            counts.busy.update(count_arrivals(load, census))
            counts.busy_types.update(places_by_type(load, census))
        if load.finished:
            counts.finished |= both
            counts.ended.update(location for location, _ in list_outcomes(load, census))
        if load.no_capacity:
            counts.refused.add(key)

    def _publish_counts(self, census: Census) -> Iterator[ScopedSample]:
        loads = tuple(self._waiting.values())
        self._waiting.clear()
        for load in loads:
            yield from requests(load, census)
            yield from serverless.sample_second(load, census)
            yield from sample_calls(load, census, self._part_names)
            yield from requests_by_location(load, census)
            yield from own_metrics(load, with_copies=True)
        yield from invocations_per_copy(loads, census)
        yield from invocations_by_type(loads, census)
        yield from invocations_by_fleet(loads, census)

    def _end_period(self, census: Census) -> Iterator[ScopedSample]:
        period, self._period = self._period, None
        if period is None or not period.num_seconds:
            return
        yield from self._publish_counts(census)

        def get_in_flight(place: LoadKey | ServingLocation) -> InFlight:
            gauge = period.gauges.get(place)
            return IDLE if gauge is None else _in_flight(gauge, period.num_seconds)

        for key in names_in_service(census):
            gauge = period.gauges.get(key)
            in_flight = get_in_flight(key)
            yield from concurrency(period.start, in_flight, key, census)
            yield from serverless.sample_period(
                period.start, period.num_seconds, in_flight, key, census
            )
            yield from concurrency_by_type(period.start, key, get_in_flight, census)
            yield from concurrency_by_fleet(period.start, key, get_in_flight, census)
            most = {} if gauge is None else gauge.most_by_copy
            yield from concurrency_by_location(period.start, key, most, period.num_seconds, census)
        yield from capacity(period.start, census)

    def _end_counts(self, length_s: int, census: Census) -> Iterator[ScopedSample]:
        counts = self._counts.pop(length_s)
        hosts = [key for key, it in census.variants.items() if it.takes_components]
        for key in (*names_in_service(census), *hosts):
            if find_metrics(key, census).request_period_s != length_s:
                continue
            seen = Activity(
                arrived=key in counts.arrived,
                arrived_on_copies=key in counts.arrived_on_copies,
                finished=key in counts.finished,
                refused=key in counts.refused,
            )
            yield from zeros(counts.start, key, seen, census)
            yield from idle_types(counts.start, key, counts.busy_types, census)
            yield from idle_fleets(counts.start, key, counts.arrived, census)
            yield from idle_locations(counts.start, key, counts.busy, counts.ended, census)


def _extremes(load: SecondLoad, is_adapter: bool) -> tuple[int, int]:
    """The minimum and maximum of requests in flight. A base's include its adapters' requests."""
    if is_adapter:
        return load.in_flight_min, load.in_flight_max
    return load.on_copies_min, load.most_on_copies


def _in_flight(gauge: _Gauge, num_seconds: int) -> InFlight:
    """The gauge over a whole period, in which seconds without a load had no requests."""
    least = gauge.least if gauge.num_seconds >= num_seconds else 0
    mean = gauge.mean_sum / num_seconds
    return InFlight(mean=min(max(mean, least), gauge.most), least=least, most=gauge.most)
