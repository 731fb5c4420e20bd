"""Hidden endpoints of jobs: the records that make and delete them, and whether they serve. Pure."""

from collections import Counter
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from hostelry.domain.copy import Copy, CopyPhase
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.endpoint_config import EndpointConfig, RoutingStrategy, Variant
from hostelry.domain.model import Model
from hostelry.domain.resize import deployment_deadline
from hostelry.domain.scope import Scope
from hostelry.domain.status import Event, can, delete_deadline, next_status
from hostelry.reconcile.plan.endpoint_state import is_routable
from hostelry.reconcile.plan.status import describe_copy_failure


class HiddenFleet(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of an endpoint: its record, whether a copy serves, and why none does.

    `asked_at` is when a process last asked for the jobs to be run, or began to be able to.
    """

    endpoint: Endpoint | None = None
    serves: bool = False
    problem: str | None = None
    asked_at: float


class HiddenSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The only variant of a hidden endpoint."""

    scope: Scope
    name: str
    variant_name: str
    model: Model
    instance_type: str
    instance_count: int = 1


def build_hidden_endpoint(spec: HiddenSpec, generation: int, now: float) -> Endpoint:
    """The endpoint with the job's instances, each with a copy of its model."""
    variant = Variant(
        name=spec.variant_name,
        model_name=spec.model.name,
        instance_type=spec.instance_type,
        initial_instance_count=spec.instance_count,
        routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
    )
    config = EndpointConfig(
        scope=spec.scope,
        name=spec.name,
        arn=spec.scope.arn("endpoint-config", spec.name),
        created_at=now,
        variants=(variant,),
        given={},
    )
    desired = EndpointVariant(
        variant=variant,
        model=spec.model,
        desired_instance_count=spec.instance_count,
        desired_weight=1.0,
    )
    active = Deployment(generation=generation, config=config, variants=(desired,), started_at=now)
    return Endpoint(
        scope=spec.scope,
        name=spec.name,
        # Not the job's: the tags of an endpoint's ARN go with it.
        arn=spec.scope.arn("endpoint", spec.name),
        created_at=now,
        modified_at=now,
        status=EndpointStatus.CREATING,
        active=active,
        deadline_at=deployment_deadline(active, now),
        given={},
    )


def delete_hidden_endpoint(endpoint: Endpoint | None, now: float) -> Endpoint | None:
    """The endpoint in status Deleting. None if it needs no change."""
    if endpoint is None or endpoint.status is EndpointStatus.DELETING:
        return None
    assert can(endpoint.status, Event.DELETE), "an endpoint can be deleted from every status"
    return replace(
        endpoint,
        status=next_status(endpoint.status, Event.DELETE),
        modified_at=now,
        deadline_at=delete_deadline(now),
    )


def explain_silence(
    endpoint: Endpoint, fleet: HiddenFleet, unserved_since: float, now: float
) -> str | None:
    """Say why a serving endpoint fails: no copy has served for as long as one may take to start.

    None before that.
    """
    if now < deployment_deadline(endpoint.active, unserved_since):
        return None
    why = fleet.problem or "no copy became ready"
    return f"No copy has served for {now - unserved_since:.0f} s: {why}"


def any_serves(model: Model, copies: Iterable[Copy]) -> bool:
    """Whether every container of the model serves on one of its instances."""
    ready = Counter(it.instance_id for it in copies if is_routable(it))
    return any(count >= len(model.containers) for count in ready.values())


def find_problem(copies: Iterable[Copy]) -> str | None:
    """Why none of these copies serves, as far as one of them says so."""
    failed = [it for it in copies if it.status.phase is CopyPhase.FAILED]
    if failed:
        return describe_copy_failure(failed[0])
    return next((it.status.reason for it in copies if it.status.reason), None)
