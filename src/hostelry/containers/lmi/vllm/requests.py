"""The requests of the engine process: checked, queued, run by vLLM, their tokens sent."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hostelry.base.clock import Clock
from hostelry.containers.lmi.engine.messages import Add, FromEngine, Refused, Stepped
from hostelry.containers.lmi.vllm.admission import VllmAdmission
from hostelry.containers.lmi.vllm.engine_seam import EngineLostError, Vllm
from hostelry.containers.lmi.vllm.outputs import outputs_of
from hostelry.containers.lmi.vllm.registry import AdapterTable, UnknownVersionError, VllmAdapter
from hostelry.containers.lmi.vllm.sampling import sampling_arguments
from hostelry.engine.request import MAX_LOGPROBS, FinishReason, Output, Request
from hostelry.engine.sampling.history import check_token_ids
from hostelry.engine.scheduler.errors import QuotaExceededError, ServerFullError

Send = Callable[[FromEngine], None]

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class VllmRequest:
    """A request that has not ended; `task` runs it once it has started."""

    request: Request
    arguments: Mapping[str, Any]
    adapter: VllmAdapter | None
    arrived_at: float
    deadline: asyncio.TimerHandle | None = None
    task: "asyncio.Task[None] | None" = None


class VllmRequests:
    """Runs requests; all methods in the event loop. Outputs of one turn are one message."""

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

    def add(self, message: Add) -> None:
        """Queue all requests of the message, or refuse all."""
        added: list[str] = []
        for request in message.requests:
            try:
                self._add(request)
            except (ValueError, QuotaExceededError, ServerFullError) as error:
                for request_id in added:
                    self._forget(request_id)
                self.refuse(message, error)
                return
            added.append(request.id)
        self._start()

    def refuse(self, message: Add, error: Exception) -> None:
        """Say that none of the message's requests runs."""
        self._send(refused(message, error))

    def abort(self, request_ids: Iterable[str]) -> None:
        """End these requests; unknown ids are skipped."""
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
                found = outputs_of(request, each, queued_s=queued_s, content_id=content_id)
                queued_s = None
                self._take(held, found)
                if found and found[-1].finish_reason:
                    return
            self._failed(held, "vLLM ended it without a reason")
        except EngineLostError:
            log.exception("request %s ends with the engine", request.id)
        except ValueError as error:  # before its first token: what vLLM does not take
            self._failed(held, str(error), FinishReason.REFUSED)
        except Exception as error:
            log.exception("request %s failed", request.id)
            self._failed(held, f"{type(error).__name__}: {error}")

    def _take(self, held: VllmRequest, outputs: Sequence[Output]) -> None:
        num_tokens = sum(it.token_id is not None for it in outputs)
        if outputs and held.deadline is not None:
            held.deadline.cancel()
        self.generated_tokens += num_tokens
        self._admission.generated(held.request.id, num_tokens, self._clock.now())
        if held.adapter is not None:
            held.adapter.generated_tokens += num_tokens
        self._emit(outputs)
        if outputs and outputs[-1].finish_reason:
            self._forget(held.request.id)
            self._start()

    def _failed(
        self, held: VllmRequest, text: str, reason: FinishReason = FinishReason.ERROR
    ) -> None:
        if held.request.id in self._unfinished:
            held.task = None  # this one, which is not to be cancelled
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


def refused(message: Add, error: Exception) -> Refused:
    """The refusal of all requests of the message."""
    ids = tuple(it.id for it in message.requests)
    if isinstance(error, QuotaExceededError):
        return Refused(ids, "quota", str(error), error.retry_after_s)
    if isinstance(error, ServerFullError):
        return Refused(ids, "full", str(error), error.retry_after_s)
    if isinstance(error, UnknownVersionError):
        return Refused(ids, "adapter_missing", str(error))
    return Refused(ids, "request", str(error))
