"""Deterministic backend for tests: known answers, no tensors."""

import asyncio
import struct
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import PurePosixPath

from hostelry.containers.lmi.engine.backend import (
    AdapterCapacityError,
    AdapterExistsError,
    AdapterMissingError,
    AdapterRefusedError,
    AdapterView,
    BackendError,
    BackendStats,
    CachedAdapterView,
    CacheView,
    EngineFailedError,
    EngineFullError,
    ModelFacts,
    QuotaReachedError,
)
from hostelry.engine.request import FinishReason, Output, PromptLogprobs, Request, TokenLogprob

FACTS = ModelFacts(vocab_size=49152, max_model_len=256, eos_token_ids=(2,), dtype="fp32")
LOGPROB = -0.5
REFUSED: Mapping[str, BackendError] = {
    "bad": AdapterRefusedError("use_dora is true; only plain LoRA can be applied exactly"),
    "huge": AdapterCapacityError("no memory for the adapter"),
    "crowded": EngineFullError("1000 adapters wait to be read already"),
}


class FakeBackend:
    """Backend that generates the same token ids for every request of an adapter, one per step.

    A cleared `gate` holds all steps. After `hold_after` steps it is cleared. The first request sets
    `started`. After `fail_after` tokens the engine dies of `failure`, and `ready` is unset. A
    source named `bad` has bad weights, one named `huge` exceeds the memory, one named `slow` is
    not read before `slow` is set. `aborted` collects the ids that were ended early. The tenant
    `greedy` is over its quota. For the tenant `crowd` the queue is full. A request with a deadline
    under a second misses it. `versions` maps adapters to their sources.
    """

    def __init__(
        self,
        answers: Mapping[str | None, Sequence[int]],
        *,
        fail_after: int | None = None,
        hold_after: int | None = None,
        facts: ModelFacts = FACTS,
        failure: str = "the engine process ended unexpectedly",
    ) -> None:
        self._answers = {name: tuple(ids) for name, ids in answers.items()}
        self.fail_after = fail_after
        self._hold_after = hold_after
        self._running: set[str] = set()
        self.facts = facts
        self._failure = failure
        self.versions = {name: name for name in answers if name is not None}
        self.pinned: set[str] = set()
        self.slow = asyncio.Event()
        self.aborted: list[str] = []
        self.seen: list[Request] = []
        self.ready = True
        self.started = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def generate(self, requests: Sequence[Request]) -> AsyncGenerator[tuple[Output, ...]]:
        """Run `requests` together (see EngineBackend)."""
        for request in requests:
            self._check_admitted(request)
        self.seen += requests
        self._running |= {request.id for request in requests}
        self.started.set()
        try:
            position = 0
            while running := [each for each in requests if each.id in self._running]:
                await self._reach(position)
                if position == 0 and (
                    scores := [it for each in running for it in build_scores(each)]
                ):
                    yield tuple(scores)
                yield tuple(self._output(request, position) for request in running)
                position += 1
        finally:
            await self.abort([each.id for each in requests if each.id in self._running])

    def _check_admitted(self, request: Request) -> None:
        if request.adapter is not None and request.adapter not in self.adapters:
            raise AdapterMissingError(f"adapter {request.adapter} is not loaded")
        if request.tenant == "greedy":
            raise QuotaReachedError("tenant 'greedy' has reached its quota of 3 tokens", 2.3)
        if request.tenant == "crowd":
            raise EngineFullError("9 requests wait already", 4.0)

    @property
    def adapters(self) -> set[str]:
        """Names of the adapters."""
        return set(self.versions)

    async def _reach(self, position: int) -> None:
        await asyncio.sleep(0)
        if position == self._hold_after:
            self.gate.clear()
        await self.gate.wait()
        if position == self.fail_after:
            self.ready = False
            self._check_alive()

    def _output(self, request: Request, position: int) -> Output:
        if (request.first_token_deadline_s or 1.0) < 1.0:
            self._running.discard(request.id)
            return Output(request_id=request.id, token_id=None, finish_reason=FinishReason.DEADLINE)
        if self.facts.pooling is not None:
            self._running.discard(request.id)
            return Output(
                request_id=request.id,
                token_id=None,
                vector=fake_vector(request, self.facts.pooling.dimension),
                finish_reason=FinishReason.POOLED,
                adapter_content_id=self.versions.get(request.adapter or ""),
            )
        if not request.sampling.max_new_tokens:
            self._running.discard(request.id)
            return Output(request_id=request.id, token_id=None, finish_reason=FinishReason.LENGTH)
        ids = self._answers.get(request.adapter, self._answers[None])
        token_id = ids[position] if position < len(ids) else self.facts.eos_token_ids[0]
        finish = None
        if token_id in self.facts.eos_token_ids:
            finish = FinishReason.EOS
        elif position + 1 >= request.sampling.max_new_tokens:
            finish = FinishReason.LENGTH
        if finish:
            self._running.discard(request.id)
        return Output(
            request_id=request.id,
            token_id=token_id,
            logprob=LOGPROB,
            top_logprobs=(TokenLogprob(token_id=token_id, logprob=LOGPROB),)
            * (request.sampling.num_logprobs or 0),
            finish_reason=finish,
            adapter_content_id=self.versions.get(request.adapter or "") if finish else None,
            queued_s=0.0 if position == 0 else None,
            num_cached_tokens=0 if position == 0 else None,
        )

    def _check_alive(self) -> None:
        if not self.ready:
            raise EngineFailedError(self._failure)

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests."""
        self.aborted += [each for each in request_ids if each in self._running]
        self._running -= set(request_ids)

    async def register_adapter(
        self, name: str, src: str, *, pin: bool, replace: bool, limit_s: float
    ) -> None:
        """Register `src` as `name` (see EngineBackend)."""
        self._check_alive()
        if name in self.versions and not replace:
            raise AdapterExistsError(f"adapter {name} is loaded already")
        if (error := REFUSED.get(PurePosixPath(src).name)) is not None:
            raise error
        if PurePosixPath(src).name == "slow":
            try:
                await asyncio.wait_for(self.slow.wait(), limit_s)
            except TimeoutError:
                raise AdapterRefusedError(f"adapter {name} was not read in time") from None
        self.versions[name] = src
        if pin:
            self.pinned.add(name)

    async def pin_adapter(self, name: str, pin: bool) -> None:
        """Pin or unpin it (see EngineBackend)."""
        self._check_alive()
        if pin and name == "fr":
            raise AdapterCapacityError("the pins would take more than their budget of the pool")
        (self.pinned.add if pin else self.pinned.discard)(name)

    async def adapter(self, name: str) -> AdapterView:
        """A made-up view (see EngineBackend)."""
        self._check_alive()
        if name not in self.versions:
            raise AdapterMissingError(f"adapter {name} is not loaded")
        tier = "pool" if name in self.pinned else "host"
        version = self.versions[name]
        return AdapterView(version=version, tier=tier, rank=8, num_bytes=10, num_pages=1)

    async def unload_adapter(self, name: str) -> None:
        """Unregister `name` (see EngineBackend)."""
        self._check_alive()
        if name not in self.adapters:
            raise AdapterMissingError(f"adapter {name} is not loaded")
        del self.versions[name]

    async def cache(self, limit: int) -> CacheView:
        """The made-up views, and a pool of four pages (see EngineBackend)."""
        names = list(self.versions)[:limit]
        views = [CachedAdapterView(name=it, view=await self.adapter(it)) for it in names]
        return CacheView(
            adapters=tuple(views),
            num_adapters=len(self.versions),
            page_codes=bytes((0, 0, 1, 0, 1, 0, 3, 0)),
            stats=await self.stats(),
        )

    async def stats(self) -> BackendStats:
        """The number of running requests."""
        self._check_alive()
        return BackendStats(running_requests=len(self._running))


def build_scores(request: Request) -> list[Output]:
    """Build the scores of a prompt, in two parts. Each token is the second likeliest."""
    num_top, prompt = request.num_prompt_logprobs, request.prompt_token_ids
    if num_top is None or len(prompt) < 2:
        return []
    cut = 1 + len(prompt) // 2
    return [
        Output(
            request_id=request.id,
            token_id=None,
            prompt_logprobs=PromptLogprobs(
                start=start,
                logprobs=(2 * LOGPROB,) * (end - start),
                ranks=(2,) * (end - start),
                top_ids=tuple(range(3, 3 + num_top)) * (end - start),
                top_logprobs=(LOGPROB,) * num_top * (end - start),
            ),
        )
        for start, end in ((1, cut), (cut, len(prompt)))
        if start < end
    ]


def fake_vector(request: Request, dimension: int) -> bytes:
    """Build a vector that depends only on the token ids, their types and the adapter's name."""
    ids = request.prompt_token_ids
    seed = sum(place * it for place, it in enumerate(ids, 1)) + len(request.adapter or "")
    seed += 1000 * sum(request.token_types)
    return struct.pack(f"<{dimension}f", *(((seed + 7 * it) % 31) - 15 for it in range(dimension)))
