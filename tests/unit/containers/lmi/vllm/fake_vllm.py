"""A fake of vLLM. The tokens of each request are 1, 2, 3 ..., after the test has set `go`."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hostelry.containers.lmi.engine.backend import ModelFacts
from hostelry.containers.lmi.vllm.adapters import VllmAdapter
from hostelry.containers.lmi.vllm.interface import Generated, Scores
from hostelry.engine.request import Request


@dataclass(frozen=True)
class FakeScore:
    logprob: float
    rank: int | None = 1


@dataclass(frozen=True)
class FakeCompletion:
    token_ids: Sequence[int]
    logprobs: Sequence[Scores] | None = None
    finish_reason: str | None = None


@dataclass(frozen=True)
class FakeGenerated:
    outputs: Sequence[FakeCompletion]
    prompt_logprobs: Sequence[Scores | None] | None = None
    num_cached_tokens: int | None = 1
    prompt_token_ids: Sequence[int] | None = None


@dataclass
class FakeVllm:
    """A fake engine. `go` lets requests compute. `unused` has modules without vLLM's support."""

    unused: list[str] = field(default_factory=list)
    num_steps: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    failure: str | None = None
    num_pages: int = 100
    num_used_pages: int = 7
    facts: ModelFacts = field(
        default_factory=lambda: ModelFacts(
            vocab_size=100, max_model_len=50, eos_token_ids=(2,), dtype="fp32"
        )
    )
    go: asyncio.Event = field(default_factory=asyncio.Event)
    started: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    arguments: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    loaded: dict[int, str] = field(default_factory=dict)
    keys: dict[str, str | None] = field(default_factory=dict)
    error: Exception | None = None

    async def generate(
        self, request: Request, arguments: Mapping[str, Any], adapter: VllmAdapter | None
    ) -> AsyncGenerator[Generated]:
        self.started.append(request.id)
        self.arguments[request.id] = arguments
        self.keys[request.id] = None if adapter is None else adapter.key
        try:
            await self.go.wait()
            if self.error is not None:
                raise self.error
            for token in range(1, arguments["max_tokens"] + 1):
                self.num_steps += 1
                is_last = token == arguments["max_tokens"]
                yield FakeGenerated([FakeCompletion([token], None, "length" if is_last else None)])
                await asyncio.sleep(0)
        finally:
            self.ended.append(request.id)

    async def add_adapter(self, adapter: VllmAdapter) -> list[str]:
        self.loaded[adapter.number] = adapter.key
        return self.unused

    async def remove_adapter(self, adapter: VllmAdapter) -> None:
        del self.loaded[adapter.number]
