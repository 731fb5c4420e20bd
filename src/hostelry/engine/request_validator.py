"""Validation of requests, and their forms for the engine and the scheduler."""

import secrets
from collections.abc import Sequence

from hostelry.base.clock import Clock
from hostelry.engine.config import EngineConfig
from hostelry.engine.deps import EngineDeps
from hostelry.engine.pages.prefix import build_salt, hash_pages
from hostelry.engine.request import MAX_LOGPROBS, Request
from hostelry.engine.request_state import RequestState
from hostelry.engine.sampling.history import TokenHistory, check_token_ids
from hostelry.engine.scheduler.decisions import Submission

_BASE_ID = "base"  # a pool belongs to one base model
_MERGED_ID = "merged"  # rounding makes the keys and values of merged weights differ


class RequestValidator:
    """Checks requests against the model and the engine's settings."""

    def __init__(self, deps: EngineDeps, config: EngineConfig, clock: Clock) -> None:
        self._model = deps.spec
        self._store = deps.store
        self._min_pages = deps.min_adapter_pages
        self._structures = deps.structures
        self._config = config
        self._clock = clock

    def build_state(self, request: Request) -> RequestState:
        """The initial state of a request, without its adapter. Raises ValueError if invalid."""
        max_tokens = self._check(request)
        structure = request.sampling.structure
        compiled = self._structures.submit(structure).result() if structure else None
        seed = request.sampling.seed
        return RequestState(
            request=request,
            tokens=list(request.prompt_token_ids),
            history=TokenHistory(
                request.sampling,
                secrets.randbits(64) if seed is None else seed,
                request.prompt_token_ids,
                eos_token_ids=self._model.eos_token_ids,
                grammar=compiled.start() if compiled else None,
            ),
            max_tokens=max_tokens,
        )

    def build_submission(self, state: RequestState) -> Submission:
        """The request in the scheduler's form."""
        request, content_id = state.request, state.pool_content_id
        deadline_s = request.first_token_deadline_s
        pages, cost_s = 0, 0.0
        if content_id is not None:
            pages = max(self._store.summary(content_id).num_pages, self._min_pages)
            cost_s = self._store.reload_cost_s(content_id)
        return Submission(
            id=request.id,
            tenant=(request.adapter or "") if request.tenant is None else request.tenant,
            num_prompt_tokens=len(state.tokens),
            max_tokens=state.max_tokens,
            adapter=content_id,
            adapter_pages=pages,
            reload_cost_s=cost_s,
            prefix_keys=self.page_keys(state, state.tokens),
            is_scored=request.num_prompt_logprobs is not None,
            deadline_at=None if deadline_s is None else self._clock.now() + deadline_s,
        )

    def page_keys(self, state: RequestState, tokens: Sequence[int]) -> tuple[bytes, ...]:
        """The content keys of the complete pages of `tokens`. Empty without a prefix cache."""
        if not self._config.prefix_cache:
            return ()
        base_id = _MERGED_ID if state.is_merged else _BASE_ID
        salt = build_salt(base_id, state.content_id, state.request.cache_salt)
        return tuple(hash_pages(salt, tokens, self._config.page_tokens))

    def _check(self, request: Request) -> int:
        """The most tokens the request can have, prompt included. Raises ValueError."""
        if request.images:
            raise ValueError(f"request {request.id} has images, which this engine does not read")
        prompt, max_len = request.prompt_token_ids, self._model.max_model_len
        if not prompt:
            raise ValueError(f"request {request.id} has an empty prompt")
        if len(prompt) >= max_len:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens; with one more to generate it must fit in "
                f"max_model_len, {max_len}"
            )
        for token_id in (min(prompt), max(prompt)):
            if not 0 <= token_id < self._model.vocab_size:
                raise ValueError(
                    f"token id {token_id} is outside the vocabulary of {self._model.vocab_size}"
                )
        check_token_ids(request.sampling, self._model.vocab_size)
        num_top = request.num_prompt_logprobs or 0
        if not 0 <= num_top <= MAX_LOGPROBS:
            raise ValueError(
                f"num_prompt_logprobs is {num_top}; it must be between 0 and {MAX_LOGPROBS}"
            )
        return min(len(prompt) + max(1, request.sampling.max_new_tokens), max_len)
