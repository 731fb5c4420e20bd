"""The modules of a base model that an adapter may change: linear ones, embedding, lm_head."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from hostelry.engine.kernels.batch import MODULES


class DecoderSizes(Protocol):
    """The sizes of a decoder, such as a model's spec."""

    @property
    def num_layers(self) -> int: ...  # noqa: D102
    @property
    def hidden_size(self) -> int: ...  # noqa: D102
    @property
    def intermediate_size(self) -> int: ...  # noqa: D102
    @property
    def num_heads(self) -> int: ...  # noqa: D102
    @property
    def num_kv_heads(self) -> int: ...  # noqa: D102
    @property
    def head_dim(self) -> int: ...  # noqa: D102
    @property
    def vocab_size(self) -> int: ...  # noqa: D102
    @property
    def tie_embeddings(self) -> bool: ...  # noqa: D102


class TargetModule(msgspec.Struct, frozen=True):
    """A module by its dotted path in the Hugging Face model, y (out) = f(x (in))."""

    path: str
    in_features: int
    out_features: int


class TargetModules(msgspec.Struct, frozen=True, kw_only=True):
    """All modules of the base that an adapter may change.

    `linears` lie by module number (see `kernels.batch.MODULES`). The embedding goes from the
    vocabulary to the hidden size, lm_head back. `is_tied`: both have the same base weights.
    """

    linears: Sequence[TargetModule]
    embedding: TargetModule
    lm_head: TargetModule
    is_tied: bool

    @property
    def num_layers(self) -> int:
        """Layers of the base."""
        return len(self.linears) // len(MODULES)


def decoder_targets(sizes: DecoderSizes, *, prefix: str = "model") -> TargetModules:
    """The targets of a decoder whose layers are called `{prefix}.layers.{number}`."""
    hidden, intermediate = sizes.hidden_size, sizes.intermediate_size
    query = sizes.num_heads * sizes.head_dim
    key = sizes.num_kv_heads * sizes.head_dim
    shapes = {
        "q_proj": ("self_attn", hidden, query),
        "k_proj": ("self_attn", hidden, key),
        "v_proj": ("self_attn", hidden, key),
        "o_proj": ("self_attn", query, hidden),
        "gate_proj": ("mlp", hidden, intermediate),
        "up_proj": ("mlp", hidden, intermediate),
        "down_proj": ("mlp", intermediate, hidden),
    }
    linears = []
    for layer in range(sizes.num_layers):
        for name in MODULES:
            parent, in_features, out_features = shapes[name]
            path = f"{prefix}.layers.{layer}.{parent}.{name}"
            linears.append(TargetModule(path, in_features, out_features))
    return TargetModules(
        linears=tuple(linears),
        embedding=TargetModule(f"{prefix}.embed_tokens", sizes.vocab_size, hidden),
        lm_head=TargetModule("lm_head", hidden, sizes.vocab_size),
        is_tied=sizes.tie_embeddings,
    )
