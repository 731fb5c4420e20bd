"""Drills on the platform's own processes, killed and hung: agent, control, gateway, objects."""

from collections.abc import Sequence

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.home.aws_client import aws_client
from hostelry.home.run_file import RunFile, live_run_files
from hostelry_lab.call import OK
from hostelry_lab.context import DrillContext
from hostelry_lab.ledger import control_ledger, object_ledger
from hostelry_lab.load import outcome_of
from hostelry_lab.observer import PlatformObserver, identity_of, ready_pids
from hostelry_lab.outcome import DrillLimits, DrillOutcome
from hostelry_lab.runner import Fault, run_fault, started_at

# Errors that a client may see of a gateway that is gone, and of a gateway that hangs.
NO_GATEWAY = frozenset({"EndpointConnectionError", "ConnectionClosedError", "ConnectTimeoutError"})
LOG_LINES = 500
SILENT_GATEWAY = NO_GATEWAY | {"ReadTimeoutError"}


def agent_kill(context: DrillContext) -> DrillOutcome:
    """Kill -9 of an agent."""
    return _agent(context, "agent-kill", hangs=False, back_s=5.0)


def agent_hang(context: DrillContext) -> DrillOutcome:
    """SIGSTOP of an agent."""
    return _agent(context, "agent-hang", hangs=True, back_s=30.0)


def _agent(context: DrillContext, name: str, *, hangs: bool, back_s: float) -> DrillOutcome:
    platform = context.platform
    state = platform.known_state()
    copies, agents = context.copies(state), platform.agents()
    instance = next((it["instance"] for it in copies if it["instance"] in agents), None)
    if instance is None:
        raise TerminalError(f"{context.load_target} has no agent of this machine")
    old, pids = agents[instance], ready_pids(state)

    def successor() -> ProcessIdentity | None:
        found = platform.agents().get(instance)
        return found if found is not None and found != old else None

    def recovered() -> bool:
        now = platform.state()
        return successor() is not None and now is not None and ready_pids(now) == pids

    return run_fault(
        context,
        Fault(
            drill=name,
            target=f"0 errors, the same copies adopted, back in {back_s:g} s",
            limits=DrillLimits(back_s=back_s),
            hangs=hangs,
            victims=[old],
            detected=lambda _: None if (now := successor()) is None else started_at(now),
            recovered=recovered,
        ),
    )


def control_kill(context: DrillContext) -> DrillOutcome:
    """Kill -9 of control."""
    return _control(context, "control-kill", hangs=False, back_s=5.0)


def control_hang(context: DrillContext) -> DrillOutcome:
    """SIGSTOP of control."""
    return _control(context, "control-hang", hangs=True, back_s=20.0)


def _control(context: DrillContext, name: str, *, hangs: bool, back_s: float) -> DrillOutcome:
    platform = context.platform
    pids, agents = ready_pids(platform.known_state()), platform.agents()
    old = service(platform, "control")

    def recovered() -> bool:
        state = platform.state()
        if state is None or state["routes_version"] is None:
            return False
        return ready_pids(state) == pids and platform.agents() == agents

    return run_fault(
        context,
        Fault(
            drill=name,
            target=f"0 errors, agents and copies adopted, no write lost, back in {back_s:g} s",
            limits=DrillLimits(back_s=back_s),
            hangs=hangs,
            victims=[old],
            detected=lambda _: _successor_started(platform, "control", old),
            recovered=lambda: (
                _successor_started(platform, "control", old) is not None and recovered()
            ),
            ledger=control_ledger,
        ),
    )


def gateway_kill(context: DrillContext) -> DrillOutcome:
    """Kill -9 of one gateway worker."""
    return _gateway(context, "gateway-kill", context.platform.services("gateway")[:1])


def gateway_kill_all(context: DrillContext) -> DrillOutcome:
    """Kill -9 of every gateway worker at once."""
    return _gateway(context, "gateway-kill-all", context.platform.services("gateway"))


def gateway_hang(context: DrillContext) -> DrillOutcome:
    """SIGSTOP of one gateway worker."""
    workers = context.platform.services("gateway")[:1]
    return _gateway(context, "gateway-hang", workers, hangs=True, served_s=8.0, back_s=12.0)


def _gateway(
    context: DrillContext,
    name: str,
    workers: Sequence[RunFile],
    *,
    hangs: bool = False,
    served_s: float = 1.0,
    back_s: float = 5.0,
) -> DrillOutcome:
    if not workers:
        raise TerminalError("no gateway runs; drills need a healthy platform")
    platform, runtime = context.platform, context.load()
    old = {it.name: identity_of(it) for it in workers}

    def started() -> float | None:
        """Start of the last successor, once every successor has started."""
        found = [_successor_started(platform, it, identity) for it, identity in old.items()]
        instants = [it for it in found if it is not None]
        return max(instants) if len(instants) == len(old) else None

    return run_fault(
        context,
        Fault(
            drill=name,
            target=f"every call that begins {served_s:g} s later is answered, back in {back_s:g} s",
            limits=DrillLimits(
                all_served_s=served_s,
                back_s=back_s,
                errors=SILENT_GATEWAY if hangs else NO_GATEWAY,
            ),
            hangs=hangs,
            victims=list(old.values()),
            detected=lambda _: started(),
            recovered=lambda: started() is not None and runtime.once() == OK,
        ),
    )


def objectstore_kill(context: DrillContext) -> DrillOutcome:
    """Kill -9 of the object store."""
    return _objectstore(context, "objectstore-kill", hangs=False, back_s=5.0)


def objectstore_hang(context: DrillContext) -> DrillOutcome:
    """SIGSTOP of the object store."""
    return _objectstore(context, "objectstore-hang", hangs=True, back_s=20.0)


def _objectstore(context: DrillContext, name: str, *, hangs: bool, back_s: float) -> DrillOutcome:
    platform = context.platform
    target = f"0 errors, no acknowledged object lost, back in {back_s:g} s"
    if platform.config.s3_endpoint is not None:
        return DrillOutcome(
            drill=name, target=target, not_run=f"the objects are at {platform.config.s3_endpoint}"
        )
    old = service(platform, "objectstore")
    s3 = aws_client("s3", platform.config, platform.credentials, read_timeout_s=2.0)

    def recovered() -> bool:
        started = _successor_started(platform, "objectstore", old)
        return started is not None and outcome_of(s3.list_buckets) == OK

    return run_fault(
        context,
        Fault(
            drill=name,
            target=target,
            limits=DrillLimits(back_s=back_s),
            hangs=hangs,
            victims=[old],
            detected=lambda _: _successor_started(platform, "objectstore", old),
            recovered=recovered,
            ledger=object_ledger,
        ),
    )


def supervisor_kill(context: DrillContext) -> DrillOutcome:
    """Kill -9 of `up`."""
    platform = context.platform
    name, back_s = "supervisor-kill", 10.0
    target = f"0 errors, everything adopted, back in {back_s:g} s"
    if not platform.services("watcher"):
        return DrillOutcome(
            drill=name,
            target=target,
            not_run="nothing would restart it; up --detach has a watcher",
        )
    old, others, starts = service(platform, "up"), _all_but_up(platform), _starts(platform)

    def recovered() -> bool:
        return _starts(platform) > starts and _all_but_up(platform) == others

    return run_fault(
        context,
        Fault(
            drill=name,
            target=target,
            limits=DrillLimits(back_s=back_s),
            hangs=False,
            victims=[old],
            detected=lambda _: _successor_started(platform, "up", old),
            recovered=recovered,
            ledger=control_ledger,
        ),
    )


def _all_but_up(platform: PlatformObserver) -> dict[str, ProcessIdentity]:
    """Every process that `up` supervises."""
    records = live_run_files(platform.home)
    return {it.name: identity_of(it) for it in records if it.name != "up"}


def _starts(platform: PlatformObserver) -> int:
    """How many times an `up` of this home became ready, by the end of its log."""
    return CopyLog(platform.home.logs / "up.log").tail(LOG_LINES).count(" ready at ")


def service(platform: PlatformObserver, name: str) -> ProcessIdentity:
    """The one process of a service. Raises TerminalError if it does not run."""
    found = platform.services(name)
    if not found:
        raise TerminalError(f"{name} does not run; drills need a healthy platform")
    return identity_of(found[0])


def _successor_started(platform: PlatformObserver, name: str, old: ProcessIdentity) -> float | None:
    """Start of the process that has the name now, or None while it is the old one."""
    found = (identity_of(it) for it in platform.services(name) if it.name == name)
    now = next(found, old)
    return None if now == old else started_at(now) or monotonic_s()
