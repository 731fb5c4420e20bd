"""Dependencies that an agent passes to each of its copies, and the turns in which copies start.

A copy's process may start while few others of the instance are starting. If all start at once, all
are late. Three hundred processes on two cores took two minutes until the first one answered. In
turns the first answers within seconds, and the last answers no later. While other work uses the
CPUs, further starts would only slow down all starts.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from hostelry.base.clock import Clock, SystemClock
from hostelry.base.http_status import AskStatus, http_status
from hostelry.domain.copy import Instance
from hostelry.domain.shape import Shape
from hostelry.fleet.agent.code_packages import CodePackages
from hostelry.fleet.agent.lifecycle import CopyPolicy
from hostelry.fleet.artifacts.protocol import Artifacts
from hostelry.fleet.launch.launcher import Launcher
from hostelry.fleet.launch.warm import WarmStarts
from hostelry.fleet.rules.copy_user import NO_OWN_USERS

# A model may load for minutes, mostly from the disk. It must not delay other copies for that time.
MAX_TURN_S = 5.0  # without the time that the process waits for a CPU
MIN_LOOK_S = 0.1
TURNS_PER_CPU = 2
MIN_TURNS = 4


class StartTurns:
    """Turns on a machine of `num_cpus`, given in the order in which they were asked for."""

    def __init__(self, num_cpus: int) -> None:
        self._free = max(MIN_TURNS, TURNS_PER_CPU * num_cpus)
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether the next caller gets a turn at once."""
        return self._free > 0

    async def take(self, starved_s: Callable[[], float] = lambda: 0.0) -> Callable[[], None]:
        """Wait for a turn. Returns the function that ends it. It ends after MAX_TURN_S anyway.

        `starved_s` returns for how long the process with the turn has waited for a CPU.
        """
        loop = asyncio.get_running_loop()
        if self._free > 0:
            self._free -= 1
        else:
            turn = loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()  # the turn was given in the same moment
                raise
        is_over, began_at = False, loop.time()

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._pass_on()

        def look() -> None:
            left_s = turn_left_s(loop.time() - began_at, starved_s())
            if left_s <= 0:
                end()
            elif not is_over:
                loop.call_later(max(MIN_LOOK_S, left_s), look)

        loop.call_later(MAX_TURN_S, look)
        return end

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def turn_left_s(held_s: float, starved_s: float) -> float:
    """Seconds left of a turn that is held for `held_s`, `starved_s` of them without a CPU."""
    return MAX_TURN_S - (held_s - starved_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDeps:
    """Dependencies of every copy of an instance.

    Without `instance` the logs of copies are not collected. `ask_status` pings copies. Without
    `packages` each copy installs the packages of its code itself. `address` is the agent's.
    `no_own_users` says why programs run as the agent's user. None if each has its own user.
    `call_keys` returns new keys for a server that invokes models in the role of a name.
    `hide_paths` removes this machine's paths from a text. `devices` are the instance's,
    `held_devices` returns the devices of every instance of the machine.
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
    held_devices: Callable[[], Iterable[tuple[str, ...]]] = tuple
    no_own_users: str | None = NO_OWN_USERS
    warm: Sequence[WarmStarts] = ()
    packages: CodePackages | None = None
    clock: Clock = field(default_factory=SystemClock)
    address: str = ""
    call_keys: Callable[[str], Mapping[str, str | float]] | None = field(default=None, repr=False)
    hide_paths: Callable[[str], str] = str
    machine_cpus: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    start_turns: StartTurns = field(
        default_factory=lambda: StartTurns(len(os.sched_getaffinity(0)))
    )
