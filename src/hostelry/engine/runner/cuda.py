"""Choice of the decoder for a CUDA device: Triton's kernels and graphs, or else torch."""

import torch

from hostelry.base.clock import Clock
from hostelry.engine.kernels.decoder import Decoder
from hostelry.engine.kernels.triton.availability import why_unavailable
from hostelry.engine.kernels.weights import DecoderWeights
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.runner.graphs import CudaCapture, GraphedDecoder, GraphLimits


def choose_cuda_kernels(device: torch.device) -> tuple[str, str | None]:
    """Choose triton or torch for the device. Returns a warning with torch."""
    reason = why_unavailable(device)
    if reason is None:
        return "triton", None
    return "torch", f"steps are computed by torch, launch by launch and slower: {reason}"


def build_cuda_decoder(
    weights: DecoderWeights, kernels: str, *, limits: GraphLimits, clock: Clock
) -> Decoder:
    """The decoder that computes with `kernels`, as `choose_cuda_kernels` chose them."""
    if kernels == "torch":
        return TorchDecoder(weights)
    # Importing triton takes seconds. Only a process that computes with it waits for that.
    from hostelry.engine.layers.cuda_decoder import CudaDecoder

    decoder = CudaDecoder(weights)
    return GraphedDecoder(decoder, limits, CudaCapture(decoder.device), clock)
