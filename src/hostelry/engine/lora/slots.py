"""Where adapter weights lie: stacks of adapters that have the same rank in every module.

Adapters of one layout share a tensor, a row each, so that neighbours in it can be multiplied in one
batched product without padding any rank and without copying weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from hostelry.engine.kernels.lora import LoraUp, LoraWeights
from hostelry.engine.lora.adapter import Adapter
from hostelry.engine.lora.batch import LoraBatch, Segment
from hostelry.engine.lora.shapes import ModuleShape, Site, TargetSpace

# N adapters, I in-features, O out-features, R rank, W numbers of one adapter

Layout = tuple[int, ...]  # rank of each module of the target space, 0 where it is not targeted


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """An adapter's place: a stack's number and a row. Rows of a step are ordered by it."""

    stack: int
    index: int


class _Stack:
    """Adapters of one layout: a row of fp32 numbers each, sites one after another."""

    def __init__(self, layout: Layout, space: TargetSpace, device: torch.device) -> None:
        self.sites = _group(layout, space)
        width = 0
        self.offsets: dict[Site, int] = {}
        for site, modules in self.sites.items():
            self.offsets[site] = width
            width += sum(rank * (m.in_features + m.out_features) for m, rank in modules)
        self.rows_NW = torch.empty(0, width, dtype=torch.float32, device=device)
        self.free: list[int] = []
        self.views: dict[tuple[int, int], Mapping[Site, LoraWeights]] = {}

    def take(self) -> int:
        """A free row, growing the stack when there is none."""
        if not self.free:
            old = self.rows_NW
            count = len(old)
            self.rows_NW = old.new_empty(max(2 * count, 4), old.shape[1])
            self.rows_NW[:count] = old
            self.views.clear()
            self.free = list(range(len(self.rows_NW) - 1, count - 1, -1))
        return self.free.pop()

    def give_back(self, index: int) -> None:
        """Free a row; the lowest free row is taken next, which keeps neighbours together."""
        self.free.append(index)
        self.free.sort(reverse=True)

    def write(self, index: int, adapter: Adapter) -> None:
        """Lay the adapter's weights into its row, through the views that steps read."""
        for site, weights in self.view(index, 1).items():
            rank_start = 0
            for (module, rank), up in zip(self.sites[site], weights.ups, strict=True):
                source = adapter.modules[module.path]
                weights.down_NIR[0, :, rank_start : rank_start + rank] = source.down_RI.T
                up.up_NRO[0] = source.up_OR.T
                rank_start += rank

    def view(self, start: int, count: int) -> Mapping[Site, LoraWeights]:
        """The weights of `count` neighbouring rows, by site."""
        key = (start, count)
        if key not in self.views:
            if len(self.views) >= 256:
                self.views.clear()
            rows = self.rows_NW[start : start + count]
            self.views[key] = {
                site: _site_view(rows, self.offsets[site], modules)
                for site, modules in self.sites.items()
            }
        return self.views[key]


class AdapterSlots:
    """Every loaded adapter's weights on the device."""

    def __init__(self, space: TargetSpace, device: torch.device) -> None:
        self._space = space
        self._device = device
        self._numbers: dict[Layout, int] = {}
        self._stacks: dict[int, _Stack] = {}

    def add(self, adapter: Adapter) -> Slot:
        """Copy the adapter's weights into a free slot."""
        layout = tuple(
            adapter.modules[m.path].down_RI.shape[0] if m.path in adapter.modules else 0
            for m in self._space.modules
        )
        number = self._numbers.setdefault(layout, len(self._numbers))
        if number not in self._stacks:
            self._stacks[number] = _Stack(layout, self._space, self._device)
        stack = self._stacks[number]
        index = stack.take()
        stack.write(index, adapter)
        return Slot(number, index)

    def remove(self, slot: Slot) -> None:
        """Free the slot; a stack without adapters gives its memory back."""
        stack = self._stacks[slot.stack]
        stack.give_back(slot.index)
        if len(stack.free) == len(stack.rows_NW):
            del self._stacks[slot.stack]

    @property
    def num_bytes(self) -> int:
        """Memory set aside for adapters."""
        return sum(4 * stack.rows_NW.numel() for stack in self._stacks.values())

    def batch(self, rows: Iterable[tuple[Slot, int]], row_start: int) -> LoraBatch | None:
        """The segments of (slot, number of rows) pairs, sorted by slot, from `row_start` on.

        Neighbouring slots with the same number of rows become one segment. None without rows.
        """
        segments = []
        for slots, rows_each in _join(rows):
            weights = self._stacks[slots[0].stack].view(slots[0].index, len(slots))
            segments.append(Segment(row_start, rows_each, weights))
            row_start += len(slots) * rows_each
        return LoraBatch(segments) if segments else None


def _join(rows: Iterable[tuple[Slot, int]]) -> list[tuple[list[Slot], int]]:
    joined: list[tuple[list[Slot], int]] = []
    for slot, count in rows:
        if joined:
            slots, rows_each = joined[-1]
            last = slots[-1]
            is_next = last.stack == slot.stack and last.index + 1 == slot.index
            if is_next and rows_each == count:
                slots.append(slot)
                continue
        joined.append(([slot], count))
    return joined


def _group(layout: Layout, space: TargetSpace) -> Mapping[Site, Sequence[tuple[ModuleShape, int]]]:
    """The targeted modules and their ranks by site."""
    sites: dict[Site, list[tuple[ModuleShape, int]]] = {}
    for module, rank in zip(space.modules, layout, strict=True):
        if rank:
            sites.setdefault(module.site, []).append((module, rank))
    return sites


def _site_view(
    rows_NW: torch.Tensor, offset: int, modules: Sequence[tuple[ModuleShape, int]]
) -> LoraWeights:
    """One site's weights in the rows: all A side by side, then each B."""
    count = len(rows_NW)
    in_features = modules[0][0].in_features
    total_rank = sum(rank for _, rank in modules)
    end = offset + in_features * total_rank
    down_NIR = rows_NW[:, offset:end].view(count, total_rank, in_features).transpose(1, 2)
    ups = []
    rank_start = 0
    for module, rank in modules:
        start, end = end, end + rank * module.out_features
        up_NRO = rows_NW[:, start:end].view(count, rank, module.out_features)
        ups.append(LoraUp(up_NRO, rank_start, module.out_start))
        rank_start += rank
    return LoraWeights(down_NIR, ups)
