"""Resources as text: "2 accelerators, 16384 MB and 4 CPUs"."""

from collections.abc import Iterable, Mapping, Sequence

from hostelry.domain.shape import Requirements, Shape
from hostelry.placement.values import Move

BYTES_PER_MB = 1024 * 1024
ACCELERATORS, MEMORY, CPUS = "accelerators", "memory", "CPUs"
RESOURCES = (ACCELERATORS, MEMORY, CPUS)  # the scarcest kind first


def amount(shape: Shape, resource: str) -> float:
    """The amount of one of RESOURCES in a shape."""
    return {
        ACCELERATORS: shape.accelerators,
        MEMORY: shape.memory_bytes,
        CPUS: shape.cpus,
    }[resource]


def amount_text(shape: Shape, resource: str) -> str:
    """The amount of one of RESOURCES as text; memory is rounded to whole MB."""
    if resource == MEMORY:
        return f"{round(shape.memory_bytes / BYTES_PER_MB)} MB"
    number = amount(shape, resource)
    noun = {ACCELERATORS: "accelerator", CPUS: "CPU"}[resource]
    return f"{number:g} {noun}" + ("" if number == 1 else "s")


def shape_text(shape: Shape, first: Sequence[str] = (), *, zeros: bool = True) -> str:
    """All resources of a shape as text, those of `first` before the others."""
    order = dict.fromkeys((*first, *RESOURCES))
    return joined(amount_text(shape, it) for it in order if zeros or amount(shape, it)) or "nothing"


def joined(parts: Iterable[str]) -> str:
    """Parts as a list: "a, b and c"."""
    *most, last = [*parts] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def moves_text(moves: Iterable[Move]) -> str:
    """Moves as text."""
    return joined(
        f"moving copy {it.copy_id} from {it.from_instance_id} to {it.to.instance_id}"
        for it in moves
    )


def reserved_shape(requirements: Requirements) -> Shape:
    """The resources that a copy with `requirements` reserves."""
    return Shape(
        cpus=requirements.cpus,
        memory_bytes=requirements.min_memory_bytes,
        accelerators=int(requirements.accelerators),
    )


def asked_text(asked: Mapping[str, Requirements], first: Sequence[str] = ()) -> str:
    """A request as text: "a copy needs 2 accelerators and 16384 MB"; by type where they differ."""
    kinds: dict[str, list[str]] = {}
    for name in sorted(asked):
        text = shape_text(reserved_shape(asked[name]), first, zeros=False)
        kinds.setdefault(text, []).append(name)
    if len(kinds) <= 1:
        return f"a copy needs {next(iter(kinds), 'an instance type that may hold it')}"
    by_type = (f"{text} on {' or '.join(names)}" for text, names in kinds.items())
    return "a copy needs " + ", or ".join(by_type)
