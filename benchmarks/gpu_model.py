"""A random Llama on a device with a 7B model's shapes, and adapters in its pool, without files.

# B sequences, P pages a sequence
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch

from hostelry.engine.kernels.batch import MODULES, AdapterIndex, ForwardBatch, LoraSegment
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.weights import DecoderWeights, LayerWeights, Projection
from hostelry.engine.layers.rotary import build_rope_tables, compute_inverse_frequencies
from hostelry.engine.lora.layout import AdapterLayout, AdapterRanks, AdapterScales, plan_layout
from hostelry.engine.lora.layout import build_index as place
from hostelry.engine.lora.targets import TargetModules, decoder_targets

PAGE_TOKENS = 16
ATTENTION = MODULES[:4]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A Llama's sizes. The defaults are Llama 2 7B's."""

    num_layers: int = 32
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_heads: int = 32
    num_kv_heads: int = 32
    head_dim: int = 128
    vocab_size: int = 32000
    max_len: int = 2048
    tie_embeddings: bool = False

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer's products."""
        query, key = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (2 * query + 2 * key)
        return attention + 3 * self.hidden_size * self.intermediate_size

    @property
    def step_parameters(self) -> int:
        """Parameters that each step reads: all but the embedding."""
        return self.num_layers * self.layer_parameters + self.vocab_size * self.hidden_size


TINY = Sizes(
    num_layers=2,
    hidden_size=64,
    intermediate_size=112,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=199,
    max_len=64,
)


def random_weights(sizes: Sizes, dtype: torch.dtype, device: torch.device) -> DecoderWeights:
    """Random weights whose logits stay finite."""

    def random(rows: int, columns: int) -> torch.Tensor:
        weight = torch.empty(rows, columns, dtype=dtype, device=device)
        return weight.normal_(std=0.02)

    ones = torch.ones(sizes.hidden_size, dtype=dtype, device=device)
    query, key = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
    layers = [
        LayerWeights(
            input_norm_H=ones,
            qkv=Projection(weight_OI=random(query + 2 * key, sizes.hidden_size)),
            q_norm_D=None,
            k_norm_D=None,
            o=Projection(weight_OI=random(sizes.hidden_size, query)),
            attn_out_norm_H=None,
            mlp_norm_H=ones,
            gate_up=Projection(weight_OI=random(2 * sizes.intermediate_size, sizes.hidden_size)),
            down=Projection(weight_OI=random(sizes.hidden_size, sizes.intermediate_size)),
            mlp_out_norm_H=None,
            window=None,
            rope=0,
        )
        for _ in range(sizes.num_layers)
    ]
    turns = build_rope_tables(
        compute_inverse_frequencies(sizes.head_dim, 10000.0), sizes.max_len, device
    )
    return DecoderWeights(
        num_layers=sizes.num_layers,
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        norm_eps=1e-5,
        attention_scale=sizes.head_dim**-0.5,
        activation="silu",
        embedding_scale=1.0,
        embedding_VH=random(sizes.vocab_size, sizes.hidden_size),
        lm_head_VH=random(sizes.vocab_size, sizes.hidden_size),
        final_norm_H=ones,
        ropes=[turns],
        layer=layers.__getitem__,
        dtype=dtype,
    )


def pool_layout(sizes: Sizes, dtype: torch.dtype) -> PoolLayout:
    """The layout of the model's pages."""
    return PoolLayout(
        num_layers=sizes.num_layers,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        page_tokens=PAGE_TOKENS,
        dtype=dtype,
    )


class AdapterPages:
    """A pool of small random numbers, and adapters anywhere at its end."""

    def __init__(self, sizes: Sizes, pool: PoolTensor, num_kv_pages: int) -> None:
        self.targets: TargetModules = decoder_targets(sizes)
        self.pool = pool
        self.num_kv_pages = num_kv_pages
        # Fill a part at a time. Random numbers of the whole pool need as much memory again.
        for part in torch.split(pool.elements, 1 << 26):
            part.normal_(std=0.01)
        self._order = numpy.random.default_rng(0).permutation(
            numpy.arange(num_kv_pages, pool.num_pages)
        )

    def layout(self, rank: int, modules: Sequence[str]) -> AdapterLayout:
        """The layout of adapters with that rank on those modules."""
        ranks = tuple(
            rank if name in modules else 0
            for _ in range(self.targets.num_layers)
            for name in MODULES
        )
        return plan_layout(
            self.targets, AdapterRanks(linears=ranks), self.pool.layout.page_elements
        )

    def room(self, layout: AdapterLayout) -> int:
        """How many adapters of that layout fit in the pool at once."""
        return len(self._order) // layout.num_pages

    def pages(self, layout: AdapterLayout, number: int) -> list[int]:
        """The pages of adapter `number`."""
        first = number * layout.num_pages
        return [int(it) for it in self._order[first : first + layout.num_pages]]

    def index(self, layout: AdapterLayout, number: int) -> AdapterIndex:
        """The place of adapter `number` in the pool."""
        scales = AdapterScales(linears=(1.0,) * len(layout.ranks.linears))
        return place(layout, scales, self.pages(layout, number))


def decode_batch(
    length: int, owners: Sequence[AdapterIndex | None], vocabulary: int
) -> ForwardBatch:
    """A batch for the next token of sequences of `length` tokens, each with its owner."""
    count = len(owners)
    longest = -(-length // PAGE_TOKENS)
    int32 = numpy.int32
    return ForwardBatch(
        token_ids_T=numpy.arange(count, dtype=int32) % vocabulary,
        positions_T=numpy.full(count, length - 1, int32),
        row_starts_B1=numpy.arange(count + 1, dtype=int32),
        lengths_B=numpy.full(count, length, int32),
        pages_BP=numpy.arange(count * longest, dtype=int32).reshape(count, longest),
        logit_rows_S=numpy.arange(count, dtype=int32),
        segments=[
            LoraSegment(row_start=row, row_end=row + 1, index=owner)
            for row, owner in enumerate(owners)
            if owner is not None
        ],
    )
