"""Overview of all endpoints, jobs and acts under way, as JSON values. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hostelry.domain.ai_benchmark_job import AiBenchmarkJob
from hostelry.domain.component import ComponentSpec, InferenceComponent, Rollout
from hostelry.domain.copy import Copy, CopyPhase, Instance, InstanceState, LastEnd
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint import Bake, CopyRestart, Endpoint, EndpointVariant
from hostelry.domain.inference_experiment import InferenceExperiment
from hostelry.domain.recommendation_job import RecommendationJob, RecommendationStatus
from hostelry.domain.shape import Requirements
from hostelry.domain.transform_job import TransformJob, TransformProgress
from hostelry.domain.trouble import ServedPart, summarize_serving
from hostelry.domain.update_history import known_updates, update_progress
from hostelry.placement.explain import HostUse, list_uses
from hostelry.reconcile.plan.endpoint_state import (
    NOTHING_KNOWN,
    EndpointState,
    InstanceFacts,
    is_routable,
)
from hostelry.reconcile.plan.growth import get_managed_scaling
from hostelry.reconcile.plan.placement_request import get_held, to_hosts
from hostelry.reconcile.plan.recommendation import name_step
from hostelry.reconcile.plan.status import describe_missing


def overview(
    states: Iterable[EndpointState],
    facts: Mapping[str, InstanceFacts],
    now: float = 0.0,
    pace: float = 1.0,
    verdict_of: Callable[[Endpoint], str | None] = lambda _: None,
) -> list[dict[str, Any]]:
    """One object per endpoint, with its components, instances and copies.

    Problems and memory in use are not recorded and come from `facts`, all else from the records. An
    update's progress is that at `now`, with its waits divided by `pace`, and the verdict on it.
    """
    return [
        {**_endpoint(state, state.endpoint, facts), "progress": progress}
        for state in states
        if state.endpoint is not None
        for progress in [update_progress(state.endpoint, now, pace, verdict_of(state.endpoint))]
    ]


def _endpoint(
    state: EndpointState, endpoint: Endpoint, facts: Mapping[str, InstanceFacts]
) -> dict[str, Any]:
    instances = sorted(state.instances.values(), key=lambda it: (it.created_at, it.id))
    copies = sorted(state.copies.values(), key=lambda it: (it.created_at, it.spec.id))
    uses = list_uses(to_hosts(instances), get_held(state, instances))
    free = {it.host.instance_id: it for it in uses}
    components = [_component(state, state.components[it]) for it in sorted(state.components)]
    served = _served_parts(state, endpoint, components)
    return {
        "name": endpoint.name,
        "account": endpoint.scope.account,
        "region": endpoint.scope.region,
        "status": endpoint.status.value,
        "failure_reason": endpoint.failure_reason,
        "created_at": endpoint.created_at,
        "modified_at": endpoint.modified_at,
        "takes_components": endpoint.takes_components,
        "serving": summarize_serving(endpoint.status.value, served),
        "config": endpoint.active.config.name,
        "pending_config": endpoint.pending.config.name if endpoint.pending else None,
        "shift": None if endpoint.shift is None else msgspec.to_builtins(endpoint.shift),
        "bake": None if endpoint.bake is None else _bake(endpoint.bake),
        "updates": msgspec.to_builtins(known_updates(endpoint)),
        "capture": None if endpoint.active.capture is None else _capture(endpoint.active.capture),
        "variants": [_variant(state, it) for it in endpoint.active.variants],
        "components": components,
        "instances": [
            {**_instance(host, facts, free[host.id]), "drain": describe_drain(state, facts, host)}
            for host in instances
        ],
        "copies": [
            {
                **_copy(copy, facts.get(copy.instance_id, NOTHING_KNOWN)),
                "restart": describe_restart(state, copy),
            }
            for copy in copies
        ],
    }


def _served_parts(
    state: EndpointState, endpoint: Endpoint, components: Iterable[Mapping[str, Any]]
) -> Iterator[ServedPart]:
    """The components of an endpoint, or its variants with their instances that serve."""
    for component in components:
        desired = None if component["base"] else component["desired_copies"]
        yield ServedPart(
            status=component["status"], ready=component["ready_copies"], desired=desired
        )
    for variant in () if endpoint.takes_components else endpoint.active.variants:
        copies = state.list_variant_copies(endpoint.active.generation, variant.variant.name, None)
        is_serverless = variant.serverless is not None
        yield ServedPart(
            status=endpoint.status.value,
            ready=len({it.instance_id for it in copies if is_routable(it)}),
            desired=variant.environments if is_serverless else variant.desired_instance_count,
        )


def _capture(capture: DataCapture) -> dict[str, Any]:
    return {
        "is_enabled": capture.is_enabled,
        "percent": capture.percent,
        "destination": capture.uri,
        "variants": [],
    }


def _bake(bake: Bake) -> dict[str, Any]:
    return {
        "config_before": bake.before.config.name,
        "since": bake.since,
        "going_back": bake.failure,
    }


def _variant(state: EndpointState, variant: EndpointVariant) -> dict[str, Any]:
    """A variant's desired instances and bounds. The bounds are null if it is not scaled."""
    scaling = get_managed_scaling(variant.variant)
    return {
        "name": variant.variant.name,
        "instance_types": list(variant.variant.instance_types),
        "desired_instances": variant.desired_instance_count,
        "min_instances": None if scaling is None else scaling.min_instances,
        "max_instances": None if scaling is None else scaling.max_instances,
        "scale_in": None if scaling is None else scaling.scale_in.strategy.value,
        "scaled_in_at": variant.scaled_in_at,
        "serverless": _environments(state, variant),
        "passed_over": [
            {"instance_type": other.instance_type, "until": other.until, "problem": other.problem}
            for other in variant.passed_over
        ],
    }


def _environments(state: EndpointState, variant: EndpointVariant) -> dict[str, Any] | None:
    """The numbers of a serverless variant's environments. None for any other variant."""
    config, endpoint = variant.serverless, state.endpoint
    if config is None or endpoint is None:
        return None
    mine = state.list_variant_copies(endpoint.active.generation, variant.variant.name, None)
    ready = sum(1 for it in mine if is_routable(it))
    return {
        "memory_mb": config.memory_mb,
        "max_concurrency": config.max_concurrency,
        "provisioned_concurrency": config.provisioned_concurrency,
        "desired": variant.environments,
        "ready": ready,
        "starting": len(mine) - ready,
    }


def _component(state: EndpointState, component: InferenceComponent) -> dict[str, Any]:
    assert state.endpoint is not None, "only states with an endpoint are shown"
    generation = state.endpoint.active.generation
    copies = state.list_variant_copies(generation, component.variant_name, component.name)
    shown = {
        "name": component.name,
        "status": component.status.value,
        "failure_reason": component.failure_reason,
        "placement_note": component.placement_note,
        "created_at": component.created_at,
        "modified_at": component.modified_at,
        "base": component.adapter.base_name if component.adapter is not None else None,
        "variant": component.variant_name,
        "desired_copies": component.desired_copies,
        "placed_copies": sum(1 for it in copies if not it.draining),
        "ready_copies": sum(1 for it in copies if is_routable(it)),
        "pinned": component.pinned,
        "rollout": None if component.rollout is None else _rollout(component.rollout),
    }
    return shown if component.spec is None else {**shown, **_scheduling(component.spec)}


def _scheduling(spec: ComponentSpec) -> dict[str, Any]:
    """Placement and reservations of copies. A null instance type stands for every type."""
    typed: list[tuple[str | None, Requirements]]
    typed = [(it.instance_type, it.requirements) for it in spec.by_type]
    return {
        "generation": spec.generation,
        "strategy": spec.scheduling.strategy.value,
        "max_imbalance": spec.scheduling.max_imbalance,
        "requirements": [
            {"instance_type": name, **_requirements(it)}
            for name, it in typed or [(None, spec.requirements)]
        ],
    }


def _rollout(rollout: Rollout) -> dict[str, Any]:
    return {
        "new_copies": rollout.new_copies,
        "started_at": rollout.started_at,
        "batch_ready_at": rollout.batch_ready_at,
        "going_back": rollout.failure,
    }


def _instance(
    instance: Instance, all_facts: Mapping[str, InstanceFacts], use: HostUse
) -> dict[str, Any]:
    facts = all_facts.get(instance.id, NOTHING_KNOWN)
    return {
        "id": instance.id,
        "variant": instance.variant_name,
        "type": instance.instance_type,
        "zone": instance.zone,
        "state": instance.state.value,
        "created_at": instance.created_at,
        "idle_since": instance.idle_since,
        "cpus": instance.shape.cpus,
        "memory_bytes": instance.shape.memory_bytes,
        "accelerators": instance.shape.accelerators,
        "free": {
            "cpus": use.free.cpus,
            "memory_bytes": use.free.memory_bytes,
            "accelerators": use.free.accelerators,
            "device_ids": list(use.free_device_ids),
        },
        "agent_address": instance.agent_address,
        "problem": facts.problem,
        "unreachable_since": facts.unreachable_since,
    }


def _copy(copy: Copy, facts: InstanceFacts) -> dict[str, Any]:
    seen = facts.observation.copies if facts.observation is not None else ()
    status = next((it for it in seen if it.id == copy.spec.id), copy.status)
    return {
        "id": copy.spec.id,
        "owner": copy.spec.owner,
        "component": copy.component_name,
        "container": copy.spec.container.hostname,
        "instance": copy.instance_id,
        "generation": copy.generation,
        "reserved": None
        if copy.spec.requirements is None
        else _requirements(copy.spec.requirements),
        "device_ids": list(copy.spec.device_ids),
        "phase": copy.status.phase.value,
        "draining": copy.draining,
        "open_connections": status.open_connections,
        "replaces": copy.replaces,
        "reason": copy.status.reason,
        "log_tail": copy.status.log_tail,
        "address": copy.status.address,
        "pid": copy.status.pid,
        "restarts": copy.status.restarts,
        "last_end": None if status.last_end is None else _last_end(status.last_end),
        "memory_bytes": status.memory_bytes,
        "peak_memory_bytes": status.peak_memory_bytes,
        "models_address": status.models_address,
        "memory_limit": status.memory_limit,
        "isolation": None if status.isolation is None else msgspec.to_builtins(status.isolation),
        "start_kind": status.start_kind,
        "start_s": status.start_s,
        "variables_left_out": list(status.left_out),
        "created_at": copy.created_at,
        "ready_at": copy.ready_at,
        "adapters": [
            {"id": adapter.id, "phase": adapter.phase.value, "reason": adapter.reason}
            for adapter in copy.status.adapters
        ],
    }


def _last_end(end: LastEnd) -> dict[str, Any]:
    """The last end of the copy's model server. `at` is in seconds since the epoch."""
    return {"at": end.at, "cause": end.cause, "log_tail": end.log_tail}


def _requirements(requirements: Requirements) -> dict[str, Any]:
    """What a copy reserves of its instance's declared shape, and its memory limit."""
    return {
        "cpus": requirements.cpus,
        "memory_bytes": requirements.min_memory_bytes,
        "max_memory_bytes": requirements.max_memory_bytes,
        "accelerators": int(requirements.accelerators),
    }


MAX_ENDED = 20  # jobs, and experiments, that are over
UNDER_WAY = RecommendationStatus.IN_PROGRESS


def transform_overview(
    jobs: Iterable[TransformJob],
    states: Iterable[EndpointState],
    facts: Mapping[str, InstanceFacts],
    get_progress: Callable[[TransformJob], TransformProgress],
) -> list[dict[str, Any]]:
    """Every job that is not over, and the last ones that are, newest first.

    Each has the `overview` of its endpoint, or None without an endpoint.
    """
    by_key = {(it.endpoint.scope, it.endpoint.name): it for it in states if it.endpoint is not None}
    newest = sorted(jobs, key=lambda it: (it.created_at, it.name), reverse=True)
    over = [it for it in newest if it.is_over][:MAX_ENDED]
    shown = [it for it in newest if not it.is_over or it in over]
    found = []
    for job in shown:
        state = by_key.get((job.scope, job.endpoint_name))
        endpoint = None if state is None else overview([state], facts)[0]
        found.append({**_job(job, get_progress(job)), "endpoint": endpoint})
    return found


def _job(job: TransformJob, progress: TransformProgress) -> dict[str, Any]:
    return {
        "name": job.name,
        "account": job.scope.account,
        "region": job.scope.region,
        "status": job.status.value,
        "failure_reason": job.failure_reason,
        "model": job.model.name,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "progress": msgspec.to_builtins(progress),
    }


def experiment_overview(experiments: Iterable[InferenceExperiment]) -> list[dict[str, Any]]:
    """Every experiment that is not over, and the last ones that are, newest first."""
    newest = sorted(experiments, key=lambda it: (it.created_at, it.name), reverse=True)
    over = [it for it in newest if it.is_over][:MAX_ENDED]
    return [
        {
            "name": one.name,
            "account": one.scope.account,
            "region": one.scope.region,
            "status": one.status.value,
            "status_reason": one.status_reason or (one.stop and one.stop.reason),
            "endpoint": one.endpoint_name,
            "production": one.production_name,
            "shadow": one.shadow_name,
            "percent": one.percent,
            "created_at": one.created_at,
            "start_at": one.start_at,
            "end_at": one.end_at,
            "is_deployed": one.is_deployed,
            "promotes": one.stop is not None and one.stop.promotes,
            "deadline_at": one.deadline_at,
        }
        for one in newest
        if not one.is_over or one in over
    ]


def recommendation_overview(jobs: Iterable[RecommendationJob]) -> list[dict[str, Any]]:
    """The recommendations jobs that are not over, newest first, with their steps under way."""
    running = [it for it in jobs if not it.is_over]
    newest = sorted(running, key=lambda it: (it.created_at, it.name), reverse=True)
    return [
        {
            "name": job.name,
            "account": job.scope.account,
            "region": job.scope.region,
            "status": job.status.value,
            "is_ai": job.search is not None,
            "num_steps": len(job.steps),
            "num_over": sum(1 for step in job.steps if step.status.is_over),
            "under_way": [name_step(it) for it in job.steps if it.status is UNDER_WAY],
            "until_at": job.until_at,
        }
        for job in newest
    ]


def ai_benchmark_overview(jobs: Iterable[AiBenchmarkJob]) -> list[dict[str, Any]]:
    """The AI benchmark jobs that are not over, newest first."""
    running = [it for it in jobs if not it.is_over]
    newest = sorted(running, key=lambda it: (it.created_at, it.name), reverse=True)
    return [
        {
            "name": job.name,
            "account": job.scope.account,
            "region": job.scope.region,
            "status": job.status.value,
            "endpoint": job.endpoint_name,
            "deadline_at": job.deadline_at,
        }
        for job in newest
    ]


WAITS = "waits until the other copies of its component or variant serve"
COMES_UP = "its replacement comes up"


def describe_restart(state: EndpointState, copy: Copy) -> dict[str, Any] | None:
    """Describe a copy's restart: its replacement, or why it serves on. None without a restart."""
    restarts = () if state.endpoint is None else state.endpoint.restarts
    restart = next((it for it in restarts if it.copy_id == copy.spec.id), None)
    if restart is None:
        return None
    new = _replacement(state, restart, copy) if restart.is_under_way else None
    reason = restart.failure or (WAITS if restart.began_at is None else COMES_UP)
    if new is not None:
        reason = f"being replaced by {new.spec.id}, which is {new.status.phase.value}"
        reason += f": {new.status.reason}" if new.status.reason else ""
    return {
        "asked_at": restart.asked_at,
        "began_at": restart.began_at,
        "replaced_by": None if new is None else new.spec.id,
        "failed": restart.failure is not None,
        "reason": reason,
    }


def _replacement(state: EndpointState, restart: CopyRestart, old: Copy) -> Copy | None:
    """The newest copy that came up since the restart began, in the place of `old`."""
    came = [
        copy
        for copy in state.list_copies(restart.component_name)
        if copy.variant_name == restart.variant_name
        and copy.spec.container.hostname == old.spec.container.hostname
        and copy.created_at >= (restart.began_at or 0.0)
        and not copy.draining
        and copy.spec.id != old.spec.id
    ]
    return came[-1] if came else None


def describe_drain(
    state: EndpointState, facts: Mapping[str, InstanceFacts], instance: Instance
) -> dict[str, Any] | None:
    """Describe an instance's drain: the copies left, and why it lasts. None without a drain."""
    if instance.drain_since is None:
        return None
    copies = state.list_copies_at(instance.id)
    serving = [it for it in copies if not it.draining]
    return {
        "since": instance.drain_since,
        "copies_left": len(copies),
        "serving": len(serving),
        "reason": _explain_delay(state, facts, instance, serving, len(copies)),
    }


def _explain_delay(
    state: EndpointState,
    facts: Mapping[str, InstanceFacts],
    instance: Instance,
    serving: Sequence[Copy],
    num_copies: int,
) -> str:
    """Why a draining instance has not ended yet."""
    if instance.state is InstanceState.TERMINATING or not serving:
        return "its copies end with their last requests" if num_copies else "it is ending"
    names = sorted({it.component_name for it in serving if it.component_name is not None})
    notes = [(it, state.components[it].placement_note) for it in names if it in state.components]
    found = [f"component {name}: {note}" for name, note in notes if note]
    hosts = state.staying(state.hosts(instance.generation, instance.variant_name))
    problems = [(it.id, facts.get(it.id, NOTHING_KNOWN).problem) for it in hosts]
    found += [f"instance {name}: {problem}" for name, problem in problems if problem]
    new = [it for host in hosts for it in state.list_copies_at(host.id) if not it.draining]
    waiting = [it for it in new if not is_routable(it)]
    failed = any(it.status.phase is CopyPhase.FAILED for it in waiting)
    if not found or failed:
        found.append(f"other copies come up first: {describe_missing(len(new), new)}")
    return "; ".join(found)
