"""Measures every admitted request until its last byte.

This is the hottest path: a request costs one object and some additions. Seconds begin by the wall
clock, and a clock that never jumps measures their lengths.
"""

from collections.abc import Callable, Iterable

import msgspec

from hostelry.base.clock import monotonic_ns
from hostelry.dataplane.metering.request_counters import (
    ARRIVALS,
    BROKEN,
    ERRORS_4XX,
    ERRORS_5XX,
    FINISHED,
    FIRST_ANSWER,
    MODEL_ERRORS,
    NONE_YET,
    ModelCounters,
    PairCounters,
    RequestCounters,
    count_answer,
)
from hostelry.dataplane.tracing.call_trace import (
    CHOSEN,
    CONTAINER,
    CONTAINER_END,
    HELD,
    LEASED,
    NO_TRACE,
    RELEASED,
    CallTrace,
    RouteView,
)
from hostelry.dataplane.tracing.token_usage import count_tokens
from hostelry.domain.load import LoadKey, SecondLoad

SECOND_NS = 1_000_000_000
NS_PER_MS = 1_000_000
MOST_SECONDS_AT_ONCE = 60  # how many seconds a stopped process catches up with
FOLLOW_FROM_NS = SECOND_NS // 1000  # differences from the wall clock that are corrected
MAX_LOADS = 50_000  # of uncollected loads, above which the older half is dropped
BROKE_OFF = "The model server broke its streamed answer off, after it had begun."
OUTCOMES = {
    ERRORS_4XX: "errors_4xx",
    ERRORS_5XX: "errors_5xx",
    MODEL_ERRORS: "model_errors",
    BROKEN: "broken_streams",
}
JUMP_FROM_NS = SECOND_NS // 2  # a larger difference: the wall clock was set


class ClosedSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """The loads of seconds `first` through `through`, without names that had no load."""

    first: int
    through: int
    loads: tuple[SecondLoad, ...]


class Measurement:
    """One request in flight. `end` must be called once it is over.

    At most one of the methods that record an outcome is called. `trace` gets the same events.
    """

    __slots__ = (
        "_began_ns",
        "_chosen_ns",
        "_config",
        "_container",
        "_containers_ns",
        "_copy",
        "_counters",
        "_ended",
        "_hop_ns",
        "_leased",
        "_meter",
        "_model_ns",
        "_outcome",
        "_since_ns",
        "trace",
    )

    def __init__(
        self,
        meter: "Meter",
        counters: RequestCounters,
        now_ns: int,
        trace: CallTrace = NO_TRACE,
    ) -> None:
        self._meter = meter
        self._counters = counters
        self._began_ns = now_ns
        self._chosen_ns = self._hop_ns = 0
        self._model_ns = -1
        self._container: str | None = None
        self._containers_ns = 0  # time of the earlier containers
        self._since_ns = now_ns  # its arrival, or the answer of the container before
        self._copy: list[int] | None = None
        self._config: str | None = None
        self._outcome: tuple[int, ...] = ()
        self._ended = self._leased = False
        self.trace = trace

    def hold(self) -> None:
        """Record that the request waits for a copy. A copy that it was sent to has refused it."""
        now_ns = self._meter.now_ns()
        self.trace.note(HELD, now_ns)
        if self._copy is not None:
            self._copy[0] -= 1
            self._copy = self._config = None
        counters = self._counters
        counters.held[self] = self._began_ns
        counters.base.hold()

    def release(self) -> None:
        """Record the end of the wait. It is counted once."""
        now_ns = self._meter.now_ns()
        if self._counters.held.pop(self, None) is not None:
            self.trace.note(RELEASED, now_ns)
            self._counters.delayed += 1
            self._counters.base.held_on_copies -= 1

    def record_copy(
        self,
        copy_id: str,
        num_on_copies: int = 0,
        config: str | None = None,
        route: RouteView | None = None,
    ) -> None:
        """Record the copy that gets the request. Called again if the copy refuses.

        `num_on_copies` counts the requests in flight on all copies, including this one and those
        in other workers. `config` is the copy's configuration, if the endpoint counts by
        configuration. `route` has the alternatives, if there was a choice.
        """
        meter = self._meter
        self._chosen_ns = self._hop_ns = now_ns = meter.clock_ns()
        if now_ns >= meter.ends_ns:
            meter.now_ns()
        self.trace.note(CHOSEN, now_ns, copy_id, config, route)
        if self._copy is not None:
            self._copy[0] -= 1
        copies = self._counters.copies
        copy = copies.get(copy_id)
        if copy is None:
            copy = copies[copy_id] = [0, 0, *NONE_YET]
        copy[0] += 1
        if copy[0] > copy[1]:
            copy[1] = copy[0]
        copy[ARRIVALS] += 1
        self._copy = copy
        self._config = config
        if config is not None:
            self._counters.get_config(config).numbers[ARRIVALS] += 1
        base = self._counters.base
        if num_on_copies > base.seen_on_copies:
            base.seen_on_copies = num_on_copies

    def record_lease(
        self, *, hit: bool, waited_s: float, times: Iterable[tuple[str, float]]
    ) -> None:
        """Record the lease of a model on a multi-model endpoint, with times from the copy."""
        now_ns = self._meter.now_ns()
        self.trace.note(LEASED, now_ns, hit, waited_s)
        self._leased = True
        models = self._counters.models
        if models is None:
            models = self._counters.models = ModelCounters()
        models.count_lease(hit=hit, waited_s=waited_s, times=times)

    def enter_container(self, name: str | None, copy_id: str = "") -> None:
        """Record that the request goes to this container. None if there is only one container.

        `copy_id` is empty if the copy of the container is not chosen yet.
        """
        if name is None:
            return
        self._hop_ns = now_ns = self._meter.now_ns()
        if name == self._container:  # another copy of it is tried
            return
        self.trace.note(CONTAINER, now_ns, name, copy_id)
        self._container = name
        self._counters.get_container(name).numbers[ARRIVALS] += 1

    def leave_container(self, num_bytes: int = 0) -> None:
        """Record the whole answer of `num_bytes` of a container before the last one."""
        now_ns = self._meter.now_ns()
        self.trace.note(CONTAINER_END, now_ns, num_bytes)
        took_ns = now_ns - self._hop_ns
        self._containers_ns += took_ns
        self._leave_container(took_ns, self._hop_ns - self._since_ns)
        self._since_ns = now_ns

    def since_chosen_s(self) -> float:
        """Seconds since the copy was chosen."""
        return (self._meter.clock_ns() - self._chosen_ns) / SECOND_NS

    def _leave_container(self, took_ns: int, overhead_ns: int) -> None:
        """Count the time of the container. `took_ns` below 0 means no whole answer."""
        if self._container is None:
            return
        container = self._counters.get_container(self._container)
        container.numbers[FINISHED] += 1
        if took_ns >= 0:
            container.latency(took_ns, overhead_ns)
        self._container = None

    def record_first_chunk(self) -> None:
        """Record the first chunk of a streamed answer."""
        now_ns = self._meter.now_ns()
        self.trace.set_first(now_ns)
        model_ns, overhead_ns = now_ns - self._chosen_ns, self._chosen_ns - self._began_ns
        self._counters.first_chunk(model_ns, overhead_ns)
        if self._config is not None:
            self._counters.get_config(self._config).first_chunk(model_ns, overhead_ns)

    def record_chunk(self, chunk: bytes) -> None:
        """Record a piece of a streamed answer in the trace."""
        self.trace.add_answer(chunk)

    def record_answer(self, body: bytes = b"", head_ns: int = 0) -> None:
        """Record the end of the copy's answer.

        `body` and `head_ns`, the time of its head, are given if it was not streamed.
        """
        now_ns = self._meter.clock_ns()
        self.trace.end_answer(now_ns, body, head_ns)
        self._model_ns = now_ns - self._hop_ns + self._containers_ns

    def add_bytes(self, bytes_in: int, bytes_out: int) -> None:
        """Record bytes of the request's body and of the answer's body. Calls add up."""
        self._counters.bytes_in += bytes_in
        self._counters.bytes_out += bytes_out

    def record_model_error(self, status: int) -> None:
        """Record an error answer of the copy."""
        if 400 <= status < 500:
            self._outcome = (MODEL_ERRORS, ERRORS_4XX)
        else:
            self._outcome = (MODEL_ERRORS, ERRORS_5XX) if status >= 500 else (MODEL_ERRORS,)

    def record_no_answer(self) -> None:
        """Record that no copy could be reached, or that the copy gave no whole answer in time."""
        self._outcome = (MODEL_ERRORS, ERRORS_5XX)

    def record_no_capacity(self) -> None:
        """Record that the request was refused for lack of a copy."""
        self._counters.no_capacity += 1

    def record_broken_stream(self) -> None:
        """Record a streamed answer that broke off."""
        self.trace.fail(200, "StreamBroken", BROKE_OFF)
        self._outcome = (BROKEN,)

    def _count(self, what: int) -> None:
        """Count an outcome, also for the copy of the request."""
        name = OUTCOMES[what]
        setattr(self._counters, name, getattr(self._counters, name) + 1)
        if self._copy is not None:
            self._copy[what] += 1
        if self._config is not None:
            self._counters.get_config(self._config).numbers[what] += 1
        if self._container is not None:
            self._counters.get_container(self._container).numbers[what] += 1

    def end(self) -> None:
        """End the measurement after the last byte, or when the client has gone. Idempotent."""
        if self._ended:
            return
        self._ended = True
        meter, counters = self._meter, self._counters
        now_ns = meter.clock_ns()
        if now_ns >= meter.ends_ns:
            meter.now_ns()
        for what in self._outcome:  # counted in the second in which the request ends
            self._count(what)
        counters.count_end(now_ns)
        if counters.held and counters.held.pop(self, None) is not None:
            counters.base.held_on_copies -= 1
        if self._container is not None:
            took_ns = -1 if self._model_ns < 0 else self._model_ns - self._containers_ns
            self._leave_container(took_ns, now_ns - self._since_ns - took_ns)
        copy = self._copy
        if copy is not None:
            copy[0] -= 1
            copy[FINISHED] += 1
            configs = None if self._config is None else counters.get_config(self._config)
            if configs is not None:
                configs.numbers[FINISHED] += 1
            counters.service_ns += now_ns - self._chosen_ns
            self._count_parts(now_ns - self._chosen_ns)
            counters.billed_ms += -((self._chosen_ns - now_ns) // NS_PER_MS)
            if self._model_ns >= 0:
                overhead_ns = now_ns - self._began_ns - self._model_ns
                counters.latency(self._model_ns, overhead_ns)
                count_answer(copy, self._model_ns, overhead_ns)
                if configs is not None:
                    configs.latency(self._model_ns, overhead_ns)
                copy[FIRST_ANSWER] = copy[FIRST_ANSWER] or now_ns

    def _count_parts(self, service_ns: int) -> None:
        """Count a request that a copy served for its target model, its tenant and its tokens."""
        trace, counters = self.trace, self._counters
        tokens = count_tokens(trace.tail) if trace.tail else None
        if tokens is not None:
            counters.token_requests += 1
            counters.tokens_in += tokens[0]
            counters.tokens_out += tokens[1]
        # Without a lease the model may not exist, and clients could make up any number of names.
        if self._leased and trace.target_model is not None:
            counters.count_part(counters.by_model, trace.target_model, service_ns, tokens)
        if trace.tenant:
            counters.count_part(counters.by_tenant, trace.tenant, service_ns, tokens)


class Meter:
    """Measures all requests of one worker. `ends_ns` is the end of the current second.

    `began` is called when a request arrives at an idle meter.

    Args:
        wall_s: seconds since the epoch, of a clock that may jump.
        clock_ns: nanoseconds of a clock that never jumps.
    """

    def __init__(
        self, wall_s: Callable[[], float], clock_ns: Callable[[], int] = monotonic_ns
    ) -> None:
        self._wall_s = wall_s
        self.clock_ns = clock_ns
        self.began: Callable[[], None] = lambda: None
        self._counters_by_key: dict[LoadKey, RequestCounters] = {}
        self._closed: list[ClosedSeconds] = []
        self._loads: list[SecondLoad] = []
        self._first = self._second = 0
        self._begins_ns = self.ends_ns = 0
        self._anchor(clock_ns())

    def begin(
        self, key: LoadKey, base_key: LoadKey | None = None, trace: CallTrace = NO_TRACE
    ) -> Measurement:
        """Begin to measure a request for `key`. `base_key` is the name that has the copies.

        `trace` gets the same events.
        """
        now_ns = self.clock_ns()
        if now_ns >= self.ends_ns:
            self._pass(now_ns)
        counters = self._counters_by_key.get(key)
        if counters is None:
            base = None if base_key is None else self._get_counters(base_key, now_ns)
            counters = self._new_counters(key, now_ns, base)
        counters.count_arrival(now_ns)
        base_component = None if base_key is None else base_key.component_name
        trace.set_destination(
            now_ns, key.endpoint_name, key.variant_name, key.component_name, base_component
        )
        return Measurement(self, counters, now_ns, trace)

    def count_throttled(self, key: LoadKey) -> None:
        """Count a request for `key` that was refused because too many are in flight."""
        self._get_counters(key, self.now_ns()).throttled += 1

    def count_dropped(self, key: LoadKey) -> None:
        """Count a request that the shadow `key` did not get."""
        self._get_counters(key, self.now_ns()).dropped += 1

    def count_pair(self, key: LoadKey, *, exact: bool, close: bool, distance: float) -> None:
        """Count an answer of the shadow `key` that was compared with production's answer."""
        counters = self._get_counters(key, self.now_ns())
        if counters.pairs is None:
            counters.pairs = PairCounters()
        counters.pairs.count_pair(exact=exact, close=close, distance=distance)

    def count_spilled(self, key: LoadKey) -> None:
        """Count a request for `key` that is beyond the provisioned environments."""
        self._get_counters(key, self.now_ns()).spilled += 1

    def now_ns(self) -> int:
        """Close the seconds that are over, and return the current time."""
        now_ns = self.clock_ns()
        if now_ns >= self.ends_ns:
            self._pass(now_ns)
        return now_ns

    def take_closed(self) -> list[ClosedSeconds]:
        """Take the seconds closed since the last call. A jump of the clock begins a new span."""
        self.now_ns()
        self._cut()
        closed, self._closed = self._closed, []
        return closed

    def close_now(self) -> list[ClosedSeconds]:
        """Take the closed seconds and the unfinished one, before the process ends."""
        self._close(self.clock_ns())
        self._second += 1
        return self.take_closed()

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight, and none was in the last closed second."""
        return not self._counters_by_key

    def nothing(self) -> ClosedSeconds:
        """Build a span without seconds, just before the current second."""
        return ClosedSeconds(first=self._first, through=self._first - 1, loads=())

    @property
    def until_next_s(self) -> float:
        """Seconds until the current second is over."""
        return max(0, self.ends_ns - self.clock_ns()) / SECOND_NS

    def _get_counters(self, key: LoadKey, now_ns: int) -> RequestCounters:
        counters = self._counters_by_key.get(key)
        if counters is None:
            counters = self._new_counters(key, now_ns)
        return counters

    def _new_counters(
        self, key: LoadKey, now_ns: int, base: RequestCounters | None = None
    ) -> RequestCounters:
        if not self._counters_by_key:
            self.began()
        counters = self._counters_by_key[key] = RequestCounters(key, now_ns, base)
        return counters

    def _pass(self, now_ns: int) -> None:
        """Close every second that is over."""
        behind = (now_ns - self.ends_ns) // SECOND_NS
        if behind > MOST_SECONDS_AT_ONCE:  # the process was stopped, which leaves a gap
            self._close(self.ends_ns)
            self._second += 1
            self._anchor(now_ns)
            return
        while now_ns >= self.ends_ns:
            self._close(self.ends_ns)
            self._second += 1
            self._begins_ns, self.ends_ns = self.ends_ns, self.ends_ns + SECOND_NS
        wall_ns = int(self._wall_s() * SECOND_NS)
        ahead_ns = wall_ns - (now_ns - self._begins_ns) - self._second * SECOND_NS
        if abs(ahead_ns) > JUMP_FROM_NS:
            self._anchor(now_ns)
        elif abs(ahead_ns) > FOLLOW_FROM_NS:
            self.ends_ns -= ahead_ns

    def _close(self, at_ns: int) -> None:
        """End the current second at `at_ns`."""
        length_ns = max(1, at_ns - self._begins_ns)
        idle = []
        for key, counters in self._counters_by_key.items():
            if counters.is_idle:
                idle.append(key)
            else:
                self._loads.append(counters.close(self._second, at_ns, length_ns))
        for key in idle:
            del self._counters_by_key[key]
        if len(self._loads) > MAX_LOADS:
            del self._loads[: len(self._loads) // 2]

    def _cut(self) -> None:
        """End a span of seconds before the current one. It may have no loads."""
        if self._second > self._first:
            self._closed.append(
                ClosedSeconds(first=self._first, through=self._second - 1, loads=tuple(self._loads))
            )
            self._loads = []
        self._first = self._second

    def _anchor(self, now_ns: int) -> None:
        """Begin to measure within the current second of the wall clock."""
        self._cut()
        wall_ns = int(self._wall_s() * SECOND_NS)
        self._second = self._first = wall_ns // SECOND_NS
        self._begins_ns = now_ns
        self.ends_ns = now_ns + SECOND_NS - wall_ns % SECOND_NS
        for counters in self._counters_by_key.values():
            counters.restart(now_ns)
