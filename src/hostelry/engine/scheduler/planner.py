"""The schedule: which tokens of which requests the next step computes, from integers and `now`.

The scheduler owns the queues and the page tables. It knows nothing of token values, tensors or
clocks: `now` is an argument, in seconds that never fall. `plan`, compute, `commit` with the same
plan; in between requests may come and go.
"""

import math
from collections.abc import Sequence as AbstractSequence

from hostelry.engine.pages.unified import PagePool
from hostelry.engine.scheduler.admission import Admission
from hostelry.engine.scheduler.deadlines import Deadlines
from hostelry.engine.scheduler.decisions import Plan, Submission
from hostelry.engine.scheduler.errors import QuotaExceededError, ServerFullError
from hostelry.engine.scheduler.fair_queue import FairQueue
from hostelry.engine.scheduler.limits import Limits
from hostelry.engine.scheduler.quotas import Pace
from hostelry.engine.scheduler.records import Sequence, State, Step, Tenant
from hostelry.engine.scheduler.residency import Residency
from hostelry.engine.scheduler.running import RunningBatch
from hostelry.engine.scheduler.tenants import TenantPolicies


class Scheduler:
    """Plans steps of continuous batching with chunked prefill, fairly between tenants."""

    def __init__(
        self, limits: Limits, pool: PagePool, tenants: TenantPolicies | None = None
    ) -> None:
        self.limits = limits
        self.pool = pool
        self._queue = FairQueue(tenants or TenantPolicies())
        self._residency = Residency(pool, limits.prefetch_lookahead)
        self._batch = RunningBatch(limits, pool, self._queue, self._residency)
        self._admission = Admission(limits, pool, self._queue, self._residency, self._batch)
        self._deadlines = Deadlines()
        self._pace = Pace()
        self._by_id: dict[str, Sequence] = {}
        self._num_submitted = 0
        self._now = -math.inf

    # Requests

    def submit(self, submission: Submission, now: float) -> None:
        """Queue a request.

        Raises ValueError for a known id, more prefix keys than the prompt has complete pages, and
        a request the pool could not hold with its adapter and all pins; QuotaExceededError when
        its tenant may not have another one; ServerFullError when the queue is full.
        """
        now = self._advance(now)
        self._check_size(submission)
        tenant = self._queue.tenant(submission.tenant, now)
        self._check_quotas(tenant, submission, now)
        limit = self.limits.max_waiting
        if limit is not None and self._queue.num_waiting >= limit:
            raise ServerFullError(limit, self._pace.retry_after_s)
        if tenant.bucket is not None:
            tenant.bucket.take(submission.num_prompt_tokens, now)
        if not tenant.num_in_flight:
            tenant.pace.begin(now)
        if not self._by_id:
            self._pace.begin(now)
        self._num_submitted += 1
        sequence = Sequence(
            id=submission.id,
            number=self._num_submitted,
            lane=self._queue.lane(tenant, submission.adapter),
            submission=submission,
            num_prompt=submission.num_prompt_tokens,
            num_keys=len(submission.prefix_keys),
            max_tokens=submission.max_tokens,
            num_tokens=submission.num_prompt_tokens,
            num_ahead=tenant.num_waiting,
            num_departed_before=tenant.num_departed,
        )
        self._by_id[submission.id] = sequence
        self._queue.push(sequence)
        if sequence.lane.num_waiting == 1:
            self._residency.enter(sequence.lane, submission)
        self._deadlines.add(sequence)

    def remove(self, request_id: str, now: float, keys: AbstractSequence[bytes] = ()) -> None:
        """Forget a request that ended or is cancelled; its pages are free at once.

        Its complete computed pages stay as cache under `keys`, first page first. Nothing happens
        when it is unknown.
        """
        sequence = self._by_id.get(request_id)
        if sequence is not None:
            self._end(sequence, self._advance(now), tuple(keys))

    # Steps

    def plan(self, now: float) -> Plan:
        """The next step; it changes queues and page tables, but nothing is computed yet."""
        now = self._advance(now)
        step = Step(now=now, budget=self.limits.max_batched_tokens)
        late = self._deadlines.take_expired(now, self._queue.waiting_weight)
        for sequence in late:
            self._end(sequence, now)
        self._batch.make_room(step)
        self._batch.put_chunks(step)
        fetches: tuple[str, ...] = ()
        if self._queue.num_waiting:
            if not step.preempted:  # else the pages just freed would be fought over again
                self._admission.run(step)
            fetches = self._residency.fetch()
        self._deadlines.rate.observe(now, step.num_started, self._queue.num_waiting > 0)
        return Plan(
            chunks=tuple(step.chunks),
            preempted=tuple(step.preempted),
            fetches=fetches,
            uploads=tuple(step.uploads),
            expired=tuple(sequence.id for sequence in late),
        )

    def commit(self, plan: Plan, now: float) -> None:
        """Record that `plan` was computed: each sampling chunk's request grew by one token.

        Complete pages of prompts are published. Requests removed meanwhile are passed over.
        """
        self._batch.commit(plan.chunks, self._by_id, self._advance(now))

    # Adapters

    def adapter_in_host(self, key: str) -> None:
        """The adapter's weights are in host memory, until `adapter_out_of_host`."""
        self._residency.arrived(key)

    def adapter_out_of_host(self, key: str) -> None:
        """The adapter's weights are not in host memory; whoever waits has them fetched again.

        Not to be called for an adapter whose upload was planned and not reported.
        """
        self._residency.departed(key)

    def adapter_uploaded(self, key: str) -> None:
        """The adapter's weights are in its pages. Raises ValueError when it has no pages."""
        self._residency.uploaded(key)

    def adapter_failed(self, key: str, now: float) -> tuple[str, ...]:
        """Its fetch or upload failed: the requests that waited for it, which are removed.

        Its pages, if it has any, are free. Nothing happens when it is resident or unknown.
        """
        now = self._advance(now)
        lanes = self._residency.failed(key, now)
        ended = [it for lane in lanes for it in lane.queue if it.state is State.WAITING]
        for sequence in ended:
            self._end(sequence, now)
        return tuple(sequence.id for sequence in ended)

    # Numbers

    @property
    def num_waiting(self) -> int:
        """Requests not admitted, or sent back."""
        return self._queue.num_waiting

    @property
    def num_running(self) -> int:
        """Requests that own pages."""
        return len(self._batch)

    def pages(self, request_id: str) -> AbstractSequence[int]:
        """The request's page table; empty while it waits. Not to be changed."""
        return self.pool.pages(request_id)

    def counter(self, tenant: str) -> float:
        """The tenant's service so far: charged tokens divided by its weight, with its lifts."""
        return self._queue.counter(tenant)

    def check_integrity(self) -> None:
        """Raise AssertionError where queues, counts and pages do not agree."""
        self.pool.check_integrity()
        self._queue.check_integrity()
        self._residency.check_integrity()
        self._batch.check_integrity()
        assert len(self._by_id) == self.num_waiting + self.num_running, "requests are lost"
        for sequence in self._by_id.values():
            if sequence.state is State.WAITING:
                assert not self.pool.pages(sequence.id), f"{sequence.id} waits and owns pages"
                assert sequence.num_computed == 0, f"{sequence.id} waits with computed tokens"

    def _advance(self, now: float) -> float:
        """The time to go by: `now`, or what was the time before when that is later."""
        if not math.isfinite(now):
            raise ValueError(f"now is {now}; it must be finite seconds")
        self._now = max(self._now, now)
        return self._now

    def _check_size(self, submission: Submission) -> None:
        if submission.id in self._by_id:
            raise ValueError(f"request {submission.id} is already queued")
        num_complete = submission.num_prompt_tokens // self.limits.page_tokens
        if len(submission.prefix_keys) > num_complete:
            raise ValueError(
                f"request {submission.id} has {len(submission.prefix_keys)} prefix keys; "
                f"its prompt has {num_complete} complete pages"
            )
        kv_pages = self.limits.pages_for(submission.max_tokens)
        pinned = self.pool.pin_budget_pages
        if kv_pages + submission.adapter_pages + pinned > self.pool.num_pages:
            raise ValueError(
                f"request {submission.id} needs {kv_pages} pages for {submission.max_tokens} "
                f"tokens and {submission.adapter_pages} for its adapter; the pool has "
                f"{self.pool.num_pages}, of which {pinned} may be pinned"
            )

    def _check_quotas(self, tenant: Tenant, submission: Submission, now: float) -> None:
        """Raise QuotaExceededError when the tenant may not have this request now."""
        policy = tenant.policy
        for quota, limit, used in (
            ("concurrent requests", policy.max_concurrent, tenant.num_in_flight),
            ("queued requests", policy.max_queued, tenant.num_waiting),
        ):
            if limit is not None and used >= limit:
                raise QuotaExceededError(tenant.name, quota, limit, tenant.pace.retry_after_s)
        if tenant.bucket is not None:
            wait_s = tenant.bucket.wait_s(submission.num_prompt_tokens, now)
            if wait_s > 0:
                rate = tenant.bucket.tokens_per_s
                raise QuotaExceededError(tenant.name, "tokens per second", rate, max(1.0, wait_s))

    def _end(self, sequence: Sequence, now: float, keys: tuple[bytes, ...] = ()) -> None:
        """Take a request out of wherever it is."""
        del self._by_id[sequence.id]
        lane = sequence.lane
        tenant = lane.tenant
        if sequence.state is State.RUNNING:
            self._batch.stop(sequence, now, keys)
            sequence.state = State.GONE
        else:
            self._queue.withdraw(sequence)
            if not lane.num_waiting:
                self._residency.leave(lane, now)
            if tenant.bucket is not None and not sequence.num_charged:
                tenant.bucket.take(-sequence.submission.num_prompt_tokens, now)
        tenant.pace.end(now)
        self._pace.end(now)
