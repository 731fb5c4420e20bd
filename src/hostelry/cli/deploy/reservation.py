"""The resources that a copy reserves, and the instance type for the copies. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.deploy.recognise import DeployKind, Recognised
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.shapes import describe_unknown_type, get_shape

MIB = 1024 * 1024
STEP_BYTES = 128 * MIB
ADAPTER_BYTES = 128 * MIB  # always reserved, so that the first adapter needs no update
CACHED_CONTEXTS, CONTEXT_TOKENS = 4, 4096
SERVER_BYTES: Mapping[DeployKind, int] = {
    DeployKind.LLM: 400 * MIB,
    DeployKind.FRAMEWORK: 512 * MIB,
    DeployKind.TRITON: 512 * MIB,
    DeployKind.GRAPH: 256 * MIB,
    DeployKind.IMAGE: 512 * MIB,
}
MAX_CPUS = 8  # for an LLM's copy. More CPUs help little
CPU_TYPES = ("large", "xlarge", "2xlarge", "4xlarge", "12xlarge", "24xlarge")
CPU_LADDER = tuple(f"ml.m5.{it}" for it in CPU_TYPES)
GPU_LADDER = ("ml.g5.xlarge", "ml.g5.12xlarge", "ml.g5.48xlarge")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's resources. `free_bytes` is the memory that could be used now."""

    cpus: int
    accelerators: int
    memory_bytes: int
    free_bytes: int
    free_disk_bytes: int


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that one copy reserves, and the purposes (`parts`) of its memory."""

    requirements: Requirements
    parts: tuple[tuple[str, int], ...]

    @property
    def memory_mb(self) -> int:
        """Its memory in units of 1024 x 1024 bytes, as in the API."""
        return self.requirements.min_memory_bytes // MIB


def reservation(
    recognised: Recognised,
    num_bytes: int,
    machine: Machine,
    memory_mb: int | None,
) -> Reservation:
    """The reservation of a copy. `num_bytes` is the size of the model's files."""
    parts = memory_parts(recognised, num_bytes)
    if memory_mb is not None:
        parts = (("as --memory-mb says", memory_mb * MIB),)
    total = sum(size for _, size in parts)
    is_llm = recognised.kind is DeployKind.LLM
    return Reservation(
        requirements=Requirements(
            min_memory_bytes=total if memory_mb else -(-total // STEP_BYTES) * STEP_BYTES,
            cpus=float(min(MAX_CPUS, machine.cpus)) if is_llm else 1.0,
            accelerators=1.0 if is_llm and machine.accelerators else 0.0,
        ),
        parts=parts,
    )


def memory_parts(recognised: Recognised, num_bytes: int) -> tuple[tuple[str, int], ...]:
    """The purposes of a copy's memory, with bytes."""
    server = ("server", SERVER_BYTES[recognised.kind])
    if recognised.kind is DeployKind.LLM:
        cached = ("cache of 4 texts", cache_bytes(recognised.config))
        return (("weights", num_bytes), cached, ("adapters", ADAPTER_BYTES), server)
    if recognised.kind in (DeployKind.GRAPH, DeployKind.IMAGE):
        return (server,)
    return (("the model's files twice", 2 * num_bytes), server)


def cache_bytes(config: Mapping[str, Any]) -> int:
    """Bytes of the cache for four texts of 4,096 tokens. 0 if config.json lacks sizes."""
    try:
        layers = int(config["num_hidden_layers"])
        heads = int(config.get("num_key_value_heads") or config["num_attention_heads"])
        size = int(
            config.get("head_dim") or int(config["hidden_size"]) // config["num_attention_heads"]
        )
        tokens = min(int(config.get("max_position_embeddings", CONTEXT_TOKENS)), CONTEXT_TOKENS)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return 0
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    return 2 * layers * heads * size * tokens * CACHED_CONTEXTS * (4 if "32" in dtype else 2)


def check_instance_type(name: str) -> None:
    """Raise TerminalError for an unknown instance type, with similar names."""
    if (fault := describe_unknown_type(name)) is not None:
        raise UsageError(f"--instance-type {fault}")


def instance_type_for(asked: Requirements, copies: int, present: str | None) -> str:
    """Choose a type whose single instance holds the copies and one more, for updates in place.

    `present`, the endpoint's type, stays if it holds one copy. Otherwise it is the smallest
    sufficient type, or the largest type. Raises TerminalError if no type holds one copy.
    """
    if present is not None and copies_within(asked, get_shape(present)) > 0:
        return present
    ladder = GPU_LADDER if asked.accelerators else CPU_LADDER
    for name in ladder:
        if copies_within(asked, get_shape(name)) > copies:
            return name
    check_fits(asked, ladder[-1])
    return ladder[-1]


def check_fits(asked: Requirements, name: str) -> None:
    """Raise TerminalError if an empty instance of the type cannot hold a copy."""
    shape = get_shape(name)
    if copies_within(asked, shape) == 0:
        raise TerminalError(
            f"there is not enough room: a copy needs {shape_text(to_shape(asked))}, and {name} has "
            f"{shape_text(shape)}: choose a larger --instance-type, or less with --memory-mb"
        )


def copies_within(asked: Requirements, free: Shape) -> int:
    """Number of copies that the free resources hold."""
    pairs = (
        (free.cpus, asked.cpus),
        (free.memory_bytes, asked.min_memory_bytes),
        (free.accelerators, asked.accelerators),
    )
    return int(min(have // take for have, take in pairs if take))


def to_shape(asked: Requirements) -> Shape:
    """The reserved resources of a copy as a shape."""
    return Shape(
        cpus=asked.cpus,
        memory_bytes=asked.min_memory_bytes,
        accelerators=int(asked.accelerators),
    )


def shape_text(shape: Shape) -> str:
    """CPUs, memory and accelerators as text."""
    accelerators = f", {shape.accelerators} accelerators" if shape.accelerators else ""
    return f"{shape.cpus:g} CPUs and {shape.memory_bytes / MIB:.0f} MB{accelerators}"
