"""Fair queueing by virtual token counters: of tenants, and of flows (adapters) inside a tenant.

A tenant's counter is the service it got, divided by its weight. A flow's counter is not divided.
The tenant with the smallest counter is next, and its flow with the smallest counter, and the first
request of that flow.

    event                                            counters of the tenant and the flow
    -----------------------------------------------  ------------------------------------------
    a prompt token is computed                       + 1 (tenant: + 1 / weight)
    a prompt token is found in the prefix cache,     unchanged
      or computed again after a preemption
    an output token is computed                      + 2 (tenant: + 2 / weight)
    a first request waits, others of its kind wait   raised to the smallest of those that wait
    a first request waits, no other one waits        raised to the last waiting one's counter
    a preempted request waits again                  unchanged

Raising a counter keeps idle time from being saved up. A counter grows only with service, and only
the smallest is admitted. So of two tenants that always have requests waiting, neither gets ahead of
the other, over any interval, by more than 2 * max(w_p * L, w_q * M) / w in service divided by
weight: L is the longest prompt, M the most tokens that requests running at once may have, w_p = 1,
w_q = 2, w the smaller weight. `SchedulerLimits.overtake_tokens` adds to it twice. Charges are of
tokens, not of requests, steps or time.

Source: Sheng et al., Fairness in Serving Large Language Models (OSDI 2024, arXiv:2401.00588),
algorithm 2 and theorem 4.4. The second level and the charge by chunk are our own.
"""

from collections import deque

from hostelry.engine.scheduler.records import CounterHeap, Flow, RequestStatus, Sequence, Tenant
from hostelry.engine.scheduler.tenants import TenantPolicies, TenantPolicy, TokenBucket

OUTPUT_CHARGE = 2.0
"""Charge of an output token, in prompt tokens."""

_PRUNE_TENANTS_AT = 1024


class FairQueue:
    """The waiting requests by tenant and flow, and the counters."""

    def __init__(self, policies: TenantPolicies) -> None:
        self.num_waiting = 0
        self.waiting_weight = 0.0
        self._policies = policies
        self._tenants: dict[str, Tenant] = {}
        self._waiting: CounterHeap[Tenant] = CounterHeap()
        self._last: Tenant | None = None
        self._prune_at = _PRUNE_TENANTS_AT

    def tenant(self, name: str, now: float) -> Tenant:
        """The record of a tenant, created for a new tenant."""
        tenant = self._tenants.get(name)
        if tenant is None:
            self._prune(now)
            policy = self._policies.of(name)
            tenant = Tenant(
                name=name,
                policy=policy,
                bucket=_new_bucket(policy, now),
                token_cost=1.0 / policy.weight,
            )
            self._tenants[name] = tenant
        return tenant

    def flow(self, tenant: Tenant, key: str | None) -> Flow:
        """The flow of a tenant's requests for adapter `key`, created for a new adapter."""
        flow = tenant.flows.get(key)
        if flow is None:
            _prune_flows(tenant)
            flow = tenant.flows[key] = Flow(tenant=tenant, key=key)
        return flow

    def push(self, sequence: Sequence) -> None:
        """Append a new request to its flow."""
        flow = sequence.flow
        tenant = flow.tenant
        if not tenant.num_waiting:
            _lift(tenant, self._waiting.first(), self._last)
        if not flow.num_waiting:
            _lift(flow, tenant.waiting.first(), tenant.last_flow)
        self._enter(sequence)
        flow.requests.append(sequence)

    def push_front(self, sequence: Sequence) -> None:
        """Put a preempted request back at the head of its flow. No counter rises: it is not new."""
        self._enter(sequence)
        sequence.flow.requests.appendleft(sequence)
        sequence.flow.tenant.num_departed -= 1

    def first(self) -> Flow | None:
        """The flow whose turn it is, whatever fits. None without waiting requests."""
        tenant = self._waiting.first()
        return None if tenant is None else tenant.waiting.first()

    def pop(self, flow: Flow) -> Sequence:
        """Take the next request of a flow that has one."""
        sequence = flow.requests.popleft()
        self._leave(flow)
        return sequence

    def withdraw(self, sequence: Sequence) -> None:
        """End a waiting request. Its entry in the flow is removed when its turn comes."""
        sequence.status = RequestStatus.ENDED
        self._leave(sequence.flow)

    def charge(self, flow: Flow, num_tokens: float) -> None:
        """Add `num_tokens` charged tokens to the counters of a flow and its tenant."""
        flow.counter += num_tokens
        flow.tenant.counter += num_tokens * flow.tenant.token_cost

    def counter(self, name: str) -> float:
        """The counter of a tenant. 0 for an unknown tenant."""
        tenant = self._tenants.get(name)
        return 0.0 if tenant is None else tenant.counter

    def check_integrity(self) -> None:
        """Raise AssertionError where counts and queues do not agree."""
        for tenant in self._tenants.values():
            num_waiting = sum(it.num_waiting for it in tenant.flows.values())
            assert tenant.num_waiting == num_waiting, tenant.name
            assert (tenant in self._waiting) == bool(num_waiting), f"{tenant.name} is out of order"
            assert tenant.num_waiting >= 0 <= tenant.num_running, tenant.name
            for flow in tenant.flows.values():
                waiting = sum(it.status is RequestStatus.WAITING for it in flow.requests)
                assert waiting == flow.num_waiting, f"{tenant.name}/{flow.key} miscounts"
                assert (flow in tenant.waiting) == bool(waiting), f"{flow.key} is out of order"
                assert not waiting or flow.head.status is RequestStatus.WAITING, (
                    "a flow's head has ended"
                )
        assert self.num_waiting == sum(it.num_waiting for it in self._tenants.values())

    def _enter(self, sequence: Sequence) -> None:
        flow = sequence.flow
        tenant = flow.tenant
        if not tenant.num_waiting:
            tenant.number = sequence.number
            self._waiting.add(tenant)
            self.waiting_weight += tenant.policy.weight
        if not flow.num_waiting:
            flow.number = sequence.number
            tenant.waiting.add(flow)
        flow.num_waiting += 1
        tenant.num_waiting += 1
        self.num_waiting += 1

    def _leave(self, flow: Flow) -> None:
        tenant = flow.tenant
        flow.num_waiting -= 1
        tenant.num_waiting -= 1
        tenant.num_departed += 1
        self.num_waiting -= 1
        if flow.num_waiting:
            _clear_ended(flow)
            flow.number = flow.head.number
        else:
            flow.requests.clear()
            tenant.waiting.discard(flow)
            tenant.last_flow = flow
        if not tenant.num_waiting:
            self._waiting.discard(tenant)
            self.waiting_weight -= tenant.policy.weight
            self._last = tenant
        if not self.num_waiting:
            self.waiting_weight = 0.0  # no rounding errors are kept

    def _prune(self, now: float) -> None:
        """Forget idle tenants whose counter would be raised anyway and whose bucket is full."""
        if len(self._tenants) < self._prune_at:
            return
        first = self._waiting.first() or self._last
        floor = 0.0 if first is None else first.counter
        self._tenants = {
            name: tenant
            for name, tenant in self._tenants.items()
            if tenant.num_in_flight
            or tenant.counter > floor
            or (tenant.bucket is not None and not tenant.bucket.is_full(now))
        }
        self._prune_at = max(_PRUNE_TENANTS_AT, 2 * len(self._tenants))


def _new_bucket(policy: TenantPolicy, now: float) -> TokenBucket | None:
    rate = policy.tokens_per_s
    return None if rate is None else TokenBucket(rate, rate * policy.burst_s, now)


def _lift(item: Tenant | Flow, first: Tenant | Flow | None, last: Tenant | Flow | None) -> None:
    """Raise a counter to the smallest waiting counter, or else to the last one that waited."""
    level = first or last
    if level is not None and level.counter > item.counter:
        item.counter = level.counter


def _clear_ended(flow: Flow) -> None:
    """Make a waiting request the head. Rebuild a deque that holds mostly ended requests."""
    requests = flow.requests
    if len(requests) > 2 * flow.num_waiting + 64:
        flow.requests = deque(it for it in requests if it.status is RequestStatus.WAITING)
        return
    while requests[0].status is not RequestStatus.WAITING:
        requests.popleft()


def _prune_flows(tenant: Tenant) -> None:
    """Forget idle flows whose counter would be raised anyway."""
    if len(tenant.flows) < tenant.prune_at:
        return
    first = tenant.waiting.first() or tenant.last_flow
    floor = 0.0 if first is None else first.counter
    tenant.flows = {
        key: flow
        for key, flow in tenant.flows.items()
        if flow.num_waiting or flow.num_running or flow.counter > floor
    }
    tenant.prune_at = max(64, 2 * len(tenant.flows))
