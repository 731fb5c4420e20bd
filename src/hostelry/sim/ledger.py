"""Events of a simulation in plain columns: requests, capacity, acts."""

from array import array
from enum import IntEnum

import msgspec

from hostelry.sim.copies import SimulatedRequest


class RequestFate(IntEnum):
    """The end of a request."""

    ANSWERED = 0
    REFUSED = 1  # no copy, and it may not wait (COMPAT)
    TIMED_OUT = 2  # it waited for a copy for as long as it may
    OVERFLOWN = 3  # too many waited for a copy already
    THROTTLED = 4  # as many were under way as a serverless variant takes
    NOT_LOADED = 5  # its model was not loaded in time, or does not fit


class SimulatedAct(msgspec.Struct, kw_only=True):
    """A change of a component's capacity. Instants are in seconds of the trace.

    `by` is who decided. t0 (`rose_s`) is when the load exceeded the capacity, t1 is `decided_s`, t2
    (`answered_s`) when one of the new copies first answered.
    """

    model: int
    by: str
    decided_s: float
    from_copies: int
    to_copies: int
    reason: str
    rose_s: float | None = None
    answered_s: float | None = None
    is_spurious: bool = False

    @property
    def is_out(self) -> bool:
        """Whether it raised the number."""
        return self.to_copies > self.from_copies


class ReplayLedger(msgspec.Struct, kw_only=True):
    """Columns of one length for requests that ended, and lists for rarer events.

    `model` is the component that served, and `of` the model that was requested.

    `capacity` has, by model, instants and the number of placed copies from then on. They cost
    whether they serve or not. `offered` has, by model, the instants and the work of its requests.
    """

    arrived_s: "array[float]" = msgspec.field(default_factory=lambda: array("d"))
    took_s: "array[float]" = msgspec.field(default_factory=lambda: array("d"))
    first_token_s: "array[float]" = msgspec.field(default_factory=lambda: array("d"))
    fate: "array[int]" = msgspec.field(default_factory=lambda: array("b"))
    delayed: "array[int]" = msgspec.field(default_factory=lambda: array("b"))
    model: "array[int]" = msgspec.field(default_factory=lambda: array("i"))
    of: "array[int]" = msgspec.field(default_factory=lambda: array("i"))
    offered: list[tuple["array[float]", "array[float]"]] = msgspec.field(default_factory=list)
    capacity: list[tuple["array[float]", "array[int]"]] = msgspec.field(default_factory=list)
    acts: list[SimulatedAct] = msgspec.field(default_factory=list)
    num_arrived: int = 0

    def ensure_models(self, num: int) -> None:
        """Have columns for `num` models, at least."""
        while len(self.capacity) < num:
            self.capacity.append((array("d"), array("q")))
            self.offered.append((array("d"), array("d")))

    def copies_now(self, model: int, now_s: float, num: int) -> None:
        """The model has `num` copies from now on."""
        instants_s, counts = self.capacity[model]
        instants_s.append(now_s)
        counts.append(num)

    def add_request(
        self, model: int, asked: SimulatedRequest, fate: RequestFate, took_s: float, first_s: float
    ) -> None:
        """Add a request that has ended as the newest row."""
        self.model.append(model)
        self.of.append(asked.of)
        self.fate.append(fate)
        self.arrived_s.append(asked.arrived_s)
        self.took_s.append(took_s)
        self.first_token_s.append(first_s)
        self.delayed.append(False)
