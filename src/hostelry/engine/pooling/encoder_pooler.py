"""Vectors of encoders: each text whole, in batches of texts of similar length."""

from collections.abc import Iterator, Mapping, Sequence

import torch

from hostelry.engine.kernels.batch import ForwardBatch
from hostelry.engine.kernels.decoder import LogitsDecoder
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.pooling.encoder import TorchEncoder
from hostelry.engine.pooling.pooler import PooledState
from hostelry.engine.pooling.reduce import DenseLayer, finish_vectors, pool_states
from hostelry.engine.request import Request
from hostelry.engine.runner.rows import SequenceRows
from hostelry.engine.sampling.sampler import Sampled

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
