"""A fleet in memory, for tests: agents and copies, with switches for faults.

Copies live in the fleet and not in their agent, so that they outlive the agent as real copies do.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hostelry.base.errors import CapacityError, RetryableError
from hostelry.domain.copy import (
    AdapterPhase,
    AdapterPlacement,
    AdapterStatus,
    CopyPhase,
    CopySpec,
    CopyStatus,
    Instance,
)
from hostelry.fleet.protocol import Observation, RunningInstance

LIFE = (
    CopyPhase.PENDING,
    CopyPhase.DOWNLOADING,
    CopyPhase.STARTING,
    CopyPhase.PROVING,
    CopyPhase.READY,
)


@dataclass(kw_only=True)
class FakeSwitches:
    """Faults to inject and the speed of starts. They may be changed at any time.

    `slow` leaves copies in their phase until `FakeFleet.tick`. Otherwise they are ready at once.
    `broken_images`, `broken_instances` (by id) and `broken_adapters` (by URI) give the reported
    reason. `no_capacity` (by instance type) gives the text of the CapacityError that launches
    raise. `memory_bytes` (by owner) and `open_connections` (by copy id, while it drains) are
    reported. Calls to agents of `hung_instances` fail at once, as after a timeout.
    `launch_error`, `terminate_error` and `apply_error` are raised by every such call. With `hang`
    launches and agents never answer.
    """

    max_instances: int = 1_000
    slow: bool = False
    hang: bool = False
    launch_error: Exception | None = None
    terminate_error: Exception | None = None
    apply_error: Exception | None = None
    no_capacity: dict[str, str] = field(default_factory=dict)
    broken_instances: dict[str, str] = field(default_factory=dict)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    open_connections: dict[str, int] = field(default_factory=dict)
    hung_instances: set[str] = field(default_factory=set)
    broken_images: dict[str, str] = field(default_factory=dict)
    broken_adapters: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class FakeMachine:
    """The state that outlives an instance's agent: desired and running copies."""

    instance_id: str
    life: int = 0
    alive: bool = True
    desired: tuple[CopySpec, ...] = ()
    copies: dict[str, CopyStatus] = field(default_factory=dict)
    started: int = 0
    num_applies: int = 0
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    seen: Observation | None = None  # the last, which is returned again while nothing changes

    @property
    def address(self) -> str:
        """The current agent's URL, which differs after each start."""
        return f"http://{self.instance_id}:{self.life}"


class FakeFleet:
    """`Fleet` in memory. `connect` gives the agents of the instances that it launched."""

    def __init__(self, switches: FakeSwitches | None = None) -> None:
        self.switches = switches or FakeSwitches()
        self.machines: dict[str, FakeMachine] = {}
        self.terminated: list[str] = []
        self.num_copies_started = 0

    async def launch(self, instance: Instance) -> RunningInstance:
        """Start the instance's agent, or return the running agent."""
        await self._hang()
        machine = self.machines.get(instance.id)
        if machine is None or not machine.alive:
            self._refuse(instance)
            machine = self._start_machine(instance.id)
        return RunningInstance(id=instance.id, address=machine.address)

    def _refuse(self, instance: Instance) -> None:
        if self.switches.launch_error is not None:
            raise self.switches.launch_error
        if (why := self.switches.no_capacity.get(instance.instance_type)) is not None:
            raise CapacityError(why)

    async def terminate(self, instance_id: str) -> None:
        """Stop the agent and its copies."""
        if self.switches.terminate_error is not None:
            raise self.switches.terminate_error
        if self.machines.pop(instance_id, None) is not None:
            self.terminated.append(instance_id)

    async def list(self) -> Sequence[RunningInstance]:
        """Every instance whose agent lives."""
        alive = [it for it in self.machines.values() if it.alive]
        return [RunningInstance(id=it.instance_id, address=it.address) for it in alive]

    def connect(self, address: str) -> "FakeAgent":
        """The agent at `address`, dead or alive."""
        return FakeAgent(self, address)

    def kill_agent(self, instance_id: str) -> None:
        """Kill the agent. Its copies keep running."""
        self.machines[instance_id].alive = False
        self._touch(self.machines[instance_id])

    def lose(self, instance_id: str) -> None:
        """Remove the whole instance with its copies."""
        machine = self.machines.pop(instance_id)
        machine.alive = False
        self._touch(machine)

    def crash_copy(self, copy_id: str, reason: str, log_tail: str = "") -> None:
        """Fail the copy for good."""
        machine = self._find_machine(copy_id)
        failed = replace(
            machine.copies[copy_id], phase=CopyPhase.FAILED, reason=reason, log_tail=log_tail
        )
        machine.copies[copy_id] = failed
        self._touch(machine)

    def set_phase(self, copy_id: str, phase: CopyPhase) -> None:
        """Change the copy's phase."""
        machine = self._find_machine(copy_id)
        machine.copies[copy_id] = replace(machine.copies[copy_id], phase=phase)
        self._touch(machine)

    def tick(self) -> None:
        """Advance every copy and adapter by one phase."""
        for machine in self.machines.values():
            for spec in machine.desired:
                status = machine.copies[spec.id]
                machine.copies[spec.id] = self._advance(machine, spec, status)
            self._touch(machine)

    def find_machine(self, address: str) -> FakeMachine:
        """The machine whose living agent answers at `address`. Raises RetryableError."""
        instance_id = address.removeprefix("http://").partition(":")[0]
        machine = self.machines.get(instance_id)
        if machine is None or not machine.alive or machine.address != address:
            raise RetryableError(f"no agent answers at {address}")
        if instance_id in self.switches.hung_instances:
            raise RetryableError(f"the agent at {address} did not answer in time")
        return machine

    def apply(self, machine: FakeMachine, desired: tuple[CopySpec, ...]) -> None:
        """Record desired copies. Ends other copies, and starts new copies."""
        machine.desired = desired
        machine.num_applies += 1
        machine.copies = {
            spec.id: machine.copies.get(spec.id) or self._start_copy(machine, spec)
            for spec in desired
        }
        for spec in desired:
            machine.copies[spec.id] = self._count_connections(spec, machine.copies[spec.id])
        if not self.switches.slow:
            for _ in LIFE:
                before = machine.copies
                machine.copies = {
                    spec.id: self._advance(machine, spec, before[spec.id]) for spec in desired
                }
                if all(machine.copies[it] is before[it] for it in machine.copies):
                    break
        self._touch(machine)

    def _start_copy(self, machine: FakeMachine, spec: CopySpec) -> CopyStatus:
        self.num_copies_started += 1
        machine.started += 1
        return CopyStatus(id=spec.id, phase=CopyPhase.PENDING)

    def _advance(self, machine: FakeMachine, spec: CopySpec, status: CopyStatus) -> CopyStatus:
        if status.phase is CopyPhase.READY:
            counted, adapters = self._count_connections(spec, status), self._adapters(spec, status)
            return counted if counted.adapters == adapters else replace(counted, adapters=adapters)
        if status.phase not in LIFE:
            return status
        reason = self.switches.broken_images.get(spec.container.image)
        reason = reason or self.switches.broken_instances.get(machine.instance_id)
        if reason is not None:
            return replace(status, phase=CopyPhase.FAILED, reason=reason)
        phase = LIFE[LIFE.index(status.phase) + 1]
        return replace(status, phase=phase, address=f"http://copy/{spec.id}")

    def measure(self, machine: FakeMachine) -> None:
        """Measure the memory of ready copies."""
        for spec in machine.desired:
            status = machine.copies[spec.id]
            if status.phase is CopyPhase.READY:
                held = self.switches.memory_bytes.get(spec.owner, status.memory_bytes)
                peak = max(status.peak_memory_bytes, held)
                if (held, peak) == (status.memory_bytes, status.peak_memory_bytes):
                    continue
                machine.copies[spec.id] = replace(status, memory_bytes=held, peak_memory_bytes=peak)

    def _count_connections(self, spec: CopySpec, status: CopyStatus) -> CopyStatus:
        """`status` with the number of open connections while the copy drains."""
        still_open = self.switches.open_connections.get(spec.id, 0) if spec.draining else None
        if status.open_connections == still_open:
            return status
        return replace(status, open_connections=still_open)

    def _adapters(self, spec: CopySpec, known: CopyStatus) -> tuple[AdapterStatus, ...]:
        """Statuses of the adapters. Known statuses stay, new adapters are registered or fail."""
        settled = {it.id: it for it in known.adapters}
        return tuple(settled.get(it.id) or self._register(it) for it in spec.adapters)

    def _register(self, wanted: AdapterPlacement) -> AdapterStatus:
        reason = self.switches.broken_adapters.get(wanted.source.uri)
        phase = AdapterPhase.READY if reason is None else AdapterPhase.FAILED
        return AdapterStatus(id=wanted.id, phase=phase, reason=reason)

    def _start_machine(self, instance_id: str) -> FakeMachine:
        machine = self.machines.get(instance_id)
        if machine is None:
            if len(self.machines) >= self.switches.max_instances:
                limit = self.switches.max_instances
                raise CapacityError(f"all {limit} machines are taken; delete an endpoint first")
            machine = FakeMachine(instance_id=instance_id)
            self.machines[instance_id] = machine
        machine.life += 1
        machine.alive = True
        return machine

    def _find_machine(self, copy_id: str) -> FakeMachine:
        return next(it for it in self.machines.values() if copy_id in it.copies)

    async def _hang(self) -> None:
        if self.switches.hang:
            await asyncio.Event().wait()

    @staticmethod
    def _touch(machine: FakeMachine) -> None:
        machine.moved.set()
        machine.moved = asyncio.Event()


class FakeAgent:
    """`Agent` of one life of a machine. It is unreachable once that agent died."""

    def __init__(self, fleet: FakeFleet, address: str) -> None:
        self._fleet = fleet
        self._address = address

    async def apply(self, copies: Sequence[CopySpec]) -> None:
        """Run exactly `copies`."""
        await self._hang()
        if self._fleet.switches.apply_error is not None:
            raise self._fleet.switches.apply_error
        self._fleet.apply(self._machine(), tuple(copies))

    async def observe(self, have: str | None = None, timeout_s: float = 0.0) -> Observation:
        """The current state. Waits for a state whose version is not `have`."""
        await self._hang()
        machine = self._machine()
        self._fleet.measure(machine)
        if timeout_s > 0 and _observation(machine).version == have:
            try:
                async with asyncio.timeout(timeout_s):
                    await machine.moved.wait()
            except TimeoutError:
                pass
        return _observation(self._machine())

    async def log_tail(self, copy_id: str, max_lines: int = 100) -> str:
        """The copy's last lines."""
        status = self._machine().copies.get(copy_id)
        lines = [] if status is None else status.log_tail.split("\n")
        return "\n".join(lines[-max_lines:])

    def _machine(self) -> FakeMachine:
        return self._fleet.find_machine(self._address)

    async def _hang(self) -> None:
        if self._fleet.switches.hang:
            await asyncio.Event().wait()


def _observation(machine: FakeMachine) -> Observation:
    copies, seen = tuple(machine.copies[it] for it in sorted(machine.copies)), machine.seen
    if seen is None or seen.copies != copies:
        version = str(hash(copies))
        seen = Observation(instance_id=machine.instance_id, version=version, copies=copies)
        machine.seen = seen
    return seen
