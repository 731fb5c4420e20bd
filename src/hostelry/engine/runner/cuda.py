"""Choice of the decoder for a CUDA device: Triton's kernels and graphs, or else torch."""

import torch

from hostelry.base.clock import Clock
from hostelry.engine.kernels.decoder import Decoder
from hostelry.engine.kernels.triton.availability import why_unavailable
from hostelry.engine.kernels.weights import DecoderWeights
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.runner.graphs import CudaCapture, GraphedDecoder, GraphLimits


def cuda_kernels(device: torch.device) -> tuple[str, str | None]:
    """The kernels for the device, triton or torch, and a warning where it is torch."""
    reason = why_unavailable(device)
    if reason is None:
        return "triton", None
    return "torch", f"steps are computed by torch, launch by launch and slower: {reason}"


def cuda_decoder(
    weights: DecoderWeights, kernels: str, *, limits: GraphLimits, clock: Clock
) -> Decoder:
    """The decoder that computes with `kernels`, as `cuda_kernels` chose them."""
    if kernels == "torch":
        return TorchDecoder(weights)
    # Importing triton takes seconds; only a process that computes with it should wait for that.
    from hostelry.engine.layers.cuda_decoder import CudaDecoder

    decoder = CudaDecoder(weights)
    return GraphedDecoder(decoder, limits, CudaCapture(decoder.device), clock)
