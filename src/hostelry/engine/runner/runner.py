"""Builds a step's tensors and runs the model.

# T tokens, B requests that decode, P pages, L tokens attended to, S rows with logits, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hostelry.engine.layers.batch import DecodeGroup, ForwardBatch, PrefillChunk
from hostelry.engine.layers.kv_cache import KvCache
from hostelry.engine.lora.batch import LoraBatch
from hostelry.engine.lora.slots import AdapterSlots, Slot
from hostelry.engine.models.llama import LlamaModel


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerChunk:
    """One request's part of a step: its next tokens, their first position, all of its pages.

    `slot` is its adapter's, None for the base model. Logits of the last token if `samples`.
    """

    token_ids: Sequence[int]
    start: int
    pages: Sequence[int]
    slot: Slot | None
    samples: bool


class Runner:
    """The model, its cache and the adapters' weights on one device."""

    def __init__(
        self, model: LlamaModel, cache: KvCache, adapters: AdapterSlots, device: torch.device
    ) -> None:
        self._model = model
        self._cache = cache
        self._adapters = adapters
        self._device = device

    @torch.inference_mode()
    def run(self, chunks: Sequence[RunnerChunk], new_pages: Sequence[int]) -> torch.Tensor:
        """Logits (S, V) of the sampling chunks, in the order of `chunks`; fp32.

        Writes the chunks' keys and values into their pages, the new ones zeroed before.
        """
        self._cache.clear(new_pages)
        batch, order = self._batch(chunks)
        logits_SV = self._model.forward(batch, self._cache).to(torch.float32)
        return logits_SV if order is None else logits_SV[order]

    def _batch(self, chunks: Sequence[RunnerChunk]) -> tuple[ForwardBatch, list[int] | None]:
        """The step's tensors, and where each sampling chunk's logits are (None: in order)."""
        ordered = sorted(chunks, key=_place)  # rows of one adapter must be neighbours
        row_starts = _row_starts(ordered)
        sampling = [index for index, chunk in enumerate(ordered) if chunk.samples]
        logit_rows = [row_starts[index] + len(ordered[index].token_ids) - 1 for index in sampling]
        place = {id(ordered[index]): row for row, index in enumerate(sampling)}
        order = [place[id(chunk)] for chunk in chunks if chunk.samples]
        batch = ForwardBatch(
            token_ids_T=self._integers([t for chunk in ordered for t in chunk.token_ids]),
            positions_T=self._integers(
                [p for c in ordered for p in range(c.start, c.start + len(c.token_ids))]
            ),
            slots_T=self._integers([slot for chunk in ordered for slot in self._slots(chunk)]),
            logit_rows_S=self._integers(logit_rows),
            decode=self._decode_groups(ordered, row_starts),
            prefill=self._prefill_chunks(ordered, row_starts),
            lora=self._lora(ordered),
        )
        return batch, None if order == sorted(order) else order

    def _slots(self, chunk: RunnerChunk) -> list[int]:
        size = self._cache.page_tokens
        positions = range(chunk.start, chunk.start + len(chunk.token_ids))
        return [chunk.pages[p // size] * size + p % size for p in positions]

    def _decode_groups(
        self, ordered: Sequence[RunnerChunk], row_starts: Sequence[int]
    ) -> tuple[DecodeGroup, ...]:
        """Decoding requests by number of pages, so that padding at most doubles a table."""
        groups: dict[int, list[int]] = {}
        for index, chunk in enumerate(ordered):
            if len(chunk.token_ids) == 1:
                num_pages = chunk.start // self._cache.page_tokens + 1
                groups.setdefault((num_pages - 1).bit_length(), []).append(index)
        return tuple(
            self._decode_group([ordered[index] for index in indices], rows)
            for indices in groups.values()
            for rows in [None if len(indices) == len(ordered) else [row_starts[i] for i in indices]]
        )

    def _decode_group(self, chunks: Sequence[RunnerChunk], rows: list[int] | None) -> DecodeGroup:
        size = self._cache.page_tokens
        num_pages = max(chunk.start // size + 1 for chunk in chunks)
        tables = [list(chunk.pages[:num_pages]) for chunk in chunks]
        padded = [table + [self._cache.zero_page] * (num_pages - len(table)) for table in tables]
        lengths_B = self._integers([chunk.start + 1 for chunk in chunks])
        beyond_BL = torch.arange(num_pages * size, device=self._device) >= lengths_B[:, None]
        bias_BL = torch.zeros(beyond_BL.shape, dtype=self._cache.dtype, device=self._device)
        bias_BL.masked_fill_(beyond_BL, float("-inf"))
        return DecodeGroup(
            rows_B=None if rows is None else self._integers(rows),
            pages_BP=torch.tensor(padded, device=self._device),
            bias_B11L=bias_BL[:, None, None],
        )

    def _prefill_chunks(
        self, ordered: Sequence[RunnerChunk], row_starts: Sequence[int]
    ) -> tuple[PrefillChunk, ...]:
        size = self._cache.page_tokens
        chunks = []
        for chunk, row_start in zip(ordered, row_starts, strict=True):
            num_tokens = len(chunk.token_ids)
            if num_tokens == 1:
                continue
            length = chunk.start + num_tokens
            chunks.append(
                PrefillChunk(
                    row_start=row_start,
                    row_end=row_start + num_tokens,
                    pages_P=self._integers(chunk.pages[: -(-length // size)]),
                    length=length,
                )
            )
        return tuple(chunks)

    def _lora(self, ordered: Sequence[RunnerChunk]) -> LoraBatch | None:
        """Rows by adapter; None, hence no work at all, when every row is the base model's."""
        row_start = 0
        rows: dict[Slot, int] = {}
        for chunk in ordered:
            if chunk.slot is None:
                row_start += len(chunk.token_ids)
            else:
                rows[chunk.slot] = rows.get(chunk.slot, 0) + len(chunk.token_ids)
        return self._adapters.batch(rows.items(), row_start)

    def _integers(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def _place(chunk: RunnerChunk) -> tuple[int, ...]:
    """Base rows first, then adapters by slot."""
    return () if chunk.slot is None else (chunk.slot.stack, chunk.slot.index)


def _row_starts(chunks: Sequence[RunnerChunk]) -> list[int]:
    starts = []
    row = 0
    for chunk in chunks:
        starts.append(row)
        row += len(chunk.token_ids)
    return starts
