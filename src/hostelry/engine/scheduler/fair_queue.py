"""Whose turn it is: virtual token counters of tenants, and of adapters inside a tenant.

Every tenant has a counter of the service it got: one for each prompt token that was computed, two
for each output token, divided by its weight. The tenant with the smallest counter is next; inside
it, the adapter with the smallest counter; inside that, first come, first served. One that had
nothing to wait for starts level with the smallest counter of those who wait (with the last one who
did, when nobody does), so that idle time is not saved up.

A counter goes up only with service, and only the smallest is admitted. So of two tenants that have
requests waiting all the time neither gets ahead of the other, over any stretch of time, by more
than 2 * max(w_p * L, w_q * M) / w in service divided by weight: L is the longest prompt, M the most
tokens that requests running at once may have, w_p = 1, w_q = 2, w the smaller weight. What `Limits`
lets others overtake comes on top, twice. The charges are of tokens, not of requests, steps or time.

Source: Sheng et al., Fairness in Serving Large Language Models (OSDI 2024, arXiv:2401.00588),
algorithm 2 and theorem 4.4. The second level and the charge by chunk are ours.
"""

from collections import deque

from hostelry.engine.scheduler.counters import CounterHeap
from hostelry.engine.scheduler.quotas import TokenBucket
from hostelry.engine.scheduler.records import Lane, Sequence, State, Tenant
from hostelry.engine.scheduler.tenants import TenantPolicies, TenantPolicy

OUTPUT_CHARGE = 2.0
"""What an output token is charged, in prompt tokens."""

_PRUNE_TENANTS_AT = 1024


class FairQueue:
    """All waiting requests by tenant and adapter, and the counters."""

    def __init__(self, policies: TenantPolicies) -> None:
        self.num_waiting = 0
        self.waiting_weight = 0.0
        self._policies = policies
        self._tenants: dict[str, Tenant] = {}
        self._waiting: CounterHeap[Tenant] = CounterHeap()
        self._last: Tenant | None = None
        self._prune_at = _PRUNE_TENANTS_AT

    def tenant(self, name: str, now: float) -> Tenant:
        """The record of a tenant, made when it is new."""
        tenant = self._tenants.get(name)
        if tenant is None:
            self._prune(now)
            policy = self._policies.of(name)
            tenant = Tenant(
                name=name,
                policy=policy,
                bucket=_bucket(policy, now),
                token_cost=1.0 / policy.weight,
            )
            self._tenants[name] = tenant
        return tenant

    def lane(self, tenant: Tenant, key: str | None) -> Lane:
        """The lane of a tenant's requests for adapter `key`, made when it is new."""
        lane = tenant.lanes.get(key)
        if lane is None:
            _prune_lanes(tenant)
            lane = tenant.lanes[key] = Lane(tenant=tenant, key=key)
        return lane

    def push(self, sequence: Sequence) -> None:
        """A new request waits at the end of its lane."""
        lane = sequence.lane
        tenant = lane.tenant
        if not tenant.num_waiting:
            _lift(tenant, self._waiting.first(), self._last)
        if not lane.num_waiting:
            _lift(lane, tenant.waiting.first(), tenant.last_lane)
        self._enter(sequence)
        lane.queue.append(sequence)

    def push_front(self, sequence: Sequence) -> None:
        """A preempted request is the next of its lane again; no newcomer, it lifts nothing."""
        self._enter(sequence)
        sequence.lane.queue.appendleft(sequence)
        sequence.lane.tenant.num_departed -= 1

    def pop(self, lane: Lane) -> Sequence:
        """Take the next request of a lane that has one."""
        sequence = lane.queue.popleft()
        self._leave(lane)
        return sequence

    def withdraw(self, sequence: Sequence) -> None:
        """A waiting request is gone; its place in the lane is cleared when its turn comes."""
        sequence.state = State.GONE
        self._leave(sequence.lane)

    def charge(self, lane: Lane, num_tokens: float) -> None:
        """Service of `num_tokens` charged tokens to a lane and its tenant."""
        lane.counter += num_tokens
        lane.tenant.counter += num_tokens * lane.tenant.token_cost

    def counter(self, name: str) -> float:
        """The counter of a tenant; 0 for an unknown one."""
        tenant = self._tenants.get(name)
        return 0.0 if tenant is None else tenant.counter

    def check_integrity(self) -> None:
        """Raise AssertionError where counts and queues do not agree."""
        for tenant in self._tenants.values():
            live = [it for it in tenant.lanes.values() if it.num_waiting]
            assert tenant.num_waiting == sum(it.num_waiting for it in live), tenant.name
            assert (tenant in self._waiting) == bool(live), f"{tenant.name} is out of order"
            assert tenant.num_waiting >= 0 <= tenant.num_running, tenant.name
            for lane in tenant.lanes.values():
                waiting = sum(it.state is State.WAITING for it in lane.queue)
                assert waiting == lane.num_waiting, f"{tenant.name}/{lane.key} miscounts"
                assert (lane in tenant.waiting) == bool(waiting), f"{lane.key} is out of order"
                assert not waiting or lane.head.state is State.WAITING, "a lane's head is gone"
        assert self.num_waiting == sum(it.num_waiting for it in self._tenants.values())

    def _enter(self, sequence: Sequence) -> None:
        lane = sequence.lane
        tenant = lane.tenant
        if not tenant.num_waiting:
            tenant.number = sequence.number
            self._waiting.add(tenant)
            self.waiting_weight += tenant.policy.weight
        if not lane.num_waiting:
            lane.number = sequence.number
            tenant.waiting.add(lane)
        lane.num_waiting += 1
        tenant.num_waiting += 1
        self.num_waiting += 1

    def _leave(self, lane: Lane) -> None:
        tenant = lane.tenant
        lane.num_waiting -= 1
        tenant.num_waiting -= 1
        tenant.num_departed += 1
        self.num_waiting -= 1
        if lane.num_waiting:
            _clear_gone(lane)
            lane.number = lane.head.number
        else:
            lane.queue.clear()
            tenant.waiting.discard(lane)
            tenant.last_lane = lane
        if not tenant.num_waiting:
            self._waiting.discard(tenant)
            self.waiting_weight -= tenant.policy.weight
            self._last = tenant
        if not self.num_waiting:
            self.waiting_weight = 0.0  # no rounding errors are kept

    def _prune(self, now: float) -> None:
        """Forget idle tenants whose return would lift them anyway and whose bucket is full."""
        if len(self._tenants) < self._prune_at:
            return
        first = self._waiting.first() or self._last
        floor = 0.0 if first is None else first.counter
        self._tenants = {
            name: it
            for name, it in self._tenants.items()
            if it.num_in_flight
            or it.counter > floor
            or (it.bucket is not None and it.bucket.level(now) < it.bucket.capacity_tokens)
        }
        self._prune_at = max(_PRUNE_TENANTS_AT, 2 * len(self._tenants))


def _bucket(policy: TenantPolicy, now: float) -> TokenBucket | None:
    rate = policy.tokens_per_s
    return None if rate is None else TokenBucket(rate, rate * policy.burst_s, now)


def _lift(item: Tenant | Lane, first: Tenant | Lane | None, last: Tenant | Lane | None) -> None:
    """Bring a newcomer level with the smallest of those who wait, or with the last who did."""
    level = first or last
    if level is not None and level.counter > item.counter:
        item.counter = level.counter


def _clear_gone(lane: Lane) -> None:
    """Make the head a request that waits; rebuild a queue that is mostly of others."""
    queue = lane.queue
    if len(queue) > 2 * lane.num_waiting + 64:
        lane.queue = deque(it for it in queue if it.state is State.WAITING)
        return
    while queue[0].state is not State.WAITING:
        queue.popleft()


def _prune_lanes(tenant: Tenant) -> None:
    """Forget idle lanes whose return would lift them anyway."""
    if len(tenant.lanes) < tenant.prune_at:
        return
    first = tenant.waiting.first() or tenant.last_lane
    floor = 0.0 if first is None else first.counter
    tenant.lanes = {
        key: it
        for key, it in tenant.lanes.items()
        if it.num_waiting or it.num_running or it.counter > floor
    }
    tenant.prune_at = max(64, 2 * len(tenant.lanes))
