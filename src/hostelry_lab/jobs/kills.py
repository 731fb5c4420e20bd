"""Kills of the platform's processes while it works, each with the time until it is back."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from signal import SIGKILL

from hostelry.base.clock import monotonic_s
from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.host.processes import is_alive, send
from hostelry.home.aws_client import aws_client
from hostelry_lab.call import OK
from hostelry_lab.jobs.deployment import JobsDeployment
from hostelry_lab.jobs.jobs_ledger import KillReport
from hostelry_lab.jobs.plan import PlannedKill
from hostelry_lab.jobs.progress import JobsProgress
from hostelry_lab.load import outcome_of
from hostelry_lab.observer import PlatformObserver, identity_of
from hostelry_lab.threads import running_threads

SERVICES = ("gateway", "control", "jobs")
OWN_STORE = ("objectstore", "s3door")  # run only without an S3 of the operator
FLEET = ("agent", "copy")
POLL_S = 0.05
BACK_S = 90.0


@dataclass(frozen=True, slots=True)
class Victim:
    """A process of the platform. `is_back` is true once its successor works."""

    name: str
    process: ProcessIdentity
    is_back: Callable[[], bool]


def killed_kinds(platform: PlatformObserver) -> Sequence[str]:
    """The kinds of processes that this platform has."""
    own = OWN_STORE if platform.config.has_own_s3 else ()
    return (*SERVICES, *own, *FLEET)


class Victims:
    """Finds processes to kill: services, and the agents and copies of the drill's own models."""

    def __init__(
        self, platform: PlatformObserver, deployment: JobsDeployment, progress: JobsProgress
    ) -> None:
        self._platform = platform
        self._deployment = deployment
        self._progress = progress
        config, credentials = platform.config, platform.credentials
        self._s3 = aws_client("s3", config, credentials, read_timeout_s=2.0)

    def of(self, kind: str) -> list[Victim]:
        """The processes of a kind that are alive, in a fixed order."""
        if kind == "copy":
            return self._copies()
        if kind == "agent":
            return self._agents()
        found = [(it.name, identity_of(it)) for it in self._platform.services(kind)]
        return [Victim(name, process, self._service_back(name, process)) for name, process in found]

    def _service_back(self, name: str, old: ProcessIdentity) -> Callable[[], bool]:
        platform = self._platform

        def answers() -> bool:
            if name == "control":
                return platform.state() is not None
            if name in OWN_STORE:
                return outcome_of(self._s3.list_buckets) == OK
            return True

        def is_back() -> bool:
            live = (it for it in platform.services(name) if it.name == name)
            return any(identity_of(it) != old for it in live) and answers()

        return is_back

    def _agents(self) -> list[Victim]:
        mine = {it["instance"] for it in self._progress.copies}
        agents = self._platform.agents()

        def victim(instance: str, old: ProcessIdentity) -> Victim:
            def is_back() -> bool:
                if not (self._platform.home.instances / instance).exists():
                    return True  # its job is over
                return self._platform.agents().get(instance, old) != old

            return Victim(f"agent of {instance}", old, is_back)

        return [victim(name, old) for name, old in sorted(agents.items()) if name in mine]

    def _copies(self) -> list[Victim]:
        found = []
        for copy in sorted(self._progress.copies, key=lambda it: str(it["id"])):
            record = self._platform.copy_record(copy)
            process = None if record is None else record.process
            if process is not None and is_alive(process):
                found.append(
                    Victim(f"copy {copy['id']}", process, self._copy_back(copy["id"], process))
                )
        return found

    def _copy_back(self, copy_id: str, old: ProcessIdentity) -> Callable[[], bool]:
        def is_back() -> bool:
            shown = [it for it in self._progress.copies if it["id"] == copy_id]
            if not shown:
                return True  # its job is over
            return any(it["phase"] == "ready" and it["pid"] not in (None, old.pid) for it in shown)

        return is_back


class KillRun:
    """Makes the planned kills, each once its share of the work is done.

    Kills do not wait for each other: a process may die while another comes back. A kill waits only
    if no process of its kind is alive.
    """

    def __init__(
        self,
        plan: Sequence[PlannedKill],
        victims: Victims,
        progress: JobsProgress,
        random: Random,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._victims = victims
        self._progress = progress
        self._random = random
        self._say = say
        self._stopping = threading.Event()
        self._began_at = monotonic_s()
        self._made: list[tuple[str, Victim, float]] = []
        self._back_at: dict[int, float] = {}

    @property
    def is_over(self) -> bool:
        """Whether every kill was made, and every process is back."""
        return len(self._made) == len(self._plan) == len(self._back_at)

    @contextmanager
    def running(self) -> Iterator["KillRun"]:
        """Kill while the block runs."""
        self._began_at = monotonic_s()
        with running_threads(self._stopping, self._run):
            yield self

    def reports(self) -> list[KillReport]:
        """Every kill so far."""
        return [
            KillReport(
                kind=kind,
                name=victim.name,
                at_s=at - self._began_at,
                back_s=self._back_at[number] - at if number in self._back_at else None,
            )
            for number, (kind, victim, at) in enumerate(self._made)
        ]

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            self._look()
            number = len(self._made)
            if number < len(self._plan) and self._progress.share >= self._plan[number].at_share:
                self._kill(self._plan[number].kind)

    def _look(self) -> None:
        """Note the processes that are back."""
        for number, (_, victim, at) in enumerate(self._made):
            if number in self._back_at or not victim.is_back():
                continue
            self._back_at[number] = monotonic_s()
            self._say(f"  {victim.name} is back after {monotonic_s() - at:.1f} s")

    def _kill(self, kind: str) -> None:
        found = self._victims.of(kind)
        if not found:
            return
        victim = found[self._random.randrange(len(found))]
        send([victim.process], SIGKILL)
        at = monotonic_s()
        self._made.append((kind, victim, at))
        self._say(
            f"{at - self._began_at:6.1f} s, {100 * self._progress.share:3.0f} % done: kill -9 of"
            f" {victim.name}, pid {victim.process.pid}"
        )
