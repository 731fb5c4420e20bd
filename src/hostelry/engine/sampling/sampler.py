"""Choice of each request's next token from its logits.

Rows that need only their most likely token take one pass, or none if the decoder has found it. The
others are computed on the device of the logits if that is not the CPU. On the CPU, and for rows
with a grammar or bans, a few rows are computed at once, so that they fit into the CPU's cache.

# S rows, R rows that are computed together, V vocabulary
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from hostelry.engine.request import TokenLogprob
from hostelry.engine.sampling.device_sampler import can_sample_on_device, sample_on_device
from hostelry.engine.sampling.draw import draw_uniform
from hostelry.engine.sampling.history import TokenHistory
from hostelry.engine.sampling.processors import change
from hostelry.engine.sampling.results import NONE_ALLOWED, NOT_FINITE, Sampled
from hostelry.engine.sampling.truncate import (
    Doubles,
    Floats,
    Ints,
    Mass,
    TruncationLimits,
    compute_mass,
    keep,
    largest,
)

_ROWS_AT_ONCE = 8
_DEVICE_CELLS = 1 << 23  # of rows times tokens that a device computes at once: about half a GB


@torch.inference_mode()
def sample(
    logits_SV: torch.Tensor,
    histories: Sequence[TokenHistory],
    *,
    greedy_S: npt.NDArray[np.integer] | None = None,
    finite_S: npt.NDArray[np.bool_] | None = None,
) -> list[Sampled]:
    """Choose one token per row. Row i is for `histories[i]`, which is not changed.

    Args:
        logits_SV: float, of any device. Not read if every row is plain and the next two are
            given.
        histories: S of them.
        greedy_S: the most likely token of each row, the smallest id of equal tokens.
        finite_S: whether the row's largest logit is a finite number (a row with a nan has none).
    """
    plain = [row for row, history in enumerate(histories) if history.is_plain]
    others = [row for row, history in enumerate(histories) if not history.is_plain]
    results: dict[int, Sampled] = {}
    if plain:
        if greedy_S is None or finite_S is None:
            greedy_S, finite_S = _find_greedy(logits_SV)
        for row in plain:
            token_id = int(greedy_S[row])
            results[row] = Sampled(token_id) if finite_S[row] else Sampled(None, error=NOT_FINITE)
    if others and logits_SV.device.type != "cpu":
        able = [row for row in others if can_sample_on_device(histories[row])]
        at_once = max(1, _DEVICE_CELLS // logits_SV.shape[1])
        for start in range(0, len(able), at_once):
            rows = able[start : start + at_once]
            chosen = sample_on_device(_select(logits_SV, rows), [histories[row] for row in rows])
            results.update(zip(rows, chosen, strict=True))
        others = [row for row in others if row not in results]
    for start in range(0, len(others), _ROWS_AT_ONCE):
        rows = others[start : start + _ROWS_AT_ONCE]
        chosen = _sample_rows(_copy_to_host(logits_SV, rows), [histories[row] for row in rows])
        results.update(zip(rows, chosen, strict=True))
    return [results[row] for row in range(len(histories))]


def _find_greedy(logits_SV: torch.Tensor) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The most likely token of each row, and whether its logit is finite."""
    if logits_SV.device.type == "cpu":
        x_SV = logits_SV.float().numpy()
        greedy_S = x_SV.argmax(axis=1)  # a nan counts as the largest
        return greedy_S, np.isfinite(x_SV[np.arange(len(x_SV)), greedy_S])
    values_S, greedy = logits_SV.max(-1)
    return greedy.cpu().numpy(), torch.isfinite(values_S).cpu().numpy()


def _copy_to_host(logits_SV: torch.Tensor, rows: Sequence[int]) -> Floats:
    """A copy of some rows that may be changed."""
    if logits_SV.device.type == "cpu" and logits_SV.dtype == torch.float32:
        return np.asarray(logits_SV.numpy()[list(rows)])
    return np.array(_select(logits_SV, rows).cpu().numpy())


def _select(logits_SV: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """A copy of some rows on their device, fp32."""
    chosen = torch.tensor(rows, dtype=torch.int64, device=logits_SV.device)
    return logits_SV.index_select(0, chosen).float()


def _sample_rows(x_RV: Floats, histories: Sequence[TokenHistory]) -> list[Sampled]:
    """A token of each row. Overwrites `x_RV`."""
    is_finite_R = np.isfinite(x_RV.max(axis=1))
    x_RV[~is_finite_R] = 0
    logprobs = _Logprobs(x_RV, histories)
    changed = [row for row, history in enumerate(histories) if history.is_changed]
    if changed:
        change(x_RV, histories)
    largest_R = x_RV.max(axis=1)
    is_possible_R = ~np.isneginf(largest_R)
    x_RV[~np.isfinite(largest_R)] = 0
    is_finite_R &= ~np.isnan(largest_R)
    tokens_R = _choose(x_RV, histories)
    sampled = []
    for row, token_id in enumerate(tokens_R.tolist()):
        if not is_finite_R[row]:
            sampled.append(Sampled(None, error=NOT_FINITE))
        elif not is_possible_R[row]:
            sampled.append(Sampled(None, error=NONE_ALLOWED, is_refused=True))
        else:
            sampled.append(logprobs.build_sampled(row, token_id))
    return sampled


def _choose(x_RV: Floats, histories: Sequence[TokenHistory]) -> Ints:
    """The chosen tokens. Every row has at least one token that may be chosen."""
    tokens_R: Ints = x_RV.argmax(axis=1)
    sampling = np.array([row for row, it in enumerate(histories) if it.params.temperature > 0], int)
    if not len(sampling):
        return tokens_R
    asked = [histories[row] for row in sampling]
    params = [it.params for it in asked]
    limits = TruncationLimits(
        np.array([it.top_k for it in params], np.int64).clip(max=x_RV.shape[1]),
        np.array([it.top_p for it in params], np.float64),
        np.array([it.min_p for it in params], np.float64),
    )
    shares_R = np.array([draw_uniform(it.seed, it.num_generated) for it in asked], np.float64)
    x_RV = x_RV[sampling]
    largest_R = x_RV[np.arange(len(sampling)), tokens_R[sampling]]
    mass = compute_mass(x_RV, largest_R, np.array([it.temperature for it in params], np.float64))
    tokens_R[sampling] = _draw(x_RV, mass, limits, shares_R)
    return tokens_R


def _draw(x_RV: Floats, mass: Mass, limits: TruncationLimits, shares_R: Doubles) -> Ints:
    """A token of each row from its masses, within its limits."""
    is_limited_R = (limits.top_k_R > 0) | (limits.top_p_R < 1) | (limits.min_p_R > 0)
    tokens_R = mass.draw(shares_R)
    limited = np.flatnonzero(is_limited_R)
    if len(limited) == len(tokens_R):
        return keep(x_RV, mass, limits).draw(shares_R)
    if len(limited):
        some = TruncationLimits(
            limits.top_k_R[limited], limits.top_p_R[limited], limits.min_p_R[limited]
        )
        part = Mass(mass.mass_RBE[limited], mass.sums_RB[limited])
        tokens_R[limited] = keep(x_RV[limited], part, some).draw(shares_R[limited])
    return tokens_R


class _Logprobs:
    """Logarithms of probabilities of the rows that ask for them, from unchanged logits."""

    def __init__(self, x_RV: Floats, histories: Sequence[TokenHistory]) -> None:
        rows = [row for row, it in enumerate(histories) if it.params.num_logprobs is not None]
        self._position = {row: position for position, row in enumerate(rows)}
        if not rows:
            return
        self._counts = [histories[row].params.num_logprobs or 0 for row in rows]
        self._x = x_RV[rows]
        largest_R = self._x.max(axis=1)
        totals_R = compute_mass(self._x, largest_R, np.ones(len(rows))).total_mass
        self._shifts = [
            float(high) + math.log(total)
            for high, total in zip(largest_R.tolist(), totals_R.tolist(), strict=True)
        ]
        most = min(max(self._counts), x_RV.shape[1])
        self._top = largest(self._x, most) if most else np.zeros((len(rows), 0), np.int64)

    def build_sampled(self, row: int, token_id: int) -> Sampled:
        """The row's token with the logarithms that it asks for."""
        position = self._position.get(row)
        if position is None:
            return Sampled(token_id)
        top = self._top[position, : self._counts[position]].tolist()
        return Sampled(
            token_id,
            self._compute_logprob(position, token_id),
            tuple(
                TokenLogprob(token_id=other, logprob=self._compute_logprob(position, other))
                for other in top
            ),
        )

    def _compute_logprob(self, position: int, token_id: int) -> float:
        return float(self._x[position, token_id]) - self._shifts[position]
