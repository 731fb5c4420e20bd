"""Drills of one tenant that does harm, beside others on the same machine that must not feel it."""

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
from hostelry.chaos.flood import flooding
from hostelry.chaos.load import Aim
from hostelry.chaos.neighbours import busy_share, neighbours, slower
from hostelry.chaos.outcome import Limits, Outcome, judged, served
from hostelry.chaos.scene import Scene
from hostelry.chaos.sight import wait_for
from hostelry.chaos.stage import Stage
from hostelry.fleet.launch.limited_process import LimitRecord
from hostelry.fleet.rules.limits import DISK_VARIABLE

NEIGHBOURS = 2
PAUSE_S = 0.05  # between a caller's calls: the neighbours themselves saturate no machine
BEFORE_S, AT_LEAST_S, AFTER_S = 5.0, 5.0, 5.0
WATCH_S = 60.0
MIB = 1024**2
LIMIT_MB, TAKEN_MB = 256, 320
DISK_MB, WRITTEN_MB, LEAST_FREE_MB = 64, 192, 1024
FORK_LIMIT_MB, MOST_FORKS, FORKS_OVER = 1024, 4096, 32
FORKS_WITHOUT_LIMIT = 256
FLOOD_CALLERS, FLOOD_WAIT_S, FLOOD_S = 64, 0.5, 10.0
TARGET = "the neighbours see no error, their p99 within 2x while the machine is not saturated"


class NotHereError(HostelryError):
    """A deed that is not done on this machine: what would bound it is not there."""


@dataclass(slots=True)
class Deed:
    """What the tenant did: when it was contained and back, what was not as it should be."""

    contained_at: float | None = None
    back_at: float | None = None
    missed: list[str] = field(default_factory=list)
    details: dict[str, float | str] = field(default_factory=dict)


def tenant_memory(scene: Scene) -> Outcome:
    """A tenant's model takes more memory than it may."""

    def do(stage: Stage, bad: str) -> Deed:
        before = _check_memory_limit(stage, bad)
        ask(stage, _told(stage, bad, take_bytes=TAKEN_MB * MIB))
        return _ended_and_back(stage, bad, before, "memory")

    return _with_a_tenant(scene, "tenant-memory", do, memory_mb=(128, LIMIT_MB))


def tenant_hang(scene: Scene) -> Outcome:
    """A tenant's model answers nothing any more, its pings neither."""

    def do(stage: Stage, bad: str) -> Deed:
        (before,) = stage.copies_of(bad)
        with flooding(
            scene.platform.config, scene.platform.credentials, stage.aim(bad), FLOOD_CALLERS // 8
        ):
            ask(stage, _told(stage, bad, hang=True))
            return _ended_and_back(stage, bad, before, "/ping")

    return _with_a_tenant(scene, "tenant-hang", do)


def tenant_disk(scene: Scene) -> Outcome:
    """A tenant's model writes more than it may."""

    def do(stage: Stage, bad: str) -> Deed:
        (before,) = stage.copies_of(bad)
        folder = scene.platform.copy_folder(before).root
        limit_bytes = LimitRecord.load(folder).max_disk_bytes
        if limit_bytes is None or limit_bytes > DISK_MB * MIB:
            raise NotHereError(
                f"copy {before['id']} has no disk budget of {DISK_MB} MB or less: the drill, "
                f"which writes {WRITTEN_MB} MB, does not go on"
            )
        if (free := shutil.disk_usage(folder).free) < LEAST_FREE_MB * MIB:
            raise NotHereError(
                f"{folder} has {free // MIB} MB free; the drill writes {WRITTEN_MB} MB where there "
                f"are {LEAST_FREE_MB}"
            )
        ask(stage, _told(stage, bad, write_bytes=WRITTEN_MB * MIB))
        deed = _ended_and_back(stage, bad, before, "disk")
        if left := sorted(it.name for it in folder.iterdir() if "ballast" in it.name):
            deed.missed.append(f"what it wrote is still there: {', '.join(left)}")
        return deed

    return _with_a_tenant(scene, "tenant-disk", do, environment={DISK_VARIABLE: str(DISK_MB)})


def tenant_forks(scene: Scene) -> Outcome:
    """A tenant's model starts processes until it may start no more."""

    def do(stage: Stage, bad: str) -> Deed:
        before = _check_memory_limit(stage, bad)
        limit = process_limit(LimitRecord.load(scene.platform.copy_folder(before).root))
        if limit is not None and limit > MOST_FORKS:
            raise NotHereError(
                f"the copy may have {limit} processes; the drill starts at most {MOST_FORKS}"
            )
        wanted = FORKS_WITHOUT_LIMIT if limit is None else limit + FORKS_OVER
        deed = Deed()
        said = ask(stage, _told(stage, bad, fork=wanted))
        deed.contained_at = monotonic_s()
        (after,) = stage.copies_of(bad)
        forked = json.loads(said)["forked"] if said.startswith("{") else said
        deed.details = {
            "processes": f"{forked} of {wanted} started",
            "limit": "none: no cgroup for processes here" if limit is None else f"{limit}",
        }
        if limit is not None and forked == wanted:
            deed.missed.append(f"{wanted} processes were started, over the limit of {limit}")
        if after["last_end"] != before["last_end"]:
            deed.details["copy"] = str(after["last_end"]["cause"])
        return deed

    return _with_a_tenant(scene, "tenant-forks", do, memory_mb=(128, FORK_LIMIT_MB))


def tenant_flood(scene: Scene) -> Outcome:
    """A tenant invokes its own component without pause."""

    def do(stage: Stage, bad: str) -> Deed:
        return flood_of(scene, _told(stage, bad, wait_s=FLOOD_WAIT_S), FLOOD_CALLERS)

    return _with_a_tenant(scene, "tenant-flood", do)


def flood_of(scene: Scene, aim: Aim, num_callers: int) -> Deed:
    """A flood for a while, and what became of it."""
    config, credentials = scene.platform.config, scene.platform.credentials
    with flooding(config, credentials, aim, num_callers) as flood:
        Event().wait(FLOOD_S)
    told = ", ".join(f"{count} {name}" for name, count in sorted(flood.outcomes.items()))
    return Deed(details={"flood": f"{num_callers} callers: {told or 'no call ended'}"})


def _with_a_tenant(
    scene: Scene,
    drill: str,
    do: Callable[[Stage, str], Deed],
    *,
    memory_mb: tuple[int, int | None] = (128, None),
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """A deed of a component of its own, beside one with the neighbours' copies."""
    with Stage(scene.platform).standing() as stage:
        good = stage.add(copies=NEIGHBOURS)
        bad = stage.add(copies=1, memory_mb=memory_mb, environment=environment)
        stage.wait_ready(good, NEIGHBOURS)
        stage.wait_ready(bad, 1)
        try:
            return beside_neighbours(scene, drill, stage, stage.aim(good), lambda: do(stage, bad))
        except NotHereError as error:
            return Outcome(drill=drill, target=TARGET, not_run=str(error))


def beside_neighbours(
    scene: Scene, drill: str, stage: Stage, good: Aim, do: Callable[[], Deed]
) -> Outcome:
    """Load on the neighbours' component before, during and after the deed; judged."""
    load = scene.load(good, PAUSE_S)
    owner = stage.base_of(good.component or "")
    before = {it["id"]: it["pid"] for it in stage.copies_of(owner)}
    with load.flowing():
        Event().wait(BEFORE_S)
        began_at, cpu = monotonic_s(), cpu_times()
        scene.say(f"{drill}: {len(load.calls)} calls of neighbours so far; now the deed")
        deed = do()
        Event().wait(max(0.0, AT_LEAST_S - (monotonic_s() - began_at)))
        ended_at, busy = monotonic_s(), busy_share(cpu, cpu_times())
        Event().wait(AFTER_S)
    found = neighbours(load.calls, began_at, ended_at, busy)
    after = {it["id"]: it["pid"] for it in stage.copies_of(owner)}
    went_on = sum(1 for copy_id, pid in before.items() if after.get(copy_id) == pid)
    if went_on < len(before):
        deed.missed.append(f"{went_on} of {len(before)} copies of the neighbours went on")
    late = slower(found)
    outcome = Outcome(
        drill=drill,
        target=TARGET,
        served=served(load.calls, began_at),
        beside=found,
        detected_s=None if deed.contained_at is None else deed.contained_at - began_at,
        back_s=None if deed.back_at is None else deed.back_at - began_at,
        kept=f"{went_on} of {len(before)} copies of the neighbours went on",
        missed=tuple(deed.missed),
        late=() if late is None else (late,),
        details=deed.details,
    )
    return judged(outcome, Limits())


def ask(stage: Stage, aim: Aim) -> str:
    """The answer to one invocation; of an error its code and the model server's status."""
    try:
        answer = stage.runtime.invoke_endpoint(
            EndpointName=aim.endpoint,
            InferenceComponentName=aim.component,
            ContentType=aim.content_type,
            Body=aim.body,
        )
        return str(answer["Body"].read().decode())
    except ClientError as error:
        status = error.response.get("OriginalStatusCode", "")
        return f"{error.response['Error']['Code']} {status}".strip()
    except BotoCoreError as error:
        return type(error).__name__


def _told(stage: Stage, name: str, **wanted: Any) -> Aim:
    """What has the drill server behave so."""
    return stage.aim(name, json.dumps(wanted).encode())


def _check_memory_limit(stage: Stage, name: str) -> dict[str, Any]:
    """The component's one copy; raises NotHereError where nothing keeps its memory limit."""
    (copy,) = stage.copies_of(name)
    if not copy["memory_limit"]:
        raise NotHereError(f"copy {copy['id']} has no memory limit: the drill does not go on")
    return copy


def _ended_and_back(stage: Stage, name: str, before: dict[str, Any], named: str) -> Deed:
    """Wait until the copy ended, for a cause that has `named` in it, and is ready again."""
    deed = Deed()

    def ended() -> dict[str, Any] | None:
        (copy,) = stage.copies_of(name)
        return copy if copy["last_end"] not in (None, before["last_end"]) else None

    copy = wait_for(ended, WATCH_S)
    if copy is None:
        deed.missed.append(f"the copy was not ended within {WATCH_S:g} s")
        return deed
    deed.contained_at, cause = monotonic_s(), str(copy["last_end"]["cause"])
    deed.details["cause"] = cause
    if named not in cause.lower():
        deed.missed.append(f"the cause does not name {named}: {cause}")
    deed.back_at = wait_for(lambda: monotonic_s() if _is_ready(stage, name) else None, WATCH_S)
    if deed.back_at is None:
        deed.missed.append(f"the copy is not ready again within {WATCH_S:g} s")
    return deed


def _is_ready(stage: Stage, name: str) -> bool:
    return all(it["phase"] == "ready" for it in stage.copies_of(name))


def process_limit(record: LimitRecord) -> int | None:
    """How many processes the copy's control groups allow; None where they allow any number."""
    for group in record.groups:
        limit = Path(group) / "pids.max"
        if limit.is_file() and (said := limit.read_text().strip()).isdigit():
            return int(said)
    return None
