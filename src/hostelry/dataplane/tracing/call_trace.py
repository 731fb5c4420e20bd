"""One call as it is noted on its way: instants and numbers, which are put into words when asked.

On the hottest path: a call costs one struct and a few numbers, and what is kept of it is one string
of bytes, a fifth of the memory. Instants are of a clock that never jumps, in nanoseconds.

=============  ====================================================================================
`events`       one after the other, each as what, instant and three values, None where there is none
=============  ====================================================================================
HELD           it waits in the queue for a copy
RELEASED       it leaves the queue
LEASED         its model of a multi-model copy is loaded: whether it was there, seconds of waiting
CHOSEN         its copy: the id, the copy's configuration during an update, the `RouteView`
CONTAINER      it goes to a container of a model of several: the name, the copy's id
CONTAINER_END  that container's whole answer, which another one gets: bytes
=============  ====================================================================================
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

HELD, RELEASED, LEASED, CHOSEN, CONTAINER, CONTAINER_END = range(6)
FIELDS = 5  # of an event
MAX_EVENTS = 128  # of one call; of more the first ones and the last
MAX_ERROR_CHARACTERS = 1024
MAX_STEPS_CHARACTERS = 32 * 1024
MAX_TRACEPARENT_CHARACTERS = 128
MAX_PARENT_CHARACTERS = 128
MAX_TAIL_BYTES = 512
CLIENT_LEFT = 499
LEFT = "The connection to the client ended before the answer was whole."
# How the copy was chosen, the ids of those it was chosen from, what each would have cost (requests
# in flight, or milliseconds), and how many there were.
RouteView = tuple[str, tuple[str, ...], tuple[float, ...], int]
MAX_VIEWED = 16  # copies of a choice that are kept


class CallTrace(msgspec.Struct, gc=False, array_like=True):  # it is part of no cycle
    """One call, from the instant that its sender was known.

    `parent_id` is the call of a graph that made this one, in `parent_step`. `endpoint` is what the
    request names, an endpoint or a model, until its destination is found. `steps` is what a graph
    says of its steps, `tail` the end of an LLM's answer, which may have the numbers of its tokens.
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

    def note(
        self, what: int, now_ns: int, first: Any = None, second: Any = None, third: Any = None
    ) -> None:
        """Add an event; it takes the place of the last one where there are too many."""
        events = self.events
        if len(events) >= MAX_EVENTS * FIELDS:
            events = events[:-FIELDS]
        self.events = (*events, what, now_ns, first, second, third)

    def failed(self, status: int, code: str, message: str) -> None:
        """Note the error that the client gets."""
        self.status = status
        self.code = code
        self.error = message[:MAX_ERROR_CHARACTERS]

    def made_by(self, header: str) -> None:
        """Note the call of a graph that made it, and the step: `ID STEP`."""
        parent_id, _, step = header[:MAX_PARENT_CHARACTERS].partition(" ")
        self.parent_id, self.parent_step = parent_id or None, step

    def passed(self, chunk: bytes, first_ns: int = 0) -> None:
        """Note a piece of the answer; of an LLM's its end is kept.

        `first_ns` is when the first byte came, where that is known by now.
        """
        self.bytes_out += len(chunk)
        if first_ns:
            self.first_ns = first_ns
        if self.is_llm:
            is_long = len(chunk) >= MAX_TAIL_BYTES
            self.tail = (chunk if is_long else self.tail + chunk)[-MAX_TAIL_BYTES:]

    def graph_steps(self, header: str) -> None:
        """Note what a graph says of its steps."""
        if len(header) <= MAX_STEPS_CHARACTERS:
            self.steps = header

    @property
    def took_ns(self) -> int:
        """From its arrival to its end."""
        return self.ended_ns - self.arrived_ns

    @property
    def is_failed(self) -> bool:
        """Whether the client got no whole good answer."""
        return self.status >= 400 or bool(self.error)

    def each_event(self) -> Iterator[tuple[Any, ...]]:
        """The events, each with its fields."""
        for begin in range(0, len(self.events), FIELDS):
            yield self.events[begin : begin + FIELDS]


written = msgspec.msgpack.Encoder().encode  # a call as bytes
read: Callable[[bytes], CallTrace] = msgspec.msgpack.Decoder(CallTrace).decode
