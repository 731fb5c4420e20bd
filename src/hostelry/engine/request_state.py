"""The state of a request in progress."""

import logging

import msgspec

from hostelry.engine.lora.versions import AdapterVersion
from hostelry.engine.pooling.pooler import PartialSum
from hostelry.engine.request import FinishReason, Output, Request
from hostelry.engine.runner.rows import PageRow
from hostelry.engine.sampling.history import TokenHistory
from hostelry.engine.sampling.results import Sampled

LOG = logging.getLogger(__name__)


class RequestState(msgspec.Struct, kw_only=True):
    """A request in progress: its tokens so far, its adapter and its pages.

    `max_tokens` bounds prompt and answer. The first `num_scored` prompt tokens have been scored, if
    the request asks for scores. With `is_merged` its adapter is part of the decoder's weights and
    takes no page. `queued_s` is the time from `arrived_at` to its first computed row, None before
    that row. `num_cached_tokens` of its prompt came from the prefix cache.
    """

    request: Request
    tokens: list[int]
    history: TokenHistory
    max_tokens: int
    version: AdapterVersion | None = None
    is_merged: bool = False
    page_row: PageRow = msgspec.field(default_factory=PageRow)
    num_scored: int = 1  # the first token is not scored
    partial_sum: PartialSum | None = None
    arrived_at: float = 0.0
    queued_s: float | None = None
    num_cached_tokens: int = 0

    def begin(self, now: float, num_cached_tokens: int) -> None:
        """Record the first computed row. After a preemption a later call changes nothing."""
        if self.queued_s is None:
            self.queued_s = now - self.arrived_at
            self.num_cached_tokens = num_cached_tokens

    @property
    def content_id(self) -> str | None:
        """The content id of its adapter. None for the base model."""
        return None if self.version is None else self.version.content_id

    @property
    def pool_content_id(self) -> str | None:
        """The content id of the adapter that it needs in the pool, if any."""
        return None if self.is_merged else self.content_id

    def get_finish_reason(self, eos_token_ids: tuple[int, ...]) -> FinishReason | None:
        """Why its last token ends the request. None if another token comes."""
        sampling, token_id = self.request.sampling, self.tokens[-1]
        if token_id in sampling.stop_token_ids:
            return FinishReason.EOS
        if token_id in eos_token_ids and not sampling.ignore_eos:
            return FinishReason.EOS
        return FinishReason.LENGTH if len(self.tokens) >= self.max_tokens else None

    def build_end(
        self, reason: FinishReason, *, error: str | None = None, vector: bytes | None = None
    ) -> Output:
        """The output of a request that ends without a further token."""
        return Output(
            request_id=self.request.id,
            token_id=None,
            vector=vector,
            finish_reason=reason,
            error=error,
            adapter_content_id=self.content_id,
        )

    def record(self, sampled: Sampled) -> Sampled:
        """Append the token to the request's history. Returns it, or the error."""
        if sampled.token_id is None:
            return sampled
        try:
            self.history.append(sampled.token_id)
        except Exception as error:
            LOG.exception("request %s: its token cannot be recorded", self.request.id)
            return Sampled(None, error=f"{type(error).__name__}: {error}")
        return sampled
