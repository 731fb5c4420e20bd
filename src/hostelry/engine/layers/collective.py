"""Collective operations of the ranks that hold one model together."""

from typing import Protocol

import torch
from torch import distributed

from hostelry.engine.kernels.shard import WHOLE, Shard


class Collective(Protocol):
    """Operations that all ranks call in the same order with tensors of the same shape.

    Implementations: `Alone` for one rank, `TorchCollective` over torch.distributed.
    """

    @property
    def shard(self) -> Shard:
        """This rank's number and the number of ranks."""
        ...

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over ranks, for all; `x` is overwritten with it."""
        ...

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Every rank's `x`, for all, stacked in a new first dimension."""
        ...


class Alone:
    """The collective of a single rank: every operation is local."""

    shard = WHOLE

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """`x` itself."""
        return x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """`x` with a first dimension of 1."""
        return x.unsqueeze(0)


class TorchCollective:
    """The ranks of a torch.distributed group: gloo for CPUs, NCCL for CUDA devices."""

    def __init__(self, group: distributed.ProcessGroup) -> None:
        self._group = group
        self.shard = Shard(distributed.get_rank(group), distributed.get_world_size(group))

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over ranks; `x` is overwritten with it."""
        if not x.is_contiguous():
            raise ValueError("all_reduce needs a contiguous tensor")
        distributed.all_reduce(x, group=self._group)
        return x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Every rank's `x` in a new first dimension."""
        parts = [torch.empty_like(x) for _ in range(self.shard.world_size)]
        distributed.all_gather(parts, x.contiguous(), group=self._group)
        return torch.stack(parts)
