"""The seam between a step and what computes it."""

from typing import Protocol

import torch

from hostelry.engine.kernels.batch import ForwardBatch
from hostelry.engine.kernels.pool import PoolTensor


class Decoder(Protocol):
    """A loaded model; keeps nothing of a step.

    Implementations: torch tensors (`layers.decoder.TorchDecoder`, which defines the result) and
    native code for CPUs (`kernels.native.NativeDecoder`).
    """

    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) fp32 of `batch.logit_rows_S`; writes the rows' keys and values into `pool`.

        The result of a row depends on its own sequence alone. The tensor may be overwritten by the
        next call.
        """
        ...
