"""Orders of copies by size, and a lower bound of the instances that hold a set of copies."""

from collections.abc import Callable, Iterable, Mapping

from hostelry.domain.shape import Shape
from hostelry.placement.room import MILLIONTHS, Need

SizeKey = tuple[float, ...]
Size = Callable[[Mapping[str, Need], Mapping[str, Shape]], SizeKey]


def largest_share(by_type: Mapping[str, Need], shapes: Mapping[str, Shape]) -> SizeKey:
    """Less for larger copies: by accelerators, then by the largest share of an empty instance.

    Of several types that can hold the copy, the one of which it takes the least counts.
    """
    found = [_shares(need, shapes[name]) for name, need in by_type.items() if name in shapes]
    accelerators = max((it.accelerators for it in by_type.values()), default=0)
    return (-accelerators, -min((max(it) for it in found), default=0.0))


def sum_of_shares(by_type: Mapping[str, Need], shapes: Mapping[str, Shape]) -> SizeKey:
    """Less for larger copies: by the shares of an empty instance, added up."""
    found = [_shares(need, shapes[name]) for name, need in by_type.items() if name in shapes]
    return (-min((sum(it) for it in found), default=0.0),)


def share_of_memory(by_type: Mapping[str, Need], shapes: Mapping[str, Shape]) -> SizeKey:
    """Less for copies that take a larger share of memory."""
    found = [_shares(need, shapes[name]) for name, need in by_type.items() if name in shapes]
    return (-min((it[1] for it in found), default=0.0),)


def share_of_cpus(by_type: Mapping[str, Need], shapes: Mapping[str, Shape]) -> SizeKey:
    """Less for copies that take a larger share of CPUs."""
    found = [_shares(need, shapes[name]) for name, need in by_type.items() if name in shapes]
    return (-min((it[2] for it in found), default=0.0),)


def _shares(need: Need, shape: Shape) -> tuple[float, float, float]:
    """Shares of an empty instance: of its accelerators, memory and CPUs."""
    return (
        need.accelerators / max(shape.accelerators, 1),
        need.memory_bytes / max(shape.memory_bytes, 1),
        need.cpu_millionths / max(shape.cpus * MILLIONTHS, 1),
    )


def least_instances(needs: Iterable[Need], shape: Shape) -> int:
    """A lower bound: no packing holds the copies on fewer empty instances of `shape`."""
    every = tuple(needs)
    pairs = (
        (sum(it.accelerators for it in every), shape.accelerators),
        (sum(it.memory_bytes for it in every), shape.memory_bytes),
        (sum(it.cpu_millionths for it in every), round(shape.cpus * MILLIONTHS)),
    )
    return max(-(-total // max(capacity, 1)) for total, capacity in pairs)
