"""Shards: the part of each rank, where several ranks hold a model together."""

import msgspec


class Shard(msgspec.Struct, frozen=True):
    """Rank `rank` of `world_size`. Parts are contiguous, in the order of ranks, sizes differ by 1.

    Raises ValueError for a rank that is not below the world size.
    """

    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} of {self.world_size}; ranks count from 0")

    def span(self, count: int) -> slice:
        """This rank's part of `count` items."""
        return self.get_rank_span(count, self.rank)

    def get_rank_span(self, count: int, rank: int) -> slice:
        """The part of `rank` of `count` items."""
        return slice(count * rank // self.world_size, count * (rank + 1) // self.world_size)

    def largest(self, count: int) -> int:
        """The size of the largest part of `count` items."""
        return -(-count // self.world_size)


WHOLE = Shard()
"""The only rank, which holds everything."""


class ModuleShare(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's share of an adapter's module.

    `down_rows` and `down_columns` are of A (R, I), `up_rows` of B (O, R). In the rank's
    AdapterIndex `ranks_M` are whole ranks. Offsets of other ranks' rows of A are negative.
    """

    down_rows: slice
    down_columns: slice
    up_rows: slice


_SPLIT_INPUTS = ("o_proj", "down_proj")


def share_module(
    shard: Shard, name: str, *, rank: int, in_features: int, out_features: int
) -> ModuleShare:
    """A rank's share of a module of this LoRA rank, by the module's name.

    If the base splits outputs (lm_head too), rows of A are split and B follows the outputs. If it
    splits inputs, A follows them and B is split by outputs. So no two ranks hold the same numbers.
    Of embed_tokens a rank has its tokens' columns of A, and all of B.

    Source: S-LoRA (arXiv:2311.03285), section 6.
    """
    if name in _SPLIT_INPUTS:
        return ModuleShare(
            down_rows=slice(0, rank),
            down_columns=shard.span(in_features),
            up_rows=shard.span(out_features),
        )
    if name == "embed_tokens":
        return ModuleShare(
            down_rows=slice(0, rank),
            down_columns=shard.span(in_features),
            up_rows=slice(0, out_features),
        )
    return ModuleShare(
        down_rows=shard.span(rank),
        down_columns=slice(0, in_features),
        up_rows=shard.span(out_features),
    )
