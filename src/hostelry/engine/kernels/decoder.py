"""The interface between a step and the code that computes it."""

from collections.abc import Sequence
from typing import Protocol

import numpy
import torch
from numpy.typing import NDArray

from hostelry.engine.kernels.batch import ForwardBatch, Int64
from hostelry.engine.kernels.pool import PoolTensor


class Decoder(Protocol):
    """A loaded model.

    Implementations: torch tensors (`layers.decoder.TorchDecoder`, which defines the result), native
    code for CPUs (`kernels.native.NativeDecoder`), Triton's kernels (`layers.cuda_decoder`), graphs
    of these (`runner.graphs`), and several ranks (`runner.leader`).
    """

    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) fp32 of `batch.logit_rows_S`.

        Writes the rows' keys and values into `pool`. The result of a row depends on its own
        sequence alone. The tensor may be overwritten by the next call.
        """
        ...

    @property
    def last_greedy_S(self) -> Int64 | None:  # noqa: N802
        """The most likely token of each row of the last `forward`. None if not computed."""
        ...

    @property
    def last_finite_S(self) -> NDArray[numpy.bool_] | None:  # noqa: N802
        """True for a row whose most likely token has a finite logit.

        None without `last_greedy_S`.
        """
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Why steps are slower than they could be, as found since the model was loaded."""
        ...


class LogitsDecoder:
    """Base of decoders that compute logits only: sampling finds the most likely tokens."""

    last_greedy_S = None
    last_finite_S = None
    warnings: Sequence[str] = ()
