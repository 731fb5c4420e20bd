"""Rules for the isolation of copies: the needs of each level, and the level that holds. Pure.

    level      holds if
    process    always
    user       no process has the user of the agent or of another copy, or a capability
    container  also: the namespaces of KINDS are separate, and a control group limits the processes

A container of an image has its capabilities and users from its engine. Its separate namespaces of
files and processes stand for the level `user`.
"""

from collections.abc import Mapping, Sequence

import msgspec

from hostelry.domain.isolation import KINDS, CopyLevel, HeldIsolation


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a control group, None for those that it does not have."""

    max_memory_bytes: int | None = None
    cpus: float | None = None


class SeenProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process as /proc shows it.

    `users` are its real, effective, saved and file system user ids, `capabilities` its effective
    ones, `namespaces` the kernel's numbers by kind, `limits` the limits of a
    control group that differs from the agent's.
    """

    users: frozenset[int]
    capabilities: int
    namespaces: Mapping[str, int]
    limits: GroupLimits | None = None


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The users and namespaces of the agent and of every other copy of the machine."""

    users: frozenset[int]
    namespaces: frozenset[int]


def judge_isolation(
    asked: CopyLevel | None,
    processes: Sequence[SeenProcess],
    around: Surroundings,
    *,
    is_image: bool = False,
    max_memory_bytes: int | None = None,
) -> HeldIsolation:
    """Judge which level holds for the processes of a copy, and name the lacks of the asked level.

    `is_image` says that a container engine runs them, `max_memory_bytes` is the model's limit.

    no process is seen          -> process
    `user` lacks something      -> process
    `container` lacks something -> user
    otherwise                   -> container
    """
    own = tuple(
        kind
        for kind in KINDS
        if processes
        and not any(it.namespaces.get(kind, 0) in around.namespaces for it in processes)
    )
    lacks_user = _find_user_lacks(processes, around)
    of_user = [] if is_image and {"mnt", "pid"} <= {*own} else lacks_user
    limits = _find_weakest_limits(processes)
    of_container = [*of_user, *_find_container_lacks(own, limits, max_memory_bytes)]
    level = CopyLevel.CONTAINER
    if of_container:
        level = CopyLevel.PROCESS if of_user else CopyLevel.USER
    missing = {CopyLevel.USER: of_user, CopyLevel.CONTAINER: of_container}
    return HeldIsolation(
        level=level,
        asked=asked,
        user=max((user for it in processes for user in it.users), default=0),
        has_own_user=not lacks_user,
        namespaces=own,
        max_memory_bytes=None if limits is None else limits.max_memory_bytes,
        cpus=None if limits is None else limits.cpus,
        missing=() if asked is None else tuple(missing.get(asked, ())),
    )


def describe_missing(held: HeldIsolation) -> str:
    """The failure of a copy whose level does not hold."""
    return (
        f"The model asks for the isolation {held.asked}, and what runs does not have it: "
        f"{' '.join(held.missing)} It is ended, because it must not serve with less."
    )


def _find_user_lacks(processes: Sequence[SeenProcess], around: Surroundings) -> list[str]:
    if not processes:
        return ["No process of the copy can be seen."]
    lacks = []
    shared = {user for it in processes for user in it.users} & around.users
    if shared:
        lacks.append(
            f"A process has the user {min(shared)}, which the agent or another copy has, too "
            "(start hostelry as root with --copy-user auto)."
        )
    capabilities = 0
    for process in processes:
        capabilities |= process.capabilities
    if capabilities:
        lacks.append(f"A process has capabilities (CapEff {capabilities:016x}).")
    return lacks


def _find_container_lacks(
    own: Sequence[str], limits: GroupLimits | None, max_memory_bytes: int | None
) -> list[str]:
    lacks = []
    shared = [f"{KINDS[kind]} ({kind})" for kind in KINDS if kind not in own]
    if shared:
        lacks.append(f"A process shares the namespace of {', '.join(shared)}.")
    if limits is None:
        lacks.append(
            "No control group limits its processes (delegate one to hostelry: Delegate=yes of its "
            "systemd unit, or a writable /sys/fs/cgroup)."
        )
    elif max_memory_bytes is not None and limits.max_memory_bytes is None:
        lacks.append("No control group enforces MaxMemoryRequiredInMb.")
    return lacks


def _find_weakest_limits(processes: Sequence[SeenProcess]) -> GroupLimits | None:
    """The limits that hold for each process. None if one has no separate control group."""
    found = [it.limits for it in processes if it.limits is not None]
    if not found or len(found) < len(processes):
        return None
    memory = [it.max_memory_bytes for it in found if it.max_memory_bytes is not None]
    weights = [it.cpus for it in found if it.cpus is not None]
    return GroupLimits(
        max_memory_bytes=max(memory) if len(memory) == len(found) else None,
        cpus=max(weights) if len(weights) == len(found) else None,
    )
