"""Decisions about copies: restarts, health by pings, copies to stop, texts of failures. Pure.

The texts are FailureReasons of a copy, in SageMaker's form first, then with our cause. Source: the
known forms of DescribeEndpoint's FailureReason. Components have the same with their name.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from hostelry.domain.copy import CopySpec, LastEnd
from hostelry.fleet.artifacts.sources import find_hub_model
from hostelry.fleet.rules.images import PROBE_BODY, PROBE_CONTENT_TYPE, ImageRule


class CopyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts and limits of an agent. Source of `ping_timeout_s`: SageMaker's container contract.

    A ready copy is pinged every `ping_every_s`, from the start of one ping to the next start. It
    leaves the routes after `misses_until_unhealthy` failures in a row, or `unhealthy_after_s` of
    silence, whichever is first. All copies of an instance get `max_pings_per_s` together, and
    about `max_pings_at_once` are under way.
    """

    first_backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    max_failed_starts: int = 3
    stable_after_s: float = 60.0
    starting_ping_every_s: float = 0.2
    first_ping_every_s: float = 0.03  # a forked process is ready within 0.1 s
    first_pings_s: float = 1.0
    ping_every_s: float = 1.0
    max_pings_per_s: float = 100.0
    max_pings_at_once: float = 4.0
    max_ping_pause_s: float = 30.0
    ping_timeout_s: float = 2.0
    misses_until_unhealthy: int = 3
    unhealthy_after_s: float = 4.0
    hung_after_s: float = 12.0
    probe_timeout_s: float = 60.0
    max_probe_refusals: int = 3
    stop_grace_s: float = 30.0
    last_end_reported_s: float = 3600.0


class StartLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The time a process may take from its start to READY, and the steps in that time."""

    seconds: float
    covers: str


def start_limit(spec: CopySpec) -> StartLimit:
    """The limit of a copy. A server that downloads its model from the hub gets extra time."""
    startup_s, download_s = spec.startup_timeout_s, spec.download_timeout_s
    model_id = find_hub_model(spec.container)
    if model_id is None:
        return StartLimit(seconds=startup_s, covers=f"{startup_s:g} s for its start")
    return StartLimit(
        seconds=download_s + startup_s,
        covers=(
            f"it fetches {model_id} from the Hugging Face hub: {download_s:g} s for the download "
            f"and {startup_s:g} s for its start"
        ),
    )


def starting_pause_s(age_s: float, policy: CopyPolicy) -> float:
    """Seconds until the next ping of a starting process, which was started `age_s` ago."""
    soon = age_s < policy.first_pings_s
    return policy.first_ping_every_s if soon else policy.starting_ping_every_s


def ready_pause_s(took_s: float, is_suspect: bool, num_copies: int, policy: CopyPolicy) -> float:
    """Seconds from the start of a ping of a ready copy to the start of the next.

    The ping took `took_s`. `num_copies` copies share the instance's pings. A suspect missed a ping
    though it had a CPU, and is pinged sooner. Pings take long on a machine without a free CPU. Then
    the pauses grow, too, so that pings alone do not keep the machine busy.
    """
    if is_suspect:
        return policy.ping_every_s
    by_rate_s = num_copies / policy.max_pings_per_s
    by_load_s = min(policy.max_ping_pause_s, num_copies * took_s / policy.max_pings_at_once)
    return max(policy.ping_every_s, by_rate_s, by_load_s)


class EndKind(Enum):
    """Why a process of a copy ended."""

    EXITED = "exited"
    NOT_STARTED = "not started"  # the program could not be executed
    STARTUP_TIMEOUT = "startup timeout"  # was not ready in time, and was killed by the agent
    NOT_ISOLATED = "not isolated"  # lacks the isolation that its model asks for
    PROBE_REFUSED = "probe refused"  # healthy, but rejects the probe itself
    HUNG = "hung"  # stopped answering pings, and was killed by the agent


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one process. `ready_for_s` is `None` if it never became ready."""

    kind: EndKind
    detail: str
    ready_for_s: float | None = None


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """History of a copy's processes.

    `failed_starts` counts ends before the copy's first readiness, `crashes` ends after it since
    the copy was last stable.
    """

    ever_ready: bool = False
    failed_starts: int = 0
    crashes: int = 0


class RestartCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to start the copy again after `delay_s`."""

    delay_s: float


class FailCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The decision that the copy has failed for good."""


def decide_after_end(
    attempts: Attempts, ending: Ending, policy: CopyPolicy
) -> tuple[Attempts, RestartCopy | FailCopy]:
    """Decide what to do after a process ended. Returns the updated history, too.

    | the copy | decision |
    | --- | --- |
    | was READY in this process for `stable_after_s` | restart at once, and reset the crashes |
    | was READY in this process for less | restart, with backoff by crashes |
    | was READY in an earlier process | restart, with backoff by crashes |
    | was never READY, exited, has tries left | restart, with backoff by failed starts |
    | was never READY, otherwise | fail, because a timeout or refusal would repeat |
    """
    if ending.ready_for_s is not None:
        steady = ending.ready_for_s >= policy.stable_after_s
        crashes = 1 if steady else attempts.crashes + 1
        attempts = replace(attempts, ever_ready=True, crashes=crashes)
        return attempts, RestartCopy(delay_s=restart_wait_s(crashes, policy))
    if attempts.ever_ready:
        attempts = replace(attempts, crashes=attempts.crashes + 1)
        return attempts, RestartCopy(delay_s=restart_wait_s(attempts.crashes, policy))
    attempts = replace(attempts, failed_starts=attempts.failed_starts + 1)
    if ending.kind is EndKind.EXITED and attempts.failed_starts < policy.max_failed_starts:
        return attempts, RestartCopy(delay_s=restart_wait_s(attempts.failed_starts, policy))
    return attempts, FailCopy()


def restart_wait_s(deaths: int, policy: CopyPolicy) -> float:
    """Seconds to wait after the `deaths`-th end in a row: 0 after the first, then 1, 2, 4 ... 60.

    The first end is most often an accident, and requests may be waiting. A second end is a loop.
    Source: Kubernetes, "Pod Lifecycle", restartPolicy. The first restart is immediate. Each later
    restart waits twice as long, up to a limit. A container that ran for a while resets the delay.
    """
    return 0.0 if deaths <= 1 else backoff_s(deaths - 1, policy)


def backoff_s(failures: int, policy: CopyPolicy) -> float:
    """Seconds to wait after the `failures`-th failure in a row: 1, 2, 4 ... 60."""
    # The exponent is bounded, too, because 2.0 ** 2000 is an error.
    return min(policy.max_backoff_s, policy.first_backoff_s * 2.0 ** min(failures - 1, 30))


def get_recent_end(end: LastEnd | None, now: float, policy: CopyPolicy) -> LastEnd | None:
    """`end` for `last_end_reported_s`, then None. `now` is since the epoch."""
    if end is None or now - end.at >= policy.last_end_reported_s:
        return None
    return end


class PingVerdict(Enum):
    """The health of a ready copy, by its pings."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"  # out of the routes, may recover
    HUNG = "hung"  # to be killed


class PingHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Pings missed in a row, and seconds of silence since the last answer.

    The seconds are time that the agent spent waiting, not clock time. The copy is not to blame if
    the agent was stopped, if the machine slept, or if the copy had no CPU.
    """

    misses: int = 0
    silent_s: float = 0.0


def update_health(
    health: PingHealth, answered: bool, waited_s: float, starved_s: float, policy: CopyPolicy
) -> PingHealth:
    """The health after one more ping, `waited_s` after the end of the one before it.

    The copy waited for a CPU for `starved_s` of them. A long pause between two pings does not count
    as silence, because the copy was not asked.
    """
    if answered:
        return PingHealth()
    longest_s = policy.ping_every_s + policy.ping_timeout_s
    silent_s = health.silent_s + max(0.0, min(waited_s, longest_s) - max(0.0, starved_s))
    return PingHealth(misses=health.misses + 1, silent_s=silent_s)


def ping_limit_s(health: PingHealth, policy: CopyPolicy) -> float:
    """Time limit of the next ping, which ends when the silence makes the copy unhealthy."""
    left_s = policy.unhealthy_after_s - health.silent_s
    return min(policy.ping_timeout_s, left_s) if left_s > 0 else policy.ping_timeout_s


def ping_verdict(health: PingHealth, policy: CopyPolicy) -> PingVerdict:
    """The verdict on a copy.

    silent for `hung_after_s`                                     -> HUNG: kill it
    silent for `unhealthy_after_s`, or `misses_until_unhealthy`   -> UNHEALTHY: leaves the routes
    otherwise                                                     -> HEALTHY
    """
    if health.silent_s >= policy.hung_after_s:
        return PingVerdict.HUNG
    silent = health.silent_s >= policy.unhealthy_after_s
    if silent or health.misses >= policy.misses_until_unhealthy:
        return PingVerdict.UNHEALTHY
    return PingVerdict.HEALTHY


class CopyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that bring an instance to its desired copies."""

    start: tuple[CopySpec, ...] = ()
    adapt: tuple[CopySpec, ...] = ()
    stop: tuple[str, ...] = ()


def plan_copies(
    desired: Sequence[CopySpec], running: Mapping[str, CopySpec], stopping: Collection[str]
) -> CopyPlan:
    """The changes to make.

    desired, not running, not stopping                     -> start
    desired, not running, still stopping                   -> wait until it has stopped
    desired, running with another spec                     -> stop, then start
    desired, running, other adapters or draining           -> adapt the running process
    running, not desired                                   -> stop
    """
    wanted = {spec.id: spec for spec in desired}
    same = {
        copy_id
        for copy_id, spec in running.items()
        if copy_id in wanted and spec_digest(wanted[copy_id]) == spec_digest(spec)
    }
    return CopyPlan(
        start=tuple(
            spec for spec in wanted.values() if spec.id not in running and spec.id not in stopping
        ),
        adapt=tuple(
            wanted[copy_id] for copy_id in sorted(same) if wanted[copy_id] != running[copy_id]
        ),
        stop=tuple(sorted(copy_id for copy_id in running if copy_id not in same)),
    )


def spec_digest(spec: CopySpec) -> str:
    """A digest of the members whose change needs a new process: all but adapters and draining."""
    body = msgspec.json.encode(replace(spec, adapters=(), draining=False), order="deterministic")
    return hashlib.sha256(body).hexdigest()[:32]


OWN_PROBE = (
    f"Name a request that the image answers with 200: {PROBE_BODY} (and {PROBE_CONTENT_TYPE}) in "
    "the container's Environment, or [image.probe] in the operator's images.toml."
)


def describe_start_failure(spec: CopySpec, ending: Ending) -> str:
    """Why a copy never became ready."""
    container = _container(spec)
    if ending.kind is EndKind.STARTUP_TIMEOUT:
        return f"The {container} did not pass the ping health check. {ending.detail}"
    if ending.kind is EndKind.NOT_ISOLATED:
        return f"The {container} is not isolated as asked. {ending.detail}"
    if ending.kind is EndKind.PROBE_REFUSED:
        return f"The {container} passes its health check but serves no request. {ending.detail}"
    return (
        f"CannotStartContainerError. Please ensure the model container{_format_hostname(spec)} for "
        f"{_owner(spec.owner)} starts correctly. {ending.detail}"
    )


def describe_download_failure(spec: CopySpec, uri: str, cause: str) -> str:
    """Why a copy's artifacts could not be downloaded."""
    return (
        f"Failed to download model data for {_owner(spec.owner)}{_format_hostname(spec)} from URL: "
        f'"{uri}". Please ensure that there is an object located at the URL and that it can be '
        f"read. {cause}"
    )


def add_note(cause: str, rule: ImageRule | None) -> str:
    """The cause with the note of the image's rule, which comes first if the image itself runs."""
    if rule is None or not rule.note:
        return cause
    return f"{rule.note} {cause}" if rule.kind == "container" else f"{cause} {rule.note}"


def describe_late_start(spec: CopySpec, cause: str) -> str:
    """The time limit that a copy exceeded, the steps in it, and `cause`."""
    limit = start_limit(spec)
    return f"It was not ready within {limit.seconds:g} s ({limit.covers}): {cause}."


def describe_probe_failure(rule: ImageRule, fault: str | None) -> str:
    """Why no request proved a copy, and a remedy if no probe is configured."""
    text = f"The request that proves readiness failed: {fault}"
    return f"{text}. {OWN_PROBE}" if rule.probe.any_answer else text


def describe_proof(rule: ImageRule, status: int | None) -> str:
    """The evidence of a copy's readiness, for its log."""
    if not rule.probe.any_answer:
        return f"ready: the probe was answered with {status}"
    return f"ready: an empty object was answered with {status}, which proves little. {OWN_PROBE}"


def describe_restart(restart: RestartCopy) -> str:
    """When a copy restarts after an end. `hostelry status` and the drills parse this text."""
    if restart.delay_s <= 0:
        return "It is started again at once."
    return f"It is started again in {restart.delay_s:g} s."


GONE_MEANWHILE = "The model server ended while no agent watched it."


def _container(spec: CopySpec) -> str:
    kind, _, name = spec.owner.partition("/")
    if kind == "variant":
        return f"{spec.container.hostname or 'primary'} container for production variant {name}"
    return f"container for {_owner(spec.owner)}"


def _format_hostname(spec: CopySpec) -> str:
    """The container's name, if its model has several containers."""
    name = spec.container.hostname
    return "" if name is None else f" {name}"


def _owner(owner: str) -> str:
    kind, _, name = owner.partition("/")
    if kind == "variant":
        return f"variant {name}"
    return f"inference component {name}" if kind == "component" else owner
