"""Everything that fails now or failed in the last minutes, grouped by cause. Pure.

kind        found in                                          next step
---------   -----------------------------------------------   ----------------------------------
platform    a process that does not run or answer              the log of that process
endpoint    status Failed, or an update that goes back        the endpoint, its log
component   status Failed, or a copy without a place          `hostelry explain`, the fleet
copy        not ready with a reason, or ended lately          its log
instance    an agent's problem, or its silence                its log
adapter     not registered on a copy                          its component
rollback    an update that was rolled back                    the endpoint's updates
alarm       state ALARM                                       the endpoint that it watches
call        an error of the last minutes, by code             the newest such call
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import msgspec

from hostelry.console.platform import ApiQuery, ProcessQuery, Query
from hostelry.console.views.endpoint import MAX_ALARM_PAGES, alarms_shown, has_no_place, tail
from hostelry.domain.trouble import LAST_LINES, find_cause

PARAMS = frozenset({"minutes"})
JsonObject = Mapping[str, Any]
MINUTES = ("15", "60", "360")
CALLS_LIMIT = 100
MAX_GROUPS, MAX_NAMED = 200, 20
MAX_CAUSE_CHARS = 2000
NOW, LATELY = "now", "lately"
ROLLED_BACK, IN_SERVICE = "rolled back", "InService"
SUPERVISOR, STARTS_WITHIN_S = "up", 60.0  # all processes start within this time after it
# Scaling policies make these alarms. Their state ALARM is normal, and not a failure.
SCALING_ALARM = "TargetTracking-"
# AWS's messages on models end with the address of a page that this platform does not have.
AWS_CONSOLE = re.compile(r" See https://\S+ in account \d+ for more information\.")
ORDER = (
    "platform",
    "instance",
    "endpoint",
    "component",
    "copy",
    "adapter",
    "alarm",
    "rollback",
    "call",
)


class FoundFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One failure. Failures with the same `kind` and `cause` form a group.

    `when` is NOW or LATELY. `at` is in seconds since the epoch. `link` is a path of the console,
    and `command` is a line for a shell.
    """

    kind: str
    cause: str
    name: str
    text: str
    when: str = NOW
    at: float | None = None
    log: Sequence[str] = msgspec.field(default_factory=tuple)
    advice: str = ""
    link: str | None = None
    command: str | None = None


def sources(params: Mapping[str, str], now: float) -> Mapping[str, Query]:
    """Build the queries for the state, alarms, failed calls, processes and the jobs' health."""
    query = {
        "order": "failed",
        "since_s": str(parse_minutes(params) * 60),
        "limit": str(CALLS_LIMIT),
    }
    return {
        "control": ProcessQuery(process="control", path="/internal/state"),
        "gateway": ProcessQuery(process="gateway", path="/traces", query=query),
        "jobs": ProcessQuery(process="jobs", path="/internal/health"),
        "processes": ProcessQuery(process="home", path="/processes"),
        "alarms": ApiQuery(
            service="cloudwatch",
            operation="DescribeAlarms",
            parameters={"StateValue": "ALARM", "MaxRecords": 100},
            max_pages=MAX_ALARM_PAGES,
        ),
    }


def parse_minutes(params: Mapping[str, str]) -> int:
    """Parse the minutes to look back."""
    given = params.get("minutes", MINUTES[0])
    return int(given if given in MINUTES else MINUTES[0])


def document(sources: Mapping[str, Any], params: Mapping[str, str], now: float) -> dict[str, Any]:
    """Build the groups by id. Groups that fail now come first."""
    minutes = parse_minutes(params)
    since = now - minutes * 60
    found = [
        *platform_failures(sources.get("jobs") or {}),
        *process_failures(sources.get("processes") or {}, now, minutes * 60),
        *state_failures(sources.get("control") or {}, since),
        *alarm_failures(sources.get("alarms") or {}),
        *call_failures(sources.get("gateway") or {}),
    ]
    groups = group_failures(found)
    return {
        "minutes": minutes,
        "groups": groups,
        "now": sum(1 for it in groups.values() if it["when"] == NOW),
        "checked": [name for name in ("control", "gateway", "jobs") if sources.get(name)],
    }


def group_failures(found: Sequence[FoundFailure]) -> dict[str, dict[str, Any]]:
    """Group failures by kind and cause. Only the first MAX_GROUPS are kept."""
    together: dict[tuple[str, str, str], list[FoundFailure]] = {}
    for one in found:
        together.setdefault((one.when, one.kind, one.cause), []).append(one)
    rank = {kind: place for place, kind in enumerate(ORDER)}
    ordered = sorted(
        together.items(),
        key=lambda it: (it[0][0] != NOW, rank[it[0][1]], -len(it[1]), it[1][0].name),
    )
    return {
        f"{when}/{kind}/{sha256(cause.encode()).hexdigest()[:16]}": group(when, kind, mine, place)
        for place, ((when, kind, cause), mine) in enumerate(ordered[:MAX_GROUPS])
    }


def group(when: str, kind: str, mine: Sequence[FoundFailure], place: int) -> dict[str, Any]:
    """Build a group. Its first failure gives the text and the next step."""
    first = mine[0]
    instants = [it.at for it in mine if it.at is not None]
    names = list(dict.fromkeys(it.name for it in mine))
    return {
        "place": place,
        "when": when,
        "kind": kind,
        "text": first.text[:MAX_CAUSE_CHARS],
        "log": list(first.log),
        "count": len(mine),
        "names": names[:MAX_NAMED],
        "names_left_out": max(0, len(names) - MAX_NAMED),
        "since": min(instants, default=None),
        "newest": max(instants, default=None),
        "advice": first.advice,
        "link": first.link,
        "command": first.command,
    }


def platform_failures(jobs: JsonObject) -> Iterator[FoundFailure]:
    """Find trouble of the jobs process. The document itself names processes without an answer."""
    trouble = jobs.get("trouble")
    if trouble:
        yield FoundFailure(
            kind="platform",
            cause=trouble,
            name="jobs",
            text=f"The jobs process cannot write its file: {trouble}",
            advice="Make room on the disk, or mend its permissions; it tries again by itself.",
            command="hostelry status",
        )


def process_failures(answer: JsonObject, now: float, lookback_s: float) -> Iterator[FoundFailure]:
    """Find processes of the platform that do not run, or were restarted lately."""
    uptimes_s = answer.get("uptimes_s", {})
    supervisor_s = uptimes_s.get(SUPERVISOR) or 0.0
    for name, up_s in uptimes_s.items():
        if up_s is None:
            is_supervisor = name == SUPERVISOR
            yield FoundFailure(
                kind="platform",
                cause=f"{name} does not run",
                name=name,
                text="It does not run."
                + (" A process that dies is not started again." if is_supervisor else ""),
                advice="It adopts what runs."
                if is_supervisor
                else "The supervisor starts it again.",
                command="hostelry up --detach" if is_supervisor else f"hostelry logs {name}",
            )
        elif up_s < lookback_s and supervisor_s - up_s > STARTS_WITHIN_S:
            yield FoundFailure(
                kind="platform",
                cause=f"{name} was started again",
                name=name,
                text="It ended, and was started again.",
                when=LATELY,
                at=now - up_s,
                advice="Its log has the cause, unless it was killed.",
                command=f"hostelry logs {name}",
            )


def state_failures(state: JsonObject, since: float) -> Iterator[FoundFailure]:
    """Find the failures of each endpoint."""
    for endpoint in state.get("endpoints", ()):
        yield from endpoint_failures(endpoint)
        yield from rollbacks(endpoint, since)
        for component in endpoint["components"]:
            yield from component_failures(endpoint["name"], component)
        for instance in endpoint["instances"]:
            yield from instance_failures(endpoint["name"], instance)
        for copy in endpoint["copies"]:
            yield from copy_failures(endpoint["name"], copy, since)


def endpoint_failures(endpoint: JsonObject) -> Iterator[FoundFailure]:
    """Find a failed endpoint, or an update that goes back."""
    name, reason = endpoint["name"], endpoint["failure_reason"]
    shift, bake = endpoint.get("shift") or {}, endpoint.get("bake") or {}
    going_back = shift.get("failure") or bake.get("going_back")
    if going_back:
        yield FoundFailure(
            kind="endpoint",
            cause=find_cause(going_back, (name,)),
            name=name,
            text=f"Its update goes back: {going_back}",
            at=endpoint["modified_at"],
            advice="The old version serves on. See what the new one answered.",
            link=f"endpoint/{quote(name, safe='')}",
        )
    elif reason and endpoint["status"] != IN_SERVICE:  # in service: the reason of a past update
        text, log = split_reason(reason)
        yield FoundFailure(
            kind="endpoint",
            cause=find_cause(reason, (name,)),
            name=name,
            text=text,
            log=log,
            at=endpoint["modified_at"],
            advice="Read the container's output, mend the model, then update the endpoint or "
            "delete it and create it again.",
            link=f"endpoint/{quote(name, safe='')}",
            command=f"hostelry logs {name}",
        )


def split_reason(reason: str) -> tuple[str, list[str]]:
    """Split a failure reason into its text and the model server's lines."""
    text, _, lines = reason.partition(LAST_LINES)
    return text, tail(lines)


def rollbacks(endpoint: JsonObject, since: float) -> Iterator[FoundFailure]:
    """Find updates that were rolled back since then."""
    name = endpoint["name"]
    for update in endpoint["updates"]:
        ended_at = update["ended_at"]
        if ended_at is not None and ended_at >= since and update["outcome"] == ROLLED_BACK:
            change = f"{update['from_config']} to {update['to_config']}"
            cause = update["cause"] or "no cause was noted"
            yield FoundFailure(
                kind="rollback",
                cause=find_cause(cause, (name, *update["alarm_names"])),
                name=name,
                text=f"The update from {change} was rolled back: {cause}",
                when=LATELY,
                at=ended_at,
                advice="See which step it was in, and what the new version answered.",
                link=f"endpoint/{quote(name, safe='')}",
                command=f"hostelry trace --failed {name} --minutes 60",
            )


def component_failures(endpoint: str, component: JsonObject) -> Iterator[FoundFailure]:
    """Find a failed component, or a component with a copy that fails or has no place."""
    name, note = component["name"], component["placement_note"]
    names = (name, component["base"] or "", endpoint)
    if component["failure_reason"]:
        text, log = split_reason(component["failure_reason"])
        yield FoundFailure(
            kind="component",
            cause=find_cause(component["failure_reason"], names),
            name=name,
            text=text,
            log=log,
            at=component["modified_at"],
            advice="Read its output, then update the component or delete it and create it again.",
            link=target_link(endpoint, name),
            command=f"hostelry logs {name}",
        )
    elif note:
        text, log = split_reason(note)
        unplaced = has_no_place(component)
        yield FoundFailure(
            kind="component",
            cause=find_cause(note, names),
            name=name,
            text=text,
            log=log,
            at=component["modified_at"],
            advice="See what each instance has free and what would help: ask for less, add an "
            "instance, or choose a larger type."
            if unplaced
            else "Read the output of its copies, which start again and again.",
            link="fleet" if unplaced else target_link(endpoint, name),
            command=f"hostelry {'explain' if unplaced else 'logs'} {name}",
        )


def instance_failures(endpoint: str, instance: JsonObject) -> Iterator[FoundFailure]:
    """Find an instance whose agent has a problem, or cannot be reached."""
    lost_at = instance["unreachable_since"]
    problem = instance["problem"] or ("Its agent does not answer." if lost_at else None)
    if problem:
        yield FoundFailure(
            kind="instance",
            cause=find_cause(problem, (instance["id"], endpoint)),
            name=instance["id"],
            text=f"Instance of {endpoint} ({instance['type']}): {problem}",
            at=lost_at,
            advice="The platform starts a new agent, which adopts the copies, or replaces it.",
            link=f"endpoint/{quote(endpoint, safe='')}",
            command=f"hostelry logs {instance['id']}",
        )


def copy_failures(endpoint: str, copy: JsonObject, since: float) -> Iterator[FoundFailure]:
    """Find a copy that is not ready with a reason, its end since then, and failed adapters."""
    owner = copy["component"] or endpoint
    names = (copy["id"], copy["instance"], owner, endpoint)
    link = (
        f"endpoint/{quote(endpoint, safe='')}"
        if copy["component"] is None
        else target_link(endpoint, owner)
    )
    end = copy["last_end"]
    if copy["reason"]:
        log = copy["log_tail"] or ""
        yield FoundFailure(
            kind="copy",
            cause=find_cause(copy["reason"], names, log),
            name=owner,
            text=f"Copy {copy['id']} is {copy['phase']}: {copy['reason']}",
            log=tail(log),
            at=copy["created_at"],
            advice="Read its output; it is started again by itself with growing pauses.",
            link=link,
            command=f"hostelry logs {copy['id']}",
        )
    elif end is not None and end["at"] >= since:
        yield FoundFailure(
            kind="copy",
            cause=find_cause(end["cause"], names, end["log_tail"] or ""),
            name=owner,
            text=f"Copy {copy['id']} ended and was started again: {end['cause']}",
            log=tail(end["log_tail"]),
            when=LATELY,
            at=end["at"],
            advice="It serves again. Read what it printed before its end.",
            link=link,
            command=f"hostelry logs {copy['id']}",
        )
    for adapter in copy["adapters"]:
        if adapter.get("reason"):
            alias = adapter["id"].partition("@")[0]
            yield FoundFailure(
                kind="adapter",
                cause=find_cause(adapter["reason"], (adapter["id"], alias, *names)),
                name=alias,
                text=adapter["reason"],
                advice="Mend the adapter's archive, then update its component.",
                link=target_link(endpoint, alias),
            )


def alarm_failures(answer: JsonObject) -> Iterator[FoundFailure]:
    """Find alarms in ALARM, except alarms of scaling policies."""
    for name, alarm in alarms_shown(answer):
        if not name.startswith(SCALING_ALARM):
            endpoint = alarm["endpoint"]
            yield FoundFailure(
                kind="alarm",
                cause=name,
                name=name,
                text=f"Alarm {name}: {alarm['reason']}",
                at=alarm["at"],
                advice="See the metric that it watches, and the calls that failed.",
                link=None if endpoint is None else f"endpoint/{quote(endpoint, safe='')}",
                command=f"hostelry trace --failed{'' if endpoint is None else f' {endpoint}'}",
            )


def call_failures(answer: JsonObject) -> Iterator[FoundFailure]:
    """Find failed calls by code and message, the newest first."""
    for call in answer.get("calls", ()):
        target = call["component"] or call["variant"]
        where = f"{call['endpoint']}/{target}" if target else call["endpoint"]
        error = call["error"] or f"status {call['status']}"
        names = (call["request_id"], call["endpoint"], target or "", *call["copies"])
        yield FoundFailure(
            kind="call",
            cause=f"{call['status']} {call['code']} {call['endpoint']} {find_cause(error, names)}",
            name=where,
            text=f"{call['status']} {call['code']}: {AWS_CONSOLE.sub('', error)}",
            when=LATELY,
            at=call["at"],
            advice="Look at the newest of these calls, hop by hop.",
            link=f"call/{quote(call['request_id'], safe='')}",
            command=f"hostelry trace {call['request_id']}",
        )


def target_link(endpoint: str, component: str) -> str:
    """Build the console's path of a component."""
    return f"endpoint/{quote(endpoint, safe='')}/component/{quote(component, safe='')}"
