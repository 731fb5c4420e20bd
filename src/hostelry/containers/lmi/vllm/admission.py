"""The requests that wait here for a place in vLLM's batch: quotas, and each tenant's fair share.

vLLM computes first what came first, of any tenant. So it is given no more requests than one batch
holds, and the next one is chosen here, by the fair queue of our own engine. What differs from it:
prompt tokens are charged when a request starts, those in vLLM's prefix cache too, and a request
that started is not held back for another tenant's.
"""

from collections.abc import Iterable

from hostelry.engine.request import Request
from hostelry.engine.scheduler.decisions import Submission
from hostelry.engine.scheduler.errors import QuotaExceededError, ServerFullError
from hostelry.engine.scheduler.fair_queue import OUTPUT_CHARGE, FairQueue
from hostelry.engine.scheduler.quotas import CompletionInterval
from hostelry.engine.scheduler.records import RequestStatus, Sequence, Tenant
from hostelry.engine.scheduler.tenants import TenantPolicies


class VllmAdmission:
    """Requests by arrival, quota and fair share; at most `max_running` run."""

    def __init__(self, policies: TenantPolicies, max_running: int, max_waiting: int | None) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._queue = FairQueue(policies)
        self._sequences: dict[str, Sequence] = {}
        self._requests: dict[str, Request] = {}
        self._interval = CompletionInterval()
        self._num_submitted = 0
        self.num_running = 0

    @property
    def num_waiting(self) -> int:
        """Requests that have not started."""
        return self._queue.num_waiting

    def submit(self, request: Request, now: float) -> None:
        """Queue a request. Raises QuotaExceededError, ServerFullError, ValueError."""
        if request.id in self._sequences:
            raise ValueError(f"request {request.id} is already in progress")
        num_prompt = len(request.prompt_token_ids)
        name = (request.adapter or "") if request.tenant is None else request.tenant
        tenant = self._queue.tenant(name, now)
        self._check_quotas(tenant, num_prompt, now)
        if self._max_waiting is not None and self._queue.num_waiting >= self._max_waiting:
            raise ServerFullError(self._max_waiting, self._interval.retry_after_s)
        if tenant.bucket is not None:
            tenant.bucket.take(num_prompt, now)
        if not tenant.num_in_flight:
            tenant.completion_interval.begin(now)
        if not self._sequences:
            self._interval.begin(now)
        self._num_submitted += 1
        max_tokens = num_prompt + max(1, request.sampling.max_new_tokens)
        sequence = Sequence(
            id=request.id,
            number=self._num_submitted,
            flow=self._queue.flow(tenant, request.adapter),
            submission=Submission(
                id=request.id, tenant=name, num_prompt_tokens=num_prompt, max_tokens=max_tokens
            ),
            num_prompt=num_prompt,
            num_keys=0,
            max_tokens=max_tokens,
            num_tokens=num_prompt,
            num_ahead=tenant.num_waiting,
            num_departed_before=tenant.num_departed,
        )
        self._sequences[request.id] = sequence
        self._requests[request.id] = request
        self._queue.push(sequence)

    def start(self) -> Iterable[Request]:
        """The requests whose turn it is, while there are places; from now on they run."""
        while self.num_running < self._max_running:
            flow = self._queue.first()
            if flow is None:
                return
            sequence = self._queue.pop(flow)
            sequence.status = RequestStatus.RUNNING
            flow.num_running += 1
            flow.tenant.num_running += 1
            self.num_running += 1
            self._queue.charge(flow, sequence.num_prompt)
            yield self._requests[sequence.id]

    def generated(self, request_id: str, num_tokens: int, now: float) -> None:
        """Charge output tokens to the request's tenant."""
        flow = self._sequences[request_id].flow
        self._queue.charge(flow, OUTPUT_CHARGE * num_tokens)
        if flow.tenant.bucket is not None:
            flow.tenant.bucket.take(num_tokens, now)

    def end(self, request_id: str, now: float) -> None:
        """Forget a request that ended, waiting or running; no effect for an unknown one."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return
        del self._requests[request_id]
        flow = sequence.flow
        if sequence.status is RequestStatus.RUNNING:
            sequence.status = RequestStatus.ENDED
            flow.num_running -= 1
            flow.tenant.num_running -= 1
            self.num_running -= 1
        else:
            self._queue.withdraw(sequence)
            if flow.tenant.bucket is not None:
                flow.tenant.bucket.take(-sequence.num_prompt, now)
        flow.tenant.completion_interval.end(now)
        self._interval.end(now)

    def _check_quotas(self, tenant: Tenant, num_prompt: int, now: float) -> None:
        """Raise QuotaExceededError where a quota does not admit this request now."""
        policy = tenant.policy
        for quota, limit, used in (
            ("concurrent requests", policy.max_concurrent, tenant.num_in_flight),
            ("queued requests", policy.max_queued, tenant.num_waiting),
        ):
            if limit is not None and used >= limit:
                retry_s = tenant.completion_interval.retry_after_s
                raise QuotaExceededError(tenant.name, quota, limit, retry_s)
        if tenant.bucket is not None:
            wait_s = tenant.bucket.wait_s(num_prompt, now)
            if wait_s > 0:
                rate = tenant.bucket.tokens_per_s
                raise QuotaExceededError(tenant.name, "tokens per second", rate, max(1.0, wait_s))
