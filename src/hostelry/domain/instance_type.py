"""Instance types by name: what a machine of that type is declared to have."""

from dataclasses import dataclass

from hostelry.domain.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator: who makes it, what it is called, its own memory."""

    maker: str
    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """An instance type, for example ``ml.g5.xlarge``; `device` is None without accelerators."""

    name: str
    shape: Shape
    device: Device | None
