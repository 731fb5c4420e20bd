"""The part of vLLM that we use. Converts its outputs to ours, which are one `Output` per token."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from hostelry.containers.lmi.engine.backend import ModelFacts
from hostelry.containers.lmi.vllm.adapters import VllmAdapter
from hostelry.engine.request import (
    FinishReason,
    Output,
    PromptLogprobs,
    Request,
    TokenLogprob,
)


class TokenScore(Protocol):
    """vLLM's Logprob. `rank` is 1 for the likeliest token."""

    @property
    def logprob(self) -> float: ...  # noqa: D102
    @property
    def rank(self) -> int | None: ...  # noqa: D102


Scores = Mapping[int, TokenScore]


class Completion(Protocol):
    """vLLM's CompletionOutput: the tokens since the last output."""

    @property
    def token_ids(self) -> Sequence[int]: ...  # noqa: D102
    @property
    def logprobs(self) -> Sequence[Scores] | None: ...  # noqa: D102
    @property
    def finish_reason(self) -> str | None: ...  # noqa: D102


class Generated(Protocol):
    """vLLM's RequestOutput."""

    @property
    def outputs(self) -> Sequence[Completion]: ...  # noqa: D102
    @property
    def prompt_token_ids(self) -> Sequence[int] | None: ...  # noqa: D102
    @property
    def num_cached_tokens(self) -> int | None: ...  # noqa: D102
    @property
    def prompt_logprobs(self) -> Sequence[Scores | None] | None: ...  # noqa: D102


# "stop" is always a token here: stop strings are found by the server.
REASONS: Mapping[str, FinishReason] = {
    "stop": FinishReason.EOS,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.ABORT,
    "error": FinishReason.ERROR,
}
ERROR_TEXT = "vLLM could not compute this request; its log has the reason"


def to_outputs(
    request: Request, generated: Generated, *, queued_s: float | None, content_id: str | None
) -> list[Output]:
    """The outputs in `generated`, in order.

    `queued_s` belongs to the first outputs, before which the prompt's scores come. None later.
    """
    is_first = queued_s is not None
    prompt = prompt_scores(request, generated.prompt_logprobs) if is_first else None
    completion = generated.outputs[0]
    found = [] if request.sampling.max_new_tokens == 0 else to_token_outputs(request, completion)
    if prompt is not None:
        found.insert(0, Output(request_id=request.id, token_id=None, prompt_logprobs=prompt))
    if completion.finish_reason is None:
        return add_first_values(request, found, generated, queued_s)
    reason = REASONS[completion.finish_reason]
    if not found or found[-1].token_id is None:
        found.append(Output(request_id=request.id, token_id=None))
    found[-1] = replace(
        found[-1],
        finish_reason=reason,
        error=ERROR_TEXT if reason is FinishReason.ERROR else None,
        adapter_content_id=content_id,
    )
    return add_first_values(request, found, generated, queued_s)


def add_first_values(
    request: Request, found: list[Output], generated: Generated, queued_s: float | None
) -> list[Output]:
    """Add the values that are reported only once to the first output in `found`."""
    if queued_s is not None and found:
        found[0] = replace(
            found[0],
            queued_s=queued_s,
            num_cached_tokens=generated.num_cached_tokens,
            num_prompt_tokens=len(generated.prompt_token_ids or ()) if request.images else None,
        )
    return found


def to_token_outputs(request: Request, completion: Completion) -> list[Output]:
    """The tokens, with their scores if they were asked for."""
    found = []
    for place, token_id in enumerate(completion.token_ids):
        output = Output(request_id=request.id, token_id=token_id)
        if completion.logprobs is not None:
            logprob, top = token_scores(request, token_id, completion.logprobs[place])
            output = replace(output, logprob=logprob, top_logprobs=top)
        found.append(output)
    return found


def token_scores(
    request: Request, token_id: int, scores: Scores
) -> tuple[float, tuple[TokenLogprob, ...]]:
    """The token's logarithm of probability, and the likeliest tokens', likeliest first."""
    num_top = request.sampling.num_logprobs or 0
    return scores[token_id].logprob, tuple(
        TokenLogprob(token_id=each, logprob=score.logprob)
        for each, score in likeliest(scores, num_top)
    )


def prompt_scores(
    request: Request, scores: Sequence[Scores | None] | None
) -> PromptLogprobs | None:
    """The scores of the prompt's tokens after the first. None if they were not asked for."""
    num_top = request.num_prompt_logprobs
    tokens = request.prompt_token_ids[1:]
    if num_top is None or scores is None or not tokens:
        return None
    rows = [it for it in scores[1:] if it is not None]
    own = [row[token] for token, row in zip(tokens, rows, strict=True)]
    top = [pair for row in rows for pair in likeliest(row, num_top)]
    return PromptLogprobs(
        start=1,
        logprobs=tuple(it.logprob for it in own),
        ranks=tuple(it.rank or 1 for it in own),
        top_ids=tuple(token for token, _ in top),
        top_logprobs=tuple(score.logprob for _, score in top),
    )


def likeliest(scores: Scores, num_top: int) -> list[tuple[int, TokenScore]]:
    """The first `num_top` tokens by rank. vLLM also adds the token itself, with any rank."""
    ranked = sorted(scores.items(), key=lambda it: -it[1].logprob)
    return ranked[:num_top]


class Vllm(Protocol):
    """vLLM's asynchronous engine over token ids."""

    num_steps: int  # so far
    cached_tokens: int
    preemptions: int

    @property
    def facts(self) -> ModelFacts:
        """The loaded model."""
        ...

    @property
    def failure(self) -> str | None:
        """The reason why vLLM can no longer compute. None while it can."""
        ...

    @property
    def num_pages(self) -> int:
        """Blocks of the KV cache."""
        ...

    @property
    def num_used_pages(self) -> int:
        """Blocks in use at the last step."""
        ...

    def generate(
        self, request: Request, arguments: Mapping[str, Any], adapter: VllmAdapter | None
    ) -> AsyncGenerator[Generated]:
        """The request's outputs. Closing the generator ends the request.

        Raises ValueError for a request that vLLM refuses, EngineFailedError.
        """
        ...

    async def add_adapter(self, adapter: VllmAdapter) -> list[str]:
        """Load the adapter. Returns its modules that no layer uses. Raises AdapterError."""
        ...

    async def remove_adapter(self, adapter: VllmAdapter) -> None:
        """Forget the adapter. No effect if it is not in memory."""
        ...
