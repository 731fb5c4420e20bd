"""Dependencies that an agent passes to each of its copies."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from hostelry.base.clock import Clock, SystemClock
from hostelry.base.http_status import AskStatus, http_status
from hostelry.domain.copy import Instance
from hostelry.domain.shape import Shape
from hostelry.fleet.agent.code_packages import CodePackages
from hostelry.fleet.agent.lifecycle import CopyPolicy
from hostelry.fleet.agent.start_turns import StartTurns
from hostelry.fleet.artifacts.protocol import Artifacts
from hostelry.fleet.launch.launcher import Launcher
from hostelry.fleet.launch.warm import WarmStarts
from hostelry.fleet.rules.copy_user import NO_OWN_USERS


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDeps:
    """Dependencies of every copy of an instance. Logs of copies without one are not collected.

    Copies are pinged with `ask_status`. Without `packages` each copy installs those of its code
    itself. `address` is the agent's own.
    `no_own_users`: why programs run as the agent's own user; None if each has another. `call_keys`
    gives new keys for a server that invokes models, as it reads them. `shown` gives a text without
    paths of this machine.
    """

    images_file: Path
    artifacts: Artifacts
    launcher: Launcher
    http: httpx.AsyncClient
    ask_status: AskStatus = http_status
    region: str
    shape: Shape
    instance: Instance | None = None
    operator_environment: Mapping[str, str] = field(repr=False)
    policy: CopyPolicy = field(default_factory=CopyPolicy)
    devices: tuple[str, ...] = ()
    no_own_users: str | None = NO_OWN_USERS
    warm: Sequence[WarmStarts] = ()
    packages: CodePackages | None = None
    clock: Clock = field(default_factory=SystemClock)
    address: str = ""
    call_keys: Callable[[], Mapping[str, str | float]] | None = field(default=None, repr=False)
    shown: Callable[[str], str] = str
    machine_cpus: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    start_turns: StartTurns = field(
        default_factory=lambda: StartTurns(len(os.sched_getaffinity(0)))
    )
