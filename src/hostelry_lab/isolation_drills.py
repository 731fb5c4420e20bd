"""Noisy-neighbour drills: one tenant misbehaves, others on the machine must not be affected."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError
from hostelry.base.proc import cpu_times
from hostelry.fleet.launch.limited_process import LimitRecord
from hostelry.fleet.rules.limits import DISK_VARIABLE
from hostelry_lab.context import DrillContext
from hostelry_lab.fixture import DrillFixture
from hostelry_lab.flood import flooding
from hostelry_lab.load import LoadTarget
from hostelry_lab.neighbours import busy_share, neighbour_report, slowdown
from hostelry_lab.observer import wait_for
from hostelry_lab.outcome import DrillLimits, DrillOutcome, judge, served_calls

NEIGHBOURS = 2
PAUSE_S = 0.05  # between a caller's calls, so that the neighbours do not saturate the machine
BEFORE_S, AT_LEAST_S, AFTER_S = 5.0, 5.0, 5.0
WATCH_S = 60.0
MIB = 1024**2
LIMIT_MB, TAKEN_MB = 256, 320
DISK_MB, WRITTEN_MB, LEAST_FREE_MB = 64, 192, 1024
FORK_LIMIT_MB, MOST_FORKS, FORKS_OVER = 1024, 4096, 32
FORKS_WITHOUT_LIMIT = 256
FLOOD_CALLERS, FLOOD_WAIT_S, FLOOD_S = 64, 0.5, 10.0
TARGET = "the neighbours see no error, their p99 within 2x while the machine is not saturated"


class UnsupportedHereError(HostelryError):
    """The machine lacks the limit that would bound the abuse, so the drill is not run."""


@dataclass(slots=True)
class AbuseReport:
    """Effects of one tenant's abuse: when it was contained and over, and missed targets."""

    contained_at: float | None = None
    back_at: float | None = None
    missed: list[str] = field(default_factory=list)
    details: dict[str, float | str] = field(default_factory=dict)


def tenant_memory(context: DrillContext) -> DrillOutcome:
    """A tenant's model exceeds its memory limit."""

    def do(fixture: DrillFixture, bad: str) -> AbuseReport:
        before = _check_memory_limit(fixture, bad)
        ask(fixture, _build_instruction(fixture, bad, take_bytes=TAKEN_MB * MIB))
        return _ended_and_back(fixture, bad, before, "memory")

    return _with_a_tenant(context, "tenant-memory", do, memory_mb=(128, LIMIT_MB))


def tenant_hang(context: DrillContext) -> DrillOutcome:
    """A tenant's model hangs and answers no pings."""

    def do(fixture: DrillFixture, bad: str) -> AbuseReport:
        (before,) = fixture.copies_of(bad)
        with flooding(
            context.platform.config,
            context.platform.credentials,
            fixture.load_target(bad),
            FLOOD_CALLERS // 8,
        ):
            ask(fixture, _build_instruction(fixture, bad, hang=True))
            return _ended_and_back(fixture, bad, before, "/ping")

    return _with_a_tenant(context, "tenant-hang", do)


def tenant_disk(context: DrillContext) -> DrillOutcome:
    """A tenant's model exceeds its disk budget."""

    def do(fixture: DrillFixture, bad: str) -> AbuseReport:
        (before,) = fixture.copies_of(bad)
        folder = context.platform.copy_folder(before).root
        limit_bytes = LimitRecord.load(folder).max_disk_bytes
        if limit_bytes is None or limit_bytes > DISK_MB * MIB:
            raise UnsupportedHereError(
                f"copy {before['id']} has no disk budget of {DISK_MB} MB or less, and the drill "
                f"writes {WRITTEN_MB} MB"
            )
        if (free := shutil.disk_usage(folder).free) < LEAST_FREE_MB * MIB:
            raise UnsupportedHereError(
                f"{folder} has {free // MIB} MB free; the drill writes {WRITTEN_MB} MB and "
                f"needs {LEAST_FREE_MB} free"
            )
        ask(fixture, _build_instruction(fixture, bad, write_bytes=WRITTEN_MB * MIB))
        report = _ended_and_back(fixture, bad, before, "disk")
        if left := sorted(it.name for it in folder.iterdir() if "ballast" in it.name):
            report.missed.append(f"what it wrote is still there: {', '.join(left)}")
        return report

    return _with_a_tenant(context, "tenant-disk", do, environment={DISK_VARIABLE: str(DISK_MB)})


def tenant_forks(context: DrillContext) -> DrillOutcome:
    """A tenant's model starts processes until its limit."""

    def do(fixture: DrillFixture, bad: str) -> AbuseReport:
        before = _check_memory_limit(fixture, bad)
        limit = process_limit(LimitRecord.load(context.platform.copy_folder(before).root))
        if limit is not None and limit > MOST_FORKS:
            raise UnsupportedHereError(
                f"the copy may have {limit} processes; the drill starts at most {MOST_FORKS}"
            )
        requested = FORKS_WITHOUT_LIMIT if limit is None else limit + FORKS_OVER
        report = AbuseReport()
        answer = ask(fixture, _build_instruction(fixture, bad, fork=requested))
        report.contained_at = monotonic_s()
        (after,) = fixture.copies_of(bad)
        forked = json.loads(answer)["forked"] if answer.startswith("{") else answer
        report.details = {
            "processes": f"{forked} of {requested} started",
            "limit": "none: no cgroup for processes here" if limit is None else f"{limit}",
        }
        if limit is not None and forked == requested:
            report.missed.append(f"{requested} processes were started, over the limit of {limit}")
        if after["last_end"] != before["last_end"]:
            report.details["copy"] = str(after["last_end"]["cause"])
        return report

    return _with_a_tenant(context, "tenant-forks", do, memory_mb=(128, FORK_LIMIT_MB))


def tenant_flood(context: DrillContext) -> DrillOutcome:
    """A tenant invokes its own component without pause."""

    def do(fixture: DrillFixture, bad: str) -> AbuseReport:
        return flood_of(
            context, _build_instruction(fixture, bad, wait_s=FLOOD_WAIT_S), FLOOD_CALLERS
        )

    return _with_a_tenant(context, "tenant-flood", do)


def flood_of(context: DrillContext, load_target: LoadTarget, num_callers: int) -> AbuseReport:
    """Flood for a while, and report the outcomes of its calls."""
    config, credentials = context.platform.config, context.platform.credentials
    with flooding(config, credentials, load_target, num_callers) as flood:
        Event().wait(FLOOD_S)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(flood.outcomes.items()))
    return AbuseReport(details={"flood": f"{num_callers} callers: {counts or 'no call ended'}"})


def _with_a_tenant(
    context: DrillContext,
    drill: str,
    do: Callable[[DrillFixture, str], AbuseReport],
    *,
    memory_mb: tuple[int, int | None] = (128, None),
    environment: Mapping[str, str] | None = None,
) -> DrillOutcome:
    """Create a component for the abuse, and another one with the neighbours' copies."""
    with DrillFixture(context.platform).deploy() as fixture:
        good = fixture.add(copies=NEIGHBOURS)
        bad = fixture.add(copies=1, memory_mb=memory_mb, environment=environment)
        fixture.wait_ready(good, NEIGHBOURS)
        fixture.wait_ready(bad, 1)
        try:
            return beside_neighbours(
                context, drill, fixture, fixture.load_target(good), lambda: do(fixture, bad)
            )
        except UnsupportedHereError as error:
            return DrillOutcome(drill=drill, target=TARGET, not_run=str(error))


def beside_neighbours(
    context: DrillContext,
    drill: str,
    fixture: DrillFixture,
    good: LoadTarget,
    do: Callable[[], AbuseReport],
) -> DrillOutcome:
    """Send load to the neighbours' component before, during and after the abuse, and judge it."""
    load = context.load(good, PAUSE_S)
    owner = fixture.base_of(good.component or "")
    before = {it["id"]: it["pid"] for it in fixture.copies_of(owner)}
    with load.flowing():
        Event().wait(BEFORE_S)
        began_at, cpu = monotonic_s(), cpu_times()
        context.progress(f"{drill}: {len(load.calls)} calls of neighbours so far; the abuse begins")
        report = do()
        Event().wait(max(0.0, AT_LEAST_S - (monotonic_s() - began_at)))
        ended_at, busy = monotonic_s(), busy_share(cpu, cpu_times())
        Event().wait(AFTER_S)
    found = neighbour_report(load.calls, began_at, ended_at, busy)
    after = {it["id"]: it["pid"] for it in fixture.copies_of(owner)}
    kept = sum(1 for copy_id, pid in before.items() if after.get(copy_id) == pid)
    if kept < len(before):
        report.missed.append(f"{kept} of {len(before)} copies of the neighbours kept running")
    late = slowdown(found)
    outcome = DrillOutcome(
        drill=drill,
        target=TARGET,
        served=served_calls(load.calls, began_at),
        beside=found,
        detected_s=None if report.contained_at is None else report.contained_at - began_at,
        back_s=None if report.back_at is None else report.back_at - began_at,
        kept=f"{kept} of {len(before)} copies of the neighbours kept running",
        missed=tuple(report.missed),
        late=() if late is None else (late,),
        details=report.details,
    )
    return judge(outcome, DrillLimits())


def ask(fixture: DrillFixture, load_target: LoadTarget) -> str:
    """The answer to one invocation, or an error's code and the model server's status."""
    try:
        answer = fixture.runtime.invoke_endpoint(
            EndpointName=load_target.endpoint,
            InferenceComponentName=load_target.component,
            ContentType=load_target.content_type,
            Body=load_target.body,
        )
        return str(answer["Body"].read().decode())
    except ClientError as error:
        status = error.response.get("OriginalStatusCode", "")
        return f"{error.response['Error']['Code']} {status}".strip()
    except BotoCoreError as error:
        return type(error).__name__


def _build_instruction(fixture: DrillFixture, name: str, **instructions: Any) -> LoadTarget:
    """An invocation that instructs the drill server."""
    return fixture.load_target(name, json.dumps(instructions).encode())


def _check_memory_limit(fixture: DrillFixture, name: str) -> dict[str, Any]:
    """The component's one copy. Raises UnsupportedHereError if its memory is not limited."""
    (copy,) = fixture.copies_of(name)
    if not copy["memory_limit"]:
        raise UnsupportedHereError(
            f"copy {copy['id']} has no enforced memory limit, which this drill needs"
        )
    return copy


def _ended_and_back(
    fixture: DrillFixture, name: str, before: dict[str, Any], named: str
) -> AbuseReport:
    """Wait until the copy ended, for a cause that contains `named`, and is ready again."""
    report = AbuseReport()

    def ended() -> dict[str, Any] | None:
        (copy,) = fixture.copies_of(name)
        return copy if copy["last_end"] not in (None, before["last_end"]) else None

    copy = wait_for(ended, WATCH_S)
    if copy is None:
        report.missed.append(f"the copy was not ended within {WATCH_S:g} s")
        return report
    report.contained_at, cause = monotonic_s(), str(copy["last_end"]["cause"])
    report.details["cause"] = cause
    if named not in cause.lower():
        report.missed.append(f"the cause does not name {named}: {cause}")
    report.back_at = wait_for(lambda: monotonic_s() if _is_ready(fixture, name) else None, WATCH_S)
    if report.back_at is None:
        report.missed.append(f"the copy is not ready again within {WATCH_S:g} s")
    return report


def _is_ready(fixture: DrillFixture, name: str) -> bool:
    return all(it["phase"] == "ready" for it in fixture.copies_of(name))


def process_limit(record: LimitRecord) -> int | None:
    """The most processes that the copy's control groups allow, or None for any number."""
    for group in record.groups:
        limit = Path(group) / "pids.max"
        if limit.is_file() and (text := limit.read_text().strip()).isdigit():
            return int(text)
    return None
