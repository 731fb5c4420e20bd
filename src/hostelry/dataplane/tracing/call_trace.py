"""One call as it is traced: times and numbers, which are put into words when a client asks.

This is the hottest path. A call costs one struct and a few numbers. It is kept as one string of
bytes, a fifth of the memory. Times are nanoseconds of a monotonic clock.

=============  ===================================================================================
`events`       a flat sequence: per event its kind, time, and three values or None
=============  ===================================================================================
HELD           the call waits in the queue for a copy
RELEASED       the call leaves the queue
LEASED         the model of a multi-model copy is loaded: if it was there, seconds of waiting
CHOSEN         a copy is chosen: its id, its configuration during an update, the `RouteView`
CONTAINER      the call goes to a container of a model with several: its name, the copy's id
CONTAINER_END  the container's whole answer goes to the next container: its bytes
=============  ===================================================================================
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

HELD, RELEASED, LEASED, CHOSEN, CONTAINER, CONTAINER_END = range(6)
FIELDS = 5  # of an event
MAX_EVENTS = 128  # of one call. Of more events, the first ones and the last are kept
MAX_ERROR_CHARACTERS = 1024
MAX_STEPS_CHARACTERS = 32 * 1024
MAX_TRACEPARENT_CHARACTERS = 128
MAX_PARENT_CHARACTERS = 128
MAX_TAIL_BYTES = 512
OBJECT_END = b"}\n"
MAX_TENANT_CHARACTERS = 256
TENANT = "x-hostelry-tenant"  # the header that names a tenant
CLIENT_LEFT = 499
LEFT = "The connection to the client ended before the answer was whole."
# How the copy was chosen, the ids of the candidates, the cost of each candidate (requests in
# flight, or milliseconds), and the number of candidates.
RouteView = tuple[str, tuple[str, ...], tuple[float, ...], int]
MAX_VIEWED = 16  # candidates that are kept


class CallTrace(msgspec.Struct, gc=False, array_like=True):  # it is part of no cycle
    """One call, from the time that its sender was verified.

    `parent_id` is the call of a graph that made this call, in `parent_step`. `endpoint` is the name
    in the request, of an endpoint or a model, until the destination is found. `steps` is a graph's
    report of its steps, `tail` the end of an LLM's answer, which may have the numbers of its
    tokens. `num_events` counts the objects in an LLM's answer: in a stream, one for each token.
    `tenant` is the name in the header X-Hostelry-Tenant, or the caller's role.
    """

    request_id: str
    account: str
    arrived_at: float  # seconds since the epoch
    arrived_ns: int
    bytes_in: int
    traceparent: str | None = None
    operation: str = ""
    endpoint: str = ""
    variant: str = ""
    component: str | None = None
    parent_id: str | None = None
    parent_step: str = ""
    target_model: str | None = None
    has_session: bool = False
    is_llm: bool = False
    base_component: str | None = None
    found_ns: int = 0  # when its destination was known
    first_ns: int = 0  # the first byte of the answer
    answered_ns: int = 0  # the copy's whole answer
    ended_ns: int = 0
    bytes_out: int = 0
    status: int = 0
    code: str = ""
    error: str = ""
    steps: str = ""
    tail: bytes = b""
    events: tuple[Any, ...] = ()
    tenant: str = ""
    num_events: int = 0

    def note(
        self, what: int, now_ns: int, first: Any = None, second: Any = None, third: Any = None
    ) -> None:
        """Add an event. If there are too many, it replaces the last event."""
        events = self.events
        if len(events) >= MAX_EVENTS * FIELDS:
            events = events[:-FIELDS]
        self.events = (*events, what, now_ns, first, second, third)

    def set_destination(
        self,
        now_ns: int,
        endpoint: str,
        variant: str,
        component: str | None,
        base_component: str | None,
    ) -> None:
        """Note the destination, which is known at `now_ns`."""
        self.found_ns = now_ns
        self.endpoint = endpoint
        self.variant = variant
        self.component = component
        if base_component is not None:
            self.base_component = base_component

    def fail(self, status: int, code: str, message: str) -> None:
        """Note the error that the client gets."""
        self.status = status
        self.code = code
        self.error = message[:MAX_ERROR_CHARACTERS]

    def set_parent(self, header: str) -> None:
        """Note the call of a graph that made this call, and the step: `ID STEP`."""
        parent_id, _, step = header[:MAX_PARENT_CHARACTERS].partition(" ")
        self.parent_id, self.parent_step = parent_id or None, step

    def set_first(self, now_ns: int) -> None:
        """Note the time of the answer's first byte."""
        self.first_ns = now_ns

    def end_answer(self, now_ns: int, body: bytes, first_ns: int) -> None:
        """Note the end of the copy's answer, and its body unless it was streamed."""
        self.answered_ns = now_ns
        if first_ns:
            self.first_ns = first_ns
        if body:
            self.add_answer(body)

    def add_answer(self, chunk: bytes) -> None:
        """Note a piece of the answer. The end of an LLM's answer is kept."""
        self.bytes_out += len(chunk)
        if self.is_llm:
            is_long = len(chunk) >= MAX_TAIL_BYTES
            self.tail = (chunk if is_long else self.tail + chunk)[-MAX_TAIL_BYTES:]
            self.num_events += chunk.count(OBJECT_END)

    def set_steps(self, header: str) -> None:
        """Note a graph's report of its steps."""
        if len(header) <= MAX_STEPS_CHARACTERS:
            self.steps = header

    @property
    def took_ns(self) -> int:
        """Nanoseconds from its arrival to its end."""
        return self.ended_ns - self.arrived_ns

    @property
    def is_failed(self) -> bool:
        """True if the client got no whole, successful answer."""
        return self.status >= 400 or bool(self.error)

    def each_event(self) -> Iterator[tuple[Any, ...]]:
        """The events, each with its fields."""
        for begin in range(0, len(self.events), FIELDS):
            yield self.events[begin : begin + FIELDS]


class NullTrace(CallTrace):
    """The trace of a request that is not traced. It keeps nothing."""

    def note(
        self, what: int, now_ns: int, first: Any = None, second: Any = None, third: Any = None
    ) -> None:
        """No-op."""

    def set_destination(
        self,
        now_ns: int,
        endpoint: str,
        variant: str,
        component: str | None,
        base_component: str | None,
    ) -> None:
        """No-op."""

    def fail(self, status: int, code: str, message: str) -> None:
        """No-op."""

    def set_first(self, now_ns: int) -> None:
        """No-op."""

    def end_answer(self, now_ns: int, body: bytes, first_ns: int) -> None:
        """No-op."""

    def add_answer(self, chunk: bytes) -> None:
        """No-op."""


NO_TRACE = NullTrace(request_id="", account="", arrived_at=0.0, arrived_ns=0, bytes_in=0)
written = msgspec.msgpack.Encoder().encode  # a call as bytes
read: Callable[[bytes], CallTrace] = msgspec.msgpack.Decoder(CallTrace).decode
