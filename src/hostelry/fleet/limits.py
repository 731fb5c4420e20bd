"""What a copy may take of its machine, from plain values: threads, memory, and when it took more.

No clock and no I/O; limited_process.py and cgroups.py act on it.
"""

import math
from dataclasses import dataclass

from hostelry.domain.copy import CopySpec
from hostelry.domain.shape import Shape

MIB = 1024**2

# What numeric libraries read for the number of their threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLimits:
    """A copy's share of the CPUs, and the memory above which it is killed (None: no limit)."""

    cpus: float
    max_memory_bytes: int | None = None


def limits_of(spec: CopySpec, shape: Shape) -> CopyLimits:
    """The limits of a copy on an instance of `shape`; one that reserves nothing has it whole."""
    if spec.requirements is None:
        return CopyLimits(cpus=shape.cpus)
    return CopyLimits(
        cpus=spec.requirements.cpus, max_memory_bytes=spec.requirements.max_memory_bytes
    )


def num_threads(cpus: float, machine_cpus: int) -> int:
    """Threads for a reservation of `cpus`: rounded up, at least 1, at most what the machine has.

    A declared instance type may have more CPUs than this machine: more threads than CPUs are slow.
    """
    return max(1, min(math.ceil(cpus), machine_cpus))


def thread_variables(cpus: float, machine_cpus: int, operator_limit: str = "") -> dict[str, str]:
    """The variables that keep numeric libraries to the reservation.

    `operator_limit` is the operator's own OMP_NUM_THREADS, which a reservation does not exceed.
    """
    threads = num_threads(cpus, machine_cpus)
    if operator_limit.isdigit() and int(operator_limit) > 0:
        threads = min(threads, int(operator_limit))
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


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


def megabytes(num_bytes: int) -> int:
    """Whole MB of 1024 x 1024 bytes, rounded up, as the API counts them."""
    return -(-num_bytes // MIB)
