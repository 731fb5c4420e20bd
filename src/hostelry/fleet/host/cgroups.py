"""Control groups of copies, version 2 or 1, where the machine allows them.

The kernel enforces the copy's memory limit, its CPU weight and its number of processes. Groups are
created next to or below the agent's group, because a service manager or a container delegates
nothing else. If the kernel refuses that, too, limited_process.py polls the memory instead.

Source: the kernel's cgroup-v2.rst and cgroup-v1/memory.rst, and cgroups(7) for the files in /proc.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from hostelry.fleet.rules.limits import CopyLimits

MAX_PROCESSES = 4096  # and threads. More than any model server needs, but stops a fork bomb
SHARES_PER_CPU = 1024  # version 1's weight of an ordinary process
WEIGHT_PER_CPU = 100
MOST_SHARES = 262_144
MOST_WEIGHT = 10_000
BRANCH = "hostelry"  # parent of all copies' groups, whose weights compete only with each other
LEFTOVER_AFTER_S = 600.0
REMOVE_TRIES = 20
REMOVE_PAUSE_S = 0.05
CONTROLLERS = ("memory", "cpu", "pids")


class CgroupParent(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the hierarchy `version` below which groups with `controllers` may be created."""

    folder: Path
    version: int
    controllers: frozenset[str]


class CopyGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One copy's group: a folder in each hierarchy. `memory` is the one with the memory limit."""

    folders: tuple[Path, ...]
    memory: Path | None

    def add(self, pid: int) -> None:
        """Move a process into the group, with its future children. Raises OSError."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def pids(self) -> frozenset[int]:
        """The processes in the group."""
        if self.memory is None:
            return frozenset()
        with contextlib.suppress(OSError):
            return frozenset(map(int, (self.memory / "cgroup.procs").read_text().split()))
        return frozenset()

    def memory_kills(self) -> int:
        """The number of its processes that the kernel has killed for the limit."""
        if self.memory is None:
            return 0
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                for line in (self.memory / name).read_text().splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """Remove the group. A folder that is busy for a second stays."""
        remove_groups(self.folders)


def remove_groups(folders: Iterable[Path]) -> None:
    """Remove the folders of groups whose processes have ended. Ignores missing folders."""
    for folder in folders:
        for _ in range(REMOVE_TRIES):
            try:
                folder.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(REMOVE_PAUSE_S)  # a process that is being reaped
            else:
                break
        with contextlib.suppress(OSError):
            if folder.parent.name == BRANCH:
                folder.parent.rmdir()  # once the last copy is gone


def sweep_groups(parents: Iterable[CgroupParent], now: float) -> None:
    """Remove old, empty groups, left by agents that were killed.

    `now` is in seconds since the epoch. A group that holds a process cannot be removed.
    """
    for parent in parents:
        with contextlib.suppress(OSError):
            for folder in (parent.folder / BRANCH).iterdir():
                if folder.is_dir() and now - folder.stat().st_mtime > LEFTOVER_AFTER_S:
                    with contextlib.suppress(OSError):
                        folder.rmdir()


def make_group(parents: Sequence[CgroupParent], name: str, limits: CopyLimits) -> CopyGroup | None:
    """Make a group `name` that enforces `limits`. None if the kernel refuses all controllers.

    A controller that refuses is left out. If memory's refuses, `CopyGroup.memory` is `None`.
    """
    made: dict[str, Path] = {}
    for parent in parents:
        wanted = [it for it in CONTROLLERS if it in parent.controllers and it not in made]
        if not wanted:
            continue
        with contextlib.suppress(OSError):
            folder = _branch(parent) / name
            folder.mkdir(parents=True, exist_ok=True)
            kept = [it for it in wanted if _set(folder, it, parent.version, limits)]
            made.update(dict.fromkeys(kept, folder))
            if not kept:
                folder.rmdir()
    if not made:
        return None
    return CopyGroup(folders=tuple(dict.fromkeys(made.values())), memory=made.get("memory"))


def cgroup_parents(proc: Path = Path("/proc/self")) -> list[CgroupParent]:
    """The folders below which this process may try to create groups."""
    try:
        mine = (proc / "cgroup").read_text()
        mounts = (proc / "mountinfo").read_text()
    except OSError:
        return []
    return [parent for it in hierarchies(mine, mounts) for parent in _usable(it)]


def hierarchies(mine: str, mounts: str) -> list[CgroupParent]:
    """This process's group in each mounted hierarchy, from the text of the two files.

    The text does not name the controllers of version 2, so they are empty here.
    """
    found = []
    for line in mine.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        wanted = frozenset(names.split(",")) & set(CONTROLLERS)
        if number != "0" and not wanted:
            continue
        folder = _find_folder(path, mounts, wanted)
        if folder is not None:
            version = 1 if number != "0" else 2
            found.append(CgroupParent(folder=folder, version=version, controllers=wanted))
    return found


def _find_folder(path: str, mounts: str, controllers: frozenset[str]) -> Path | None:
    """The folder of the group `path` in the file system. Source: proc(5), mountinfo."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, *_, options) = before.split(), after.split()
        named = set(options.split(","))
        if kind == "cgroup2" if not controllers else kind == "cgroup" and controllers <= named:
            root, point = fields[3], Path(fields[4])
            inside = path.removeprefix(root) if root != "/" and path.startswith(root) else path
            # In a container the path may be the host's. Then the mount point is the group.
            folder = point / inside.lstrip("/")
            return folder if folder.is_dir() else point
    return None


def _usable(parent: CgroupParent) -> Iterator[CgroupParent]:
    """The folders below which a group may be created."""
    if parent.version == 1:
        yield parent
        return
    # A group that has processes cannot delegate memory, unless it is a root.
    with contextlib.suppress(OSError):
        _delegate(parent.folder)
    for folder in (parent.folder, parent.folder.parent):
        handed = _words(folder / "cgroup.subtree_control")
        if handed and os.access(folder, os.W_OK):
            yield CgroupParent(folder=folder, version=2, controllers=handed & set(CONTROLLERS))


def _delegate(folder: Path) -> None:
    there = _words(folder / "cgroup.controllers") & set(CONTROLLERS)
    missing = there - _words(folder / "cgroup.subtree_control")
    if missing:
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{it}" for it in sorted(missing)))


def _branch(parent: CgroupParent) -> Path:
    """The parent of all copies' groups, weighted as one ordinary process per CPU."""
    branch = parent.folder / BRANCH
    branch.mkdir(exist_ok=True)
    if parent.version == 2:
        _delegate(branch)
    if "cpu" in parent.controllers:
        weight = _weight(parent.version, os.cpu_count() or 1)
        (branch / weight[0]).write_text(weight[1])
    return branch


def _weight(version: int, cpus: float) -> tuple[str, str]:
    """The file of the CPU weight, and its value for `cpus` CPUs."""
    cpus = cpus or 1.0  # no reservation means an ordinary weight
    if version == 1:
        return "cpu.shares", str(min(MOST_SHARES, max(2, round(cpus * SHARES_PER_CPU))))
    return "cpu.weight", str(min(MOST_WEIGHT, max(1, round(cpus * WEIGHT_PER_CPU))))


def _words(path: Path) -> frozenset[str]:
    with contextlib.suppress(OSError):
        return frozenset(path.read_text().split())
    return frozenset()


def _set(folder: Path, controller: str, version: int, limits: CopyLimits) -> bool:
    """Set one controller's limits. False if the kernel refused them."""
    try:
        for name, value in _settings(controller, version, limits):
            (folder / name).write_text(value)
        if controller == "memory" and limits.max_memory_bytes is not None:
            _refuse_swap(folder, version, limits.max_memory_bytes)
    except OSError:
        return False
    return controller != "memory" or limits.max_memory_bytes is not None


def _settings(controller: str, version: int, limits: CopyLimits) -> list[tuple[str, str]]:
    """The files and values of a controller's limits, in the order in which they are written."""
    if controller == "pids":
        return [("pids.max", str(MAX_PROCESSES))]
    if controller == "cpu":
        return [_weight(version, limits.cpus)]
    if limits.max_memory_bytes is None:
        return []
    if version == 1:
        return [("memory.limit_in_bytes", str(limits.max_memory_bytes))]
    return [("memory.max", str(limits.max_memory_bytes)), ("memory.oom.group", "1")]


def _refuse_swap(folder: Path, version: int, limit_bytes: int) -> None:
    """Count swap against the limit if the kernel supports it."""
    name = "memory.memsw.limit_in_bytes" if version == 1 else "memory.swap.max"
    with contextlib.suppress(OSError):
        (folder / name).write_text(str(limit_bytes) if version == 1 else "0")
