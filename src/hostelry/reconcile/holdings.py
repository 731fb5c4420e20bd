"""The instances that run for endpoints, with the shares that copies reserve, from the records."""

from collections.abc import Iterable, Iterator

from hostelry.cost.holding import WHOLE, HeldInstance, divide_instance
from hostelry.domain.shape import Requirements
from hostelry.reconcile.plan.endpoint_state import EndpointState


def list_held(states: Iterable[EndpointState]) -> Iterator[HeldInstance]:
    """Every instance whose agent has answered, until its record ends.

    Instances of serverless variants are left out, because their requests are charged.
    """
    for state in states:
        endpoint = state.endpoint
        if endpoint is None:
            continue
        serverless = {
            (deployment.generation, variant.variant.name)
            for deployment in endpoint.deployments
            for variant in deployment.variants
            if variant.serverless is not None
        }
        reserved: dict[str, list[tuple[str, Requirements]]] = {}
        for copy in state.copies.values():
            needs = copy.spec.requirements
            if copy.component_name is not None and needs is not None:
                reserved.setdefault(copy.instance_id, []).append((copy.component_name, needs))
        for instance in state.instances.values():
            if instance.agent_address is None:
                continue
            if (instance.generation, instance.variant_name) in serverless:
                continue
            yield HeldInstance(
                scope=instance.scope,
                endpoint=instance.endpoint_name,
                variant=instance.variant_name,
                instance_type=instance.instance_type,
                since=instance.created_at,
                shares=divide_instance(instance.shape, reserved.get(instance.id, ()))
                if endpoint.takes_components
                else WHOLE,
            )
