"""The present and the maximum memory of a process. Source: proc(5)."""

from pathlib import Path


def resident_bytes(pid: int) -> int:
    """The present memory of the process."""
    return _status_bytes(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """The maximum memory of the process since `forget_peak`."""
    return _status_bytes(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """Reset `peak_bytes`."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_bytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [it for it in lines if it.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024
