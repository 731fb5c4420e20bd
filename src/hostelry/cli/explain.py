"""`hostelry explain`: reasons for the places of copies, for missing copies, and their number."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli import completion as names
from hostelry.cli.control_requests import ask_agent, control_answer
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.quotas import USE_PATH, reached_lines
from hostelry.cli.reasons_once import reasons_once
from hostelry.cli.scaling import explained_lines, scaling_targets
from hostelry.cli.status import DECLARED_NOTE, only_endpoint
from hostelry.cli.status_text import (
    columns,
    drain_lines,
    environments_text,
    memory_text,
    owner_text,
    phase_text,
    reason_lines,
    trouble_lines,
)
from hostelry.graph.drawing import graph_lines, graph_svg
from hostelry.processes.fleets import key_shown_to_agents

JsonObject = Mapping[str, Any]
ACCOUNT_KEYS = (
    "phase",
    "draining",
    "reserved",
    "memory_bytes",
    "peak_memory_bytes",
    "reason",
    "last_end",
)
SHOWN_MODELS = 20
SHOWN_EVICTIONS = 5


def explain(
    component: Annotated[
        str | None,
        typer.Argument(
            help="Show only this inference component.",
            show_default=False,
            autocompletion=names.components,
        ),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Show only this endpoint.", autocompletion=names.endpoints)
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(
            help="Endpoint whose graph of models is drawn.", autocompletion=names.endpoints
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Also write the drawing of --graph to this file.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what each instance holds and has free, and why each copy is placed or not placed.

    For multi-model copies it also shows the loaded models and the latest evictions, for LLMs the
    engine with its reason. For scalable targets it shows the last decision with its reason, and the
    duration of the last scaling action. It names the limits of quotas that are reached. With
    --graph it shows the steps of a graph, with their times in the last minute.

    Exit code 1 if control does not answer, or there is no such endpoint or component.

    Example: hostelry explain

    Example: hostelry explain --endpoint shared chat

    Example: hostelry explain --graph ensemble --svg ensemble.svg

    Example: hostelry explain --json
    """
    config, credentials = load_home(home_at(home))
    state = control_answer(
        config, credentials, "/internal/placement", knows="where copies are and why"
    )
    if svg is not None and graph is None:
        raise UsageError("--svg goes with --graph")
    if graph is not None:
        (found,) = only_endpoint(state["endpoints"], graph)
        explain_graph(
            found,
            key_shown_to_agents(config, credentials),
            component=component,
            svg=svg,
            as_json=as_json,
        )
        return
    selected = select(state["endpoints"], endpoint, component)
    names = [it["name"] for it in selected]
    targets = [it for it in scaling_targets(home, None, component) if it["endpoint"] in names]
    models = models_by_copy(selected, key_shown_to_agents(config, credentials))
    one = {} if component is None else {"component": _get_base(selected[0], component) or ""}
    caches = control_answer(config, credentials, "/internal/copy-caches", one)["copies"]
    engines = list_engines(caches, names)
    quotas = control_answer(config, credentials, USE_PATH)
    if as_json:
        shown: dict[str, Any] = {"scaling": targets, "models": models, "engines": engines}
        shown["endpoints"] = [explanation_document(it, component) for it in selected]
        print_json(shown | {"quotas": quotas["quotas"]})
        return
    now = SystemClock().now()
    shown_once = selected if component is not None else reasons_once(selected)
    lines = [line for it in shown_once for line in explanation_lines(it, now, component)]
    lines += [line for name, it in models.items() for line in model_lines(name, it)]
    lines += [_engine_line(it) for it in engines]
    lines += explained_lines(targets)
    lines += reached_lines(quotas["quotas"], quotas["currency"])
    typer.echo("\n".join([*lines, DECLARED_NOTE] if lines else ["No endpoints."]))


def select(
    endpoints: Sequence[Mapping[str, Any]], endpoint: str | None, component: str | None
) -> list[Mapping[str, Any]]:
    """All of `endpoints`, the one of that name, or those that have the component.

    Raises TerminalError if the name is unknown.
    """
    if endpoint is not None:
        endpoints = only_endpoint(endpoints, endpoint)
    if component is None:
        return list(endpoints)
    having = [it for it in endpoints if component in _component_names(it)]
    if not having:
        names = ", ".join(sorted(name for it in endpoints for name in _component_names(it)))
        raise TerminalError(
            f"there is no inference component {component}. There are: {names or 'none'}"
        )
    return having


def _component_names(endpoint: Mapping[str, Any]) -> list[str]:
    return [it["name"] for it in endpoint.get("components", ())]


def explanation_lines(endpoint: JsonObject, now: float, component: str | None = None) -> list[str]:
    """An endpoint's placement as text: a table, each copy's place, and copies without a place.

    With `component`, only its copies and its missing copies.
    """
    base = _get_base(endpoint, component)
    lines = [f"endpoint {endpoint['name']}  {endpoint['status']}"]
    lines += [f"  {_variant_text(it)}" for it in endpoint["variants"]]
    if base != component:
        lines.append(
            f"  {component} is an adapter: it is in each copy of {base}, and takes no room"
        )
    instances = endpoint["placement"]["instances"]
    lines += ["", *[f"  {line}" for line in _table(endpoint)]] if instances else []
    for instance in instances:
        mine = _copies_on(endpoint, instance, base, now)
        if mine:
            lines += ["", f"  {instance['id']}", *mine]
    for unplaced in endpoint["placement"]["unplaced"]:
        if base in (None, unplaced["component"]):
            lines += ["", *_unplaced_lines(endpoint, unplaced)]
    return [*lines, ""]


def explanation_document(endpoint: JsonObject, component: str | None = None) -> dict[str, Any]:
    """The placement for JSON output."""
    base = _get_base(endpoint, component)
    placement = endpoint["placement"]
    return {
        "name": endpoint["name"],
        "status": endpoint["status"],
        "variants": endpoint["variants"],
        "instances": [_instance_document(endpoint, it, base) for it in placement["instances"]],
        "unplaced": [it for it in placement["unplaced"] if base in (None, it["component"])],
    }


def _instance_document(
    endpoint: JsonObject, instance: JsonObject, component: str | None
) -> dict[str, Any]:
    accounts = {it["id"]: it for it in endpoint["copies"]}
    return {
        **instance,
        "copies": [
            {
                "id": copy["id"],
                "component": copy["component"],
                "device_ids": copy["device_ids"],
                "why": endpoint["placement"]["why"][copy["id"]],
                **{key: accounts[copy["id"]][key] for key in ACCOUNT_KEYS},
            }
            for copy in instance["copies"]
            if component in (None, copy["component"])
        ],
    }


def _variant_text(variant: JsonObject) -> str:
    if variant.get("serverless") is not None:
        return f"serverless variant {variant['name']}: {environments_text(variant['serverless'])}"
    types = " then ".join(variant["instance_types"])
    text = f"variant {variant['name']}: {variant['desired_instances']} of {types} wanted"
    if variant["max_instances"] is None:
        text += ", ManagedInstanceScaling off"
    else:
        bounds = f"{variant['min_instances']} to {variant['max_instances']}"
        text += f", ManagedInstanceScaling {bounds} ({variant['scale_in']})"
    skipped: Sequence[JsonObject] = variant["passed_over"]
    return text + "".join(f"; {it['instance_type']} is skipped: {it['problem']}" for it in skipped)


def _get_base(endpoint: JsonObject, component: str | None) -> str | None:
    """The component whose copies are shown: an adapter's base, else the component itself."""
    bases = {it["name"]: it.get("base") for it in endpoint["components"]}
    return bases.get(component) or component


def _table(endpoint: JsonObject) -> list[str]:
    """Each instance with its declared, reserved and free resources."""
    rows = [["INSTANCE", "TYPE", "ZONE", "STATE", "COPIES", "CPUS", "MEMORY", "ACCELERATORS"]]
    states = {it["id"]: it["state"] for it in endpoint["instances"]}
    whole = [it["instance"] for it in endpoint["copies"] if it["reserved"] is None]
    for instance in endpoint["placement"]["instances"]:
        name = instance["id"]
        rows.append(
            [
                name,
                instance["type"],
                instance["zone"] or "-",
                states[name],
                str(len(instance["copies"]) + whole.count(name)),
                *(["whole"] * 3 if name in whole else _free_cells(instance)),
            ]
        )
    return columns(rows)


def _free_cells(instance: JsonObject) -> list[str]:
    """Free CPUs, memory and accelerators of an instance's declared resources."""
    free, declared = instance["free"], instance["declared"]
    memory = f"{memory_text(free['memory_bytes'])} of {memory_text(declared['memory_bytes'])} free"
    accelerators = "-"
    if declared["accelerators"]:
        accelerators = f"{free['accelerators']} of {declared['accelerators']} free"
        if ids := instance["free_device_ids"]:
            noun = "device" if len(ids) == 1 else "devices"
            accelerators += f" ({noun} {', '.join(map(str, ids))})"
    return [f"{free['cpus']:g} of {declared['cpus']:g} free", memory, accelerators]


def _copies_on(
    endpoint: JsonObject, instance: JsonObject, component: str | None, now: float
) -> list[str]:
    accounts = {it["id"]: it for it in endpoint["copies"]}
    why = endpoint["placement"]["why"]
    drains = [it for it in endpoint["instances"] if it["id"] == instance["id"]]
    lines: list[str] = [line for it in drains for line in drain_lines(it, now, "    ")]
    for copy in instance["copies"]:
        if component in (None, copy["component"]):
            account = accounts[copy["id"]]
            lines += [
                f"    {copy['id']}  {copy['component']}  {phase_text(account)}  "
                f"{copy['reserved_text']}",
                f"      {_memory(account)}",
                f"      {why[copy['id']]}{_moving(account)}",
                *trouble_lines(account, now, "      "),
            ]
    for account in accounts.values():
        if account["reserved"] is None and account["instance"] == instance["id"]:
            lines += [f"    {account['id']}  {owner_text(account)}  {phase_text(account)}"]
            lines += [f"      {why[account['id']]}", *trouble_lines(account, now, "      ")]
    return lines


def _memory(account: JsonObject) -> str:
    """The measured memory next to the reserved memory."""
    now, peak = account["memory_bytes"] or 0, account["peak_memory_bytes"] or 0
    if not now and not peak:
        return "memory not measured yet"
    reserved = memory_text(account["reserved"]["memory_bytes"])
    text = f"memory {memory_text(now)} now, {memory_text(max(now, peak))} at most, of {reserved}"
    limit, enforced_by = account["reserved"]["max_memory_bytes"], account["memory_limit"]
    if limit is None or not enforced_by:
        return f"{text} reserved"
    return f"{text} reserved; limit {memory_text(limit)} ({enforced_by})"


def _moving(account: JsonObject) -> str:
    old = account["replaces"]
    return f"; it takes the place of {old}, so that an instance can go" if old else ""


def _unplaced_lines(endpoint: JsonObject, unplaced: JsonObject) -> list[str]:
    name, count, desired = unplaced["component"], unplaced["count"], unplaced["wanted"]
    component = next(it for it in endpoint["components"] if it["name"] == name)
    # The component's own reason is preferred, because `reasons_once` may have shortened the other.
    note = component["placement_note"] if unplaced["obstacle"] else None
    why = note or unplaced["why_not"]
    copies, have = "copy" if desired == 1 else "copies", "has" if count == 1 else "have"
    lines = [f"  {name}: {count} of {desired} {copies} {have} no place"]
    lines += reason_lines(why, "    ")
    help_text = unplaced["would_help"]
    return [*lines, f"    what would help: {help_text}"] if help_text else lines


def explain_graph(
    endpoint: JsonObject,
    key: str,
    *,
    component: str | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Print the graphs of an endpoint's copies. Raises TerminalError if no copy is a graph."""
    ready = [it for it in endpoint["copies"] if it["phase"] == "ready"]
    copies = [it for it in ready if _belongs_to(it, component)]
    agents = {it["id"]: it["agent_address"] for it in endpoint["instances"]}
    found = {
        copy["id"]: ask_agent(agents[copy["instance"]], f"/graph/{copy['id']}", key)
        for copy in copies
    }
    graphs = {name: it for name, it in found.items() if isinstance(it, Mapping)}
    if not graphs:
        reasons = (
            "; ".join(f"{copy}: {it}" for copy, it in found.items()) or "no copy of it is ready"
        )
        raise TerminalError(f"{endpoint['name']} has no copy that is a graph: {reasons}")
    if svg is not None:
        drawn = graph_svg(next(iter(graphs.values())), f"endpoint {endpoint['name']}")
        try:
            svg.write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise TerminalError(f"{svg} cannot be written: {error}") from None
    if as_json:
        print_json({"endpoint": endpoint["name"], "copies": graphs})
        return
    for name, graph in graphs.items():
        typer.echo(f"endpoint {endpoint['name']}, copy {name}, the last minute")
        typer.echo("\n".join(f"  {line}" for line in graph_lines(graph)))
        for step, why in graph.get("missing", {}).items():
            typer.echo(f"  warning: step {step}: {why}")


def _belongs_to(copy: JsonObject, component: str | None) -> bool:
    return component is None or copy["component"] == component


def models_by_copy(endpoints: Sequence[JsonObject], key: str) -> dict[str, Any]:
    """The models of each multi-model copy by copy id, or a text if its agent did not answer."""
    return {
        copy["id"]: ask_agent(
            copy["models_address"].partition("/target-models/")[0],
            f"/models/{copy['id']}",
            key,
        )
        for endpoint in endpoints
        for copy in endpoint["copies"]
        if copy.get("models_address")
    }


def list_engines(caches: Mapping[str, JsonObject], endpoints: Sequence[str]) -> list[JsonObject]:
    """The engines of LLM copies with their reasons, of these endpoints, and the copies of each.

    `caches` are control's by copy id. A copy that does not answer is left out.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for copy_id, shown in caches.items():
        cache = shown.get("cache", {})
        if shown["endpoint"] in endpoints and cache.get("engine"):
            owner = shown["component"] or shown["variant"]
            key = (f"{shown['endpoint']}/{owner}", cache["engine"], cache["why_engine"])
            found.setdefault(key, []).append(copy_id)
    return [
        {"of": owner, "engine": engine, "why": why, "copies": copies}
        for (owner, engine, why), copies in sorted(found.items())
    ]


def _engine_line(found: JsonObject) -> str:
    count = len(found["copies"])
    copies = "1 copy has" if count == 1 else f"{count} copies have"
    return f"  {found['of']}: {copies} the engine {found['engine']}: {found['why']}"


def model_lines(copy_id: str, found: JsonObject | str) -> list[str]:
    """A copy's models as text: the loaded models by their last use, and the last evictions."""
    if isinstance(found, str):
        return [f"  models of {copy_id}: {found}"]
    models = sorted(found["models"], key=lambda it: (not it["loaded"], it["last_used_s"]))
    loaded = [it for it in models if it["loaded"]]
    used_bytes = sum(it["memory_bytes"] for it in loaded)
    accelerator = found.get("accelerator_bytes")
    taken = sum(it["accelerator_bytes"] for it in loaded)
    lines = [
        f"  models of {copy_id}: {len(loaded)} in memory ("
        f"{memory_text(used_bytes)} of {memory_text(found['memory_bytes'])}"
        + (
            f", {memory_text(taken)} of {memory_text(accelerator)} declared of the accelerator"
            if accelerator
            else ""
        )
        + "), "
        f"{sum(it['on_disk'] for it in models)} on disk, {len(models)} known"
    ]
    rows = [["MODEL", "MEMORY", "REQUESTS NOW", "LAST USE", "HITS", "LOAD", "DOWNLOAD"]]
    rows += [_cells(it) for it in loaded[:SHOWN_MODELS]]
    lines += [f"    {line}" for line in columns(rows)] if loaded else []
    if len(loaded) > SHOWN_MODELS:
        lines.append(f"    and {len(loaded) - SHOWN_MODELS} more; --json has all")
    lines += [
        f"    {stuck['target']} may be in the server still: {stuck['reason']}"
        for stuck in found.get("stuck", ())[:SHOWN_MODELS]
    ]
    lines += [
        f"    {gone['target']} left the {gone['tier']}: {gone['reason']}"
        for gone in found["evictions"][-SHOWN_EVICTIONS:]
    ]
    return lines


def _cells(model: JsonObject) -> list[str]:
    return [
        model["target"] + (" (pinned)" if model["pinned"] else ""),
        memory_text(model["memory_bytes"]),
        str(model["in_flight"]),
        f"{model['last_used_s']:.0f} s ago",
        str(model["hits"]),
        f"{model['load_s']:.2f} s",
        f"{model['download_s']:.2f} s",
    ]
