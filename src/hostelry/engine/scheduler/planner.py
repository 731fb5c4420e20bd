"""The scheduler: the tokens of which requests the next step computes, from integers and `now`.

The scheduler owns the queues and the page tables. It knows nothing of token values, tensors or
clocks: `now` is an argument, in seconds that never fall. The caller calls `plan`, computes, and
calls `commit` with the same plan. Requests may arrive and end in between.

    order of `plan`                     decided in
    ----------------------------------  -----------------
    1. drop late requests               `deadlines.py`
    2. give running requests pages,     `running.py`
       preempt if pages run out
    3. chunks of running requests       `running.py`
    4. unless one was preempted: admit  `admission.py`, by `fair_queue.py` and `residency.py`
    5. fetches of adapters              `residency.py`
"""

import math
from collections.abc import Sequence as AbstractSequence

from hostelry.engine.pages.unified import PagePool
from hostelry.engine.scheduler.admission import Admission
from hostelry.engine.scheduler.deadlines import Deadlines
from hostelry.engine.scheduler.decisions import (
    Plan,
    QuotaExceededError,
    SchedulerLimits,
    ServerFullError,
    Submission,
)
from hostelry.engine.scheduler.fair_queue import FairQueue
from hostelry.engine.scheduler.records import RequestStatus, Sequence, StepDraft, Tenant
from hostelry.engine.scheduler.residency import Residency
from hostelry.engine.scheduler.running import RunningBatch
from hostelry.engine.scheduler.tenants import CompletionInterval, TenantPolicies


class Scheduler:
    """Plans steps of continuous batching with chunked prefill, fairly between tenants."""

    def __init__(
        self, limits: SchedulerLimits, pool: PagePool, tenants: TenantPolicies | None = None
    ) -> None:
        self.limits = limits
        self.pool = pool
        self._fair_queue = FairQueue(tenants or TenantPolicies())
        self._residency = Residency(pool, limits.prefetch_lookahead)
        self._batch = RunningBatch(limits, pool, self._fair_queue, self._residency)
        self._admission = Admission(limits, pool, self._fair_queue, self._residency, self._batch)
        self._deadlines = Deadlines()
        self._completion_interval = CompletionInterval()
        self._by_id: dict[str, Sequence] = {}
        self._num_submitted = 0
        self._now = -math.inf

    # Requests

    def submit(self, submission: Submission, now: float) -> None:
        """Queue a request.

        Raises ValueError for a known id, for more prefix keys than the prompt has complete pages,
        and for a request that the pool could not hold with its adapter and all pins. Raises
        QuotaExceededError if a quota of its tenant is used up, and ServerFullError if the queue is
        full.
        """
        now = self._advance(now)
        self._check_size(submission)
        tenant = self._fair_queue.tenant(submission.tenant, now)
        self._check_quotas(tenant, submission, now)
        limit = self.limits.max_waiting
        if limit is not None and self._fair_queue.num_waiting >= limit:
            raise ServerFullError(limit, self._completion_interval.retry_after_s)
        if tenant.bucket is not None:
            tenant.bucket.take(submission.num_prompt_tokens, now)
        if not tenant.num_in_flight:
            tenant.completion_interval.begin(now)
        if not self._by_id:
            self._completion_interval.begin(now)
        self._num_submitted += 1
        sequence = Sequence(
            id=submission.id,
            number=self._num_submitted,
            flow=self._fair_queue.flow(tenant, submission.adapter),
            submission=submission,
            num_prompt=submission.num_prompt_tokens,
            num_keys=len(submission.prefix_keys),
            max_tokens=submission.max_tokens,
            num_tokens=submission.num_prompt_tokens,
            num_ahead=tenant.num_waiting,
            num_departed_before=tenant.num_departed,
        )
        self._by_id[submission.id] = sequence
        self._fair_queue.push(sequence)
        if sequence.flow.num_waiting == 1:
            self._residency.enter(sequence.flow, submission)
        self._deadlines.add(sequence)

    def remove(self, request_id: str, now: float, keys: AbstractSequence[bytes] = ()) -> None:
        """Forget a request that ended or is cancelled, and release its pages.

        Its complete computed pages stay cached under `keys`, first page first. No effect for an
        unknown request.
        """
        sequence = self._by_id.get(request_id)
        if sequence is not None:
            self._end(sequence, self._advance(now), tuple(keys))

    # Steps

    def plan(self, now: float) -> Plan:
        """Plan the next step. Changes queues and page tables, computes nothing."""
        now = self._advance(now)
        step = StepDraft(
            now=now,
            budget=self.limits.max_batched_tokens,
            scored_budget=self.limits.max_scored_tokens,
        )
        late = self._deadlines.take_expired(now, self._fair_queue.waiting_weight)
        for sequence in late:
            self._end(sequence, now)
        self._batch.make_room(step)
        self._batch.plan_chunks(step)
        fetches: tuple[str, ...] = ()
        if self._fair_queue.num_waiting:
            if not step.preempted:  # else the pages just released would be taken again
                self._admission.run(step)
            fetches = self._residency.fetch()
        self._deadlines.rate.observe(now, step.num_started, self._fair_queue.num_waiting > 0)
        return Plan(
            chunks=tuple(step.chunks),
            preempted=tuple(step.preempted),
            fetches=fetches,
            uploads=tuple(step.uploads),
            expired=tuple(sequence.id for sequence in late),
        )

    def commit(self, plan: Plan, now: float) -> None:
        """Record that `plan` was computed: each sampling chunk's request grew by one token.

        Complete pages of prompts are published. Requests removed since are ignored.
        """
        self._batch.commit(plan.chunks, self._by_id, self._advance(now))

    # Adapters

    def note_in_host(self, key: str) -> None:
        """Record that the adapter's weights are in host memory, until `note_left_host`."""
        self._residency.note_in_host(key)

    def note_left_host(self, key: str) -> None:
        """Record that the adapter's weights left host memory.

        Waiting requests fetch them again. Not to be called for an adapter whose upload was planned
        and not reported.
        """
        self._residency.note_left_host(key)

    def note_uploaded(self, key: str) -> None:
        """Record that the adapter's weights are in its pages. Raises ValueError without pages."""
        self._residency.note_uploaded(key)

    def fail_adapter(self, key: str, now: float) -> tuple[str, ...]:
        """Remove and return the requests that waited for an adapter whose load failed.

        Its pages, if it has any, are released. No effect if it is resident or unknown.
        """
        now = self._advance(now)
        flows = self._residency.fail(key, now)
        ended = [it for flow in flows for it in flow.requests if it.status is RequestStatus.WAITING]
        for sequence in ended:
            self._end(sequence, now)
        return tuple(sequence.id for sequence in ended)

    # Numbers

    @property
    def num_waiting(self) -> int:
        """Requests not admitted, or preempted."""
        return self._fair_queue.num_waiting

    @property
    def num_running(self) -> int:
        """Requests that own pages."""
        return len(self._batch)

    def pages(self, request_id: str) -> AbstractSequence[int]:
        """The request's page table. Empty while it waits. Not to be changed."""
        return self.pool.pages(request_id)

    def counter(self, tenant: str) -> float:
        """The tenant's counter: charged tokens divided by its weight, and any raise."""
        return self._fair_queue.counter(tenant)

    def check_integrity(self) -> None:
        """Raise AssertionError where queues, counts and pages do not agree."""
        self.pool.check_integrity()
        self._fair_queue.check_integrity()
        self._residency.check_integrity()
        self._batch.check_integrity()
        assert len(self._by_id) == self.num_waiting + self.num_running, "requests are lost"
        for sequence in self._by_id.values():
            if sequence.status is RequestStatus.WAITING:
                assert not self.pool.pages(sequence.id), f"{sequence.id} waits and owns pages"
                assert sequence.num_computed == 0, f"{sequence.id} waits with computed tokens"

    def _advance(self, now: float) -> float:
        """The scheduler's time: the latest `now` of all calls."""
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
        kv_pages = self.limits.count_pages(submission.max_tokens)
        pinned = self.pool.pin_budget_pages
        if kv_pages + submission.adapter_pages + pinned > self.pool.num_pages:
            raise ValueError(
                f"request {submission.id} needs {kv_pages} pages for {submission.max_tokens} "
                f"tokens and {submission.adapter_pages} for its adapter; the pool has "
                f"{self.pool.num_pages}, of which {pinned} may be pinned"
            )

    def _check_quotas(self, tenant: Tenant, submission: Submission, now: float) -> None:
        """Raise QuotaExceededError if a quota does not admit this request now."""
        policy = tenant.policy
        for quota, limit, used in (
            ("concurrent requests", policy.max_concurrent, tenant.num_in_flight),
            ("queued requests", policy.max_queued, tenant.num_waiting),
        ):
            if limit is not None and used >= limit:
                raise QuotaExceededError(
                    tenant.name, quota, limit, tenant.completion_interval.retry_after_s
                )
        if tenant.bucket is not None:
            wait_s = tenant.bucket.wait_s(submission.num_prompt_tokens, now)
            if wait_s > 0:
                rate = tenant.bucket.tokens_per_s
                raise QuotaExceededError(tenant.name, "tokens per second", rate, max(1.0, wait_s))

    def _end(self, sequence: Sequence, now: float, keys: tuple[bytes, ...] = ()) -> None:
        """Remove a request, waiting or running."""
        del self._by_id[sequence.id]
        flow = sequence.flow
        tenant = flow.tenant
        if sequence.status is RequestStatus.RUNNING:
            self._batch.stop(sequence, now, keys)
            sequence.status = RequestStatus.ENDED
        else:
            self._fair_queue.withdraw(sequence)
            if not flow.num_waiting:
                self._residency.leave(flow, now)
            if tenant.bucket is not None and not sequence.num_charged:
                tenant.bucket.take(-sequence.submission.num_prompt_tokens, now)
        tenant.completion_interval.end(now)
        self._completion_interval.end(now)
