"""Turns of the tenants of one busy destination: weighted fair queueing by time on its copies.

A tenant's counter is the time that copies worked on its requests, divided by its weight. Requests
of a higher priority go first. Among requests of one priority, the tenant with the smallest counter
is next, and its first request.

event                                            the tenant's counter
-----------------------------------------------  --------------------------------------------------
a request is sent                                + the destination's mean time / weight
it has ended                                     + (its time - that mean) / weight
a first request waits, other tenants are active  raised to the smallest of theirs, less the charges
                                                 of their requests on copies
a first request waits, none is active            unchanged

A tenant is active while its requests wait or are on copies. Raising a counter keeps idle time from
being saved up. So of two tenants that always have requests waiting, neither gets ahead of the other
by more than the longest requests that are on copies at once, divided by the smaller weight.

Copies get a few requests more than they have places. They work on them in the order of sending, so
the work on a further request begins when an earlier one has ended.

Source: Sheng et al., Fairness in Serving Large Language Models (OSDI 2024, arXiv:2401.00588), with
time instead of tokens.
"""

from collections import deque
from typing import Generic, TypeVar

from hostelry.domain.quota import Priority

Item = TypeVar("Item")
PRIORITIES = (Priority.HIGH, Priority.NORMAL, Priority.LOW)
NEW_SHARE = 0.1  # of the newest time in the mean
PRUNE_AT = 256  # tenants
SPARE = 0.5  # requests beyond a copy's places that it may queue, by places: it never runs dry


class WaitingTurn(Generic[Item]):
    """One waiting request. Its `number` grows with each request."""

    __slots__ = ("is_waiting", "item", "num_bytes", "number", "priority", "tenant")

    def __init__(
        self,
        item: Item,
        tenant: "TenantTurns[Item]",
        priority: Priority,
        num_bytes: int,
        number: int,
    ) -> None:
        self.number = number
        self.item = item
        self.tenant = tenant
        self.priority = priority
        self.num_bytes = num_bytes
        self.is_waiting = True


class SentTurn(Generic[Item]):
    """One request on the copies, and when the work on it began (None: not yet)."""

    __slots__ = ("began_s", "charged_s", "tenant")

    def __init__(self, tenant: "TenantTurns[Item]", charged_s: float) -> None:
        self.tenant = tenant
        self.charged_s = charged_s
        self.began_s: float | None = None


class TenantTurns(Generic[Item]):
    """One tenant: its weight, its counter in seconds, and its requests."""

    __slots__ = ("counter_s", "name", "num_sent", "num_waiting", "queues", "weight")

    def __init__(self, name: str) -> None:
        self.name = name
        self.weight = 1.0
        self.counter_s = 0.0
        self.num_sent = self.num_waiting = 0
        self.queues: dict[Priority, deque[WaitingTurn[Item]]] = {}

    @property
    def is_active(self) -> bool:
        """True if it has a request that waits or is on a copy."""
        return bool(self.num_sent or self.num_waiting)


class FairTurns(Generic[Item]):
    """The tenants of one destination."""

    def __init__(self) -> None:
        self.num_waiting = self.num_sent = 0
        self.mean_s = 0.0
        self._num_began = 0
        self._number = 0
        self._not_begun: deque[SentTurn[Item]] = deque()
        self._tenants: dict[str, TenantTurns[Item]] = {}

    def begin(self, name: str, weight: float) -> TenantTurns[Item]:
        """The tenant of a request that has come. Its counter is raised if it was not active."""
        tenant = self._tenants.get(name)
        if tenant is None:
            self._prune()
            tenant = self._tenants[name] = TenantTurns(name)
        tenant.weight = weight
        if not tenant.is_active:
            others = [self._find_level(it) for it in self._tenants.values() if it.is_active]
            tenant.counter_s = max(tenant.counter_s, min(others, default=0.0))
        return tenant

    def wait(
        self, tenant: TenantTurns[Item], item: Item, priority: Priority, num_bytes: int = 0
    ) -> WaitingTurn[Item]:
        """Add a request at the end of the tenant's queue of this priority."""
        self._number += 1
        waiting = WaitingTurn(item, tenant, priority, num_bytes, self._number)
        tenant.queues.setdefault(priority, deque()).append(waiting)
        tenant.num_waiting += 1
        self.num_waiting += 1
        return waiting

    def leave(self, waiting: WaitingTurn[Item]) -> None:
        """Remove a request. Does nothing if it no longer waits."""
        if not waiting.is_waiting:
            return
        waiting.is_waiting = False
        tenant = waiting.tenant
        tenant.queues[waiting.priority].remove(waiting)
        tenant.num_waiting -= 1
        self.num_waiting -= 1

    def pop(self) -> WaitingTurn[Item] | None:
        """Remove and return the request whose turn it is."""
        if not self.num_waiting:
            return None
        for priority in PRIORITIES:
            tenants = [it for it in self._tenants.values() if it.queues.get(priority)]
            if tenants:
                heads = [it.queues[priority][0] for it in tenants]
                first = min(heads, key=lambda it: (it.tenant.counter_s, it.number))
                self.leave(first)
                return first
        return None

    def find_evicted(self, tenant: TenantTurns[Item]) -> WaitingTurn[Item] | None:
        """The request that leaves a full queue for a request of `tenant`.

        It is the newest request of the tenant with the most that wait, lowest priority first. None
        if `tenant` has the most itself.
        """
        longest = max(self._tenants.values(), key=lambda it: it.num_waiting)
        if longest.num_waiting <= tenant.num_waiting + 1:
            return None
        return next(longest.queues[it][-1] for it in reversed(PRIORITIES) if longest.queues.get(it))

    def send(self, tenant: TenantTurns[Item], places: int, now_s: float) -> SentTurn[Item]:
        """Count a request that is sent to copies with `places` in all."""
        sent = SentTurn(tenant, self.mean_s)
        tenant.num_sent += 1
        self.num_sent += 1
        tenant.counter_s += sent.charged_s / tenant.weight
        self._not_begun.append(sent)
        self._begin_work(places, now_s)
        return sent

    def end(
        self, sent: SentTurn[Item], places: int, now_s: float, *, is_whole: bool = True
    ) -> None:
        """Count the end of a request. Unless it `is_whole`, it was not answered."""
        tenant, took_s = sent.tenant, 0.0
        tenant.num_sent -= 1
        self.num_sent -= 1
        if sent.began_s is None:
            self._not_begun.remove(sent)
        else:
            self._num_began -= 1
            took_s = now_s - sent.began_s
        tenant.counter_s += (took_s - sent.charged_s) / tenant.weight
        if is_whole and sent.began_s is not None:
            self.mean_s += (took_s - self.mean_s) * (NEW_SHARE if self.mean_s else 1.0)
        self._begin_work(places, now_s)

    def _find_level(self, tenant: TenantTurns[Item]) -> float:
        """The counter without the charges of requests that are on copies."""
        return tenant.counter_s - tenant.num_sent * self.mean_s / tenant.weight

    def _begin_work(self, places: int, now_s: float) -> None:
        while self._not_begun and self._num_began < places:
            self._not_begun.popleft().began_s = now_s
            self._num_began += 1

    def _prune(self) -> None:
        """Drop tenants without requests whose counter would be raised anyway."""
        if len(self._tenants) < PRUNE_AT:
            return
        active = [it.counter_s for it in self._tenants.values() if it.is_active]
        floor = min(active, default=float("inf"))
        self._tenants = {
            name: it for name, it in self._tenants.items() if it.is_active or it.counter_s > floor
        }


def find_limit(places: int) -> int:
    """The requests that copies with `places` in all should have at once."""
    return places + max(1, int(places * SPARE))


def may_send(own: int, total: int, limit: int, num_workers: int) -> bool:
    """True if a worker may send one more request to a busy destination.

    `own` are the requests of this worker on the copies, `total` the requests of all workers. Each
    worker may have an even part of the limit in any case, so that none waits for another.
    """
    return total < limit or own < max(1, limit // num_workers)
