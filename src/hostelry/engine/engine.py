"""The engine: requests in, the step loop, token ids out.

Synchronous and for one thread, except `prepare_adapter`, which any thread may call. It works on
token ids and adapters' names, not on text or HTTP.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from hostelry.base.clock import Clock, MonotonicClock
from hostelry.engine.adapter_loads import AdapterLoads
from hostelry.engine.config import EngineConfig
from hostelry.engine.deps import EngineDeps
from hostelry.engine.fused_adapter import FusedAdapter
from hostelry.engine.loading import get_scheduler_limits, load_deps
from hostelry.engine.lora.adapter_metrics import AdapterMetrics
from hostelry.engine.lora.errors import AdapterError, AdapterTooLargeError, UnknownAdapterError
from hostelry.engine.lora.loader import Prepared, StorageTier
from hostelry.engine.lora.sources import Fetcher
from hostelry.engine.lora.store import RegisteredAdapter
from hostelry.engine.lora.versions import AdapterVersion
from hostelry.engine.models.spec import ServedSpec, UnsupportedModelError
from hostelry.engine.pages.unified import PagePool, PinBudgetError
from hostelry.engine.pooled import PoolingFacts
from hostelry.engine.prompt_scorer import PromptScorer
from hostelry.engine.request import FinishReason, Output, Request, Structure
from hostelry.engine.request_state import RequestState
from hostelry.engine.request_validator import RequestValidator
from hostelry.engine.runner.rows import SequenceRows, build_batch, order_by_adapter
from hostelry.engine.sampling.grammar import GrammarError
from hostelry.engine.sampling.results import Sampled
from hostelry.engine.sampling.sampler import sample
from hostelry.engine.sampling.xgrammar_binding import CompiledStructure
from hostelry.engine.scheduler.decisions import Chunk, Plan, QuotaExceededError, ServerFullError
from hostelry.engine.scheduler.planner import Scheduler
from hostelry.engine.scheduler.tenants import TenantPolicies, TenantPolicy
from hostelry.engine.stats import EngineCache, EngineCounters, EngineStats

__all__ = [
    "AdapterError",
    "AdapterTooLargeError",
    "Engine",
    "EngineConfig",
    "EngineStats",
    "GrammarError",
    "PinBudgetError",
    "QuotaExceededError",
    "ServerFullError",
    "TenantPolicies",
    "TenantPolicy",
    "UnknownAdapterError",
    "UnsupportedModelError",
]

LOG = logging.getLogger(__name__)

_TOO_LATE = "no first token within the request's deadline; the server is busy"
_LOAD_WAIT_S = 0.005  # how long a step with nothing to compute waits for an adapter's load


class Engine:
    """Continues token sequences of one base model, each with its own adapter or none."""

    def __init__(
        self,
        deps: EngineDeps,
        config: EngineConfig,
        *,
        tenants: TenantPolicies | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.model: ServedSpec = deps.spec
        self.pooling: PoolingFacts | None = deps.pooling
        self._deps = deps
        self._config = config
        self._clock = clock or MonotonicClock()
        pages = PagePool(
            deps.pool.num_pages,
            pin_budget_pages=int(deps.pool.num_pages * config.pin_share),
        )
        self._scheduler = Scheduler(
            get_scheduler_limits(config, deps.spec.vocab_size), pages, tenants
        )
        self._loads = AdapterLoads(
            deps.store, self._scheduler, pages, deps.placer, deps.min_adapter_pages
        )
        self._requests: dict[str, RequestState] = {}
        self._endings: list[Output] = []  # of requests that ended outside a step
        self._scorer = PromptScorer()
        self._fused = FusedAdapter(config.fuse_adapter, deps.merge)
        self._counts = EngineCounters()
        self._validator = RequestValidator(deps, config, self._clock)
        self.cache = EngineCache(pages, deps.store, self._is_at_hand)

    @classmethod
    def load(
        cls,
        folder: Path,
        config: EngineConfig | None = None,
        *,
        tenants: TenantPolicies | None = None,
        fetchers: Mapping[str, Fetcher] | None = None,
        clock: Clock | None = None,
    ) -> "Engine":
        """Load the Hugging Face model in `folder`.

        `fetchers` bring adapters from remote sources, by the scheme of their URI. Raises
        UnsupportedModelError naming the unsupported part of the folder, and ValueError for a
        setting.
        """
        config = config or EngineConfig()
        clock = clock or MonotonicClock()
        deps = load_deps(folder, config, fetchers or {}, clock)
        try:
            return cls(deps, deps.config or config, tenants=tenants, clock=clock)
        except BaseException:
            deps.close()
            raise

    @property
    def warnings(self) -> list[str]:
        """Settings that were not followed, and reasons why steps are slow."""
        return [*self._deps.warnings, *self._deps.decoder.warnings, *self._fused.warnings]

    # Requests

    def add(self, request: Request) -> None:
        """Queue a request, whose tokens `step` returns.

        Raises, keeping nothing of the request, UnknownAdapterError, QuotaExceededError if a quota
        of its tenant is used up, ServerFullError if the queue is full, or ValueError with the
        invalid value.
        """
        if request.id in self._requests:
            raise ValueError(f"request {request.id} is already in progress")
        state = self._validator.build_state(request)
        state.version = self._acquire(request)
        state.is_merged = self._fused.serves(state.content_id)
        try:
            state.arrived_at = self._clock.now()
            self._scheduler.submit(self._validator.build_submission(state), state.arrived_at)
        except BaseException:
            if state.version is not None:
                self._deps.store.release(state.version)
            raise
        self._requests[request.id] = state
        if state.is_merged:
            self._fused.hold(request.id)
        self._scorer.add(state)
        self._counts.prompt_tokens += len(request.prompt_token_ids)

    def compile_structure(self, structure: Structure) -> Future[CompiledStructure]:
        """Compile in another process, so that an `add` with this structure does not wait.

        Raises GrammarError (a ValueError) with the reason, now or from the future.
        """
        return self._deps.structures.submit(structure)

    def abort(self, request_id: str) -> None:
        """End a request now. The next `step` returns it. No error if it is unknown or done."""
        if request_id in self._requests:
            self._end_outside_step(request_id, FinishReason.ABORT, None)

    @property
    def failure(self) -> str | None:
        """Why no step can be computed any more, after the failure of a rank. Otherwise None."""
        return self._deps.failure

    def watch(self, on_failure: Callable[[str], None]) -> None:
        """Have a thread call `on_failure` once another rank has ended. A step may still wait."""
        self._deps.watch(on_failure)

    @property
    def num_ranks(self) -> int:
        """Processes that divide the model, this one included."""
        return self._config.tensor_parallel

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to compute, to load or to return."""
        return bool(self._requests or self._endings)

    def step(self) -> list[Output]:
        """Advance every scheduled request by a chunk of its prompt or by one token.

        If nothing can be computed until an adapter is loaded, it waits a few ms for the load. An
        error of one request ends that request alone.
        """
        failure = self.failure
        if failure is not None:
            return self._fail_all(failure)
        self._absorb_loads()
        now = self._clock.now()
        plan = self._scheduler.plan(now)
        self._loads.begin(plan)
        self._leave_out(plan)
        outputs, self._endings = self._endings, []
        if not plan.chunks:
            if self._requests and not outputs:
                self._loads.wait(_LOAD_WAIT_S)
            return outputs
        sampled: list[tuple[str, Sampled]] = []
        for part in self._fused.split_chunks(plan.chunks):
            try:
                sampled += self._compute(part)
            except Exception:
                LOG.exception("a step of %d requests failed", len(part))
                sampled += self._compute_singly(part)
        self._scheduler.commit(plan, self._clock.now())
        self._counts.steps += 1
        outputs += self._scorer.take_outputs()
        outputs += [self._build_output(request_id, token) for request_id, token in sampled]
        failed, self._endings = self._endings, []
        return outputs + failed

    # Adapters

    def prepare_adapter(self, place: str | Path) -> Prepared:
        """Read and check the PEFT adapter at a path or URI.

        Blocks, in any thread. Raises AdapterError, naming field or tensor and value, unless it can
        be applied exactly as PEFT would.
        """
        return self._deps.store.prepare(place)

    def register_adapter(
        self, name: str, prepared: Prepared, *, pin: bool = False, replace: bool = False
    ) -> RegisteredAdapter:
        """Register a prepared adapter as `name` from the next request on.

        Returns at once. With `replace` a registered name gets a new version: requests in flight end
        on the version they began with. Raises, changing nothing, AdapterError for a name that is
        empty, or registered without `replace`, AdapterTooLargeError if no request could run with
        the adapter, and PinBudgetError if pinned adapters would take too much of the pool.
        """
        store = self._deps.store
        old = store.get(name)
        if old is not None and not replace:
            raise AdapterError(f"adapter {name!r} is already loaded; unload it first")
        content_id, summary = prepared.adapter.content_id, prepared.adapter.summary
        self._loads.check_size(prepared.adapter)
        is_pinned = pin or name in self._loads.pinned
        if is_pinned:
            self._loads.pin(name, content_id, summary.num_pages)
        try:
            store.register(name, prepared)
        except AdapterError:
            self._loads.unpin(name)
            raise
        self._fused.set_version(name, prepared.adapter)
        self._absorb_loads()
        if is_pinned:
            self._loads.preload(content_id, self._clock.now())
        return self._get_registered(name)

    def load_adapter(self, name: str, folder: Path, *, pin: bool = False) -> RegisteredAdapter:
        """Prepare the PEFT adapter in `folder` and register it as `name`."""
        if self._deps.store.get(name) is not None:
            raise AdapterError(f"adapter {name!r} is already loaded; unload it first")
        return self.register_adapter(name, self.prepare_adapter(folder), pin=pin)

    def replace_adapter(self, name: str, folder: Path) -> RegisteredAdapter:
        """Prepare the adapter in `folder` and register it as `name`, new or registered."""
        return self.register_adapter(name, self.prepare_adapter(folder), replace=True)

    def unload_adapter(self, name: str) -> None:
        """Refuse new requests for `name`.

        Requests in flight finish on the old weights. Raises UnknownAdapterError.
        """
        if not self._deps.store.retire(name):
            raise UnknownAdapterError(f"adapter {name!r} is not loaded")
        self._loads.unpin(name)
        self._fused.clear_version(name)
        self._absorb_loads()

    def await_fused(self) -> None:
        """Block until the adapter `fuse_adapter` is merged, if it is registered.

        Raises AdapterError with the reason if the merge failed. The adapter is then computed
        unmerged.
        """
        self._fused.wait()

    def pin_adapter(self, name: str) -> None:
        """Keep the adapter in the pool. Raises UnknownAdapterError, or PinBudgetError."""
        registered = self._get_registered(name)
        content_id = registered.version.content_id
        self._loads.pin(name, content_id, registered.summary.num_pages)
        self._loads.preload(content_id, self._clock.now())

    def unpin_adapter(self, name: str) -> None:
        """Make the adapter evictable again. Raises UnknownAdapterError."""
        self._get_registered(name)
        self._loads.unpin(name)

    @property
    def adapters(self) -> list[RegisteredAdapter]:
        """Registered adapters, in order of registration."""
        return list(self._deps.store.adapters)

    def close(self) -> None:
        """End the threads that load adapters, and the processes of other ranks, for good."""
        self._fused.close()
        self._deps.close()

    # Numbers

    def adapter_tier(self, name: str) -> StorageTier:
        """The fastest tier that holds the adapter now. Raises UnknownAdapterError."""
        content_id = self._get_registered(name).version.content_id
        if self._is_at_hand(content_id):
            return StorageTier.POOL
        return self._deps.store.tier(content_id)

    def adapter_metrics(self, name: str) -> AdapterMetrics:
        """Requests, tokens, loads and hits of one adapter. Raises UnknownAdapterError."""
        self._get_registered(name)
        metrics = self._deps.store.metrics(name)
        assert metrics is not None, "registered names have metrics"
        return metrics

    @property
    def stats(self) -> EngineStats:
        """Counts since the start, and current use."""
        counts = self._counts
        return EngineStats(
            kernels=self._deps.kernels,
            num_steps=counts.steps,
            num_prompt_tokens=counts.prompt_tokens,
            num_cached_tokens=counts.cached_tokens,
            num_generated_tokens=counts.generated_tokens,
            num_preemptions=counts.preemptions,
            num_expired=counts.expired,
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            pool_bytes=self._deps.pool.num_bytes * self._config.tensor_parallel,
            merged_bytes=self._fused.num_bytes,
            pages=self._scheduler.pool.stats(),
            adapters=self._deps.store.stats,
        )

    # The parts of a step

    def _absorb_loads(self) -> None:
        """Process loads that ended, and end the requests of those that failed."""
        for failed in self._loads.absorb(self._clock.now()):
            for request_id in failed.request_ids:
                name = self._requests[request_id].request.adapter
                message = f"adapter {name!r} cannot be loaded: {failed.reason}"
                self._end_outside_step(request_id, FinishReason.ERROR, message)

    def _leave_out(self, plan: Plan) -> None:
        """Process the requests that `plan` preempted or dropped."""
        self._counts.preemptions += len(plan.preempted)
        for request_id in plan.preempted:
            self._requests[request_id].page_row.clear()
        for request_id in plan.expired:
            self._counts.expired += 1
            self._end_outside_step(request_id, FinishReason.DEADLINE, _TOO_LATE)

    def _compute_singly(self, chunks: Sequence[Chunk]) -> list[tuple[str, Sampled]]:
        """Compute each chunk alone.

        A request whose chunk fails ends with the cause. Safe after a failed step: the keys and
        values it wrote are written again, unchanged.
        """
        sampled: list[tuple[str, Sampled]] = []
        for chunk in chunks:
            try:
                sampled += self._compute([chunk])
            except Exception as error:  # noqa: BLE001 - an outermost edge, see test_broad_excepts
                LOG.warning("request %s: %s: %s", chunk.request_id, type(error).__name__, error)
                reason = f"the step failed: {type(error).__name__}: {error}"
                self._end_outside_step(chunk.request_id, FinishReason.ERROR, reason)
        return sampled

    def _compute(self, chunks: Sequence[Chunk]) -> list[tuple[str, Sampled]]:
        """Run one decoder, and choose a token for the request of each sampling chunk."""
        ordered = order_by_adapter([self._build_rows(chunk) for chunk in chunks])
        if self._deps.pooler is not None:
            return self._deps.pooler.compute(ordered, self._requests)
        decoder = self._fused.decoder(chunks[0].request_id) or self._deps.decoder
        scorer = self._scorer
        marked = scorer.mark_rows(ordered)
        batch = build_batch(marked or ordered, has_scored=marked is not None)
        logits_SV = decoder.forward(batch, self._deps.pool)
        greedy_S, finite_S = decoder.last_greedy_S, decoder.last_finite_S
        scores = None
        if marked is not None:
            scores = scorer.compute_scores(logits_SV, marked)
            logits_SV, greedy_S, finite_S = scores.select_sampled(logits_SV, greedy_S, finite_S)
        sampling = [part.request_id for part in ordered if part.samples]
        histories = [self._requests[request_id].history for request_id in sampling]
        sampled = sample(logits_SV, histories, greedy_S=greedy_S, finite_S=finite_S)
        chosen = list(zip(sampling, sampled, strict=True))
        return chosen if scores is None else scorer.record(scores, chosen)

    def _build_rows(self, chunk: Chunk) -> SequenceRows:
        state = self._requests[chunk.request_id]
        content_id = state.pool_content_id
        if state.page_row.is_empty:  # tokens before its first chunk are cached
            self._counts.cached_tokens += chunk.start
            state.begin(self._clock.now(), chunk.start)
        return SequenceRows(
            request_id=chunk.request_id,
            token_ids=state.tokens[chunk.start : chunk.start + chunk.length],
            start=chunk.start,
            pages=state.page_row.update(self._scheduler.pages(chunk.request_id)),
            adapter=content_id or "",
            index=None if content_id is None else self._loads.index(content_id),
            samples=chunk.samples,
        )

    def _build_output(self, request_id: str, sampled: Sampled) -> Output:
        """Record a request's new token, and end the request if it is the last token."""
        state = self._requests[request_id]
        if sampled.vector is not None:
            return self._finish_without_token(state, sampled.vector)
        if sampled.error is None and not state.request.sampling.max_new_tokens:
            return self._finish_without_token(state)
        sampled = state.record(sampled)
        if sampled.token_id is None:
            self._release(state)
            return Output(
                request_id=request_id,
                token_id=None,
                finish_reason=FinishReason.REFUSED if sampled.is_refused else FinishReason.ERROR,
                error=sampled.error,
            )
        is_first = len(state.tokens) == len(state.request.prompt_token_ids)
        state.tokens.append(sampled.token_id)
        self._counts.generated_tokens += 1
        reason = state.get_finish_reason(self.model.eos_token_ids)
        if reason is not None:
            self._release(state, keys=self._validator.page_keys(state, state.tokens[:-1]))
        return Output(
            request_id=request_id,
            token_id=sampled.token_id,
            logprob=sampled.logprob,
            top_logprobs=sampled.top_logprobs,
            finish_reason=reason,
            adapter_content_id=None if reason is None else state.content_id,
            queued_s=state.queued_s if is_first else None,
            num_cached_tokens=state.num_cached_tokens if is_first else None,
        )

    def _finish_without_token(self, state: RequestState, vector: bytes | None = None) -> Output:
        """End a request whose prompt is computed and that asked for no token, or for a vector."""
        self._release(state, keys=self._validator.page_keys(state, state.tokens))
        return state.build_end(
            FinishReason.LENGTH if vector is None else FinishReason.POOLED, vector=vector
        )

    def _fail_all(self, reason: str) -> list[Output]:
        """End all requests: no further step can be computed."""
        for request_id in list(self._requests):
            self._end_outside_step(request_id, FinishReason.ERROR, reason)
        failed, self._endings = self._endings, []
        return failed

    def _end_outside_step(self, request_id: str, reason: FinishReason, message: str | None) -> None:
        state = self._requests[request_id]
        self._release(state)
        self._endings.append(state.build_end(reason, error=message))

    def _release(self, state: RequestState, keys: tuple[bytes, ...] = ()) -> None:
        """Forget a request and release its pages and its adapter."""
        del self._requests[state.request.id]
        self._fused.release(state.request.id)
        self._scorer.discard(state.request.id)
        self._scheduler.remove(state.request.id, self._clock.now(), keys)
        if state.version is not None:
            num_prompt_tokens = len(state.request.prompt_token_ids)
            self._deps.store.release(
                state.version,
                num_prompt_tokens=num_prompt_tokens,
                num_generated_tokens=len(state.tokens) - num_prompt_tokens,
            )

    def _acquire(self, request: Request) -> AdapterVersion | None:
        """Hold the request's adapter. Raises UnknownAdapterError."""
        if request.adapter is None:
            return None
        content_id = self._get_registered(request.adapter).version.content_id
        in_pool = self._is_at_hand(content_id)
        return self._deps.store.acquire(request.adapter, in_pool=in_pool)

    def _is_at_hand(self, content_id: str) -> bool:
        """Whether requests may run with the content now, from the pool or merged."""
        return self._fused.serves(content_id) or self._loads.is_in_pool(content_id)

    def _get_registered(self, name: str) -> RegisteredAdapter:
        registered = self._deps.store.get(name)
        if registered is None:
            raise UnknownAdapterError(f"adapter {name!r} is not loaded")
        return registered
