"""The variants in the answer of DescribeEndpoint."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from hostelry.api.context import CallContext, Result
from hostelry.api.refusals import short_reason
from hostelry.api.sagemaker.serverless import describe_serverless
from hostelry.domain.copy import Copy, Instance, InstanceState, complete_sets
from hostelry.domain.endpoint import (
    Deployment,
    Endpoint,
    EndpointStatus,
    EndpointVariant,
    ShiftStage,
)
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.update_history import ACTIVATING_S, get_share, progress_text, set_verdict
from hostelry.store.records import on_endpoint

# While an endpoint has one of these statuses, each variant has the same.
VARIANT_STATUS: Mapping[EndpointStatus, str] = {
    EndpointStatus.CREATING: "Creating",
    EndpointStatus.UPDATING: "Updating",
    EndpointStatus.DELETING: "Deleting",
}
# The status of the new configuration's variants instead of Baking, by the stage of a batch.
STAGE_STATUS = {ShiftStage.LEAVING: "Updating", ShiftStage.COMING: "Creating"}


class EndpointFleet(msgspec.Struct, frozen=True, kw_only=True):
    """Instances and copies of one endpoint."""

    instances: tuple[Instance, ...]
    copies: tuple[Copy, ...]

    @classmethod
    def of(cls, context: CallContext, endpoint_name: str) -> "EndpointFleet":
        """The instances and copies of the endpoint."""
        scope, state = context.scope, context.state
        return cls(
            instances=tuple(on_endpoint(state.instances, scope, endpoint_name).values()),
            copies=tuple(on_endpoint(state.copies, scope, endpoint_name).values()),
        )

    def serving(self, wanted: EndpointVariant, generation: int) -> list[Instance]:
        """The variant's serving instances in the `generation` of a deployment.

        On an endpoint for components these are the running instances. An instance of a model serves
        once the model servers of all its containers are ready.
        """
        of_variant = [it for it in self.instances if it.variant_name == wanted.variant.name]
        if wanted.model is None:
            return [
                instance
                for instance in of_variant
                if instance.generation == generation and instance.state is InstanceState.RUNNING
            ]
        ready = [
            copy
            for copy in self.copies
            if copy.variant_name == wanted.variant.name
            and copy.component_name is None
            and copy.generation == generation
            and copy.serves
        ]
        whole = complete_sets(wanted, of_variant, ready)
        return [it for it in of_variant if it.id in whole]

    def leaving(self, endpoint: Endpoint, variant_name: str) -> list[Instance]:
        """The variant's instances that an update terminates.

        These belong to no deployment of the endpoint any more, or a batch has replaced them.
        """
        staying = {it.generation for it in endpoint.deployments}
        if endpoint.shift is not None and endpoint.shift.stage is ShiftStage.LEAVING:
            staying.discard(endpoint.active.generation)
        return [
            instance
            for instance in self.instances
            if instance.variant_name == variant_name
            and instance.state is InstanceState.TERMINATING
            and instance.generation not in staying
        ]


def variant_summaries(endpoint: Endpoint, deployment: Deployment, fleet: EndpointFleet) -> Result:
    """The variants in DescribeEndpoint, of the deployment whose configuration it shows."""

    def summary(wanted: EndpointVariant) -> Result:
        leaving = fleet.leaving(endpoint, wanted.variant.name)
        return variant_summary(wanted, deployment, fleet) | variant_status(endpoint, leaving)

    return by_kind(deployment, summary)


def by_kind(deployment: Deployment, summary: Callable[[EndpointVariant], Result]) -> Result:
    """ProductionVariants, and ShadowProductionVariants if there is a shadow."""
    found: Result = {"ProductionVariants": [summary(it) for it in deployment.production]}
    if deployment.shadow is not None:
        found["ShadowProductionVariants"] = [summary(deployment.shadow)]
    return found


def variant_summary(
    wanted: EndpointVariant, deployment: Deployment, fleet: EndpointFleet
) -> Result:
    """Desired and current state of one variant."""
    serving = fleet.serving(wanted, deployment.generation)
    summary: Result = {
        "VariantName": wanted.variant.name,
        "CurrentWeight": wanted.desired_weight,
        "DesiredWeight": wanted.desired_weight,
        **_describe_capacity(wanted, len(serving)),
        "RoutingConfig": {"RoutingStrategy": wanted.variant.routing.value},
    }
    scaling = given_variant(deployment, wanted.variant.name).get("ManagedInstanceScaling")
    if scaling:
        summary["ManagedInstanceScaling"] = scaling
    if wanted.variant.pools:
        by_type = Counter(it.instance_type for it in serving)
        summary["InstancePools"] = [
            {"InstanceType": name, "CurrentInstanceCount": by_type[name]}
            for name in wanted.variant.instance_types
        ]
    if wanted.models:
        summary["DeployedImages"] = [
            deployed_image(container.image, deployment.started_at)
            for model in wanted.models
            for container in model.containers
        ]
    return summary


def _describe_capacity(wanted: EndpointVariant, num_serving: int) -> Result:
    """The instances of a variant, or the configuration of a serverless variant.

    DesiredServerlessConfig is shown while an update in place is under way.
    """
    config = wanted.serverless
    if config is None:
        return {
            "CurrentInstanceCount": num_serving,
            "DesiredInstanceCount": wanted.desired_instance_count,
        }
    before = wanted.serverless_before
    if before is None:
        return {"CurrentServerlessConfig": describe_serverless(config)}
    return {
        "CurrentServerlessConfig": describe_serverless(before),
        "DesiredServerlessConfig": describe_serverless(config),
    }


def variant_status(endpoint: Endpoint, leaving: Collection[Instance]) -> Result:
    """VariantStatus while a change is in progress, and while an update's instances are `leaving`.

    Instances may leave after the update has ended, because their requests end first.
    """
    found: list[Result] = []
    status = VARIANT_STATUS.get(endpoint.status)
    if status is not None:
        found.append({"Status": status, "StartTime": endpoint.modified_at})
    if leaving and endpoint.status is not EndpointStatus.DELETING:
        message = f"replaced instances that are being terminated: {len(leaving)}"
        shift = endpoint.shift
        since = endpoint.modified_at if shift is None else shift.stage_since or shift.since
        found.append({"Status": "Deleting", "StatusMessage": message, "StartTime": since})
    return {"VariantStatus": found} if found else {}


def pending_status(
    context: CallContext, endpoint: Endpoint, pending: Deployment, variant: EndpointVariant
) -> Result:
    """VariantStatus of an update.

    the new fleet                                     Status
    -----------------------------------------------   -----------------
    starts, or starts a further batch                 Creating
    begins to get the traffic of a step               ActivatingTraffic
    serves in a step, or on trial                     Baking
    serves while old instances leave after a batch    Updating
    has failed, and serves until the old fleet can    Updating
    """
    under_way = endpoint.shift or endpoint.bake
    if under_way is None:
        return {"Status": "Creating", "StartTime": pending.started_at}
    since, now = under_way.since, context.now
    if under_way.failure is not None:
        message = short_reason(under_way.failure)
        return {"Status": "Updating", "StatusMessage": message, "StartTime": since}
    shares = [get_share(endpoint, pending, variant)]
    progress = progress_text(endpoint, pending, shares, now, context.pace)
    message = set_verdict(progress, context.verdict_of(endpoint)) or ""
    is_new = endpoint.shift is not None and now < since + ACTIVATING_S
    status = "ActivatingTraffic" if is_new else "Baking"
    if endpoint.shift is not None:
        status = STAGE_STATUS.get(endpoint.shift.stage, status)
        since = endpoint.shift.stage_since or since
    return {"Status": status, "StatusMessage": short_reason(message), "StartTime": since}


def pending_summary(
    context: CallContext, endpoint: Endpoint, pending: Deployment, fleet: EndpointFleet
) -> Result:
    """PendingDeploymentSummary of DescribeEndpoint."""
    return {
        "EndpointConfigName": pending.config.name,
        "StartTime": pending.started_at,
        **by_kind(
            pending,
            lambda wanted: {
                **variant_summary(wanted, pending, fleet),
                **instance_type(wanted.variant),
                "VariantStatus": [pending_status(context, endpoint, pending, wanted)],
            },
        ),
    }


def instance_type(variant: Variant) -> Result:
    """InstanceType, if the client chose one for the variant."""
    return {} if variant.pools or variant.serverless else {"InstanceType": variant.instance_type}


def given_variant(deployment: Deployment, name: str) -> Mapping[str, Any]:
    """The variant as the configuration's request gave it."""
    given = deployment.config.given
    variants = (*given.get("ProductionVariants", ()), *given.get("ShadowProductionVariants", ()))
    return next((it for it in variants if it["VariantName"] == name), {})


def deployed_image(image: str, resolved_at: float) -> Result:
    """DeployedImage. Image names are not resolved, so both are the given name."""
    return {"SpecifiedImage": image, "ResolvedImage": image, "ResolutionTime": resolved_at}
