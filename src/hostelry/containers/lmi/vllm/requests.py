"""The requests of the engine process: checks them, queues them by tenant, and runs them by vLLM."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hostelry.base.clock import Clock
from hostelry.containers.lmi.engine.backend import EngineFailedError
from hostelry.containers.lmi.engine.loop import Send
from hostelry.containers.lmi.engine.messages import Stepped
from hostelry.containers.lmi.vllm.adapters import AdapterTable, VllmAdapter
from hostelry.containers.lmi.vllm.arguments import sampling_arguments
from hostelry.containers.lmi.vllm.interface import Vllm, to_outputs
from hostelry.engine.request import MAX_LOGPROBS, FinishReason, Output, Request
from hostelry.engine.sampling.history import check_token_ids
from hostelry.engine.scheduler.decisions import QuotaExceededError, ServerFullError, Submission
from hostelry.engine.scheduler.fair_queue import OUTPUT_CHARGE, FairQueue
from hostelry.engine.scheduler.records import RequestStatus, Tenant
from hostelry.engine.scheduler.records import Sequence as QueuedSequence
from hostelry.engine.scheduler.tenants import CompletionInterval, TenantPolicies

LOG = logging.getLogger(__name__)


class VllmAdmission:
    """Requests by arrival, quota and fair share. At most `max_running` run.

    vLLM computes requests in their order, of any tenant. So vLLM is given no more requests than one
    batch holds, and the fair queue of our own engine chooses the next request. Unlike in our own
    engine, all prompt tokens are charged when a request starts, even those in vLLM's prefix cache.
    A request that has started is not held back for another tenant's request.
    """

    def __init__(self, policies: TenantPolicies, max_running: int, max_waiting: int | None) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._queue = FairQueue(policies)
        self._sequences: dict[str, QueuedSequence] = {}
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
        sequence = QueuedSequence(
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
        """Pop the next requests, up to the number of free places. They count as running."""
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

    def charge_output(self, request_id: str, num_tokens: int, now: float) -> None:
        """Charge output tokens to the request's tenant."""
        flow = self._sequences[request_id].flow
        self._queue.charge(flow, OUTPUT_CHARGE * num_tokens)
        if flow.tenant.bucket is not None:
            flow.tenant.bucket.take(num_tokens, now)

    def end(self, request_id: str, now: float) -> None:
        """Forget a request that ended, waiting or running. No effect for an unknown request."""
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
        """Raise QuotaExceededError if a quota does not admit this request now."""
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


class VllmRequest(msgspec.Struct, eq=False, kw_only=True):
    """A request that has not ended. `task` runs it once it has started."""

    request: Request
    arguments: Mapping[str, Any]
    adapter: VllmAdapter | None
    arrived_at: float
    deadline: asyncio.TimerHandle | None = None
    task: "asyncio.Task[None] | None" = None


class VllmRequests:
    """Runs requests. All methods are for the event loop. Outputs of one turn are one message."""

    def __init__(
        self,
        llm: Vllm,
        adapters: AdapterTable,
        admission: VllmAdmission,
        send: Send,
        clock: Clock,
    ) -> None:
        self._llm = llm
        self._adapters = adapters
        self._admission = admission
        self._send = send
        self._clock = clock
        self._unfinished: dict[str, VllmRequest] = {}
        self._outputs: list[Output] = []
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.expired = 0

    @property
    def num_unfinished(self) -> int:
        """Requests that have not ended."""
        return len(self._unfinished)

    def add(self, requests: Sequence[Request]) -> None:
        """Queue all `requests`, or none of them if one is refused.

        Raises ValueError, QuotaExceededError, ServerFullError.
        """
        added: list[str] = []
        try:
            for request in requests:
                self._add(request)
                added.append(request.id)
        except BaseException:
            for request_id in added:
                self._forget(request_id)
            raise
        self._start()

    def abort(self, request_ids: Iterable[str]) -> None:
        """End these requests. Unknown ids are skipped."""
        for request_id in request_ids:
            self._end_early(request_id, FinishReason.ABORT)
        self._start()

    def close(self) -> None:
        """Cancel what runs."""
        for request_id in list(self._unfinished):
            self._forget(request_id)

    def _add(self, request: Request) -> None:
        check(request, self._llm)
        arguments = sampling_arguments(request, self._llm.facts.eos_token_ids)
        adapter = self._adapters.acquire(request.adapter, len(request.prompt_token_ids))
        try:
            self._admission.submit(request, self._clock.now())
        except BaseException:
            self._adapters.release(adapter)
            raise
        held = VllmRequest(
            request=request, arguments=arguments, adapter=adapter, arrived_at=self._clock.now()
        )
        self._unfinished[request.id] = held
        if request.first_token_deadline_s is not None:
            held.deadline = asyncio.get_running_loop().call_later(
                request.first_token_deadline_s, self._expire, request.id
            )
        self.prompt_tokens += len(request.prompt_token_ids)

    def _start(self) -> None:
        for request in self._admission.start():
            held = self._unfinished[request.id]
            held.task = asyncio.get_running_loop().create_task(self._run(held))

    async def _run(self, held: VllmRequest) -> None:
        request, adapter = held.request, held.adapter
        content_id = None if adapter is None else adapter.content_id
        queued_s: float | None = self._clock.now() - held.arrived_at
        try:
            results = self._llm.generate(request, held.arguments, adapter)
            async for each in results:
                found = to_outputs(request, each, queued_s=queued_s, content_id=content_id)
                queued_s = None
                self._take(held, found)
                if found and found[-1].finish_reason:
                    return
            self._fail(held, "vLLM ended it without a reason")
        except EngineFailedError:
            LOG.exception("request %s ends with the engine", request.id)
        except ValueError as error:  # before its first token: vLLM refuses the request
            self._fail(held, str(error), FinishReason.REFUSED)
        except Exception as error:
            LOG.exception("request %s failed", request.id)
            self._fail(held, f"{type(error).__name__}: {error}")

    def _take(self, held: VllmRequest, outputs: Sequence[Output]) -> None:
        num_tokens = sum(it.token_id is not None for it in outputs)
        if outputs and held.deadline is not None:
            held.deadline.cancel()
        self.generated_tokens += num_tokens
        self._admission.charge_output(held.request.id, num_tokens, self._clock.now())
        if held.adapter is not None:
            held.adapter.generated_tokens += num_tokens
        self._emit(outputs)
        if outputs and outputs[-1].finish_reason:
            self._forget(held.request.id)
            self._start()

    def _fail(
        self, held: VllmRequest, text: str, reason: FinishReason = FinishReason.ERROR
    ) -> None:
        if held.request.id in self._unfinished:
            held.task = None  # the present task, which must not be cancelled
            self._end_early(held.request.id, reason, text)
            self._start()

    def _expire(self, request_id: str) -> None:
        self.expired += 1
        self._end_early(request_id, FinishReason.DEADLINE)
        self._start()

    def _end_early(self, request_id: str, reason: FinishReason, error: str | None = None) -> None:
        if request_id in self._unfinished:
            self._forget(request_id)
            self._emit(
                [Output(request_id=request_id, token_id=None, finish_reason=reason, error=error)]
            )

    def _forget(self, request_id: str) -> None:
        held = self._unfinished.pop(request_id)
        if held.deadline is not None:
            held.deadline.cancel()
        if held.task is not None and held.task is not asyncio.current_task():
            held.task.cancel()
        self._admission.end(request_id, self._clock.now())
        self._adapters.release(held.adapter)

    def _emit(self, outputs: Sequence[Output]) -> None:
        if not self._outputs and outputs:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outputs += outputs

    def _flush(self) -> None:
        outputs, self._outputs = self._outputs, []
        self._send(Stepped(tuple(outputs)))


def check(request: Request, llm: Vllm) -> None:
    """Raise ValueError for a request that the model cannot run, as our own engine does."""
    prompt, facts = request.prompt_token_ids, llm.facts
    if not prompt:
        raise ValueError(f"request {request.id} has an empty prompt")
    if len(prompt) >= facts.max_model_len:
        raise ValueError(
            f"the prompt has {len(prompt)} tokens; with one more to generate it must fit in "
            f"max_model_len, {facts.max_model_len}"
        )
    for token_id in (min(prompt), max(prompt)):
        if not 0 <= token_id < facts.vocab_size:
            raise ValueError(f"token id {token_id} is outside the vocabulary of {facts.vocab_size}")
    check_token_ids(request.sampling, facts.vocab_size)
    num_top = request.num_prompt_logprobs or 0
    if not 0 <= num_top <= MAX_LOGPROBS:
        raise ValueError(
            f"num_prompt_logprobs is {num_top}; it must be between 0 and {MAX_LOGPROBS}"
        )
