"""Changes to one row of logits before a token is chosen; each returns a new row.

Definitions as in Hugging Face transformers' logits processors; presence and frequency penalties as
in the OpenAI API reference, over the tokens generated so far.

# V vocabulary, C tokens counted
"""

import torch

_HEAD = 1024  # most likely tokens that nearly always hold the mass top_p asks for


def repetition_penalty(
    logits_V: torch.Tensor, seen_C: torch.Tensor, penalty: float
) -> torch.Tensor:
    """Divide positive and multiply negative logits of the seen tokens by `penalty`.

    Source: CTRL, arXiv:1909.05858.
    """
    seen = logits_V[seen_C]
    return logits_V.index_copy(0, seen_C, torch.where(seen < 0, seen * penalty, seen / penalty))


def count_penalties(
    logits_V: torch.Tensor,
    tokens_C: torch.Tensor,
    counts_C: torch.Tensor,
    presence: float,
    frequency: float,
) -> torch.Tensor:
    """Subtract `presence` once and `frequency` for each time a token was generated."""
    return logits_V.index_add(0, tokens_C, -(presence + frequency * counts_C))


def keep_top_k(logits_V: torch.Tensor, top_k: int) -> torch.Tensor:
    """Keep the `top_k` largest logits, and those equal to the last of them; others become -inf."""
    if top_k >= len(logits_V):
        return logits_V
    smallest = torch.topk(logits_V, top_k).values[-1]
    return logits_V.masked_fill(logits_V < smallest, float("-inf"))


def keep_top_p(logits_V: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the fewest most likely tokens whose probabilities reach `top_p`; at least one."""
    total = torch.logsumexp(logits_V, 0)
    values, tokens = torch.topk(logits_V, min(_HEAD, len(logits_V)))
    mass = (values - total).exp().cumsum(0)
    if float(mass[-1]) < top_p:  # flatter than usual: order them all
        values, tokens = torch.sort(logits_V, descending=True)
        mass = (values - total).exp().cumsum(0)
    before = torch.cat((mass.new_zeros(1), mass[:-1]))
    kept = tokens[before < top_p]
    result = torch.full_like(logits_V, float("-inf"))
    return result.index_copy(0, kept, logits_V[kept])


def keep_min_p(logits_V: torch.Tensor, min_p: float) -> torch.Tensor:
    """Keep tokens at least `min_p` times as likely as the most likely one."""
    probabilities = logits_V.softmax(0)
    return logits_V.masked_fill(probabilities < min_p * probabilities.max(), float("-inf"))
