"""A benchmark's result: a table for the reader, and JSON with the command, commit and hardware."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path("bench-results")


def print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same keys as an aligned table, whose heading is the keys."""
    if not rows:
        return
    heading = list(rows[0])
    cells = [heading, *([_cell(row[key]) for key in heading] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heading))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def write_result(name: str, setting: str, seed: int, measured: Mapping[str, Any]) -> Path:
    """Write ``bench-results/NAME.json`` with the values, and everything to measure them again."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    document = {
        "benchmark": name,
        "setting": setting,
        "seed": seed,
        "command": " ".join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]]),
        "commit": commit(),
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "hardware": hardware(),
        "measured": measured,
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    print(f"\nwritten to {path}")
    return path


def commit() -> str:
    """The checked-out commit, with ``+`` if files differ from it, or empty outside a checkout."""
    try:
        found = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found + ("+" if changed else "")


def hardware() -> dict[str, Any]:
    """The machine's hardware, as far as the system reports it."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _cell(value: Any) -> str:
    return f"{value:,.3f}" if isinstance(value, float) else str(value)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
