"""The memory of processes as the kernel counts it, and whether another model fits."""

from collections.abc import Iterable
from pathlib import Path

KIB = 1024


def proportional_bytes(pids: Iterable[int]) -> int:
    """The processes' memory; a page that several share counts for each by its part.

    A process that has ended counts nothing.
    """
    return sum(one_process(pid) for pid in pids)


def one_process(pid: int) -> int:
    """The proportional set size (PSS) of a process; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith("Pss:"):
            return int(line.split()[1]) * KIB
    return 0


def grown_most(
    limit_bytes: int | None, used_bytes: int, sizes: Iterable[tuple[str, int, int]]
) -> str | None:
    """The model that is to end, for it has grown the most; None while the limit is kept. Pure.

    `sizes` has each model's name, its bytes after the load, and its bytes now.
    """
    if limit_bytes is None or used_bytes < limit_bytes:
        return None
    growth_bytes, name = max(
        ((now_bytes - loaded_bytes, name) for name, loaded_bytes, now_bytes in sizes),
        default=(0, ""),
    )
    return name if growth_bytes > 0 else None


def no_room(limit_bytes: int | None, used_bytes: int, model_bytes: int = 0) -> str | None:
    """Why a model of `model_bytes` beside `used_bytes` is too much; None where it fits. Pure.

    Before a load the size is not known (0): then only a memory that is full already is.
    """
    if limit_bytes is None or used_bytes + model_bytes < limit_bytes:
        return None
    of_it = f", {model_bytes} of them by this model" if model_bytes else ""
    return (
        f"{used_bytes + model_bytes} bytes are in use{of_it}; the copy has {limit_bytes} "
        "(HOSTELRY_MEMORY_BYTES): unload a model first"
    )
