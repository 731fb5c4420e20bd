"""Declared resources of instance types, and reservations of copies."""

import msgspec


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Declared resources of an instance type. `accelerators` counts whole devices."""

    cpus: float
    memory_bytes: int
    accelerators: int = 0


NO_RESOURCES = Shape(cpus=0, memory_bytes=0)


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """The reservation of one copy (ComputeResourceRequirements).

    `accelerators` is a float, as in the API, but `check_consistent` refuses fractions.
    `max_disk_bytes` is the copy's limit of disk space, or None for the platform's limit.
    """

    min_memory_bytes: int
    max_memory_bytes: int | None = None
    cpus: float = 0.0
    accelerators: float = 0.0
    max_disk_bytes: int | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator: its maker, name and memory."""

    maker: str
    name: str
    memory_bytes: int


class InstanceType(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type, for example ``ml.g5.xlarge``. Without accelerators it has no `device`."""

    name: str
    shape: Shape
    device: Device | None
