"""What DescribeEndpoint shows of an endpoint's variants."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hostelry.api.context import Context, Result
from hostelry.domain.copy import Copy, CopyPhase, Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant

# While one of these is shown, each variant says so too.
VARIANT_STATUS: Mapping[EndpointStatus, str] = {
    EndpointStatus.CREATING: "Creating",
    EndpointStatus.UPDATING: "Updating",
    EndpointStatus.DELETING: "Deleting",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """What is there of one endpoint now."""

    instances: tuple[Instance, ...]
    copies: tuple[Copy, ...]

    @classmethod
    def of(cls, context: Context, endpoint_name: str) -> "Presence":
        """The instances and copies of the endpoint."""
        scope, state = context.scope, context.state
        instances = (stored.value for stored in state.instances.list(scope))
        copies = (stored.value for stored in state.copies.list(scope))
        return cls(
            instances=tuple(it for it in instances if it.endpoint_name == endpoint_name),
            copies=tuple(it for it in copies if it.endpoint_name == endpoint_name),
        )

    def instance_count(self, wanted: EndpointVariant, generation: int) -> int:
        """Instances of the variant that serve.

        On an endpoint for components those are the running ones; a model's are counted once its
        model server there is ready, in the `generation` of the deployment.
        """
        if wanted.model is None:
            return sum(
                it.variant_name == wanted.variant.name and it.state is InstanceState.RUNNING
                for it in self.instances
            )
        return len(
            {
                copy.instance_id
                for copy in self.copies
                if copy.variant_name == wanted.variant.name
                and copy.component_name is None
                and copy.generation == generation
                and serves(copy)
            }
        )


def serves(copy: Copy) -> bool:
    """Whether the copy is proven and stays."""
    return copy.status.phase is CopyPhase.READY and not copy.draining


def variant_summaries(endpoint: Endpoint, presence: Presence) -> list[Result]:
    """ProductionVariants of DescribeEndpoint."""
    return [
        variant_summary(wanted, endpoint.active, presence) | variant_status(endpoint)
        for wanted in endpoint.active.variants
    ]


def variant_summary(wanted: EndpointVariant, deployment: Deployment, presence: Presence) -> Result:
    """What is wanted and what is there of one variant."""
    current = presence.instance_count(wanted, deployment.generation)
    summary: Result = {
        "VariantName": wanted.variant.name,
        "CurrentWeight": wanted.desired_weight,
        "DesiredWeight": wanted.desired_weight,
        "CurrentInstanceCount": current,
        "DesiredInstanceCount": wanted.desired_instance_count,
        "RoutingConfig": {"RoutingStrategy": wanted.variant.routing.value},
    }
    scaling = given_variant(deployment, wanted.variant.name).get("ManagedInstanceScaling")
    if scaling:
        summary["ManagedInstanceScaling"] = scaling
    if wanted.model:
        summary["DeployedImages"] = [
            deployed_image(container.image, deployment.started_at)
            for container in wanted.model.containers
        ]
    return summary


def variant_status(endpoint: Endpoint) -> Result:
    """VariantStatus while something is under way."""
    status = VARIANT_STATUS.get(endpoint.status)
    if status is None:
        return {}
    return {"VariantStatus": [{"Status": status, "StartTime": endpoint.modified_at}]}


def pending_summary(pending: Deployment, presence: Presence) -> Result:
    """PendingDeploymentSummary of DescribeEndpoint."""
    return {
        "EndpointConfigName": pending.config.name,
        "StartTime": pending.started_at,
        "ProductionVariants": [
            {
                **variant_summary(wanted, pending, presence),
                "InstanceType": wanted.variant.instance_type,
                "VariantStatus": [{"Status": "Creating", "StartTime": pending.started_at}],
            }
            for wanted in pending.variants
        ],
    }


def given_variant(deployment: Deployment, name: str) -> Mapping[str, Any]:
    """The variant as the configuration's request gave it."""
    given = deployment.config.given.get("ProductionVariants", ())
    return next((it for it in given if it["VariantName"] == name), {})


def deployed_image(image: str, resolved_at: float) -> Result:
    """DeployedImage: images are rules here, so the given name is what it resolves to."""
    return {"SpecifiedImage": image, "ResolvedImage": image, "ResolutionTime": resolved_at}
