"""Choice of tokens on the device that holds the logits. Only tokens and logprobs leave it.

It chooses the tokens that `sampler` chooses on the host, except where a draw falls between two
tokens within rounding. Masses are whole numbers, so that sums do not depend on their order: a row's
token is the same in any batch.

# R rows, V vocabulary, K candidates of a row, C positions that are changed, L rows with logprobs
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import torch

from hostelry.engine.request import TokenLogprob
from hostelry.engine.sampling.draw import draw_uniform
from hostelry.engine.sampling.history import TokenHistory
from hostelry.engine.sampling.processors import LogitPositions, list_changes
from hostelry.engine.sampling.results import NONE_ALLOWED, NOT_FINITE, Sampled
from hostelry.engine.sampling.truncate import STEEPEST

MASS_ONE = 1 << 44  # the mass of the most likely token. Sums of 2**18 tokens fit into 63 bits
NUM_CANDIDATES = 1024  # of a row with limits. A row that keeps more is ordered whole
LARGEST = torch.finfo(torch.float32).max
LOW_BITS = 0xFFFFFFFF


class _Limits(msgspec.Struct, frozen=True):
    """The limits of sampled rows (R,), and the number in [0, 1) of each draw."""

    temperature_R: torch.Tensor
    top_k_R: torch.Tensor
    top_p_R: torch.Tensor
    min_p_R: torch.Tensor
    shares_R: torch.Tensor

    def select(self, rows: torch.Tensor) -> "_Limits":
        """The limits of some rows."""
        return _Limits(*(getattr(self, name)[rows] for name in self.__struct_fields__))


def can_sample_on_device(history: TokenHistory) -> bool:
    """True unless a grammar or bans, which are kept on the host, mask the logits."""
    return history.grammar is None and history.bans is None


def sample_on_device(logits_RV: torch.Tensor, histories: Sequence[TokenHistory]) -> list[Sampled]:
    """A token of each row. `logits_RV` is fp32, and overwritten."""
    largest_R = logits_RV.amax(1)
    is_finite_R = torch.isfinite(largest_R)
    logits_RV.masked_fill_(~is_finite_R[:, None], 0)
    logprobs = _Logprobs(logits_RV, histories)
    for positions, is_penalty in list_changes(histories, logits_RV.shape[1]):
        _change(logits_RV, positions, is_penalty=is_penalty)
    largest_R, tokens_R = logits_RV.max(1)
    is_possible_R = ~torch.isneginf(largest_R)
    logits_RV.masked_fill_(~torch.isfinite(largest_R)[:, None], 0)
    is_finite_R &= ~torch.isnan(largest_R)
    sampling = [row for row, it in enumerate(histories) if it.params.temperature > 0]
    if sampling:
        rows = torch.tensor(sampling, device=logits_RV.device)
        limits = _read_limits([histories[row] for row in sampling], logits_RV)
        tokens_R[rows] = _draw(logits_RV[rows], limits)
    return logprobs.build_all(tokens_R, is_finite_R, is_possible_R)


def _read_limits(histories: Sequence[TokenHistory], like_RV: torch.Tensor) -> _Limits:
    params = [it.params for it in histories]
    vocab, device = like_RV.shape[1], like_RV.device

    def to_device(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    return _Limits(
        to_device([it.temperature for it in params]),
        torch.tensor([min(it.top_k, vocab) for it in params], device=device),
        to_device([it.top_p for it in params]),
        to_device([it.min_p for it in params]),
        to_device([draw_uniform(it.seed, it.num_generated) for it in histories]),
    )


def _change(x_RV: torch.Tensor, positions: LogitPositions, *, is_penalty: bool) -> None:
    """Add a value at each position, or divide by it if it is a penalty of repetition, in place."""
    rows_C = torch.from_numpy(positions.rows_C).to(x_RV.device)
    tokens_C = torch.from_numpy(positions.tokens_C).to(x_RV.device)
    values_C = torch.from_numpy(positions.values_C).to(x_RV.device)
    before_C = x_RV[rows_C, tokens_C]
    if is_penalty:
        after_C = torch.where(before_C < 0, before_C * values_C, before_C / values_C)
    else:
        after_C = before_C + values_C
    is_masked_C = torch.isneginf(before_C) | torch.isneginf(values_C)
    after_C = after_C.clamp(-LARGEST, LARGEST).masked_fill(is_masked_C, -torch.inf)
    x_RV[rows_C, tokens_C] = after_C


def _draw(x_RV: torch.Tensor, limits: _Limits) -> torch.Tensor:
    """A token (R,) of each row from its masses, within its limits."""
    mass_RV = _compute_mass(x_RV, limits.temperature_R)
    sums_RV = mass_RV.cumsum(1)
    tokens_R = _find_share(sums_RV, limits.shares_R, sums_RV[:, -1])
    is_limited_R = (limits.top_k_R > 0) | (limits.top_p_R < 1) | (limits.min_p_R > 0)
    rows = is_limited_R.nonzero()[:, 0]
    if len(rows):
        some, total_R = limits.select(rows), sums_RV[rows, -1]
        tokens_R[rows] = _draw_kept(x_RV[rows], mass_RV[rows], total_R, some)
    return tokens_R


def _compute_mass(x_RV: torch.Tensor, temperature_R: torch.Tensor) -> torch.Tensor:
    """exp((x - max x) / temperature) of every token as a whole number, int64 (R, V)."""
    steepness_R = (1 / temperature_R).clamp(max=STEEPEST).float()
    exponent_RV = (x_RV - x_RV.amax(1, keepdim=True)).mul_(steepness_R[:, None])
    return exponent_RV.exp_().mul_(MASS_ONE).to(torch.int64)


def _find_share(
    sums_RN: torch.Tensor, shares_R: torch.Tensor, total_R: torch.Tensor
) -> torch.Tensor:
    """The first position at which the running sum exceeds a share in [0, 1) of the total."""
    wanted_R = (shares_R * total_R.double()).to(torch.int64).minimum(total_R - 1)
    return torch.searchsorted(sums_RN, wanted_R[:, None], right=True)[:, 0]


def _draw_kept(
    x_RV: torch.Tensor, mass_RV: torch.Tensor, total_R: torch.Tensor, limits: _Limits
) -> torch.Tensor:
    """A token (R,) of each row among the tokens that its limits keep."""
    keys_RV = _build_keys(x_RV)
    num = min(NUM_CANDIDATES, x_RV.shape[1])
    tokens_R, is_whole_R = _draw_candidates(keys_RV, num, x_RV, mass_RV, total_R, limits)
    rows = (~is_whole_R).nonzero()[:, 0]
    if num < x_RV.shape[1] and len(rows):
        tokens_R[rows], _ = _draw_candidates(
            keys_RV[rows], x_RV.shape[1], x_RV[rows], mass_RV[rows], total_R[rows],
            limits.select(rows),
        )  # fmt: skip
    return tokens_R


def _draw_candidates(
    keys_RV: torch.Tensor,
    num: int,
    x_RV: torch.Tensor,
    mass_RV: torch.Tensor,
    total_R: torch.Tensor,
    limits: _Limits,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A token of each row among its `num` most likely, and whether these include all kept ones.

    The rules of `truncate.keep` apply.
    """
    tokens_RK = keys_RV.topk(num, dim=1, largest=False).values & LOW_BITS
    x_RK, mass_RK = x_RV.gather(1, tokens_RK), mass_RV.gather(1, tokens_RK)
    has_k_R = limits.top_k_R > 0
    last_R1 = (limits.top_k_R.clamp(min=1, max=num) - 1)[:, None]
    is_top_k_RK = (x_RK >= x_RK.gather(1, last_R1)) | ~has_k_R[:, None]
    sums_RK = mass_RK.cumsum(1)
    num_top_k_R = is_top_k_RK.sum(1)
    in_top_k_R = sums_RK.gather(1, (num_top_k_R - 1)[:, None])[:, 0]
    total_R = torch.where(has_k_R, in_top_k_R, total_R)
    reached_RK = (sums_RK - mass_RK).double() < (limits.top_p_R * total_R.double())[:, None]
    reached_RK |= (limits.top_p_R >= 1)[:, None]
    likely_RK = mass_RK.double() >= (limits.min_p_R * MASS_ONE)[:, None]
    kept_R = (is_top_k_RK & reached_RK & likely_RK).sum(1).clamp(min=1)
    kept_mass_R = sums_RK.gather(1, (kept_R - 1)[:, None])[:, 0]
    places_R = _find_share(sums_RK, limits.shares_R, kept_mass_R)
    is_whole_R = (kept_R < num) & ((num_top_k_R < num) | ~has_k_R)
    return tokens_RK.gather(1, places_R[:, None])[:, 0], is_whole_R


def _build_keys(x_RV: torch.Tensor) -> torch.Tensor:
    """Each token's sort key, the smaller the likelier: its logit's bits, then its id."""
    bits_RV = (x_RV + 0.0).view(torch.int32)  # 0.0 for -0.0
    rank_RV = (bits_RV ^ ((bits_RV >> 31) & 0x7FFFFFFF)).to(torch.int64)
    return (-rank_RV << 32) + torch.arange(x_RV.shape[1], device=x_RV.device)


class _Logprobs:
    """Logarithms of probabilities of the rows that ask for them, from unchanged logits."""

    def __init__(self, x_RV: torch.Tensor, histories: Sequence[TokenHistory]) -> None:
        rows = [row for row, it in enumerate(histories) if it.params.num_logprobs is not None]
        self._position = {row: position for position, row in enumerate(rows)}
        self._counts = [histories[row].params.num_logprobs or 0 for row in rows]
        if not rows:
            return
        self._x_LV = x_RV[torch.tensor(rows, device=x_RV.device)]
        ones_L = torch.ones(len(rows), dtype=torch.float64, device=x_RV.device)
        self._mass_L = _compute_mass(self._x_LV, ones_L).sum(1)
        most = min(max(self._counts), x_RV.shape[1])
        self._top_LK = _build_keys(self._x_LV).topk(most, dim=1, largest=False).values & LOW_BITS

    def build_all(
        self, tokens_R: torch.Tensor, is_finite_R: torch.Tensor, is_possible_R: torch.Tensor
    ) -> list[Sampled]:
        """The results of all rows, on the host."""
        packed = torch.stack((tokens_R, is_finite_R.long(), is_possible_R.long())).cpu().numpy()
        chosen, tops, values = self._copy_to_host(packed[0])
        sampled = []
        for row, (token_id, is_finite, is_possible) in enumerate(packed.T.tolist()):
            position = self._position.get(row)
            if not is_finite:
                sampled.append(Sampled(None, error=NOT_FINITE))
            elif not is_possible:
                sampled.append(Sampled(None, error=NONE_ALLOWED, is_refused=True))
            elif position is None:
                sampled.append(Sampled(token_id))
            else:
                num = self._counts[position]
                pairs = zip(tops[position][:num], values[position][:num], strict=True)
                top = tuple(TokenLogprob(token_id=it, logprob=value) for it, value in pairs)
                sampled.append(Sampled(token_id, chosen[position], top))
        return sampled

    def _copy_to_host(
        self, tokens_R: np.ndarray
    ) -> tuple[list[float], list[list[int]], list[list[float]]]:
        """The logprobs of the chosen tokens, the most likely tokens, and their logprobs."""
        if not self._position:
            return [], [], []
        rows = list(self._position)
        chosen_L1 = torch.from_numpy(tokens_R[rows]).to(self._x_LV.device)[:, None]
        totals_L = self._mass_L.double().log() - math.log(MASS_ONE)
        shifts_L1 = (self._x_LV.amax(1).double() + totals_L)[:, None]
        found_LK = torch.cat((chosen_L1, self._top_LK), dim=1)
        values_LK = self._x_LV.gather(1, found_LK).double() - shifts_L1
        values = values_LK.cpu().tolist()
        return [it[0] for it in values], self._top_LK.cpu().tolist(), [it[1:] for it in values]
