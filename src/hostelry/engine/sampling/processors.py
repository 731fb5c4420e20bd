"""Logits processors: changes to the logits of many rows, in place, before a token is chosen.

A processor changes few tokens of each row, so its input is one flat list over all rows, `rows_C`
and `tokens_C`, without repeated positions. Every element is computed from itself alone.
Definitions as in Hugging Face transformers' logits processors. Presence and frequency penalties as
in the OpenAI API reference, over the tokens generated so far.

# R rows, V vocabulary, W words of 32 tokens, C positions that are changed
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from hostelry.engine.sampling.history import TokenHistory
from hostelry.engine.sampling.truncate import Floats, Ints

_LARGEST = np.finfo(np.float32).max


class LogitPositions(msgspec.Struct, frozen=True):
    """Positions in an (R, V) array, with one value for each."""

    rows_C: Ints
    tokens_C: Ints
    values_C: Floats

    @classmethod
    def join(cls, parts: Sequence[tuple[int, Ints, Floats]]) -> "LogitPositions":
        """Join `parts`, each a row number with its tokens and values."""
        return cls(
            np.repeat(
                np.array([row for row, _, _ in parts], np.int64), [len(t) for _, t, _ in parts]
            ),
            np.concatenate([tokens for _, tokens, _ in parts]),
            np.concatenate([values for _, _, values in parts]),
        )


def list_changes(
    histories: Sequence[TokenHistory], vocab: int
) -> list[tuple[LogitPositions, bool]]:
    """Values at positions of the rows of `histories`, in the order in which they apply.

    True marks penalties of repetition. Other values are added. -inf forbids a token.
    """
    numbered = list(enumerate(histories))
    penalties = [
        (row, it.seen.tokens, _fill_like(it.seen.tokens, it.params.repetition_penalty))
        for row, it in numbered
        if it.seen
    ]
    added = [(row, it.counts.tokens, -_list_penalties(it)) for row, it in numbered if it.counts]
    biases = [(row, *it.bias) for row, it in numbered if it.bias is not None]
    early = [
        (row, ends := it.end_token_ids[it.end_token_ids < vocab], _fill_like(ends, -np.inf))
        for row, it in numbered
        if it.num_generated < it.params.min_new_tokens
    ]
    lists = ((penalties, True), (added, False), (biases, False), (early, False))
    return [(LogitPositions.join(parts), is_penalty) for parts, is_penalty in lists if parts]


def change(x_RV: Floats, histories: Sequence[TokenHistory]) -> None:
    """Apply penalties, biases and masks of `histories[r]` to row r, in place.

    A token that may not be chosen becomes -inf. A row without allowed tokens is all -inf.
    """
    for positions, is_penalty in list_changes(histories, x_RV.shape[1]):
        (repetition_penalty if is_penalty else add)(x_RV, positions)
    for row, history in enumerate(histories):
        if history.bans is not None:
            history.bans.mask(x_RV[row])
    mask_by_grammar(x_RV, histories)


def repetition_penalty(x_RV: Floats, seen: LogitPositions) -> None:
    """Divide positive and multiply negative logits of the seen tokens by the penalty.

    Source: CTRL, arXiv:1909.05858.
    """
    x_C = x_RV[seen.rows_C, seen.tokens_C]
    with np.errstate(over="ignore"):
        changed_C = np.where(x_C < 0, x_C * seen.values_C, x_C / seen.values_C)
    x_RV[seen.rows_C, seen.tokens_C] = _clip(x_C, changed_C)


def add(x_RV: Floats, places: LogitPositions) -> None:
    """Add a value at each of the positions. -inf forbids the token."""
    x_C = x_RV[places.rows_C, places.tokens_C]
    with np.errstate(over="ignore"):
        changed_C = x_C + places.values_C
    changed_C = np.where(np.isneginf(places.values_C), -np.inf, _clip(x_C, changed_C))
    x_RV[places.rows_C, places.tokens_C] = changed_C


def mask_by_grammar(x_RV: Floats, histories: Sequence[TokenHistory]) -> None:
    """Leave only the tokens that each row's grammar allows next. Rows without a grammar stay."""
    vocab = x_RV.shape[1]
    for row, history in enumerate(histories):
        if history.grammar is None:
            continue
        allowed_1W = np.zeros((1, -(-vocab // 32)), np.int32)
        history.grammar.fill(allowed_1W, 0)
        bits_V = np.unpackbits(allowed_1W.view(np.uint8)[0], count=vocab, bitorder="little")
        np.copyto(x_RV[row], -np.inf, where=bits_V == 0)


def _clip(before_C: Floats, after_C: Floats) -> Floats:
    """`after_C` clipped to finite numbers, except where a token was impossible before."""
    bounded_C = np.clip(after_C, -_LARGEST, _LARGEST)
    return np.where(np.isneginf(before_C), before_C, bounded_C).astype(np.float32)


def _fill_like(like: Ints, value: float) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        return np.full(len(like), value, np.float32)


def _list_penalties(history: TokenHistory) -> Floats:
    assert history.counts is not None
    params = history.params
    penalties = params.presence_penalty + params.frequency_penalty * history.counts.counts
    return penalties.astype(np.float32)
