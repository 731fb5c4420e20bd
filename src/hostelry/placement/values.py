"""What placement is asked and what it answers, as plain values.

An instance offers its *declared* shape. A copy reserves CPUs, its minimum of memory and whole
accelerators; its maximum of memory is a limit on the copy, and reserves nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hostelry.domain.component import PlacementStrategy
from hostelry.domain.shape import Requirements, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An instance that copies may be placed on; `zone` is its availability zone."""

    instance_id: str
    instance_type: str
    shape: Shape
    zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a copy holds of an instance now; one that is `leaving` holds it until it is gone.

    `device_ids` may be empty although accelerators are reserved: then it holds the lowest that no
    other copy names. A copy that is not `movable` is never moved (it is pinned, or still coming
    up). `moved_bytes` is what starting it elsewhere would load; None: about its minimum of memory.
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
        """About how much starting it on another instance would load."""
        return self.requirements.min_memory_bytes if self.moved_bytes is None else self.moved_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """One copy to place: what it reserves on each instance type that can hold it.

    `max_imbalance` is how many more copies of the owner one zone may have than another before
    another zone is preferred; None: BINPACK looks at no zones, and SPREAD takes it as 0.
    """

    owner: str
    requirements_by_type: Mapping[str, Requirements]
    strategy: PlacementStrategy = PlacementStrategy.SPREAD
    max_imbalance: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a wanted copy goes, what it reserves there, and which accelerators are its alone."""

    instance_id: str
    requirements: Requirements
    device_ids: tuple[int, ...] = ()


class Obstacle(Enum):
    """Why a copy has no place."""

    TYPE_TOO_SMALL = "TYPE_TOO_SMALL"  # an empty instance of no type there is could hold it
    NO_INSTANCE = "NO_INSTANCE"  # no instance of a type that it may run on is there
    NO_ROOM = "NO_ROOM"  # too little is free now
    FRAGMENTED = "FRAGMENTED"  # too little is free on one instance; moving copies would make room
    AT_MAXIMUM = "AT_MAXIMUM"  # another instance would hold it, and none more is allowed
    NO_CAPACITY = "NO_CAPACITY"  # no type that could hold it can be had now


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A copy to start on another instance; the old one stops once the new one serves."""

    copy_id: str
    from_instance_id: str
    to: Placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What one instance has free, and how much more a copy would need of it (0: enough)."""

    instance_id: str
    instance_type: str
    free: Shape
    cpus: float = 0.0
    memory_bytes: int = 0
    accelerators: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyNot:
    """Why a wanted copy has no place: `text` for people, the rest for programs.

    `binding` names what is short ("accelerators", "memory", "CPUs"), the scarcest first; `lacks`
    has the instances that come closest first. `moves` (FRAGMENTED) are those after which the copy
    would fit; each moved copy fits where it goes beside all that runs now.
    """

    obstacle: Obstacle
    text: str
    owner: str
    asked: Mapping[str, Requirements]
    binding: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """An outcome for each wanted copy, in their order."""

    outcomes: tuple[Placed | WhyNot, ...]

    @property
    def placed(self) -> tuple[Placed, ...]:
        """Those that have a place, in order."""
        return tuple(it for it in self.outcomes if isinstance(it, Placed))

    @property
    def first_obstacle(self) -> WhyNot | None:
        """Why the first copy without a place has none; None when all have one."""
        return next((it for it in self.outcomes if isinstance(it, WhyNot)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """An instance type of which more may be started; pools are given by priority, first first."""

    instance_type: str
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInstance:
    """An instance to start, and which of the wanted copies (by position) it is for."""

    instance_type: str
    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The instances to start, and why some wanted copies (by position) get none."""

    instances: tuple[NewInstance, ...] = ()
    why_not: Mapping[int, WhyNot]

    def count(self, instance_type: str) -> int:
        """How many instances of that type to start."""
        return sum(1 for it in self.instances if it.instance_type == instance_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation:
    """Instances that can go once `moves` are done; those without a copy can go at once."""

    moves: tuple[Move, ...]
    released: tuple[str, ...]
