"""Updates of a step's adapters: each segment's rows of A and B are gathered from the pool.

Several ranks divide an adapter as S-LoRA does. Modules whose output is split (q, k, v, gate, up,
lm_head) have A split by ranks of the adapter and B by columns: the low-rank products are gathered.
Modules whose input is split (o, down) have A split by in-features and B by out-features: the
low-rank products are summed, and B's result is added to the rank's own part of the hidden size. The
base's sum over ranks then gathers it too. Only low-rank products travel.

Source: S-LoRA (arXiv:2311.03285), section 6.

# T rows of a step, t rows of a segment, I in-features, O out-features of a rank, R adapter ranks,
# V vocabulary, H hidden
"""

from collections.abc import Sequence

import numpy
import torch
from numpy.typing import NDArray

from hostelry.engine.kernels.batch import MODULES, AdapterIndex, LoraSegment, WideRows
from hostelry.engine.layers.parallel import Collective

_NUMBERS = {name: number for number, name in enumerate(MODULES)}


class SegmentedLora:
    """Adds the updates of one step's segments. Products and sums are fp32."""

    def __init__(
        self, segments: Sequence[LoraSegment], elements: torch.Tensor, collective: Collective
    ) -> None:
        self._segments = segments
        self._elements = elements
        self._collective = collective

    def add_to_columns(
        self, x_TI: torch.Tensor, y_TO: torch.Tensor, layer: int, widths: Sequence[tuple[str, int]]
    ) -> None:
        """Add the updates of modules side by side in `y_TO`, in place.

        `widths`: each module's name and columns, in order.
        """
        updates = []
        lows = []
        for segment in self._segments:
            start = 0
            for name, width in widths:
                module = _Module(segment.index, layer, name)
                if module.rank:
                    rows = slice(segment.row_start, segment.row_end)
                    lows.append(
                        (x_TI[rows] @ self._read_rows(module.down, x_TI.shape[1]).T, module.rank)
                    )
                    updates.append((module, y_TO[rows, start : start + width]))
                start += width
        for low_tR, (module, y_tO) in zip(self._gather(lows), updates, strict=True):
            y_tO += module.scale * (low_tR @ self._read_rows(module.up, y_tO.shape[1]))

    def add_to_partial(self, x_TI: torch.Tensor, y_TH: torch.Tensor, layer: int, name: str) -> None:
        """Add a module's update to `y_TH`, which is yet to be summed over ranks, in place."""
        updates = []
        lows = []
        span = self._collective.shard.span(y_TH.shape[1])
        for segment in self._segments:
            module = _Module(segment.index, layer, name)
            if module.rank:
                rows = slice(segment.row_start, segment.row_end)
                lows.append(x_TI[rows] @ self._read_rows(module.down, x_TI.shape[1]).T)
                updates.append((module, y_TH[rows, span]))
        for low_tR, (module, y_tO) in zip(self._sum_over_ranks(lows), updates, strict=True):
            y_tO += module.scale * (low_tR @ self._read_rows(module.up, y_tO.shape[1]))

    def add_to_embedding(self, token_ids_T: NDArray[numpy.int32], y_TH: torch.Tensor) -> None:
        """Add the updates of embed_tokens to `y_TH`, yet to be summed over ranks, in place.

        A rank adds the updates of its part of the vocabulary. Offsets of other parts are negative.
        """
        for segment in self._segments:
            wide = segment.index.embedding
            if wide is None:
                continue
            offsets_t = wide.vocab_offsets_V[token_ids_T[segment.row_start : segment.row_end]]
            own = numpy.flatnonzero(offsets_t >= 0)
            low_tR = self._read_rows(offsets_t[own], wide.rank)
            update_tH = wide.scale * (
                low_tR @ self._read_rows(wide.hidden_offsets_R, y_TH.shape[1])
            )
            y_TH[torch.from_numpy(own + segment.row_start).to(y_TH.device)] += update_tH

    def add_to_logits(
        self, rows_S: NDArray[numpy.int32], x_SH: torch.Tensor, logits_SV: torch.Tensor
    ) -> None:
        """Add the updates of lm_head to this rank's part of the logits, in place.

        `rows_S` are the rows of the step that have logits.
        """
        updates: list[tuple[WideRows, torch.Tensor]] = []
        lows = []
        for segment in self._segments:
            wide = segment.index.lm_head
            if wide is None:
                continue
            inside = (rows_S >= segment.row_start) & (rows_S < segment.row_end)
            chosen = torch.from_numpy(numpy.flatnonzero(inside)).to(x_SH.device)
            down = wide.hidden_offsets_R
            lows.append((x_SH[chosen] @ self._read_rows(down, x_SH.shape[1]).T, wide.rank))
            updates.append((wide, chosen))
        for low_sR, (wide, chosen) in zip(self._gather(lows), updates, strict=True):
            span = self._collective.shard.span(len(wide.vocab_offsets_V))
            up_VR = self._read_rows(wide.vocab_offsets_V[span], wide.rank)
            logits_SV[chosen] += wide.scale * (low_sR @ up_VR.T)

    def _read_rows(self, offsets_R: NDArray[numpy.int64], width: int) -> torch.Tensor:
        """Rows of `width` elements that start at these offsets, fp32, without other ranks' rows."""
        offsets = torch.from_numpy(offsets_R[offsets_R >= 0]).to(self._elements.device)
        columns = torch.arange(width, device=offsets.device)
        return self._elements[offsets.unsqueeze(1) + columns].float()

    def _gather(self, lows: Sequence[tuple[torch.Tensor, int]]) -> list[torch.Tensor]:
        """Gather all ranks' low-rank products in one message.

        `lows` has pairs of this rank's product (t, its share of R) and R.
        """
        shard = self._collective.shard
        if shard.world_size == 1 or not lows:
            return [low for low, _ in lows]
        shapes = [(len(low), shard.largest(rank)) for low, rank in lows]
        padded = [
            torch.nn.functional.pad(low, (0, width - low.shape[1])).flatten()
            for (low, _), (_, width) in zip(lows, shapes, strict=True)
        ]
        message = self._collective.all_gather(torch.cat(padded))
        parts = torch.split(message, [rows * width for rows, width in shapes], 1)
        whole = []
        for part, (rows, width), (_, rank) in zip(parts, shapes, lows, strict=True):
            by_rank = part.view(shard.world_size, rows, width)
            spans = [shard.get_rank_span(rank, it) for it in range(shard.world_size)]
            whole.append(
                torch.cat([by_rank[it, :, : s.stop - s.start] for it, s in enumerate(spans)], 1)
            )
        return whole

    def _sum_over_ranks(self, lows: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Sum the low-rank products over all ranks' in-features in one message."""
        if self._collective.shard.world_size == 1 or not lows:
            return list(lows)
        message = self._collective.all_reduce(torch.cat([low.flatten() for low in lows]))
        parts = torch.split(message, [low.numel() for low in lows])
        return [part.view_as(low) for part, low in zip(parts, lows, strict=True)]


class _Module:
    """One module of one adapter."""

    __slots__ = ("_first", "_index", "rank", "scale")

    def __init__(self, index: AdapterIndex, layer: int, name: str) -> None:
        number = layer * len(MODULES) + _NUMBERS[name]
        self._index = index
        self.rank = int(index.ranks_M[number])
        self.scale = float(index.scales_M[number])
        self._first = int(index.firsts_M[number])

    @property
    def down(self) -> NDArray[numpy.int64]:
        """The offsets of rows of A."""
        return self._index.down_offsets_R[self._first : self._first + self.rank]

    @property
    def up(self) -> NDArray[numpy.int64]:
        """The offsets of columns of B."""
        return self._index.up_offsets_R[self._first : self._first + self.rank]
