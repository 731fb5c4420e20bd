"""Scores of known tokens: the logarithm of their probability, their rank, the likeliest tokens.

Computed on the logits' device, a block of rows at a time, so that temporaries stay small. Sums are
of single-precision exponentials in double precision, row by row.

# S rows, R rows of a block, V vocabulary, K alternatives
"""

from collections.abc import Sequence

import torch

from hostelry.engine.request import PromptLogprobs

_ROWS_AT_ONCE = 64


@torch.inference_mode()
def score(
    logits_SV: torch.Tensor, token_ids: Sequence[int], *, start: int, num_top: int
) -> PromptLogprobs | None:
    """The scores of `token_ids`, of which the first is token `start` of the prompt.

    Row i of `logits_SV` is of the position before token i. None if a needed logit is not finite.
    """
    tokens_S = torch.tensor(token_ids, device=logits_SV.device)
    num_top = min(num_top, logits_SV.shape[1])
    parts = [slice(at, at + _ROWS_AT_ONCE) for at in range(0, len(token_ids), _ROWS_AT_ONCE)]
    blocks = [_block(logits_SV[part], tokens_S[part], num_top) for part in parts]
    logprobs, ranks, top_ids, top = (torch.cat(parts).cpu() for parts in zip(*blocks, strict=True))
    if not (logprobs.isfinite().all() and top.isfinite().all()):
        return None
    return PromptLogprobs(
        start=start,
        logprobs=tuple(logprobs.tolist()),
        ranks=tuple(ranks.tolist()),
        top_ids=tuple(top_ids.flatten().tolist()),
        top_logprobs=tuple(top.flatten().tolist()),
    )


def _block(
    logits_RV: torch.Tensor, tokens_R: torch.Tensor, num_top: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logprobs (R), ranks (R), alternatives' ids (R, K) and logprobs (R, K)."""
    x_RV = logits_RV.float()
    own_R1 = x_RV.gather(1, tokens_R[:, None])
    ranks_R = (x_RV > own_R1).sum(1) + 1
    top_RK, top_ids_RK = x_RV.topk(num_top, dim=1)
    largest_R1 = x_RV.amax(1, keepdim=True)
    sums_R1 = (x_RV - largest_R1).exp_().sum(1, keepdim=True, dtype=torch.float64)
    shift_R1 = largest_R1.double() + sums_R1.log()
    return (own_R1 - shift_R1).squeeze(1), ranks_R, top_ids_RK, top_RK - shift_R1
