"""A small deterministic backend for tests: known answers, no tensors."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

from hostelry.containers.lmi.backend import (
    AdapterCapacityError,
    AdapterExistsError,
    AdapterMissingError,
    AdapterRefusedError,
    BackendStats,
    EngineFailedError,
    ModelFacts,
)
from hostelry.engine.request import FinishReason, Output, Request, TokenLogprob

FACTS = ModelFacts(vocab_size=49152, max_model_len=256, eos_token_ids=(2,), dtype="fp32")
LOGPROB = -0.5


class FakeBackend:
    """Answers every request of an adapter with the same token ids, one a step, then ends it.

    `gate` cleared holds all steps, as it is after `hold_after` of them. `started` is set by the
    first request. `fail_after` tokens the engine dies, as it is while `ready` is unset. A folder
    named `bad` is an adapter with bad weights, one named `huge` more than there is memory for.
    `aborted` collects the ids that were ended early.
    """

    def __init__(
        self,
        answers: Mapping[str | None, Sequence[int]],
        *,
        fail_after: int | None = None,
        hold_after: int | None = None,
        facts: ModelFacts = FACTS,
    ) -> None:
        self._answers = {name: tuple(ids) for name, ids in answers.items()}
        self._fail_after = fail_after
        self._hold_after = hold_after
        self._running: set[str] = set()
        self.facts = facts
        self.adapters = {name for name in answers if name is not None}
        self.aborted: list[str] = []
        self.seen: list[Request] = []
        self.ready = True
        self.started = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def generate(self, requests: Sequence[Request]) -> AsyncGenerator[tuple[Output, ...]]:
        """Run `requests` together; see EngineBackend."""
        for request in requests:
            if request.adapter is not None and request.adapter not in self.adapters:
                raise AdapterMissingError(f"adapter {request.adapter} is not loaded")
        self.seen += requests
        self._running |= {request.id for request in requests}
        self.started.set()
        try:
            position = 0
            while running := [each for each in requests if each.id in self._running]:
                await self._reach(position)
                yield tuple(self._output(request, position) for request in running)
                position += 1
        finally:
            await self.abort([each.id for each in requests if each.id in self._running])

    async def _reach(self, position: int) -> None:
        await asyncio.sleep(0)
        if position == self._hold_after:
            self.gate.clear()
        await self.gate.wait()
        if position == self._fail_after:
            self.ready = False
            self._check_alive()

    def _output(self, request: Request, position: int) -> Output:
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
        )

    def _check_alive(self) -> None:
        if not self.ready:
            raise EngineFailedError("the engine process ended unexpectedly")

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests."""
        self.aborted += [each for each in request_ids if each in self._running]
        self._running -= set(request_ids)

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Make `name` usable; see EngineBackend."""
        self._check_alive()
        if name in self.adapters:
            raise AdapterExistsError(f"adapter {name} is loaded already")
        if folder.name == "bad":
            raise AdapterRefusedError("use_dora is true; only plain LoRA can be applied exactly")
        if folder.name == "huge":
            raise AdapterCapacityError(f"no memory for adapter {name}")
        self.adapters.add(name)

    async def unload_adapter(self, name: str) -> None:
        """Forget `name`; see EngineBackend."""
        self._check_alive()
        if name not in self.adapters:
            raise AdapterMissingError(f"adapter {name} is not loaded")
        self.adapters.discard(name)

    async def stats(self) -> BackendStats:
        """The number of running requests."""
        self._check_alive()
        return BackendStats(running_requests=len(self._running))
