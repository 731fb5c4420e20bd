"""Limits of a copy's threads, memory and disk, and texts for a death by a limit. Pure.

limited_process.py and cgroups.py enforce them.
"""

import math
from collections.abc import Iterable

import msgspec

from hostelry.domain.copy import CopySpec
from hostelry.domain.shape import Requirements, Shape

MIB = 1024**2
MEMORY_FIELDS = "MaxMemoryRequiredInMb, or a serverless variant's MemorySizeInMB"
MAX_DISK_BYTES = 32 * 1024**3
DISK_VARIABLE = "HOSTELRY_MAX_DISK_MB"  # a container's Environment may ask for less

# Thread counts of numeric libraries.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


# How long OpenMP's threads spin before they sleep: about ten microseconds. The default of
# milliseconds takes CPUs from other copies (GNU's and LLVM's names).
WAIT_VARIABLES = {"GOMP_SPINCOUNT": "5000", "KMP_BLOCKTIME": "0"}


class CopyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """A copy's CPU weight, in CPUs of the declared shape, and its threads.

    It is killed above `max_memory_bytes` (`None` for no limit) or `max_disk_bytes`.
    """

    cpus: float
    num_threads: int = 1
    max_memory_bytes: int | None = None
    max_disk_bytes: int = MAX_DISK_BYTES


def reserved_cpus(specs: Iterable[CopySpec]) -> float:
    """The CPUs that the copies of one instance reserve together."""
    return sum(spec.requirements.cpus for spec in specs if spec.requirements is not None)


def num_sharing(specs: Iterable[CopySpec]) -> int:
    """The number of containers of one model that share an instance's memory evenly, at least 1.

    `specs` are all copies of the instance. They may include a copy that ends, and its successor.
    """
    return len({it.container.hostname for it in specs if it.requirements is None}) or 1


def compute_limits(
    requirements: Requirements | None, shape: Shape, machine_cpus: int, reserved: float
) -> CopyLimits:
    """The limits of a copy on a `shape` whose copies together reserve `reserved` CPUs.

    requirements      weight                             threads
    none              the whole shape                    the whole shape
    with CPUs         those CPUs                         those CPUs, rounded up
    without CPUs      its accelerators' share of the     the unreserved CPUs, as on AWS
                      unreserved CPUs, at least 1

    Threads are at least 1, and at most the machine's CPUs.
    """
    if requirements is None:
        return CopyLimits(cpus=shape.cpus, num_threads=whole_threads(shape.cpus, machine_cpus))
    if requirements.cpus > 0:
        cpus, threads = requirements.cpus, requirements.cpus
    else:
        free = max(shape.cpus - reserved, 0.0)
        share = requirements.accelerators / shape.accelerators if shape.accelerators else 0.0
        cpus = max(free * share, 1.0)
        # The shape may declare more CPUs than the machine has: scale to the real ones.
        threads = free * min(machine_cpus / shape.cpus, 1.0)
    return CopyLimits(
        cpus=cpus,
        num_threads=whole_threads(threads, machine_cpus),
        max_memory_bytes=requirements.max_memory_bytes,
        max_disk_bytes=requirements.max_disk_bytes or MAX_DISK_BYTES,
    )


def asked_disk_bytes(asked_mb: str, most_bytes: int = MAX_DISK_BYTES) -> int:
    """The disk budget that an Environment asks for, `most_bytes` at most and by default."""
    if not (asked_mb.isascii() and asked_mb.isdigit()) or len(asked_mb) > len(str(MAX_DISK_BYTES)):
        return most_bytes
    return min(most_bytes, int(asked_mb) * MIB)


def disk_budget_bytes(limits: CopyLimits, free_bytes: int) -> int:
    """Bytes that a copy may write: at most half of the bytes that are free at its start."""
    return min(limits.max_disk_bytes, free_bytes // 2)


def whole_threads(cpus: float, machine_cpus: int) -> int:
    """`cpus` rounded up, between 1 and `machine_cpus`, because more threads than CPUs are slow."""
    return max(1, min(math.ceil(cpus), machine_cpus))


def thread_variables(num_threads: int, operator_limit: str = "") -> dict[str, str]:
    """Variables that set the threads of numeric libraries, and keep idle ones from spinning.

    `operator_limit` is the operator's own OMP_NUM_THREADS, an upper bound.
    """
    if operator_limit.isdigit() and int(operator_limit) > 0:
        num_threads = min(num_threads, int(operator_limit))
    return {**dict.fromkeys(THREAD_VARIABLES, str(num_threads)), **WAIT_VARIABLES}


def is_over_limit(held_bytes: int, limit_bytes: int | None) -> bool:
    """Whether a copy exceeds its limit."""
    return limit_bytes is not None and held_bytes > limit_bytes


class MemoryEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Observations of a copy's memory up to its end.

    over_limit_bytes: memory held when the agent killed it for its limit, otherwise 0.
    group_kills: processes of its cgroup that the kernel killed for the limit.
    machine_kills: processes on the machine that the kernel killed for memory at its end. Counted
        if the copy has no cgroup.
    peak_bytes: the highest measured memory.
    """

    over_limit_bytes: int = 0
    group_kills: int = 0
    machine_kills: int = 0
    peak_bytes: int = 0


def describe_memory_cause(
    evidence: MemoryEvidence, exit_code: int | None, limit_bytes: int | None
) -> str | None:
    """Describe the cause of death, or return None if memory was not the cause.

    over_limit_bytes                              -> killed by the agent for its limit
    group_kills                                   -> killed by the kernel for its limit
    machine_kills, and no exit code or SIGKILL    -> killed, perhaps by the kernel: a neighbour's
                                                     limit counts as well
    otherwise                                     -> None
    """
    limit_mb = 0 if limit_bytes is None else limit_bytes // MIB
    if evidence.over_limit_bytes:
        return (
            f"The model server used {megabytes(evidence.over_limit_bytes)} MB, over its "
            f"limit of {limit_mb} MB ({MEMORY_FIELDS}); killed."
        )
    if evidence.group_kills:
        return (
            f"The model server's memory reached its limit of {limit_mb} MB ({MEMORY_FIELDS}); "
            "the kernel killed it."
        )
    killed = exit_code is None or exit_code == -9
    if not killed or not evidence.machine_kills:
        return None
    end = "process is gone" if exit_code is None else "was ended by signal 9"
    return (
        f"The model server {end}. The kernel killed {evidence.machine_kills} of the machine's "
        "processes at that time, because the machine or a limit ran out of memory; it held up "
        f"to {megabytes(evidence.peak_bytes)} MB. If it was one of them, reserve what it needs "
        "with MinMemoryRequiredInMb, or run fewer copies here."
    )


def describe_disk_cause(written_bytes: int, budget_bytes: int) -> str:
    """Describe the cause of death of a copy that wrote too much."""
    return (
        f"The model server wrote {megabytes(written_bytes)} MB into its folder, over its disk "
        f"budget of {budget_bytes // MIB} MB; killed, and its files removed."
    )


def megabytes(num_bytes: int) -> int:
    """Whole MB of 1024 x 1024 bytes, rounded up, as the API counts them."""
    return -(-num_bytes // MIB)
