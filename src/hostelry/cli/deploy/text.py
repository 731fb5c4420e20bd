"""A plan and its end as lines and as a document. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hostelry.cli.deploy.deployment import ModelDeployment
from hostelry.cli.deploy.plan import DeploySource
from hostelry.cli.deploy.reservation import MIB, Reservation
from hostelry.cli.deploy.snippets import Snippets
from hostelry.cli.deploy.steps import DeployStep

MB = 1e6
MAX_LINES = 20  # of steps, and of adapters


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployPlan:
    """All that is said before anything is done."""

    source: DeploySource
    deployment: ModelDeployment
    reserved: Reservation
    steps: Sequence[DeployStep]
    missing_bytes: int
    room: Sequence[str]
    notes: Sequence[str]
    usual_s: float | None


def plan_lines(plan: DeployPlan) -> list[str]:
    """The plan as text."""
    deployment, found = plan.deployment, plan.source.found
    rows = [
        ("model", f"{deployment.model.name} from {deployment.model.uri or 'its image alone'}"),
        ("image", deployment.model.image),
        ("endpoint", f"{deployment.name} on {deployment.config.instance_type}"),
        ("component", f"{deployment.name}, {copies_text(plan)}"),
        ("each reserves", reservation_text(plan.reserved)),
        *[("fits" if number == 0 else "", text) for number, text in enumerate(plan.room)],
        ("uploads", uploads_text(plan)),
    ]
    shown = deployment.adapters[:MAX_LINES]
    rows += [("adapter", f"{it.adapter} as {it.component}") for it in shown]
    if len(deployment.adapters) > MAX_LINES:
        rows.append(("", f"and {len(deployment.adapters) - MAX_LINES} more adapters"))
    if found.left_out:
        size = sum(it.size_bytes for it in found.left_out) / MB
        names = ", ".join(it.name for it in found.left_out[:4])
        rows.append(("left out", f"{len(found.left_out)} files, {size:.1f} MB: {names}"))
    rows += [("note", it) for it in plan.notes]
    if not plan.steps:
        rows.append(("to do", "nothing: all of it is there"))
    for number, step in enumerate(plan.steps[:MAX_LINES]):
        rows.append(("to do" if number == 0 else "", step.text))
    if len(plan.steps) > MAX_LINES:
        rows.append(("", f"and {len(plan.steps) - MAX_LINES} more"))
    if plan.steps and plan.usual_s is not None:
        rows.append(("usually", f"{plan.usual_s:.0f} s"))
    title = f"{found.given}: {plan.source.recognised.title}"
    return [title, *(f"  {label:13s}  {text}" for label, text in rows)]


def copies_text(plan: DeployPlan) -> str:
    """The number of copies, or its bounds."""
    scaling, copies = plan.deployment.scaling, plan.deployment.copies
    if scaling is None:
        count = 1 if copies is None else copies
        return "1 copy" if count == 1 else f"{count} copies"
    zero = ", none without calls" if scaling.min_copies == 0 else ""
    return (
        f"{scaling.min_copies} to {scaling.max_copies} copies, of {scaling.target:g} concurrent "
        f"requests each{zero}"
    )


def reservation_text(reserved: Reservation) -> str:
    """What a copy reserves, and what for."""
    asked = reserved.requirements
    parts = " + ".join(f"{label} {size / MIB:.0f}" for label, size in reserved.parts if size >= MIB)
    accelerators = f", {asked.accelerators:g} accelerators" if asked.accelerators else ""
    return f"{asked.cpus:g} CPUs{accelerators}, {reserved.memory_mb} MB ({parts})"


def uploads_text(plan: DeployPlan) -> str:
    """How much is to be uploaded."""
    objects = plan.deployment.objects
    if not objects:
        return "nothing"
    count = f"{len(objects)} file{'' if len(objects) == 1 else 's'}"
    total = sum(it.num_bytes for it in objects) / MB
    if not plan.missing_bytes:
        return f"nothing: {count}, {total:.1f} MB, are there"
    rest = f", of which {plan.missing_bytes / MB:.1f} MB are not there yet"
    partial = plan.missing_bytes / MB < total - 0.05
    return f"{count}, {total:.1f} MB{rest if partial else ''}"


def plan_document(plan: DeployPlan) -> dict[str, Any]:
    """The plan for programs."""
    deployment, found, recognised = plan.deployment, plan.source.found, plan.source.recognised
    asked = deployment.requirements
    return {
        "source": found.given,
        "kind": recognised.kind.value,
        "what": recognised.title,
        "runtime": recognised.runtime or None,
        "name": deployment.name,
        "model": deployment.model.name,
        "model_data": deployment.model.uri or None,
        "image": deployment.model.image,
        "environment": dict(deployment.model.environment),
        "endpoint": deployment.name,
        "endpoint_config": deployment.config.name,
        "component": deployment.name,
        "instance_type": deployment.config.instance_type,
        "instances": deployment.config.initial_instances,
        "max_instances": deployment.config.max_instances,
        "copy": {
            "cpus": asked.cpus,
            "memory_mb": plan.reserved.memory_mb,
            "accelerators": asked.accelerators,
            "memory_bytes_for": dict(plan.reserved.parts),
        },
        "copies": deployment.copies,
        "scaling": None
        if deployment.scaling is None
        else {"min": deployment.scaling.min_copies, "max": deployment.scaling.max_copies},
        "adapters": {it.adapter: it.component for it in deployment.adapters},
        "fits": list(plan.room),
        "uploads": {
            "files": len(deployment.objects),
            "bytes": sum(it.num_bytes for it in deployment.objects),
            "missing_bytes": plan.missing_bytes,
        },
        "left_out": [it.name for it in found.left_out],
        "notes": list(plan.notes),
        "steps": [it.text for it in plan.steps],
        "usual_s": plan.usual_s,
    }


def next_lines(shown: Snippets, deployment: ModelDeployment) -> list[str]:
    """What to type next."""
    lines = ["", "Call it:", "", shown.environment]
    for title, text in shown.blocks:
        lines += ["", f"# {title}", text]
    lines += ["", "# hostelry", *shown.hostelry]
    if deployment.adapters:
        named = ", ".join(it.component for it in deployment.adapters[:5])
        lines += ["", f"The adapters' names stand in the place of {deployment.name}: {named}"]
    if not shown.blocks:
        lines += [
            "",
            "Which body it reads is its code's choice: name one with --env "
            "HOSTELRY_PROBE_BODY=..., and each copy is proven by it, and it is shown here.",
        ]
    return lines
