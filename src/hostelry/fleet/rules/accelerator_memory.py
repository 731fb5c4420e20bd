"""Memory of accelerators that a container of many models declares, since nothing measures it. Pure.

    HOSTELRY_ACCELERATOR_MEMORY_MB         what its accelerators have for models
    HOSTELRY_MODEL_ACCELERATOR_MEMORY_MB   what each model takes that declares nothing itself

Without the first nothing is counted. A model's own declaration: agent/models/declared_memory.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hostelry.base.errors import TerminalError

CAPACITY = "HOSTELRY_ACCELERATOR_MEMORY_MB"
EACH_MODEL = "HOSTELRY_MODEL_ACCELERATOR_MEMORY_MB"
MAX_MB = 1 << 24
MB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorMemory:
    """What a container declares; `capacity_bytes` is None where nothing is counted."""

    capacity_bytes: int | None = None
    model_bytes: int = 0


def accelerator_memory(environment: Mapping[str, str]) -> AcceleratorMemory:
    """The declarations of a container's Environment.

    Raises TerminalError for anything but whole numbers of 1 to 2^24.
    """
    capacity_mb, model_mb = (_number(environment, name) for name in (CAPACITY, EACH_MODEL))
    if capacity_mb is None:
        return AcceleratorMemory()
    return AcceleratorMemory(capacity_bytes=capacity_mb * MB, model_bytes=(model_mb or 0) * MB)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    if not 1 <= value <= MAX_MB:
        raise TerminalError(f"{name} is {text[:40]!r}; it must be a number from 1 to {MAX_MB}")
    return value
