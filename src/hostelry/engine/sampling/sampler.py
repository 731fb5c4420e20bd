"""Choosing the next token of each request from its logits.

# S rows, V vocabulary
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hostelry.engine.request import SamplingParams, TokenLogprob
from hostelry.engine.sampling.draw import uniform
from hostelry.engine.sampling.processors import (
    count_penalties,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    repetition_penalty,
)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The chosen token; logarithms of probabilities before penalties and truncation.

    `token_id` is None where the row's logits are not finite, so that nothing can be chosen.
    """

    token_id: int | None
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()


class TokenHistory:
    """What one request's sampling depends on: its parameters, its seed, its tokens so far."""

    def __init__(self, params: SamplingParams, seed: int, prompt: Sequence[int]) -> None:
        self.params = params
        self.seed = seed
        self.num_generated = 0
        self.seen = set(prompt) if params.repetition_penalty != 1 else None
        has_count = params.presence_penalty != 0 or params.frequency_penalty != 0
        self.counts: Counter[int] | None = Counter() if has_count else None

    @property
    def is_plain(self) -> bool:
        """Whether the most likely token is all that is wanted."""
        greedy = self.params.temperature == 0 and self.params.num_logprobs is None
        return greedy and self.seen is None and self.counts is None

    def append(self, token_id: int) -> None:
        """Record a generated token."""
        self.num_generated += 1
        if self.seen is not None:
            self.seen.add(token_id)
        if self.counts is not None:
            self.counts[token_id] += 1


@torch.inference_mode()
def sample(logits_SV: torch.Tensor, histories: Sequence[TokenHistory]) -> list[Sampled]:
    """One token a row; row i is chosen for `histories[i]`, which is not changed."""
    if not histories:
        return []
    largest_S, likeliest_S = logits_SV.max(-1)  # nan wins over every number
    finite = torch.isfinite(largest_S).tolist()
    sampled = []
    for row, (history, token_id) in enumerate(zip(histories, likeliest_S.tolist(), strict=True)):
        if not finite[row]:
            sampled.append(Sampled(None))
        elif history.is_plain:
            sampled.append(Sampled(token_id))
        else:
            sampled.append(_sample_row(logits_SV[row], history))
    return sampled


def _sample_row(logits_V: torch.Tensor, history: TokenHistory) -> Sampled:
    token_id = _choose(_penalised(logits_V, history), history)
    if history.params.num_logprobs is None:
        return Sampled(token_id)
    logprobs_V = logits_V.log_softmax(-1)
    top = torch.topk(logprobs_V, min(history.params.num_logprobs, len(logprobs_V)))
    alternatives = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return Sampled(
        token_id,
        float(logprobs_V[token_id]),
        tuple(TokenLogprob(token_id=other, logprob=value) for other, value in alternatives),
    )


def _penalised(logits_V: torch.Tensor, history: TokenHistory) -> torch.Tensor:
    params = history.params
    if history.seen:
        seen = torch.tensor(sorted(history.seen), device=logits_V.device)
        logits_V = repetition_penalty(logits_V, seen, params.repetition_penalty)
    if history.counts:
        logits_V = count_penalties(
            logits_V,
            torch.tensor(list(history.counts), device=logits_V.device),
            torch.tensor(
                list(history.counts.values()), dtype=logits_V.dtype, device=logits_V.device
            ),
            params.presence_penalty,
            params.frequency_penalty,
        )
    return logits_V


def _choose(logits_V: torch.Tensor, history: TokenHistory) -> int:
    params = history.params
    if params.temperature == 0:
        return int(logits_V.argmax())
    logits_V = logits_V / params.temperature
    if params.top_k > 0:
        logits_V = keep_top_k(logits_V, params.top_k)
    if params.top_p < 1:
        logits_V = keep_top_p(logits_V, params.top_p)
    if params.min_p > 0:
        logits_V = keep_min_p(logits_V, params.min_p)
    # The first token whose cumulative probability exceeds a uniform draw.
    mass_V = logits_V.to(torch.float64).softmax(-1).cumsum(-1)
    drawn = uniform(history.seed, history.num_generated) * float(mass_V[-1])
    return int(torch.searchsorted(mass_V, drawn, right=True).clamp_max(len(mass_V) - 1))
