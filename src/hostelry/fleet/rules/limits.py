"""What a copy may take of its machine, from plain values: threads, memory, disk; when it took more.

No clock and no I/O; limited_process.py and cgroups.py act on it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hostelry.domain.copy import CopySpec
from hostelry.domain.shape import Requirements, Shape

MIB = 1024**2
MAX_DISK_BYTES = 32 * 1024**3
DISK_VARIABLE = "HOSTELRY_MAX_DISK_MB"  # of a container's Environment: it may ask for less

# What numeric libraries read for the number of their threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


# How long OpenMP's threads watch for work before they sleep: about ten microseconds, as its default
# of milliseconds takes the CPUs of whoever else computes (GNU's and LLVM's names).
WAIT_VARIABLES = {"GOMP_SPINCOUNT": "5000", "KMP_BLOCKTIME": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLimits:
    """A copy's weight among the copies, in CPUs of the declared shape, and its threads.

    Above `max_memory_bytes` (None: no limit) or `max_disk_bytes` it is killed.
    """

    cpus: float
    num_threads: int = 1
    max_memory_bytes: int | None = None
    max_disk_bytes: int = MAX_DISK_BYTES


def reserved_cpus(specs: Iterable[CopySpec]) -> float:
    """The CPUs that the copies of one instance reserve together."""
    return sum(spec.requirements.cpus for spec in specs if spec.requirements is not None)


def limits_of(
    requirements: Requirements | None, shape: Shape, machine_cpus: int, reserved: float
) -> CopyLimits:
    """The limits of a copy on a `shape` whose copies together reserve `reserved` CPUs.

    A reservation is rounded up to threads. Without one a copy may use every CPU that nobody
    reserved, as on AWS; its accelerators' share of those is its weight. One without requirements
    has the instance whole. There is always a thread, and never more than the machine has CPUs.
    """
    if requirements is None:
        return CopyLimits(cpus=shape.cpus, num_threads=whole_threads(shape.cpus, machine_cpus))
    if requirements.cpus > 0:
        cpus, threads = requirements.cpus, requirements.cpus
    else:
        free = max(shape.cpus - reserved, 0.0)
        share = requirements.accelerators / shape.accelerators if shape.accelerators else 0.0
        cpus = max(free * share, 1.0)
        # The declared shape may have more CPUs than the machine: the same part of each is free.
        threads = free * min(machine_cpus / shape.cpus, 1.0)
    return CopyLimits(
        cpus=cpus,
        num_threads=whole_threads(threads, machine_cpus),
        max_memory_bytes=requirements.max_memory_bytes,
    )


def asked_disk_bytes(asked_mb: str) -> int:
    """The disk budget of a copy whose Environment asks for `asked_mb`; never more than others'."""
    if not (asked_mb.isascii() and asked_mb.isdigit()) or len(asked_mb) > len(str(MAX_DISK_BYTES)):
        return MAX_DISK_BYTES
    return min(MAX_DISK_BYTES, int(asked_mb) * MIB)


def disk_budget_bytes(limits: CopyLimits, free_bytes: int) -> int:
    """What a copy may write where `free_bytes` are free as it starts: half of that at most."""
    return min(limits.max_disk_bytes, free_bytes // 2)


def whole_threads(cpus: float, machine_cpus: int) -> int:
    """`cpus` rounded up, from one to those that exist: more threads than CPUs are slow."""
    return max(1, min(math.ceil(cpus), machine_cpus))


def thread_variables(num_threads: int, operator_limit: str = "") -> dict[str, str]:
    """What gives numeric libraries their threads, which hardly spin while they wait.

    `operator_limit` is the operator's own OMP_NUM_THREADS, which nothing exceeds.
    """
    if operator_limit.isdigit() and int(operator_limit) > 0:
        num_threads = min(num_threads, int(operator_limit))
    return {**dict.fromkeys(THREAD_VARIABLES, str(num_threads)), **WAIT_VARIABLES}


def over_limit(held_bytes: int, limit_bytes: int | None) -> bool:
    """Whether a copy holds more than it may."""
    return limit_bytes is not None and held_bytes > limit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvidence:
    """What is known of a copy's memory when its process is gone.

    over_limit_bytes: what it held when the agent killed it for its limit; 0 when it did not.
    group_kills: how often the kernel killed one of its processes for the limit of its cgroup.
    machine_kills: how often the kernel killed any process for want of memory, during its life.
    peak_bytes: the most it was seen to hold.
    """

    over_limit_bytes: int = 0
    group_kills: int = 0
    machine_kills: int = 0
    peak_bytes: int = 0


def memory_cause(
    evidence: MemoryEvidence, exit_code: int | None, limit_bytes: int | None
) -> str | None:
    """That memory ended the copy, in words; None when it did not."""
    limit_mb = 0 if limit_bytes is None else limit_bytes // MIB
    if evidence.over_limit_bytes:
        return (
            f"The model server used {megabytes(evidence.over_limit_bytes)} MB, over its "
            f"MaxMemoryRequiredInMb of {limit_mb}; killed."
        )
    if evidence.group_kills:
        return (
            f"The model server's memory reached its MaxMemoryRequiredInMb of {limit_mb}; the "
            "kernel killed it."
        )
    killed = exit_code is None or exit_code == -9
    if not killed or not evidence.machine_kills:
        return None
    held = f"it held up to {megabytes(evidence.peak_bytes)} MB"
    return (
        f"The model server was killed while the machine ran out of memory ({held}). Reserve what "
        "it needs with MinMemoryRequiredInMb, or run fewer copies here."
    )


def disk_cause(written_bytes: int, budget_bytes: int) -> str:
    """That a copy was killed for what it wrote, in words."""
    return (
        f"The model server wrote {megabytes(written_bytes)} MB into its folder, over its disk "
        f"budget of {budget_bytes // MIB} MB; killed, and its files removed."
    )


def megabytes(num_bytes: int) -> int:
    """Whole MB of 1024 x 1024 bytes, rounded up, as the API counts them."""
    return -(-num_bytes // MIB)
