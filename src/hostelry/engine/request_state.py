"""The state of a request in progress."""

import logging
from dataclasses import dataclass, field

from hostelry.engine.lora.versions import AdapterVersion
from hostelry.engine.pooling.pooler import PartialSum
from hostelry.engine.request import FinishReason, Request
from hostelry.engine.runner.rows import PageRow
from hostelry.engine.sampling.history import TokenHistory
from hostelry.engine.sampling.sampler import Sampled

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RequestState:
    """A request's tokens so far, at most `max_tokens` with the prompt, and what it holds.

    Prompt tokens before number `num_scored` have been scored, where the request asks for that.
    `is_merged`: its adapter is part of the weights it is computed with, and in no page.
    `queued_s` is the time from `arrived_at` to its first computed row, None before that;
    `num_cached_tokens` of its prompt came from the prefix cache.
    """

    request: Request
    tokens: list[int]
    history: TokenHistory
    max_tokens: int
    version: AdapterVersion | None = None
    is_merged: bool = False
    page_row: PageRow = field(default_factory=PageRow)
    num_scored: int = 1  # the first has nothing before it
    partial_sum: PartialSum | None = None
    arrived_at: float = 0.0
    queued_s: float | None = None
    num_cached_tokens: int = 0

    def begin(self, now: float, num_cached_tokens: int) -> None:
        """Record its first computed row; a later call, after a preemption, changes nothing."""
        if self.queued_s is None:
            self.queued_s = now - self.arrived_at
            self.num_cached_tokens = num_cached_tokens

    @property
    def content_id(self) -> str | None:
        """The content id of its adapter; None for the base model."""
        return None if self.version is None else self.version.content_id

    @property
    def pool_content_id(self) -> str | None:
        """The content id of the adapter that it needs in the pool; None for none."""
        return None if self.is_merged else self.content_id

    def finish_reason(self, eos_token_ids: tuple[int, ...]) -> FinishReason | None:
        """Why its last token is the last one; None where another comes."""
        sampling, token_id = self.request.sampling, self.tokens[-1]
        if token_id in sampling.stop_token_ids:
            return FinishReason.EOS
        if token_id in eos_token_ids and not sampling.ignore_eos:
            return FinishReason.EOS
        return FinishReason.LENGTH if len(self.tokens) >= self.max_tokens else None

    def recorded(self, sampled: Sampled) -> Sampled:
        """The token once it is in the request's history, or the error that kept it out."""
        if sampled.token_id is None:
            return sampled
        try:
            self.history.append(sampled.token_id)
        except Exception as error:  # noqa: BLE001 - an outermost edge, see test_broad_excepts
            _log.exception("request %s: its token cannot be recorded", self.request.id)
            return Sampled(None, error=f"{type(error).__name__}: {error}")
        return sampled
