"""Poolers, which compute one vector per text instead of sampling.

The decoder's `lm_head` is the identity, or the rows of a classification head: its logits are then
the normed hidden states, or the classes.

# S rows, H hidden, V rows of lm_head
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy
import torch
from msgspec.structs import replace

from hostelry.engine.kernels.batch import ForwardBatch
from hostelry.engine.kernels.decoder import Decoder, LogitsDecoder
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.pooling.encoder import TorchEncoder
from hostelry.engine.pooling.reduce import DenseLayer, finish_vectors, pool_states
from hostelry.engine.request import Request
from hostelry.engine.runner.rows import SequenceRows, build_batch
from hostelry.engine.sampling.results import Sampled


class PartialSum(msgspec.Struct, frozen=True, eq=False):
    """The sum of hidden states of a text's first `num_tokens`, (H,) fp32."""

    num_tokens: int
    sum_H: torch.Tensor


class PooledState(Protocol):
    """The engine's state of a request that is pooled."""

    partial_sum: PartialSum | None

    @property
    def request(self) -> Request: ...  # noqa: D102


class Pooler(Protocol):
    """Computes the vectors of a step in place of its tokens."""

    def compute(
        self, ordered: Sequence[SequenceRows], states: Mapping[str, PooledState]
    ) -> list[tuple[str, Sampled]]:
        """The vector of each part that samples, by request id, in any order.

        `ordered` is in the order from `runner.rows.order_by_adapter`, and `states` is by request
        id.
        """
        ...


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


_MOST_PADDING = 0.2  # of a batch's rows


class EncoderPooler:
    """Computes a text in the step that schedules its last chunk.

    A batch has at most `max_tokens` rows, padding included, but at least one text.
    """

    def __init__(
        self,
        encoder: TorchEncoder,
        modes: Sequence[str],
        dense: Sequence[DenseLayer],
        *,
        has_head: bool,
        max_tokens: int,
    ) -> None:
        self._encoder = encoder
        self._modes = modes
        self._dense = dense
        self._has_head = has_head
        self._max_tokens = max_tokens

    @torch.inference_mode()
    def compute(
        self, ordered: Sequence[SequenceRows], states: Mapping[str, PooledState]
    ) -> list[tuple[str, Sampled]]:
        """See Pooler."""
        requests = [states[part.request_id].request for part in ordered if part.samples]
        results: list[tuple[str, Sampled]] = []
        for batch in batch_by_length(requests, self._max_tokens):
            hidden_BLH, seen_BL = self._encoder.forward(
                [it.prompt_token_ids for it in batch], [it.token_types for it in batch]
            )
            if self._has_head:
                vectors_BP = self._encoder.classify(hidden_BLH[:, 0])
            else:
                vectors_BP = pool_states(hidden_BLH, seen_BL, self._modes)
            ids = [it.id for it in batch]
            results += zip(ids, finish_vectors(vectors_BP, self._dense), strict=True)
        return results


def batch_by_length(requests: Sequence[Request], max_tokens: int) -> Iterator[list[Request]]:
    """The requests by length, longest first, in batches of bounded size and little padding."""
    batch: list[Request] = []
    num_tokens = 0
    for request in sorted(requests, key=lambda it: -len(it.prompt_token_ids)):
        longest = len(batch[0].prompt_token_ids) if batch else 0
        num_tokens += len(request.prompt_token_ids)
        rows = longest * (len(batch) + 1)
        if batch and (rows > max_tokens or rows - num_tokens > _MOST_PADDING * rows):
            yield batch
            batch, num_tokens = [], len(request.prompt_token_ids)
        batch.append(request)
    if batch:
        yield batch


class NoDecoder(LogitsDecoder):
    """The decoder of an engine whose pooler computes all of a step."""

    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        """Raise RuntimeError."""
        raise RuntimeError("an encoder has no decoder to run")
