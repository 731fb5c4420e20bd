"""Drills of the platform's own processes, killed and hung: agent, control, gateway, objects."""

from collections.abc import Sequence

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.chaos.call import OK
from hostelry.chaos.ledger import control_ledger, object_ledger
from hostelry.chaos.load import client, outcome_of
from hostelry.chaos.outcome import Limits, Outcome
from hostelry.chaos.play import Fault, play, started_at
from hostelry.chaos.scene import Scene
from hostelry.chaos.sight import Platform, identity_of, ready_pids
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.fleet.records import ProcessIdentity
from hostelry.server.run_file import RunFile, live_run_files

# What a client may see of a door that is gone, and of one that hangs.
NO_DOOR = frozenset({"EndpointConnectionError", "ConnectionClosedError", "ConnectTimeoutError"})
LOG_LINES = 500
SILENT_DOOR = NO_DOOR | {"ReadTimeoutError"}


def agent_kill(scene: Scene) -> Outcome:
    """Kill -9 of an agent."""
    return _agent(scene, "agent-kill", hangs=False, back_s=5.0)


def agent_hang(scene: Scene) -> Outcome:
    """An agent, stopped."""
    return _agent(scene, "agent-hang", hangs=True, back_s=30.0)


def _agent(scene: Scene, name: str, *, hangs: bool, back_s: float) -> Outcome:
    platform = scene.platform
    state = platform.known_state()
    copies, agents = scene.copies(state), platform.agents()
    instance = next((it["instance"] for it in copies if it["instance"] in agents), None)
    if instance is None:
        raise TerminalError(f"{scene.aim} has no agent of this machine")
    old, pids = agents[instance], ready_pids(state)

    def successor() -> ProcessIdentity | None:
        found = platform.agents().get(instance)
        return found if found is not None and found != old else None

    def mended() -> bool:
        now = platform.state()
        return successor() is not None and now is not None and ready_pids(now) == pids

    return play(
        scene,
        Fault(
            drill=name,
            target=f"0 errors, the same copies adopted, back in {back_s:g} s",
            limits=Limits(back_s=back_s),
            hangs=hangs,
            victims=[old],
            seen=lambda _: None if (now := successor()) is None else started_at(now),
            mended=mended,
        ),
    )


def control_kill(scene: Scene) -> Outcome:
    """Kill -9 of control."""
    return _control(scene, "control-kill", hangs=False, back_s=5.0)


def control_hang(scene: Scene) -> Outcome:
    """Control, stopped."""
    return _control(scene, "control-hang", hangs=True, back_s=20.0)


def _control(scene: Scene, name: str, *, hangs: bool, back_s: float) -> Outcome:
    platform = scene.platform
    pids, agents = ready_pids(platform.known_state()), platform.agents()
    old = service(platform, "control")

    def mended() -> bool:
        state = platform.state()
        if state is None or state["routes_version"] is None:
            return False
        return ready_pids(state) == pids and platform.agents() == agents

    return play(
        scene,
        Fault(
            drill=name,
            target=f"0 errors, agents and copies adopted, no write lost, back in {back_s:g} s",
            limits=Limits(back_s=back_s),
            hangs=hangs,
            victims=[old],
            seen=lambda _: _successor_started(platform, "control", old),
            mended=lambda: _successor_started(platform, "control", old) is not None and mended(),
            ledger=control_ledger,
        ),
    )


def gateway_kill(scene: Scene) -> Outcome:
    """One gateway worker, killed."""
    return _gateway(scene, "gateway-kill", scene.platform.services("gateway")[:1])


def gateway_kill_all(scene: Scene) -> Outcome:
    """Every gateway worker, killed at once."""
    return _gateway(scene, "gateway-kill-all", scene.platform.services("gateway"))


def gateway_hang(scene: Scene) -> Outcome:
    """One gateway worker, stopped."""
    workers = scene.platform.services("gateway")[:1]
    return _gateway(scene, "gateway-hang", workers, hangs=True, served_s=8.0, back_s=12.0)


def _gateway(
    scene: Scene,
    name: str,
    workers: Sequence[RunFile],
    *,
    hangs: bool = False,
    served_s: float = 1.0,
    back_s: float = 5.0,
) -> Outcome:
    if not workers:
        raise TerminalError("no gateway runs; drills need a platform that is well")
    platform, runtime = scene.platform, scene.load()
    old = {it.name: identity_of(it) for it in workers}

    def started() -> float | None:
        """When the last successor was started, once every one is."""
        found = [_successor_started(platform, it, identity) for it, identity in old.items()]
        instants = [it for it in found if it is not None]
        return max(instants) if len(instants) == len(old) else None

    return play(
        scene,
        Fault(
            drill=name,
            target=f"every call that begins {served_s:g} s later is answered, back in {back_s:g} s",
            limits=Limits(
                all_served_s=served_s,
                back_s=back_s,
                errors=SILENT_DOOR if hangs else NO_DOOR,
            ),
            hangs=hangs,
            victims=list(old.values()),
            seen=lambda _: started(),
            mended=lambda: started() is not None and runtime.once() == OK,
        ),
    )


def objectstore_kill(scene: Scene) -> Outcome:
    """Kill -9 of the object store."""
    return _objectstore(scene, "objectstore-kill", hangs=False, back_s=5.0)


def objectstore_hang(scene: Scene) -> Outcome:
    """The object store, stopped."""
    return _objectstore(scene, "objectstore-hang", hangs=True, back_s=20.0)


def _objectstore(scene: Scene, name: str, *, hangs: bool, back_s: float) -> Outcome:
    platform = scene.platform
    target = f"0 errors, no acknowledged object lost, back in {back_s:g} s"
    if platform.config.s3_endpoint is not None:
        return Outcome(
            drill=name, target=target, not_run=f"the objects are at {platform.config.s3_endpoint}"
        )
    old = service(platform, "objectstore")
    s3 = client("s3", platform.config, platform.credentials, read_timeout_s=2.0)

    def mended() -> bool:
        started = _successor_started(platform, "objectstore", old)
        return started is not None and outcome_of(s3.list_buckets) == OK

    return play(
        scene,
        Fault(
            drill=name,
            target=target,
            limits=Limits(back_s=back_s),
            hangs=hangs,
            victims=[old],
            seen=lambda _: _successor_started(platform, "objectstore", old),
            mended=mended,
            ledger=object_ledger,
        ),
    )


def supervisor_kill(scene: Scene) -> Outcome:
    """Kill -9 of `up`."""
    platform = scene.platform
    name, back_s = "supervisor-kill", 10.0
    target = f"0 errors, everything adopted, back in {back_s:g} s"
    if not platform.services("watcher"):
        return Outcome(
            drill=name,
            target=target,
            not_run="nobody would start it again; up --detach has a watcher",
        )
    old, others, starts = service(platform, "up"), _all_but_up(platform), _starts(platform)

    def mended() -> bool:
        return _starts(platform) > starts and _all_but_up(platform) == others

    return play(
        scene,
        Fault(
            drill=name,
            target=target,
            limits=Limits(back_s=back_s),
            hangs=False,
            victims=[old],
            seen=lambda _: _successor_started(platform, "up", old),
            mended=mended,
            ledger=control_ledger,
        ),
    )


def _all_but_up(platform: Platform) -> dict[str, ProcessIdentity]:
    """Every process that `up` supervises."""
    records = live_run_files(platform.home)
    return {it.name: identity_of(it) for it in records if it.name != "up"}


def _starts(platform: Platform) -> int:
    """How often an `up` of this home was ready, by the end of its log."""
    return CopyLog(platform.home.logs / "up.log").tail(LOG_LINES).count(" ready at ")


def service(platform: Platform, name: str) -> ProcessIdentity:
    """The one process of a service; raises TerminalError where it does not run."""
    found = platform.services(name)
    if not found:
        raise TerminalError(f"{name} does not run; drills need a platform that is well")
    return identity_of(found[0])


def _successor_started(platform: Platform, name: str, old: ProcessIdentity) -> float | None:
    """When the process was started that runs under the name now; None while it is the old one."""
    found = (identity_of(it) for it in platform.services(name) if it.name == name)
    now = next(found, old)
    return None if now == old else started_at(now) or monotonic_s()
