"""One step's tensors, as a value that is passed down; no layer keeps state of a step.

# T tokens of all requests, B requests that decode, P pages, L tokens attended to, S logit rows
"""

from dataclasses import dataclass

import torch

from hostelry.engine.lora.batch import LoraBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeGroup:
    """Requests of similar length that decode together.

    rows_B: int64 rows of the batch, None for all of them in order. pages_BP and bias_B11L as
    kernels.attention.decode_attention takes them.
    """

    rows_B: torch.Tensor | None
    pages_BP: torch.Tensor
    bias_B11L: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillChunk:
    """Rows [row_start, row_end) are one request's next tokens; its pages then hold `length`."""

    row_start: int
    row_end: int
    pages_P: torch.Tensor
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBatch:
    """Rows of different requests one after another; rows of one adapter are neighbours.

    token_ids_T, positions_T: int64. slots_T: where each token's keys and values go, counted in
    tokens over all pages. logit_rows_S: rows whose logits are wanted.
    """

    token_ids_T: torch.Tensor
    positions_T: torch.Tensor
    slots_T: torch.Tensor
    logit_rows_S: torch.Tensor
    decode: tuple[DecodeGroup, ...]
    prefill: tuple[PrefillChunk, ...]
    lora: LoraBatch | None
