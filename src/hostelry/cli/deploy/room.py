"""Room for the copies: on the endpoint's instances now, and in this machine's memory. Pure."""

from collections.abc import Mapping
from typing import Any

from hostelry.cli.deploy.deployment import ModelDeployment
from hostelry.cli.deploy.reservation import Machine, copies_within, shape_text
from hostelry.domain.shape import Shape
from hostelry.fleet.shapes import shape_of


def instances_text(
    deployment: ModelDeployment, endpoint: Mapping[str, Any] | None, copies: int
) -> str:
    """Whether the endpoint's instances have room for `copies` more.

    `endpoint` is the endpoint in /internal/placement; None where it is not there yet.
    """
    config = deployment.config
    declared = f"{config.instance_type} ({shape_text(shape_of(config.instance_type))})"
    running = [it for it in endpoint["instances"] if it["state"] == "running"] if endpoint else []
    if not running:
        number = config.initial_instances
        return f"yes: {number} x {declared} will be started for {'it' if copies == 1 else 'them'}"
    free = {it["id"]: Shape(**{name: it["free"][name] for name in PARTS}) for it in running}
    fitting = sum(copies_within(deployment.requirements, it) for it in free.values())
    shown = ", ".join(f"{name} has {shape_text(it)} free" for name, it in list(free.items())[:3])
    if fitting >= copies:
        return f"yes, on what runs: {shown}"
    if len(running) < config.max_instances:
        return f"on another {declared}, which will be started: {shown}"
    return f"not now, until copies that run have ended: {shown}"


def machine_text(deployment: ModelDeployment, copies: int, machine: Machine) -> str:
    """What this machine has for the copies: what instances declare is not measured."""
    wanted = deployment.requirements.min_memory_bytes * copies
    has = f"this machine has {gib(machine.free_bytes)} GiB of {gib(machine.memory_bytes)} free"
    if wanted > machine.free_bytes:
        return f"{has}, less than the {gib(wanted)} GiB wanted: it may run out of memory"
    accelerators = f", {machine.accelerators} accelerators" if machine.accelerators else ""
    return f"{has}, {machine.cpus} CPUs{accelerators}"


def gib(num_bytes: int) -> str:
    """Bytes as GiB, to a tenth."""
    return f"{num_bytes / 1024**3:.1f}"


PARTS = ("cpus", "memory_bytes", "accelerators")
