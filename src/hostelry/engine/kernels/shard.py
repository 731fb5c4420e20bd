"""A rank's part of what several ranks hold together."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
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
        """The part of `count` things that is this rank's."""
        return self.span_of(count, self.rank)

    def span_of(self, count: int, rank: int) -> slice:
        """The part of `count` things that is `rank`'s."""
        return slice(count * rank // self.world_size, count * (rank + 1) // self.world_size)

    def largest(self, count: int) -> int:
        """Things in the largest part of `count`."""
        return -(-count // self.world_size)


WHOLE = Shard()
"""The only rank, which holds everything."""
