"""An encoder of the BERT family in plain torch, for any device.

Rounding for a dtype narrower than fp32: the residual stream, norms and activations are fp32. The
inputs and results of products, and of attention, are of the dtype.

# B texts, L tokens of the longest, H hidden, N heads, D head dimension, K relative buckets,
# C classes
"""

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from hostelry.engine.kernels.weights import Projection
from hostelry.engine.models.encoder_spec import EncoderSpec
from hostelry.engine.models.encoder_tensors import (
    EncoderLayerWeights,
    EncoderWeights,
    LayerNormWeights,
)

_FARTHEST = 128  # tokens apart beyond which all distances share a bucket


class TorchEncoder:
    """Computes the last hidden states of texts. Each text's states depend on that text alone."""

    def __init__(self, spec: EncoderSpec, weights: EncoderWeights) -> None:
        self._spec = spec
        self._weights = weights

    @torch.inference_mode()
    def forward(
        self, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states (B, L, H) fp32, and a mask of the tokens, bool (B, L).

        `types` has the type of each token, or nothing for a text of type 0.
        """
        device = self._weights.words_VH.device
        longest = max(len(text) for text in texts)
        ids_BL = torch.tensor(
            [[*text, *[0] * (longest - len(text))] for text in texts], device=device
        )
        types_BL = torch.tensor([[*it, *[0] * (longest - len(it))] for it in types], device=device)
        lengths_B = torch.tensor([len(text) for text in texts], device=device)
        seen_BL = torch.arange(longest, device=device) < lengths_B[:, None]
        hidden_BLH = self._embed(ids_BL, types_BL, seen_BL)
        mask = self._build_mask(seen_BL, is_padded=any(len(text) < longest for text in texts))
        for layer in self._weights.layers:
            hidden_BLH = self._run_layer(hidden_BLH, layer, mask)
        return hidden_BLH, seen_BL

    @torch.inference_mode()
    def classify(self, first_BH: torch.Tensor) -> torch.Tensor:
        """Logits (B, C) fp32 of the head, from the hidden states of each text's first token."""
        assert self._weights.head is not None, "a model without a head has no classes"
        dense, output = self._weights.head
        x_BH = self._multiply(first_BH, dense)
        is_relu = self._spec.family.head_activation == "relu"
        return self._multiply(torch.relu(x_BH) if is_relu else torch.tanh(x_BH), output)

    def _embed(
        self, ids_BL: torch.Tensor, types_BL: torch.Tensor, seen_BL: torch.Tensor
    ) -> torch.Tensor:
        weights = self._weights
        hidden_BLH = weights.words_VH[ids_BL].float()
        hidden_BLH += weights.positions_PH[self._find_positions(ids_BL, seen_BL)].float()
        if weights.types_H is not None:
            hidden_BLH += weights.types_H[types_BL].float()
        return self._normalize(hidden_BLH, weights.norm)

    def _find_positions(self, ids_BL: torch.Tensor, seen_BL: torch.Tensor) -> torch.Tensor:
        """Each token's row of the position table.

        In a family with positions after the padding id, a token with this id has that position and
        is not counted, as in fairseq.
        """
        pad = self._spec.pad_token_id
        if not self._spec.family.positions_after_pad:
            return torch.arange(ids_BL.shape[1], device=ids_BL.device).expand_as(ids_BL)
        counted_BL = (seen_BL & (ids_BL != pad)).long()
        return counted_BL.cumsum(1) * counted_BL + pad

    def _build_mask(self, seen_BL: torch.Tensor, *, is_padded: bool) -> torch.Tensor | None:
        """What is added to scores (or bool: which keys are seen), broadcast to (B, N, L, L)."""
        keys_B11L = seen_BL[:, None, None, :]
        if self._weights.relative_KN is None:
            return keys_B11L if is_padded else None
        bias_1NLL = self._compute_relative_bias(seen_BL.shape[1]).to(self._dtype)
        return bias_1NLL.masked_fill(~keys_B11L, -torch.inf) if is_padded else bias_1NLL

    def _compute_relative_bias(self, length: int) -> torch.Tensor:
        """The bias of each head by distance, (1, N, L, L). Source: T5 (arXiv:1910.10683)."""
        table_KN = self._weights.relative_KN
        assert table_KN is not None
        places_L = torch.arange(length, device=table_KN.device)
        behind_LL = places_L[:, None] - places_L[None, :]
        half = len(table_KN) // 2
        exact = half // 2
        far_LL = behind_LL.abs()
        ratio = math.log(_FARTHEST / exact)
        scaled_LL = torch.log(far_LL.clamp(min=1).float() / exact) / ratio * (half - exact)
        coarse_LL = (exact + scaled_LL.long()).clamp(max=half - 1)
        bucket_LL = (behind_LL < 0).long() * half
        bucket_LL += torch.where(far_LL < exact, far_LL, coarse_LL)
        return table_KN[bucket_LL].permute(2, 0, 1)[None]

    def _run_layer(
        self, hidden_BLH: torch.Tensor, layer: EncoderLayerWeights, mask: torch.Tensor | None
    ) -> torch.Tensor:
        batch, length, hidden = hidden_BLH.shape
        qkv = functional.linear(
            hidden_BLH.to(self._dtype), layer.qkv.weight_OI, layer.qkv.bias_O
        ).view(batch, length, 3, self._spec.num_heads, -1)
        q_BNLD, k_BNLD, v_BNLD = qkv.permute(2, 0, 3, 1, 4)
        out_BNLD = functional.scaled_dot_product_attention(q_BNLD, k_BNLD, v_BNLD, attn_mask=mask)
        attended = out_BNLD.transpose(1, 2).reshape(batch, length, hidden)
        out_BLH = self._multiply(attended, layer.attention_out)
        hidden_BLH = self._normalize(hidden_BLH + out_BLH, layer.attention_norm)
        wide = self._activate(self._multiply(hidden_BLH, layer.up))
        return self._normalize(hidden_BLH + self._multiply(wide, layer.down), layer.out_norm)

    def _activate(self, x: torch.Tensor) -> torch.Tensor:
        if self._spec.activation == "relu":
            return torch.relu(x)
        form = "tanh" if self._spec.activation == "gelu_tanh" else "none"
        return functional.gelu(x, approximate=form)

    def _normalize(self, x: torch.Tensor, norm: LayerNormWeights) -> torch.Tensor:
        return functional.layer_norm(
            x, x.shape[-1:], norm.weight_H, norm.bias_H, self._spec.norm_eps
        )

    def _multiply(self, x: torch.Tensor, projection: Projection) -> torch.Tensor:
        y = functional.linear(x.to(self._dtype), projection.weight_OI, projection.bias_O)
        return y.float()

    @property
    def _dtype(self) -> torch.dtype:
        return self._weights.words_VH.dtype
