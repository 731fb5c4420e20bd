"""The engine: add and abort requests; the step loop; token ids out.

Synchronous and for one thread. It knows token ids and adapters' names, not text and not HTTP.
"""

import logging
import secrets
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from hostelry.engine.config import EngineConfig
from hostelry.engine.loading import Parts, load_parts
from hostelry.engine.lora.adapter import load_adapter
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.registry import AdapterRegistry, AdapterSummary, LoadedAdapter
from hostelry.engine.models.spec import ModelError, ModelSpec
from hostelry.engine.pages.pool import PagePool
from hostelry.engine.request import FinishReason, Output, Request, Structure
from hostelry.engine.runner.runner import RunnerChunk
from hostelry.engine.sampling.grammar import GrammarError
from hostelry.engine.sampling.history import TokenHistory, check_token_ids
from hostelry.engine.sampling.sampler import Sampled, sample
from hostelry.engine.sampling.structure_compiler import StructureCompiler
from hostelry.engine.sampling.xgrammar_binding import CompiledStructure
from hostelry.engine.scheduler.plan import Chunk, Plan
from hostelry.engine.scheduler.scheduler import Limits, Scheduler

__all__ = [
    "AdapterError",
    "AdapterSummary",
    "Engine",
    "EngineConfig",
    "EngineStats",
    "ModelError",
    "UnknownAdapterError",
]

_log = logging.getLogger(__name__)


class UnknownAdapterError(ValueError):
    """A request names an adapter that is not loaded; it is never answered by the base model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Counts since the start, and what is held now."""

    num_steps: int
    num_prompt_tokens: int
    num_generated_tokens: int
    num_preemptions: int
    num_running: int
    num_waiting: int
    num_pages: int
    num_free_pages: int
    kv_cache_bytes: int
    adapter_bytes: int


@dataclass(slots=True)
class _Live:
    """A request under way: its tokens so far and what it holds."""

    request: Request
    tokens: list[int]
    history: TokenHistory
    adapter: LoadedAdapter | None
    max_tokens: int  # prompt and output together


class Engine:
    """Continues token sequences of one base model, each with its own adapter or none."""

    def __init__(self, parts: Parts, config: EngineConfig) -> None:
        self.model: ModelSpec = parts.spec
        self.warnings: list[str] = list(parts.warnings)
        self._parts = parts
        self._config = config
        self._registry = AdapterRegistry(parts.slots)
        limits = Limits(
            max_batch_size=config.max_batch_size,
            max_batched_tokens=max(config.max_batched_tokens, config.max_batch_size),
            page_tokens=config.page_tokens,
            max_adapters=config.max_loras,
        )
        self._scheduler = Scheduler(limits, PagePool(parts.num_pages))
        self._structures: StructureCompiler | None = None
        self._live: dict[str, _Live] = {}
        self._endings: list[Output] = []  # of requests that ended outside a step
        self._num_steps = 0
        self._num_prompt_tokens = 0
        self._num_generated_tokens = 0
        self._num_preemptions = 0

    @classmethod
    def load(cls, folder: Path, config: EngineConfig) -> "Engine":
        """The engine of the Hugging Face model in `folder`.

        Raises ModelError naming what in the folder cannot be run, ValueError for a setting.
        """
        engine = cls(load_parts(folder, config), config)
        engine._structures = StructureCompiler(
            folder, vocab_size=engine.model.vocab_size, end_token_ids=engine.model.eos_token_ids
        )
        return engine

    def add(self, request: Request) -> None:
        """Queue a request; `step` then reports its tokens.

        Raises UnknownAdapterError, or ValueError saying what is wrong with the request.
        """
        max_tokens = self._check(request)
        structure = request.sampling.structure
        compiled = self.compile_structure(structure).result() if structure else None
        adapter = None
        if request.adapter is not None:
            adapter = self._registry.acquire(request.adapter)
            if adapter is None:
                raise UnknownAdapterError(f"adapter {request.adapter!r} is not loaded")
        seed = request.sampling.seed
        history = TokenHistory(
            request.sampling,
            secrets.randbits(64) if seed is None else seed,
            request.prompt_token_ids,
            eos_token_ids=self.model.eos_token_ids,
            grammar=compiled.start() if compiled else None,
        )
        tokens = list(request.prompt_token_ids)
        self._live[request.id] = _Live(request, tokens, history, adapter, max_tokens)
        self._scheduler.add(request.id, len(tokens), request.adapter)
        self._num_prompt_tokens += len(tokens)

    def compile_structure(self, structure: Structure) -> Future[CompiledStructure]:
        """Compile beside the steps; an `add` of a request with this structure then need not wait.

        Raises GrammarError (a ValueError), now or from the future, saying what is wrong with it.
        """
        if self._structures is None:
            raise GrammarError("structured output needs an engine with a model folder: Engine.load")
        return self._structures.submit(structure)

    def abort(self, request_id: str) -> None:
        """End a request now; the next `step` reports it. No error if it is unknown or done."""
        if request_id in self._live:
            self._end_outside_step(request_id, FinishReason.ABORT, None)

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to compute or to report."""
        return bool(self._live or self._endings)

    def step(self) -> list[Output]:
        """Advance every scheduled request by a chunk of its prompt or by one token."""
        outputs, self._endings = self._endings, []
        plan = self._scheduler.plan()
        self._num_preemptions += len(plan.preempted)
        if not plan.chunks:
            return outputs
        try:
            sampled = self._compute(plan)
        except Exception as error:  # noqa: BLE001 - an outermost edge, see CONTRIBUTING.md
            _log.exception("step of %d requests failed", len(plan.chunks))
            for chunk in plan.chunks:
                message = f"the step failed: {type(error).__name__}: {error}"
                self._end_outside_step(chunk.request_id, FinishReason.ERROR, message)
            failed, self._endings = self._endings, []
            return outputs + failed
        self._scheduler.commit(plan)
        self._num_steps += 1
        wanted = [chunk for chunk in plan.chunks if chunk.samples]
        outputs += [
            self._output(chunk, token) for chunk, token in zip(wanted, sampled, strict=True)
        ]
        return outputs

    def load_adapter(self, name: str, folder: Path) -> AdapterSummary:
        """Make the PEFT adapter in `folder` available as `name`.

        Raises AdapterError, naming field or tensor and value, unless it can be applied exactly as
        PEFT would, or when the name is taken.
        """
        self._registry.check_free(name)
        adapter = load_adapter(
            folder,
            self._parts.space,
            max_rank=self._config.max_lora_rank,
            allow_zero_effect=self._config.allow_zero_effect_adapters,
        )
        return self._registry.register(name, adapter)

    def unload_adapter(self, name: str) -> None:
        """Refuse new requests for `name`; those in flight finish on the old weights.

        Raises UnknownAdapterError.
        """
        if not self._registry.retire(name):
            raise UnknownAdapterError(f"adapter {name!r} is not loaded")

    @property
    def adapters(self) -> list[AdapterSummary]:
        """Loaded adapters, in order of loading."""
        return list(self._registry.summaries)

    @property
    def stats(self) -> EngineStats:
        """Counts and present use."""
        return EngineStats(
            num_steps=self._num_steps,
            num_prompt_tokens=self._num_prompt_tokens,
            num_generated_tokens=self._num_generated_tokens,
            num_preemptions=self._num_preemptions,
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_pages=self._scheduler.pool.num_pages,
            num_free_pages=self._scheduler.pool.num_free,
            kv_cache_bytes=self._parts.kv_cache_bytes,
            adapter_bytes=self._parts.slots.num_bytes,
        )

    def _check(self, request: Request) -> int:
        """The request's largest number of tokens. Raises ValueError."""
        prompt = request.prompt_token_ids
        if request.id in self._live:
            raise ValueError(f"request {request.id} is already under way")
        if not prompt:
            raise ValueError(f"request {request.id} has an empty prompt")
        if len(prompt) >= self.model.max_model_len:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens; with one more to generate it must fit in "
                f"max_model_len, {self.model.max_model_len}"
            )
        for token_id in (min(prompt), max(prompt)):
            if not 0 <= token_id < self.model.vocab_size:
                raise ValueError(
                    f"token id {token_id} is outside the vocabulary of {self.model.vocab_size}"
                )
        check_token_ids(request.sampling, self.model.vocab_size)
        wanted = len(prompt) + request.sampling.max_new_tokens
        max_tokens = min(wanted, self.model.max_model_len)
        room = self._scheduler.pool.num_pages * self._config.page_tokens
        if max_tokens > room:
            raise ValueError(
                f"prompt and max_new_tokens need {max_tokens} tokens of cache; it holds {room}"
            )
        return max_tokens

    def _compute(self, plan: Plan) -> Sequence[Sampled]:
        """Run the model on the plan and choose a token for each sampling chunk."""
        chunks = [self._runner_chunk(chunk) for chunk in plan.chunks]
        logits_SV = self._parts.runner.run(chunks, plan.new_pages)
        histories = [self._live[c.request_id].history for c in plan.chunks if c.samples]
        return sample(logits_SV, histories)

    def _runner_chunk(self, chunk: Chunk) -> RunnerChunk:
        live = self._live[chunk.request_id]
        return RunnerChunk(
            token_ids=live.tokens[chunk.start : chunk.start + chunk.length],
            start=chunk.start,
            pages=self._scheduler.pages(chunk.request_id),
            slot=live.adapter.slot if live.adapter else None,
            samples=chunk.samples,
        )

    def _output(self, chunk: Chunk, sampled: Sampled) -> Output:
        """Commit a request's new token and end the request where it is the last one."""
        live = self._live[chunk.request_id]
        if sampled.token_id is None:
            self._release(chunk.request_id)
            return Output(
                request_id=chunk.request_id,
                token_id=None,
                finish_reason=FinishReason.ERROR,
                error=sampled.error,
            )
        live.tokens.append(sampled.token_id)
        live.history.append(sampled.token_id)
        self._num_generated_tokens += 1
        reason = self._finish_reason(live, sampled.token_id)
        if reason is not None:
            self._release(chunk.request_id)
        return Output(
            request_id=chunk.request_id,
            token_id=sampled.token_id,
            logprob=sampled.logprob,
            top_logprobs=sampled.top_logprobs,
            finish_reason=reason,
        )

    def _finish_reason(self, live: _Live, token_id: int) -> FinishReason | None:
        sampling = live.request.sampling
        if token_id in sampling.stop_token_ids:
            return FinishReason.EOS
        if token_id in self.model.eos_token_ids and not sampling.ignore_eos:
            return FinishReason.EOS
        return FinishReason.LENGTH if len(live.tokens) >= live.max_tokens else None

    def _end_outside_step(self, request_id: str, reason: FinishReason, message: str | None) -> None:
        self._release(request_id)
        self._endings.append(
            Output(request_id=request_id, token_id=None, finish_reason=reason, error=message)
        )

    def _release(self, request_id: str) -> None:
        """Forget a request and give back its pages and its adapter."""
        live = self._live.pop(request_id)
        self._scheduler.remove(request_id)
        if live.adapter is not None:
            self._registry.release(live.adapter)
