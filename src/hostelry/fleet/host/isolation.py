"""Looks at the users, namespaces and control groups of processes in /proc."""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from hostelry.base.proc import NOT_SHOWN, PROC
from hostelry.domain.isolation import KINDS
from hostelry.fleet.host.cgroups import SHARES_PER_CPU, WEIGHT_PER_CPU, hierarchies
from hostelry.fleet.host.processes import Recent, process_table
from hostelry.fleet.rules.isolation import GroupLimits, SeenProcess, Surroundings

LOOK_AGE_S = 0.5
NO_LIMIT_BYTES = 1 << 60  # version 1 writes about 2 ** 63 for no limit
USER_LINE, CAPABILITY_LINE = "Uid:", "CapEff:"


def see_processes(pids: Iterable[int]) -> list[SeenProcess]:
    """The processes that still live."""
    own = _read_group_folders("self")
    found = []
    for pid in pids:
        with suppress(*NOT_SHOWN, OSError):
            found.append(_see(pid, own))
    return found


def see_namespace(pid: int | str, kind: str) -> int:
    """The kernel's number of a process's namespace. 0 if it is not shown."""
    with suppress(*NOT_SHOWN):
        return os.stat(PROC / str(pid) / "ns" / kind).st_ino
    return 0


def see_surroundings(folder: Path) -> Surroundings:
    """The users and namespaces of this process, and of each process of other copies than `folder`.

    Copies that start at the same time share one look at all copies.
    """
    own_users = frozenset({os.getuid(), os.geteuid()})
    around = [Surroundings(users=own_users, namespaces=_see_namespaces("self"))]
    around += [seen for marker, seen in COPIES.value() if marker != str(folder)]
    return Surroundings(
        users=frozenset().union(*(it.users for it in around)),
        namespaces=frozenset().union(*(it.namespaces for it in around)),
    )


def _see_namespaces(pid: int | str) -> frozenset[int]:
    return frozenset(see_namespace(pid, it) for it in KINDS) - {0}


def _see_copies() -> list[tuple[str, Surroundings]]:
    """User and namespaces of each process of a copy, with the copy's folder."""
    found = []
    for row in process_table():
        if row.marker is not None:
            with suppress(*NOT_SHOWN):
                users = frozenset({os.stat(PROC / str(row.pid)).st_uid})
                seen = Surroundings(users=users, namespaces=_see_namespaces(row.pid))
                found.append((row.marker, seen))
    return found


def _see(pid: int, agents_groups: Sequence[Path]) -> SeenProcess:
    users, capabilities = frozenset[int](), 0
    for line in (PROC / str(pid) / "status").read_text().split("\n"):
        if line.startswith(USER_LINE):
            users = frozenset(map(int, line.split()[1:]))
        elif line.startswith(CAPABILITY_LINE):
            capabilities = int(line.split()[1], 16)
    return SeenProcess(
        users=users,
        capabilities=capabilities,
        namespaces={kind: see_namespace(pid, kind) for kind in KINDS},
        limits=_read_limits([it for it in _read_group_folders(pid) if it not in agents_groups]),
    )


def _read_group_folders(pid: int | str) -> list[Path]:
    """The folders of a process's control groups. Mounts are this process's own."""
    with suppress(OSError):
        groups = (PROC / str(pid) / "cgroup").read_text()
        return [it.folder for it in hierarchies(groups, MOUNTS.value())]
    return []


def _read_limits(groups: Sequence[Path]) -> GroupLimits | None:
    """The limits of a process with these control groups. None without a group."""
    if not groups:
        return None
    memory = _read_numbers(groups, ("memory.max", "memory.limit_in_bytes"))
    weights = _read_numbers(groups, ("cpu.weight",))
    shares = _read_numbers(groups, ("cpu.shares",))
    cpus = [it / WEIGHT_PER_CPU for it in weights] + [it / SHARES_PER_CPU for it in shares]
    return GroupLimits(
        max_memory_bytes=min((it for it in memory if it < NO_LIMIT_BYTES), default=None),
        cpus=min(cpus, default=None),
    )


def _read_numbers(groups: Iterable[Path], names: Iterable[str]) -> list[int]:
    found = []
    for group in groups:
        for name in names:
            with suppress(OSError, ValueError):
                found.append(int((group / name).read_text()))
    return found


COPIES = Recent(_see_copies, max_age_s=LOOK_AGE_S)
MOUNTS = Recent(lambda: (PROC / "self/mountinfo").read_text(), max_age_s=LOOK_AGE_S)
