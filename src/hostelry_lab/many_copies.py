"""Drill of many components that are declared at once, while the agent of their instance is killed.

All components are alike. Their instance has the memory for all but WITHOUT_ROOM of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from signal import SIGKILL
from threading import Event
from typing import Any

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import ProcessIdentity, cpu_times, sizes
from hostelry.fleet.host.processes import process_table, send
from hostelry.home.aws_client import aws_client
from hostelry_lab.call import OK
from hostelry_lab.context import DrillContext
from hostelry_lab.copies_ledger import (
    COPY_BYTES,
    LEAST_COPIES,
    CopiesFound,
    broken_promises,
    num_that_fit,
    restarted_copies,
    too_slow,
    untrue_reasons,
)
from hostelry_lab.fixture import DrillFixture
from hostelry_lab.load import outcome_of
from hostelry_lab.neighbours import busy_share
from hostelry_lab.observer import copies_in, ready_pids, wait_for
from hostelry_lab.outcome import DrillLimits, DrillOutcome, judge, served_calls
from hostelry_lab.repeated import Repeated
from hostelry_lab.runner import started_at
from hostelry_lab.threads import running_threads

NAME = "many-copies"
TARGET = "all start and end, none that served restarts, the others' clients see no error"
INSTANCE_TYPE = "ml.m5.24xlarge"  # its CPUs suffice for 384 copies
WITHOUT_ROOM = 2
LOAD_PAUSE_S = 0.05  # between a caller's calls, so that they leave CPUs for the copies
LOOK_S = 0.1
WATCH_S, STARTUP_S = 300.0, 300
SETTLED_S, SETTLED_ANSWERS = 30.0, 20
MIB = 1024**2


def many_copies(context: DrillContext) -> DrillOutcome:
    """Many components are declared at once, their agent is killed once, and they are deleted."""
    num_copies = num_that_fit(context.most_copies, sizes("meminfo").get(b"MemAvailable", 0))
    if num_copies < LEAST_COPIES:
        why_not = f"{LEAST_COPIES} copies need {2 * LEAST_COPIES * COPY_BYTES // MIB} MB available"
        return DrillOutcome(drill=NAME, target=TARGET, not_run=why_not)
    fixture = DrillFixture(context.platform, INSTANCE_TYPE)
    load = context.load(pause_s=LOAD_PAUSE_S)
    with load.flowing():
        with fixture.deploy():
            crowd = Crowd(context, fixture, num_copies)
            began_at = monotonic_s()
            outcome = crowd.outcome()
        wait_for(lambda: None if crowd.left() else True, SETTLED_S)
        load.answers(SETTLED_ANSWERS, SETTLED_S)
    missed = outcome.missed + tuple(f"left at the end: {it}" for it in crowd.left())
    summary = served_calls(load.calls, began_at)
    return judge(replace(outcome, served=summary, missed=missed), DrillLimits())


class Crowd:
    """The components of the drill's endpoint, from their declaration until they are gone."""

    def __init__(self, context: DrillContext, fixture: DrillFixture, num_copies: int) -> None:
        self._context, self._fixture, self._num_copies = context, fixture, num_copies
        self._platform = context.platform
        (instance,) = self._shown(self._platform.known_state())["instances"]
        self._instance = str(instance["id"])
        self._folder = self._platform.home.instances / self._instance
        agent = self._platform.agents().get(self._instance)
        if agent is None:
            raise TerminalError(f"instance {self._instance} has no agent of this machine")
        self._agent = agent
        self._memory_mb = instance["memory_bytes"] // MIB // num_copies
        self._stopping = Event()
        self._refused: list[str] = []
        self._served: dict[str, int] = {}
        self._details: dict[str, float | str] = {}
        self._left_out: str | None = None

    def outcome(self) -> DrillOutcome:
        """Declare, kill, wait and delete. The outcome does not include the load's calls yet."""
        config, credentials = self._platform.config, self._platform.credentials
        api, endpoint = aws_client("sagemaker", config, credentials), self._fixture.endpoint
        describing = Repeated(lambda: api.describe_endpoint(EndpointName=endpoint))
        began_at, cpu = monotonic_s(), cpu_times()
        with describing, running_threads(self._stopping, self._declare):
            first_at = self._when_serving(1)
            agent_at = None if first_at is None else self._kill_agent(began_at)
            ready_at = self._when_serving(self._num_copies)
            busy = busy_share(cpu, cpu_times())
            restarted = restarted_copies(self._served, ready_pids(self._state()))
            wait_for(self._are_explained, SETTLED_S, LOOK_S)
            reasons = self._reasons()
            deleted_at = monotonic_s()
            self._fixture.remove_components()
            gone_at = wait_for(self._gone_at, WATCH_S, LOOK_S)
        found = CopiesFound(
            num_copies=self._num_copies,
            num_without_room=WITHOUT_ROOM,
            first_s=_after(began_at, first_at),
            agent_s=_after(began_at, agent_at),
            ready_s=_after(began_at, ready_at),
            gone_s=_after(deleted_at, gone_at),
            refused=tuple(self._refused),
            restarted=restarted,
            num_placeless=len(reasons),
            untrue=untrue_reasons(reasons, self._memory_mb, self._instance),
            describe_s=describing.at(1.0),
            num_describes_refused=describing.num_failed,
            busy=busy,
        )
        return DrillOutcome(
            drill=NAME,
            target=TARGET,
            detected_s=found.agent_s,
            back_s=found.ready_s,
            kept=f"{len(self._served)} copies served, {len(restarted)} of them restarted",
            missed=tuple(broken_promises(found)),
            late=tuple(too_slow(found)),
            left_out=self._left_out,
            details={
                **self._details,
                **_details(found),
                "no room": f"{len(reasons)}: {next(iter(reasons.values()), '')}",
            },
        )

    def left(self) -> list[str]:
        """The remains of the drill: its endpoint, its instance, its processes."""
        names = [it["name"] for it in self._state()["endpoints"]]
        left = [f"endpoint {it}" for it in names if it == self._fixture.endpoint]
        left += [f"the agent of {it}" for it in self._platform.agents() if it == self._instance]
        left += [f"folder {self._folder}"] if self._folder.exists() else []
        return left + [f"a process of {folder}" for folder in self._folders_of_processes()]

    def _declare(self) -> None:
        """Declare one component after the other, until the drill ends."""
        add = partial(
            self._fixture.add,
            copies=1,
            memory_mb=(self._memory_mb, None),
            startup_timeout_s=STARTUP_S,
        )
        for _ in range(self._num_copies + WITHOUT_ROOM):
            if self._stopping.is_set():
                return
            if (outcome := outcome_of(add)) != OK:
                self._refused.append(outcome)

    def _when_serving(self, num: int) -> float | None:
        """The instant at which `num` components are InService."""
        return wait_for(
            lambda: monotonic_s() if self._num_serving() >= num else None, WATCH_S, LOOK_S
        )

    def _num_serving(self) -> int:
        """The number of components InService. Also notes the processes of copies that serve."""
        state = self._platform.state()
        if state is None:
            return 0
        noted = {it["id"] for it in copies_in(state) if it["instance"] == self._instance}
        noted |= {it["id"] for it in self._context.copies(state)}
        pids = ready_pids(state)
        self._served = {**{it: pids[it] for it in noted & pids.keys()}, **self._served}
        return sum(it["status"] == "InService" for it in self._shown(state)["components"])

    def _kill_agent(self, began_at: float) -> float | None:
        """Kill the instance's agent. Returns the instant at which its successor was started."""
        num_serving = self._num_serving()
        send([self._agent], SIGKILL)
        if num_serving >= self._num_copies:
            self._left_out = "the agent was killed when all copies served: choose more --copies"
        text = f"killed after {monotonic_s() - began_at:.2f} s, when {num_serving} copies served"
        self._details["agent"] = text
        self._context.progress(f"{NAME}: agent {text}")

        def successor() -> ProcessIdentity | None:
            found = self._platform.agents().get(self._instance)
            return found if found != self._agent else None

        found = wait_for(successor, WATCH_S)
        return None if found is None else started_at(found)

    def _are_explained(self) -> bool | None:
        reasons = self._reasons()
        untrue = untrue_reasons(reasons, self._memory_mb, self._instance)
        return True if len(reasons) == WITHOUT_ROOM and not untrue else None

    def _reasons(self) -> dict[str, str]:
        """The reason of each component without a place, by its name."""
        components = self._shown(self._state())["components"]
        names = [it["name"] for it in components if not it["placed_copies"]]
        return {it: str(self._fixture.describe(it).get("FailureReason", "")) for it in names}

    def _state(self) -> dict[str, Any]:
        """Control's state. Control may be slow, but it was not killed."""
        return wait_for(self._platform.state, SETTLED_S) or self._platform.known_state()

    def _gone_at(self) -> float | None:
        return None if self._folders_of_processes() else monotonic_s()

    def _folders_of_processes(self) -> list[str]:
        """The folders of copies of the instance that have a process."""
        return [it for it in process_table().by_marker if it.startswith(f"{self._folder}/")]

    def _shown(self, state: Mapping[str, Any]) -> dict[str, Any]:
        named = (it for it in state["endpoints"] if it["name"] == self._fixture.endpoint)
        return next(named, {"components": []})


def _after(began_at: float, instant: float | None) -> float | None:
    return None if instant is None else instant - began_at


def _details(found: CopiesFound) -> dict[str, float | str]:
    seconds = {"first": found.first_s, "all": found.ready_s, "gone": found.gone_s}
    texts = {it: "never" if value is None else f"{value:.1f} s" for it, value in seconds.items()}
    return {
        "copies": f"{found.num_copies}, and {WITHOUT_ROOM} without room",
        "READY": f"the first after {texts['first']}, all after {texts['all']}",
        "gone": f"{texts['gone']} after the first deletion",
        "Describe": f"{found.describe_s:.2f} s at most",
        "CPUs": f"{100 * found.busy:.0f} % busy until all were READY",
    }
