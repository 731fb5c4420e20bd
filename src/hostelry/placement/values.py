"""Inputs and results of placement, as plain values.

An instance offers its *declared* shape. A copy reserves CPUs, its minimum of memory and whole
accelerators. Its maximum of memory is a limit on the copy, and reserves nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from hostelry.domain.component import PlacementStrategy
from hostelry.domain.shape import Requirements, Shape


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that copies may be placed on. `zone` is its availability zone."""

    instance_id: str
    instance_type: str
    shape: Shape
    zone: str = ""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Resources that a copy holds on an instance. A `leaving` copy holds them until it is gone.

    `device_ids` may be empty although accelerators are reserved: the copy then holds the lowest
    that no other copy names. A copy that is not `movable` (pinned, or not ready yet) never moves.
    `moved_bytes` are the bytes that a start elsewhere would load. None: about `min_memory_bytes`.
    """

    copy_id: str
    owner: str
    instance_id: str
    requirements: Requirements
    device_ids: tuple[int, ...] = ()
    movable: bool = True
    leaving: bool = False
    moved_bytes: int | None = None

    @property
    def load_bytes(self) -> int:
        """An estimate of the bytes that a start on another instance would load."""
        return self.requirements.min_memory_bytes if self.moved_bytes is None else self.moved_bytes


class CopyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to place one copy, with its reservation on each instance type that can hold it.

    `max_imbalance` is how many more copies of the owner one zone may have than another before
    another zone is preferred. None: BINPACK ignores zones, and SPREAD takes it as 0.
    """

    owner: str
    requirements_by_type: Mapping[str, Requirements]
    strategy: PlacementStrategy = PlacementStrategy.SPREAD
    max_imbalance: int | None = None


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a requested copy, its reservation there, and the accelerators it owns."""

    instance_id: str
    requirements: Requirements
    device_ids: tuple[int, ...] = ()


class Obstacle(Enum):
    """Why a copy fits nowhere."""

    TYPE_TOO_SMALL = "TYPE_TOO_SMALL"  # no type could hold it, even an empty instance
    NO_INSTANCE = "NO_INSTANCE"  # no instance has a type that it may run on
    NO_ROOM = "NO_ROOM"  # too little is free now
    FRAGMENTED = "FRAGMENTED"  # moving copies would make room on one instance
    AT_MAXIMUM = "AT_MAXIMUM"  # another instance would hold it, but none is allowed
    NO_CAPACITY = "NO_CAPACITY"  # no type that could hold it is available now


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A copy to start on another instance. The old one stops once the new one serves."""

    copy_id: str
    from_instance_id: str
    to: Placed


class Lack(msgspec.Struct, frozen=True, kw_only=True):
    """Free resources of an instance, and how much a copy lacks of each (0: enough)."""

    instance_id: str
    instance_type: str
    free: Shape
    cpus: float = 0.0
    memory_bytes: int = 0
    accelerators: int = 0


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    """Why a requested copy fits nowhere: `text` for people, the rest for programs.

    `binding` names the short resources ("accelerators", "memory", "CPUs"), the scarcest first.
    `lacks` has the closest instances first. After `moves` (FRAGMENTED) the copy would fit. Each
    moved copy fits at its new place next to all copies that run now.
    """

    obstacle: Obstacle
    text: str
    owner: str
    asked: Mapping[str, Requirements]
    binding: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()
    moves: tuple[Move, ...] = ()


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for each request, in their order."""

    outcomes: tuple[Placed | WhyNot, ...]

    @property
    def placed(self) -> tuple[Placed, ...]:
        """The requests that have a place, in order."""
        return tuple(it for it in self.outcomes if isinstance(it, Placed))

    @property
    def first_obstacle(self) -> WhyNot | None:
        """The reason for the first request without a place. None if all have one."""
        return next((it for it in self.outcomes if isinstance(it, WhyNot)), None)


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type that may be launched. Pools are given in order of priority."""

    instance_type: str
    shape: Shape


class NewInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance to launch, and the positions of the requests that it is for."""

    instance_type: str
    requests: tuple[int, ...]


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Instances to launch, and the reasons for requests (by position) that get none."""

    instances: tuple[NewInstance, ...] = ()
    why_not: Mapping[int, WhyNot]

    def count(self, instance_type: str) -> int:
        """The number of instances of that type to launch."""
        return sum(1 for it in self.instances if it.instance_type == instance_type)


class Consolidation(msgspec.Struct, frozen=True, kw_only=True):
    """Instances to release once `moves` are done. Instances without a copy can go at once."""

    moves: tuple[Move, ...]
    released: tuple[str, ...]


BYTES_PER_MB = 1024 * 1024
ACCELERATORS, MEMORY, CPUS = "accelerators", "memory", "CPUs"
RESOURCES = (ACCELERATORS, MEMORY, CPUS)  # the scarcest kind first


def get_amount(shape: Shape, resource: str) -> float:
    """The amount of one of RESOURCES in a shape."""
    return {
        ACCELERATORS: shape.accelerators,
        MEMORY: shape.memory_bytes,
        CPUS: shape.cpus,
    }[resource]


def format_amount(shape: Shape, resource: str) -> str:
    """The amount of one of RESOURCES as text. Memory is rounded to whole MB."""
    if resource == MEMORY:
        return f"{round(shape.memory_bytes / BYTES_PER_MB)} MB"
    number = get_amount(shape, resource)
    noun = {ACCELERATORS: "accelerator", CPUS: "CPU"}[resource]
    return f"{number:g} {noun}" + ("" if number == 1 else "s")


def format_shape(shape: Shape, first: Sequence[str] = (), *, zeros: bool = True) -> str:
    """All resources of a shape as text, beginning with `first`."""
    order = dict.fromkeys((*first, *RESOURCES))
    return (
        join_words(format_amount(shape, it) for it in order if zeros or get_amount(shape, it))
        or "nothing"
    )


def join_words(parts: Iterable[str]) -> str:
    """Parts as a list: "a, b and c"."""
    *most, last = [*parts] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def format_moves(moves: Iterable[Move]) -> str:
    """Moves as text."""
    return join_words(
        f"moving copy {move.copy_id} from {move.from_instance_id} to {move.to.instance_id}"
        for move in moves
    )


def to_reserved_shape(requirements: Requirements) -> Shape:
    """The resources that a copy with `requirements` reserves."""
    return Shape(
        cpus=requirements.cpus,
        memory_bytes=requirements.min_memory_bytes,
        accelerators=int(requirements.accelerators),
    )


def format_request(asked: Mapping[str, Requirements], first: Sequence[str] = ()) -> str:
    """A request as text: "a copy needs 2 accelerators and 16384 MB", by type if they differ."""
    kinds: dict[str, list[str]] = {}
    for name in sorted(asked):
        text = format_shape(to_reserved_shape(asked[name]), first, zeros=False)
        kinds.setdefault(text, []).append(name)
    if len(kinds) <= 1:
        return f"a copy needs {next(iter(kinds), 'an instance type that may hold it')}"
    by_type = (f"{text} on {' or '.join(names)}" for text, names in kinds.items())
    return "a copy needs " + ", or ".join(by_type)
