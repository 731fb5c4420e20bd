"""Declared resources: what an instance type offers and what a copy reserves."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Declared resources of an instance type; `accelerators` counts whole devices."""

    cpus: float
    memory_bytes: int
    accelerators: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What one copy reserves (ComputeResourceRequirements).

    `accelerators` is a float as in the API, and a whole number: `check_consistent` sees to it.
    """

    min_memory_bytes: int
    max_memory_bytes: int | None = None
    cpus: float = 0.0
    accelerators: float = 0.0
