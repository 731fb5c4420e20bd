"""A decoder's weights divided over ranks, as Megatron does, and the ranks' collectives.

Each rank has its heads and key-value heads, its columns of the MLP and its part of the vocabulary.
Norms are on every rank. `layers.segmented_lora` and `kernels.shard.share_module` divide adapters.

Sources: Megatron-LM (arXiv:1909.08053), and S-LoRA (arXiv:2311.03285), section 6.

# V vocabulary, H hidden, O fused output columns, I in-features
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from msgspec.structs import replace
from torch import distributed
from torch.nn import functional

from hostelry.engine.kernels.shard import WHOLE, Shard
from hostelry.engine.kernels.weights import DecoderWeights, LayerWeights, Projection


class Collective(Protocol):
    """Operations that all ranks call in the same order with tensors of the same shape.

    Implementations: `Alone` for one rank, `TorchCollective` over torch.distributed.
    """

    @property
    def shard(self) -> Shard:
        """This rank's number and the number of ranks."""
        ...

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over ranks, for all. Overwrites `x` with it."""
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
        """The sum over ranks. Overwrites `x` with it."""
        if not x.is_contiguous():
            raise ValueError("all_reduce needs a contiguous tensor")
        distributed.all_reduce(x, group=self._group)
        return x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Every rank's `x` in a new first dimension."""
        parts = [torch.empty_like(x) for _ in range(self.shard.world_size)]
        distributed.all_gather(parts, x.contiguous(), group=self._group)
        return torch.stack(parts)


class SharedVocabulary:
    """The vocabulary as ranks divide it: rows of the embedding, and columns of logits."""

    def __init__(self, weights: DecoderWeights, collective: Collective) -> None:
        self._table_VH = weights.embedding_VH
        self._collective = collective
        self._size = len(weights.lm_head_VH)
        if collective.shard.world_size > 1:
            own_tokens = torch.tensor([self._size], device=self._table_VH.device)
            self._size = int(collective.all_reduce(own_tokens))

    def look_up(self, ids_T: torch.Tensor) -> torch.Tensor:
        """This rank's embeddings (T, H) fp32, yet to be summed over ranks."""
        table_VH, shard = self._table_VH, self._collective.shard
        if shard.world_size == 1:
            return table_VH.index_select(0, ids_T).float()
        ids_T = ids_T - shard.span(self._size).start
        is_own_T = (ids_T >= 0) & (ids_T < len(table_VH))
        hidden_TH = table_VH.index_select(0, ids_T.clamp(0, len(table_VH) - 1)).float()
        return hidden_TH.mul_(is_own_T.unsqueeze(1))

    def gather(self, logits_SV: torch.Tensor) -> torch.Tensor:
        """The logits of all ranks' parts of the vocabulary, side by side."""
        shard = self._collective.shard
        if shard.world_size == 1:
            return logits_SV
        missing = shard.largest(self._size) - logits_SV.shape[1]
        parts_WSV = self._collective.all_gather(functional.pad(logits_SV, (0, missing)))
        spans = [shard.get_rank_span(self._size, rank) for rank in range(shard.world_size)]
        return torch.cat(
            [part[:, : s.stop - s.start] for part, s in zip(parts_WSV, spans, strict=True)], 1
        )


def shard_weights(
    weights: DecoderWeights, shard: Shard, device: torch.device | None = None
) -> DecoderWeights:
    """This rank's part of `weights`, moved to `device` (None: not moved).

    A layer is divided as it is read, so that a rank copies its own part only. Raises ValueError if
    the world size does not divide heads, key-value heads or the intermediate size.
    """
    check_divides(
        shard.world_size,
        num_heads=weights.num_heads,
        num_kv_heads=weights.num_kv_heads,
        intermediate_size=weights.intermediate_size,
    )
    where = device or weights.embedding_VH.device
    embedding_VH = _take_rows(weights.embedding_VH, shard, where)
    is_tied = weights.lm_head_VH is weights.embedding_VH
    return replace(
        weights,
        num_heads=weights.num_heads // shard.world_size,
        num_kv_heads=weights.num_kv_heads // shard.world_size,
        intermediate_size=weights.intermediate_size // shard.world_size,
        embedding_VH=embedding_VH,
        lm_head_VH=embedding_VH if is_tied else _take_rows(weights.lm_head_VH, shard, where),
        final_norm_H=weights.final_norm_H.to(where),
        ropes=[
            replace(rope, cos_PD=rope.cos_PD.to(where), sin_PD=rope.sin_PD.to(where))
            for rope in weights.ropes
        ],
        layer=lambda index: _take_layer(weights, index, shard, where),
    )


def check_divides(world_size: int, **sizes: int) -> None:
    """Raise ValueError naming the first of `sizes` that `world_size` ranks cannot share evenly."""
    for name, size in sizes.items():
        if size % world_size:
            raise ValueError(
                f"{world_size} ranks cannot share {name} {size} evenly; "
                f"choose a number of ranks (tensor_parallel_degree) that divides it"
            )


def _take_layer(
    weights: DecoderWeights, index: int, shard: Shard, device: torch.device
) -> LayerWeights:
    layer = weights.layer(index)
    query = weights.num_heads * weights.head_dim
    key = weights.num_kv_heads * weights.head_dim
    inner = weights.intermediate_size

    def move(norm: torch.Tensor | None) -> torch.Tensor | None:
        return None if norm is None else norm.to(device)

    return replace(
        layer,
        input_norm_H=layer.input_norm_H.to(device),
        qkv=_take_columns(layer.qkv, (query, key, key), shard, device),
        q_norm_D=move(layer.q_norm_D),
        k_norm_D=move(layer.k_norm_D),
        o=_take_inputs(layer.o, shard, device),
        attn_out_norm_H=move(layer.attn_out_norm_H),
        mlp_norm_H=layer.mlp_norm_H.to(device),
        gate_up=_take_columns(layer.gate_up, (inner, inner), shard, device),
        down=_take_inputs(layer.down, shard, device),
        mlp_out_norm_H=move(layer.mlp_out_norm_H),
    )


def _take_columns(
    projection: Projection, widths: Sequence[int], shard: Shard, device: torch.device
) -> Projection:
    """The rank's outputs of each of the modules that are fused."""

    def take_own(whole: torch.Tensor) -> torch.Tensor:
        parts = torch.split(whole, list(widths))
        return torch.cat([part[shard.span(len(part))] for part in parts]).to(device)

    bias_O = projection.bias_O
    return Projection(
        weight_OI=take_own(projection.weight_OI),
        bias_O=None if bias_O is None else take_own(bias_O),
    )


def _take_inputs(projection: Projection, shard: Shard, device: torch.device) -> Projection:
    """The rank's in-features. Rank 0 alone adds the bias."""
    span = shard.span(projection.weight_OI.shape[1])
    bias_O = projection.bias_O
    return Projection(
        weight_OI=projection.weight_OI[:, span].contiguous().to(device),
        bias_O=bias_O.to(device) if bias_O is not None and shard.rank == 0 else None,
    )


def _take_rows(table_VH: torch.Tensor, shard: Shard, device: torch.device) -> torch.Tensor:
    if shard.world_size == 1:
        return table_VH.to(device)
    return table_VH[shard.span(len(table_VH))].clone().to(device)
