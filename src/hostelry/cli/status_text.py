"""The text of `hostelry status`. Failure reasons are not shortened. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hostelry.base.peers import skew_refusal
from hostelry.base.printable import one_line, short_number, terminal_lines
from hostelry.home.platform_processes import PlatformProcess

GIB = 1024**3
MIB = 1024**2
MOST_ALIKE = 10
FULL_BYTES, SCARCE_BYTES = 16 * MIB, GIB // 2
OVER = ("Completed", "Cancelled")
SILENT_S = 5.0  # without a report. A host reports every second


def is_full(disk: Mapping[str, int]) -> bool:
    """True if the disk takes no more files or bytes: `free_bytes`, `free_files`, `files`."""
    has_no_file_left = disk["files"] > 0 and disk["free_files"] == 0
    return disk["free_bytes"] < FULL_BYTES or has_no_file_left


def disk_lines(home: str, disk: Mapping[str, int]) -> list[str]:
    """A warning if the home's disk is full or nearly full."""
    free = memory_text(disk["free_bytes"])
    if is_full(disk):
        left = free if disk["free_bytes"] < FULL_BYTES else f"{free}, and no further file"
        return [
            "",
            f"The disk of {home} is full ({left} free): what serves serves on, and all that is "
            "written is refused. Make room there.",
        ]
    if disk["free_bytes"] < SCARCE_BYTES:
        return ["", f"The disk of {home} has {free} left. Make room before writes are refused."]
    return []


def process_lines(processes: Sequence[PlatformProcess]) -> list[str]:
    """A line for each process of the platform."""
    rows = [["PROCESS", "PID", "PORT", "UPTIME", "MEMORY"]]
    for process in processes:
        if process.pid is None:
            rows.append([process.name, "-", "-", "not running", "-"])
        else:
            up, memory = duration(process.uptime_s or 0.0), memory_text(process.memory_bytes or 0)
            rows.append([process.name, str(process.pid), str(process.port or "-"), up, memory])
    return columns(rows)


def endpoint_lines(
    endpoints: Sequence[dict[str, Any]], now: float, *, most_alike: int = MOST_ALIKE
) -> list[str]:
    """Every endpoint with its components, instances and copies.

    More than `most_alike` adapters with the same status and reason share one line.
    """
    if not endpoints:
        return ["No endpoints."]
    return [line for endpoint in endpoints for line in one_endpoint(endpoint, now, most_alike)]


def one_endpoint(endpoint: dict[str, Any], now: float, most_alike: int) -> list[str]:
    """The lines of one endpoint, the most general first."""
    config = endpoint.get("config", "-")
    if endpoint.get("pending_config"):
        config = f"{config} -> {endpoint['pending_config']}"
    bake = endpoint.get("bake")
    if bake is not None:
        config = f"{bake['config_before']} -> {config} (on trial)"
    shift = endpoint.get("shift") or {}
    age = duration(now - endpoint["created_at"]) if "created_at" in endpoint else "-"
    head = f"endpoint {endpoint['name']}  {endpoint['status']}  config {config}  age {age}"
    return [
        head,
        *reason_lines(endpoint.get("failure_reason"), "  "),
        *reason_lines(endpoint.get("serving", {}).get("trouble"), "  ! "),
        *reason_lines(endpoint.get("progress"), "  update: "),
        *reason_lines(shift.get("failure"), "  going back: "),
        *reason_lines(None if bake is None else bake["going_back"], "  going back: "),
        *environment_lines(endpoint, now),
        *capture_lines(endpoint.get("capture"), now),
        *all_component_lines(endpoint.get("components", ()), most_alike),
        *instance_lines(endpoint, now, most_alike),
        "",
    ]


def environment_lines(endpoint: dict[str, Any], now: float) -> list[str]:
    """The environments of each serverless variant."""
    lines = []
    used_at = [it.get("last_used_at") for it in endpoint.get("copies", ())]
    last_used_at = max((it for it in used_at if it is not None), default=None)
    for variant in endpoint.get("variants", ()):
        one = variant.get("serverless")
        if one is not None:
            text = f"  serverless {variant['name']}  {environments_text(one)}"
            idle = "" if last_used_at is None else f"  last used {duration(now - last_used_at)} ago"
            lines.append(text + idle)
    return lines


def capture_lines(capture: Mapping[str, Any] | None, now: float) -> list[str]:
    """The data capture of an endpoint, with counts and problems of each variant."""
    if capture is None:
        return []
    status = "Started" if capture["is_enabled"] else "Stopped"
    lines = [f"  capture {status}  {capture['percent']} % to {capture['destination']}"]
    for one in capture["variants"]:
        at = one["uploaded_at"]
        last = "nothing uploaded yet" if at is None else f"last upload {duration(now - at)} ago"
        lines.append(
            f"    {one['variant']}  {one['captured']} captured, {one['dropped']} dropped,"
            f" {one['objects']} objects, {last}"
        )
        lines += reason_lines(one["drop_cause"], "      last drop: ")
        lines += reason_lines(one["upload_cause"], "      uploads fail: ")
    return lines


def environments_text(one: dict[str, Any]) -> str:
    """The numbers of a serverless variant's environments."""
    text = f"{one['ready']} of at most {one['max_concurrency']} environments ready"
    text += f", {one['starting']} starting" if one["starting"] else ""
    ready = one["provisioned_concurrency"]
    text += f", {ready} provisioned" if ready else ""
    return f"{text}, {one['memory_mb']} MB each"


def alike(
    items: Iterable[dict[str, Any]], keys: Sequence[str], most: int
) -> list[list[dict[str, Any]]]:
    """Group `items` with equal values of `keys` if there are more than `most`. Keeps the order."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for item in items:
        groups.setdefault(tuple(item.get(key) for key in keys), []).append(item)
    found: list[list[dict[str, Any]]] = []
    for group in groups.values():
        found += [group] if len(group) > most else [[it] for it in group]
    return found


def all_component_lines(components: Iterable[dict[str, Any]], most_alike: int) -> list[str]:
    """Base components first, each followed by its adapters."""
    adapters: dict[str, list[dict[str, Any]]] = {}
    bases: list[dict[str, Any]] = []
    for component in components:
        base_name = component.get("base")
        (adapters.setdefault(base_name, []) if base_name else bases).append(component)
    lines: list[str] = []
    for base in bases:
        lines += component_lines(base)
        lines += adapter_group_lines(adapters.pop(base["name"], []), most_alike)
    return lines + adapter_group_lines(
        [it for left in adapters.values() for it in left], most_alike
    )


def adapter_group_lines(adapters: Sequence[dict[str, Any]], most_alike: int) -> list[str]:
    """The adapter components of one base. Many with the same status and reason share one line."""
    lines: list[str] = []
    for group in alike(adapters, ("base", "status", "failure_reason"), most_alike):
        first, last = group[0], group[-1]
        if len(group) == 1:
            lines += component_lines(first)
            continue
        lines.append(
            f"  {len(group)} components {first['name']} ... {last['name']}  {first['status']}  "
            f"adapters of {first['base']}"
        )
        lines += reason_lines(first.get("failure_reason"), "    ")
    return lines


def component_lines(component: dict[str, Any]) -> list[str]:
    """The lines of a component: a base with its copies, or an adapter."""
    base = component.get("base")
    kind = f"adapter of {base}" if base else "base"
    text = f"  component {component['name']}  {component['status']}  {kind}"
    if not base:
        text += f"  {component.get('ready_copies', 0)}/{component.get('desired_copies', 0)} ready"
    return [text, *reason_lines(component.get("failure_reason"), "    ")]


def instance_lines(endpoint: dict[str, Any], now: float, most_alike: int) -> list[str]:
    """An endpoint's instances, each with its declared shape and the use of its copies."""
    lines: list[str] = []
    copies = endpoint.get("copies", ())
    instances = endpoint.get("instances", ())
    for instance in instances:
        mine = [it for it in copies if it.get("instance") == instance["id"]]
        used = sum(it.get("memory_bytes") or 0 for it in mine)
        lines.append(
            f"  instance {instance['id']}  {instance.get('type', '-')}  "
            f"variant {instance.get('variant', '-')}  {instance.get('state', '-')}  "
            f"declared {shape_text(instance)}; reserved {reserved_text(mine)}; "
            f"in use {memory_text(used)}"
        )
        lines += reason_lines(instance.get("problem"), "    ")
        lines += drain_lines(instance, now, "    ")
        lines += [line for it in mine for line in copy_lines(it, now, most_alike)]
    known = {it["id"] for it in instances}
    lost = [it for it in copies if it.get("instance") not in known]
    return [*lines, *(line for it in lost for line in copy_lines(it, now, most_alike))]


def shape_text(instance: dict[str, Any]) -> str:
    """The shape that the instance's type declares. It is not measured on this machine."""
    accelerators = instance.get("accelerators") or 0
    text = f"{instance.get('cpus', 0):g} CPUs, {memory_text(instance.get('memory_bytes') or 0)}"
    plural = "" if accelerators == 1 else "s"
    return f"{text}, {accelerators:g} accelerator{plural}" if accelerators else text


def reserved_text(copies: list[dict[str, Any]]) -> str:
    """The instance's resources that copies reserve. The copy of a model endpoint reserves all."""
    if any("reserved" in it and it["reserved"] is None for it in copies):
        return "whole"
    sums = {
        key: sum((it.get("reserved") or {}).get(key, 0) for it in copies)
        for key in ("cpus", "memory_bytes", "accelerators")
    }
    return shape_text(sums) if any(sums.values()) else "nothing"


def copy_lines(copy: dict[str, Any], now: float, most_alike: int) -> list[str]:
    """One copy: phase, process, adapters, and why it is not ready, with the end of its log.

    A copy that is ready again also shows how it ended last.
    """
    text = f"    copy {copy['id']}  {owner_text(copy)}  {phase_text(copy)}"
    if copy.get("pid"):
        text += f"  pid {copy['pid']}  {memory_text(copy.get('memory_bytes') or 0)}"
    if copy.get("start_s") is not None:
        text += f"  {copy.get('start_kind') or 'cold'} start {copy['start_s']:.1f} s"
    if copy.get("restarts"):
        text += f"  restarts {copy['restarts']}"
    lines = [text]
    if left_out := copy.get("variables_left_out"):
        lines.append(f"      variables of its Environment not passed on: {', '.join(left_out)}")
    lines += trouble_lines(copy, now, "      ")
    for group in alike(copy.get("adapters", ()), ("phase", "reason"), most_alike):
        first = group[0]
        named = f"adapter {first['id']}" if len(group) == 1 else f"{len(group)} adapters"
        lines.append(f"      {named}  {first.get('phase', '-')}")
        lines += reason_lines(first.get("reason"), "        ")
    return lines


def owner_text(copy: Mapping[str, Any]) -> str:
    """The component or variant of a copy, and the container of its model."""
    name = copy.get("container")
    return str(copy.get("owner", "-")) + ("" if name is None else f"  container {name}")


def phase_text(copy: Mapping[str, Any]) -> str:
    """The phase of a copy, and whether it is draining."""
    return str(copy.get("phase", "-")) + (" (draining)" if copy.get("draining") else "")


def trouble_lines(copy: Mapping[str, Any], now: float, indent: str) -> list[str]:
    """Why a copy is not ready, or how it ended last, each with the last lines of its log."""
    lines = restart_lines(copy, now, indent) + reason_lines(copy.get("reason"), indent)
    lines += reason_lines(copy.get("log_tail"), f"{indent}| ")
    end = copy.get("last_end")
    if end is None or copy.get("reason"):
        return lines
    lines += reason_lines(f"ended {duration(now - end['at'])} ago: {end['cause']}", indent)
    return lines + reason_lines(end["log_tail"], f"{indent}| ")


def drain_lines(instance: Mapping[str, Any], now: float, indent: str) -> list[str]:
    """The progress of an instance's drain, with the reason why it waits."""
    drain = instance.get("drain")
    if drain is None:
        return []
    left = drain["copies_left"]
    copies = f"{left} cop{'y' if left == 1 else 'ies'} left"
    since = duration(now - drain["since"])
    return reason_lines(f"draining for {since}, {copies}: {drain['reason']}", indent)


def restart_lines(copy: Mapping[str, Any], now: float, indent: str) -> list[str]:
    """The replacement of a copy that is being restarted, or why the restart was given up."""
    restart = copy.get("restart")
    if restart is None:
        return []
    ago = f"restart asked for {duration(now - restart['asked_at'])} ago"
    given_up = ", given up" if restart["failed"] else ""
    return reason_lines(f"{ago}{given_up}: {restart['reason']}", indent)


def reason_lines(reason: str | None, indent: str) -> list[str]:
    """The lines of a reason. Empty without a reason."""
    return [f"{indent}{line}" for line in terminal_lines(reason)] if reason else []


def count_text(number: int, word: str) -> str:
    """A number with its noun, in the plural unless it is 1."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def number_text(value: float | None) -> str:
    """A number with three digits. A dash if it is unknown."""
    return "-" if value is None else short_number(value)


def duration(seconds: float) -> str:
    """A duration in its two largest units: 4s, 3m12s, 2h05m, 3d04h."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def memory_text(size_bytes: int) -> str:
    """A size in MiB, or in GiB from one GiB on."""
    if size_bytes >= GIB:
        return f"{size_bytes / GIB:.1f} GiB"
    return f"{size_bytes / MIB:.0f} MiB"


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of equal length as aligned lines."""
    table = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def experiment_lines(
    experiments: Sequence[Mapping[str, Any]], now: float, endpoints: Sequence[str] | None = None
) -> list[str]:
    """Unfinished experiments of all or some `endpoints`: status, share, next step."""
    lines: list[str] = []
    for one in experiments:
        if one["status"] in OVER or (endpoints is not None and one["endpoint"] not in endpoints):
            continue
        lines.append(
            f"experiment {one['name']}  {one['status']}  endpoint {one['endpoint']}"
            f"  {one['percent']} % of {one['production']} to {one['shadow']}  {step_text(one, now)}"
        )
        lines += [*reason_lines(one["status_reason"], "  "), ""]
    return lines


def recommendation_lines(jobs: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    """Unfinished recommendations jobs: status, steps that are over, and steps under way."""
    lines: list[str] = []
    for job in jobs:
        until_at = job["until_at"]
        left = "" if until_at is None else f"  at most {time_left(until_at, now)} left"
        kind = "AI recommendation job" if job.get("is_ai") else "recommendations job"
        lines.append(
            f"{kind} {job['name']}  {job['status']}"
            f"  {job['num_over']} of {job['num_steps']} steps are over{left}"
        )
        lines += [f"  {one_line(step)}" for step in job["under_way"]]
        lines.append("")
    return lines


def ai_benchmark_lines(jobs: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    """Unfinished AI benchmark jobs: status and endpoint."""
    lines: list[str] = []
    for job in jobs:
        until_at = job["deadline_at"]
        left = "" if until_at is None else f"  at most {time_left(until_at, now)} left"
        named = f"AI benchmark job {job['name']}  {job['status']}  endpoint {job['endpoint']}"
        lines += [named + left, ""]
    return lines


def step_text(one: Mapping[str, Any], now: float) -> str:
    """What the experiment waits for, until when, and when the experiment ends."""
    status, end = one["status"], f"ends in {time_left(one['end_at'], now)}"
    if status in ("Created", "Creating"):
        return f"starts in {time_left(one['start_at'], now)}, {end}"
    if status == "Running":
        return end
    if status == "Updating":
        step = "its endpoint takes the update"
    elif status == "Stopping":
        step = "the shadow is promoted" if one["promotes"] else "the shadow is removed"
    else:
        step = "the shadow comes up" if one["is_deployed"] else "its endpoint is changed"
    if one["deadline_at"] is not None:
        step += f", given up in {time_left(one['deadline_at'], now)}"
    return step if status == "Stopping" else f"{step}; {end}"


def time_left(at: float, now: float) -> str:
    """The time until an instant, or an empty text after it."""
    return duration(max(0.0, at - now))


def leader_lines(control: Mapping[str, Any] | None, now: float) -> list[str]:
    """One line per control, the leader first. Empty if there is a single control."""
    if control is None:
        return []
    changes: Sequence[Mapping[str, Any]] = control["changes"]
    members: Sequence[Mapping[str, Any]] = control["members"]
    lines = [
        f"leader   {one['id']}  {one['address']}  epoch {control['epoch']}{since(changes, now)}"
        for one in members
        if one["leads"]
    ]
    lines = lines or [f"leader   none  ({control['trouble'] or 'one is being elected'})"]
    others = [f"standby  {it['id']}  {it['address']}" for it in members if not it["leads"]]
    return [*lines, *(others or ["standby  none: no control follows where the leader ends"])]


def since(changes: Sequence[Mapping[str, Any]], now: float) -> str:
    """How long the newest epoch has lasted, and why the epoch before ended."""
    if not changes:
        return ""
    newest = changes[0]
    return f", for {duration(now - newest['at'])}: {newest['reason']}"


def version_lines(state: Mapping[str, Any]) -> list[str]:
    """One line per version of controls and gateway hosts, and a warning, if versions differ.

    Empty if the state comes from an older control, which does not report versions.
    """
    members = (state.get("control") or {}).get("members", ())
    hosts = state.get("gateway_hosts", ())
    named = [("control", one, one["id"]) for one in members]
    named += [("gateways", one, one["host_id"]) for one in hosts]
    found: dict[str, list[str]] = {}
    for what, one, name in named:
        found.setdefault(one.get("version") or "unknown", []).append(f"{what} {name}")
    own = state.get("version")
    if own is None or found.keys() <= {own}:
        return []
    found.setdefault(own, ["control that leads"])
    lines = [f"version {it}  {', '.join(found[it])}" for it in sorted(found)]
    for version in sorted(found):
        why = skew_refusal(", ".join(found[version]), version, "control that leads", own)
        lines += [] if why is None else [f"warning: {why}"]
    return lines


def gateway_host_lines(hosts: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line per host with gateways: its version, and the time since its last report."""
    rows = [
        (
            "gateways",
            host["host_id"],
            host["address"],
            f"version {host['version'] or 'unknown'}",
            f"last seen {duration(host['seen_ago_s'])} ago"
            if host["seen_ago_s"] > SILENT_S
            else "",
        )
        for host in hosts
    ]
    return columns(rows) if rows else []
