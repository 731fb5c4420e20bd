"""Everything that is there and how it fares, as plain JSON values, for `hostelry status`."""

from collections.abc import Iterable, Mapping
from typing import Any

from hostelry.domain.component import InferenceComponent
from hostelry.domain.copy import Copy, Instance
from hostelry.domain.shape import Requirements
from hostelry.reconcile.world import InstanceFacts, World, is_routable


def overview(worlds: Iterable[World], facts: Mapping[str, InstanceFacts]) -> list[dict[str, Any]]:
    """One object an endpoint, with its components, instances and copies.

    What is in memory now (problems, memory in use) comes from `facts`, all else from the records.
    """
    return [_endpoint(world, facts) for world in worlds if world.endpoint is not None]


def _endpoint(world: World, facts: Mapping[str, InstanceFacts]) -> dict[str, Any]:
    endpoint = world.endpoint
    assert endpoint is not None, "only worlds with an endpoint are shown"
    instances = sorted(world.instances.values(), key=lambda it: (it.created_at, it.id))
    copies = sorted(world.copies.values(), key=lambda it: (it.created_at, it.spec.id))
    return {
        "name": endpoint.name,
        "account": endpoint.scope.account,
        "region": endpoint.scope.region,
        "status": endpoint.status.value,
        "failure_reason": endpoint.failure_reason,
        "created_at": endpoint.created_at,
        "modified_at": endpoint.modified_at,
        "takes_components": endpoint.takes_components,
        "config": endpoint.active.config.name,
        "pending_config": endpoint.pending.config.name if endpoint.pending else None,
        "components": [_component(world, world.components[it]) for it in sorted(world.components)],
        "instances": [_instance(it, facts.get(it.id, InstanceFacts())) for it in instances],
        "copies": [_copy(it, facts.get(it.instance_id, InstanceFacts())) for it in copies],
    }


def _component(world: World, component: InferenceComponent) -> dict[str, Any]:
    copies = world.copies_of(component.name)
    return {
        "name": component.name,
        "status": component.status.value,
        "failure_reason": component.failure_reason,
        "created_at": component.created_at,
        "modified_at": component.modified_at,
        "base": component.adapter.base_name if component.adapter is not None else None,
        "desired_copies": component.desired_copies,
        "ready_copies": sum(1 for it in copies if is_routable(it)),
    }


def _instance(instance: Instance, facts: InstanceFacts) -> dict[str, Any]:
    return {
        "id": instance.id,
        "variant": instance.variant_name,
        "type": instance.instance_type,
        "state": instance.state.value,
        "cpus": instance.shape.cpus,
        "memory_bytes": instance.shape.memory_bytes,
        "accelerators": instance.shape.accelerators,
        "agent_address": instance.agent_address,
        "problem": facts.problem,
    }


def _copy(copy: Copy, facts: InstanceFacts) -> dict[str, Any]:
    status = copy.status
    seen = facts.observation.copies if facts.observation is not None else ()
    memory = next((it.memory_bytes for it in seen if it.id == status.id), status.memory_bytes)
    return {
        "id": status.id,
        "owner": copy.spec.owner,
        "instance": copy.instance_id,
        "reserved": _reserved(copy.spec.requirements),
        "phase": status.phase.value,
        "draining": copy.draining,
        "reason": status.reason,
        "address": status.address,
        "pid": status.pid,
        "restarts": status.restarts,
        "memory_bytes": memory,
        "created_at": copy.created_at,
        "ready_at": copy.ready_at,
        "adapters": [
            {"id": it.id, "phase": it.phase.value, "reason": it.reason} for it in status.adapters
        ],
    }


def _reserved(requirements: Requirements | None) -> dict[str, float] | None:
    """What the copy holds of its instance's declared shape; None: the whole instance."""
    if requirements is None:
        return None
    return {
        "cpus": requirements.cpus,
        "memory_bytes": requirements.min_memory_bytes,
        "accelerators": int(requirements.accelerators),
    }
