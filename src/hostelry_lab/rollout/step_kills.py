"""Kills of a platform's processes in each step of an update, one after the other."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from signal import SIGKILL
from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.host.processes import send
from hostelry_lab.observer import PlatformObserver, identity_of, wait_for
from hostelry_lab.rollout.deployment import RolloutDeployment
from hostelry_lab.rollout.rollout_ledger import RolloutKill

KINDS = ("control", "gateway", "agent of the old fleet", "agent of the new fleet")
BACK_S = 60.0


@dataclass(frozen=True, slots=True)
class StepVictim:
    """A process. `is_back` is true once its successor works."""

    name: str
    process: ProcessIdentity
    is_back: Callable[[], bool]


class StepKills:
    """Kills one process of each kind in each step that it sees, and waits until each is back."""

    def __init__(
        self,
        platform: PlatformObserver,
        deployment: RolloutDeployment,
        say: Callable[[str], None],
    ) -> None:
        self._platform = platform
        self._deployment = deployment
        self._say = say
        self._num_steps = 0

    def through(self, since: float) -> list[RolloutKill]:
        """Kill in every step until the update is over. Instants are seconds after `since`."""
        made: list[RolloutKill] = []
        seen: set[str] = set()
        while (step := self._next_step(seen)) is not None:
            seen.add(step)
            self._num_steps += 1
            for kind in KINDS:
                made += self._kill(kind, step, since)
        return made

    def _next_step(self, seen: set[str]) -> str | None:
        """The present step, once it is not one of `seen`. None once the update is over."""

        def found() -> str | None:
            shown = self._deployment.find_endpoint()
            if shown is None:
                return None
            if shown["status"] != "Updating":
                return ""
            step = str(shown["updates"][-1]["steps"][-1]["name"])
            return None if step in seen else step

        return wait_for(found, BACK_S) or None

    def _kill(self, kind: str, step: str, since: float) -> Iterator[RolloutKill]:
        victim = self._victim(kind)
        if victim is None:
            return
        send([victim.process], SIGKILL)
        at = monotonic_s()
        back = wait_for(lambda: True if victim.is_back() else None, BACK_S)
        back_s = monotonic_s() - at if back else None
        self._say(
            f"{at - since:6.1f} s, {step}: kill -9 of {victim.name}, pid {victim.process.pid};"
            + (" it did not come back" if back_s is None else f" back after {back_s:.1f} s")
        )
        kind = kind.partition(" ")[0]
        yield RolloutKill(kind=kind, name=victim.name, at_s=at - since, step=step, back_s=back_s)

    def _victim(self, kind: str) -> StepVictim | None:
        if kind.startswith("agent"):
            return self._agent(kind)
        found = self._platform.services(kind)
        if not found:
            return None
        record = found[self._num_steps % len(found)]  # another gateway worker in each step
        return self._service(record.name, identity_of(record))

    def _service(self, name: str, old: ProcessIdentity) -> StepVictim:
        def is_back() -> bool:
            live = (it for it in self._platform.services(name) if it.name == name)
            if not any(identity_of(it) != old for it in live):
                return False
            return name != "control" or self._platform.state() is not None

        return StepVictim(name, old, is_back)

    def _agent(self, kind: str) -> StepVictim | None:
        """An agent of the newest or the oldest fleet, or None without one."""
        shown, agents = self._deployment.find_endpoint(), self._platform.agents()
        fleets = fleets_of(shown or {"copies": []})
        if len(fleets) < 2:
            return None
        mine = fleets[max(fleets)] if "new" in kind else fleets[min(fleets)]
        instance = next((it for it in mine if it in agents), None)
        if instance is None:
            return None
        old = agents[instance]

        def is_back() -> bool:
            if not (self._platform.home.instances / instance).exists():
                return True  # its fleet was removed meanwhile
            return self._platform.agents().get(instance, old) != old

        return StepVictim(f"the {kind}", old, is_back)


def fleets_of(shown: Mapping[str, Any]) -> dict[int, list[str]]:
    """The instances that hold copies of an endpoint, by the generation of the deployment."""
    found: dict[int, list[str]] = {}
    for copy in shown["copies"]:
        found.setdefault(copy["generation"], []).append(copy["instance"])
    return found
