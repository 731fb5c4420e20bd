"""The interface between the engine's step and the code that pools instead of sampling."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from hostelry.engine.request import Request
from hostelry.engine.runner.rows import SequenceRows
from hostelry.engine.sampling.sampler import Sampled


@dataclass(frozen=True, slots=True, eq=False)
class PartialSum:
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
