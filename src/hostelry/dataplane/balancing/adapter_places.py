"""Adapters on copies: where this process expects them, and the cost of waiting and loading."""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol

from hostelry.domain.routes import CopyRoute
from hostelry.routing.adapter_choice import (
    CAPACITY,
    FORGOTTEN_AFTER_S,
    AdapterChoice,
    Assignments,
    CopyView,
    LatencyEstimate,
    choose_for_adapter,
    common_service_ms,
)

MAX_COPIES = 4096  # remembered. Above it, the least recently used copy is forgotten
KEY_BYTES = 16
QUIET_S = 10.0  # without writes after a failed write, since a failing write may block


class AssignmentBoard(Protocol):
    """Assignments that several gateway workers share, for example in a `SharedMap`."""

    def get(self, key: bytes) -> tuple[int, float] | None:
        """Return the value under `key` and its expiry. None if it is missing or has expired."""
        ...

    def put(self, key: bytes, value: int, expires_at: float) -> object:
        """Keep `value` until `expires_at` (seconds since the epoch). False if that failed."""
        ...


class CopyHistory:
    """The adapters sent to one copy since it began to listen at `address`, and its latency."""

    __slots__ = ("address", "assignments", "latency")

    def __init__(self, address: str, capacity: int) -> None:
        self.address = address
        self.assignments = Assignments(capacity)
        self.latency = LatencyEstimate()


class AdapterPlaces:
    """Chooses copies for adapters from the history of requests.

    Args:
        now: seconds since the epoch.
        board: assignments by the other workers of this gateway. None if there is no other worker.
        capacity: maximum number of adapters on a copy at once.
        num_workers: gateway workers. Each worker sees a part of the requests, in which it takes
        longer
            until N different adapters appear. So it remembers fewer adapters, for the same time.
    """

    def __init__(
        self,
        now: Callable[[], float],
        board: AssignmentBoard | None = None,
        capacity: int = CAPACITY,
        num_workers: int = 1,
    ) -> None:
        self._now = now
        self._board = board
        self._capacity = max(1, round(capacity / math.sqrt(num_workers)))
        self._records: OrderedDict[str, CopyHistory] = OrderedDict()
        self._quiet_until = 0.0

    def choose(
        self, copies: Sequence[CopyRoute], outstanding: Sequence[int], adapter: str
    ) -> AdapterChoice:
        """Choose a copy for the next request, and record the choice.

        Args:
            copies: the copies with the adapter, at least one.
            outstanding: requests in progress on each copy.
            adapter: the adapter's name on the copies.
        """
        now = self._now()
        records = [self._record(copy) for copy in copies]
        services_ms = common_service_ms([record.latency.service_ms for record in records])
        views = [
            CopyView(
                outstanding=count,
                service_ms=service_ms,
                load_ms=record.latency.load_ms,
                resident=self._is_resident(copy, record, adapter, now),
                held=record.assignments.held,
                capacity=self._capacity,
            )
            for copy, record, count, service_ms in zip(
                copies, records, outstanding, services_ms, strict=True
            )
        ]
        choice = choose_for_adapter(views)
        self._assign(copies[choice.index], records[choice.index], adapter, now)
        return choice

    def learn_answer(
        self, copy: CopyRoute, took_ms: float, outstanding: int, choice: AdapterChoice
    ) -> None:
        """Learn from a whole answer that took `took_ms`, with `outstanding` requests before it."""
        self._record(copy).latency.answered(took_ms, outstanding, loaded=not choice.resident)

    def learn_failure(self, copy: CopyRoute, adapter: str, choice: AdapterChoice) -> None:
        """Learn from an error of the copy, which may not have `adapter`."""
        if not choice.resident:
            self._record(copy).assignments.dropped(adapter)

    def forget(self, copy: CopyRoute) -> None:
        """Forget a copy that has gone or was restarted."""
        self._records.pop(copy.id, None)

    def _record(self, copy: CopyRoute) -> CopyHistory:
        record = self._records.get(copy.id)
        if record is None or record.address != copy.address:
            record = self._records[copy.id] = CopyHistory(copy.address, self._capacity)
            if len(self._records) > MAX_COPIES:
                self._records.popitem(last=False)
        self._records.move_to_end(copy.id)
        return record

    def _is_resident(self, copy: CopyRoute, record: CopyHistory, adapter: str, now: float) -> bool:
        if record.assignments.holds(adapter, now):
            return True
        shared = None if self._board is None else self._board.get(_key(copy, adapter))
        if shared is None:
            return False
        return record.assignments.holds(adapter, now, elsewhere_at_s=shared[1] - FORGOTTEN_AFTER_S)

    def _assign(self, copy: CopyRoute, record: CopyHistory, adapter: str, now: float) -> None:
        earlier = record.assignments.assigned(adapter, now)
        if self._board is None or now < self._quiet_until:
            return
        if earlier is not None and int(earlier) == int(now):
            return  # once per second is enough
        if self._board.put(_key(copy, adapter), 1, now + FORGOTTEN_AFTER_S) is False:
            self._quiet_until = now + QUIET_S


def _key(copy: CopyRoute, adapter: str) -> bytes:
    """The key of the pair on the board. A restarted copy has another address."""
    text = "\0".join((copy.id, copy.address, adapter))
    return blake2b(text.encode(), digest_size=KEY_BYTES).digest()
