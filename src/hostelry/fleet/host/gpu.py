"""Utilization of the machine's accelerators, by nvidia-smi; empty where there is none.

Source: nvidia-smi --help-query-gpu.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence

from hostelry.domain.copy import GpuUse

TOOL = "nvidia-smi"
FIELDS = "index,uuid,utilization.gpu,memory.used,memory.total"
TIMEOUT_S = 2.0  # it hangs when the driver does


def gpu_uses() -> Mapping[str, GpuUse]:
    """The use of each device of the machine, by its number and by its UUID."""
    tool = shutil.which(TOOL)
    if tool is None:
        return {}
    query = [tool, f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return parsed(answer.stdout)


def parsed(text: str) -> Mapping[str, GpuUse]:
    """The tool's lines; a device that does not report ("[N/A]") is left out."""
    found: dict[str, GpuUse] = {}
    for line in text.splitlines():
        cells = [it.strip() for it in line.split(",")]
        try:
            number, uuid = cells[:2]
            busy, used_mb, total_mb = map(float, cells[2:])
            use = GpuUse(device=number, busy_percent=busy, memory_percent=100 * used_mb / total_mb)
        except (ValueError, ZeroDivisionError):
            continue
        found[number] = found[uuid] = use
    return found


def uses_of(devices: Sequence[str], machine: Mapping[str, GpuUse]) -> tuple[GpuUse, ...]:
    """The use of `devices`; those without a reading are left out."""
    return tuple(machine[it] for it in devices if it in machine)
