"""Vectors of decoders: the last token's vector, or the mean of all tokens.

The decoder's `lm_head` is the identity, or the rows of a classification head: its logits are then
the normed hidden states, or the classes.

# S rows, H hidden, V rows of lm_head
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy
import torch

from hostelry.engine.kernels.decoder import Decoder
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.pooling.pooler import PartialSum, PooledState
from hostelry.engine.pooling.reduce import DenseLayer, finish_vectors
from hostelry.engine.runner.rows import SequenceRows, build_batch
from hostelry.engine.sampling.sampler import Sampled

DECODER_MODES = ("lasttoken", "mean")


class DecoderPooler:
    """Pools the rows of a step. With `is_mean` it keeps sums from chunk to chunk."""

    def __init__(
        self, decoder: Decoder, pool: PoolTensor, dense: Sequence[DenseLayer], *, is_mean: bool
    ) -> None:
        self._decoder = decoder
        self._pool = pool
        self._dense = dense
        self._is_mean = is_mean

    @torch.inference_mode()
    def compute(
        self, ordered: Sequence[SequenceRows], states: Mapping[str, PooledState]
    ) -> list[tuple[str, Sampled]]:
        """See Pooler."""
        batch = build_batch(ordered)
        ids = [part.request_id for part in ordered if part.samples]
        if not self._is_mean:
            vectors_SV = self._decoder.forward(batch, self._pool)
            return (
                list(zip(ids, finish_vectors(vectors_SV, self._dense), strict=True)) if ids else []
            )
        every_row = numpy.arange(batch.num_rows, dtype=numpy.int32)
        rows_TV = self._decoder.forward(replace(batch, logit_rows_S=every_row), self._pool)
        sums = self._sums(ordered, rows_TV, states)
        means = [sums[name].sum_H / sums[name].num_tokens for name in ids]
        results = finish_vectors(torch.stack(means), self._dense) if means else []
        for name, partial in sums.items():
            states[name].partial_sum = partial
        return list(zip(ids, results, strict=True))

    @staticmethod
    def _sums(
        ordered: Sequence[SequenceRows], rows_TV: torch.Tensor, states: Mapping[str, PooledState]
    ) -> dict[str, PartialSum]:
        """Each text's sum up to the end of its chunk. A text that begins again starts a new sum."""
        sums: dict[str, PartialSum] = {}
        parts = torch.split(rows_TV, [len(part.token_ids) for part in ordered])
        for part, rows_tV in zip(ordered, parts, strict=True):
            sum_V = rows_tV.sum(0)
            before = states[part.request_id].partial_sum if part.start else None
            if part.start:
                assert before is not None, "a chunk follows the one before it"
                assert before.num_tokens == part.start, "no token is left out or summed twice"
                sum_V = sum_V + before.sum_H
            sums[part.request_id] = PartialSum(part.start + len(part.token_ids), sum_V)
        return sums
