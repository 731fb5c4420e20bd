"""UpdateEndpoint and UpdateEndpointWeightsAndCapacities."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.sagemaker.async_inference import notify_topics
from hostelry.api.sagemaker.component_fit import check_components_fit, check_room_for_copies
from hostelry.api.sagemaker.data_capture import check_captured_deployment
from hostelry.api.sagemaker.deployment import (
    build_deployment,
    check_deployment_config,
    update_guard,
)
from hostelry.api.sagemaker.endpoint import KIND, find_endpoint
from hostelry.api.sagemaker.kinds import ENDPOINT_CONFIGS, in_progress
from hostelry.api.sagemaker.serverless import changed_config, check_quotas, check_serverless_update
from hostelry.api.sagemaker.tag import get_guard
from hostelry.base.errors import validation_error
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointVariant
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.resize import deployment_deadline, replace_active, set_serverless
from hostelry.domain.scaling import Dimension, target_name
from hostelry.domain.status import Event, can, is_final, next_status
from hostelry.domain.traffic import ROLLING_POLICY
from hostelry.domain.validation import check_instance_count, possible_instance_count


def update_endpoint(context: CallContext, params: Params) -> Result:
    """UpdateEndpoint: starts a new deployment while the old one keeps serving."""
    found = find_endpoint(context, params["EndpointName"])
    endpoint = found.value
    _check_updatable(endpoint)
    config = ENDPOINT_CONFIGS.find(context, params["EndpointConfigName"]).value
    active = endpoint.active.config
    if (config.arn, config.created_at) == (active.arn, active.created_at):
        raise validation_error(
            f'The endpoint configuration "{config.arn}" is already in use by endpoint'
            f' "{endpoint.arn}"; create a new endpoint configuration to update it.'
        )
    shown = deployment_config(endpoint, params)
    pending = _keep_retained(build_deployment(context, config), endpoint.active, params)
    check_deployment_config(shown["DeploymentConfig"], pending)
    pending = replace(pending, guard=update_guard(context, shown["DeploymentConfig"]))
    pending = replace(pending, guard=get_guard(context, endpoint, pending))
    check_same_kind(context, endpoint, pending)
    check_same_requests(endpoint, pending)
    check_same_variants(endpoint, pending)
    check_serverless_update(endpoint, pending)
    check_captured_deployment(pending)
    check_quotas(context, endpoint.name, pending)
    check_keeps_scaled_variants(context, endpoint, pending)
    updated = replace(
        _start_update(context, endpoint, pending),
        pending=pending,
        given={**endpoint.given, **shown},
    )
    notify_topics(context, config)
    context.state.endpoints.put(context.scope, endpoint.name, updated, expect=found.version)
    return {"EndpointArn": endpoint.arn}


def update_endpoint_weights_and_capacities(context: CallContext, params: Params) -> Result:
    """UpdateEndpointWeightsAndCapacities, of any number of variants."""
    found = find_endpoint(context, params["EndpointName"])
    endpoint = found.value
    changes = changes_by_variant(endpoint, params)
    _check_updatable(endpoint)
    variants = tuple(
        _resize(wanted, changes.get(wanted.variant.name, {})) for wanted in endpoint.active.variants
    )
    active = replace(endpoint.active, variants=variants)
    check_quotas(context, endpoint.name, active)
    check_room_for_copies(context, endpoint, active)
    updated = replace_active(endpoint, active, context.now)
    notify_topics(context, active.config)
    context.state.endpoints.put(context.scope, endpoint.name, updated, expect=found.version)
    return {"EndpointArn": endpoint.arn}


def _start_update(context: CallContext, endpoint: Endpoint, wanted: Deployment) -> Endpoint:
    """Build the endpoint that is updating to `wanted`."""
    return replace(
        endpoint,
        status=next_status(endpoint.status, Event.UPDATE),
        modified_at=context.now,
        deadline_at=deployment_deadline(wanted, context.now),
        failure_reason=None,
    )


def _check_updatable(endpoint: Endpoint) -> None:
    if can(endpoint.status, Event.UPDATE):
        return
    if not is_final(endpoint.status):
        raise in_progress(KIND, endpoint.arn)
    raise validation_error(
        f'Cannot update endpoint "{endpoint.arn}" in status {endpoint.status.value}; delete it and'
        " create it again."
    )


def _keep_retained(pending: Deployment, active: Deployment, params: Params) -> Deployment:
    """`pending` with the capture, counts and weights that the request retains, by variant name."""
    if not params.get("RetainAllVariantProperties"):
        return pending
    given = params.get("ExcludeRetainedVariantProperties") or ()
    excluded = {it["VariantPropertyType"] for it in given}
    live = {it.variant.name: it for it in active.variants}
    variants = tuple(
        _keep_properties(
            wanted, live[wanted.variant.name], excluded, pending.config.least_instances
        )
        if wanted.variant.name in live
        else wanted
        for wanted in pending.variants
    )
    capture = pending.capture if "DataCaptureConfig" in excluded else active.capture
    return replace(pending, variants=variants, capture=capture)


def _keep_properties(
    wanted: EndpointVariant, live: EndpointVariant, excluded: set[str], least: int
) -> EndpointVariant:
    """Copy the properties of `live` that are not `excluded` to `wanted`.

    The result has at least `least` instances.
    """
    if "DesiredInstanceCount" not in excluded and not (wanted.serverless or live.serverless):
        count = possible_instance_count(wanted.variant, live.desired_instance_count, least)
        wanted = replace(wanted, desired_instance_count=count)
    if "DesiredWeight" not in excluded:
        wanted = replace(wanted, desired_weight=live.desired_weight)
    return wanted


def check_same_kind(context: CallContext, endpoint: Endpoint, pending: Deployment) -> None:
    """Refuse a deployment of another kind, or without room for the components."""
    if endpoint.takes_components != pending.config.takes_components:
        kinds = ("models", "inference components")
        now, then = kinds if not endpoint.takes_components else reversed(kinds)
        raise validation_error(
            f'Endpoint "{endpoint.arn}" hosts {now}; an update cannot make it host {then}.'
        )
    if not endpoint.takes_components:
        return
    (old,), (new,) = endpoint.active.variants, pending.variants
    if old.variant.name != new.variant.name:
        raise validation_error(
            f'Endpoint "{endpoint.arn}" hosts inference components on variant'
            f' "{old.variant.name}"; an update must keep that name, not "{new.variant.name}".'
        )
    check_components_fit(context, endpoint, pending)
    check_room_for_copies(context, endpoint, pending)


def check_same_requests(endpoint: Endpoint, pending: Deployment) -> None:
    """Refuse traffic steps to a fleet that takes other requests than the present fleet."""
    if pending.guard is None or not pending.guard.traffic.is_gradual:
        return
    old, new = _get_request_kinds(endpoint.active), _get_request_kinds(pending)
    changed = [name for name in old.keys() & new.keys() if old[name] != new[name]]
    if changed:
        raise validation_error(
            f'Variant "{min(changed)}" of endpoint "{endpoint.arn}" takes {old[min(changed)]}'
            f" requests, those of the new configuration are {new[min(changed)]}: both cannot share"
            " the traffic. Use ALL_AT_ONCE."
        )


def check_same_variants(endpoint: Endpoint, pending: Deployment) -> None:
    """Refuse a rolling update to variants of other names, or from serverless variants.

    Source: "Exclusions" of deployment guardrails in the SageMaker developer guide.
    """
    if not pending.is_rolling:
        return
    old = {it.variant.name: it for it in endpoint.active.production}
    new = {it.variant.name for it in pending.production}
    if set(old) != new:
        raise validation_error(
            f'Endpoint "{endpoint.arn}" has the variants {", ".join(sorted(old))}, the new'
            f" configuration has {', '.join(sorted(new))}: {ROLLING_POLICY} needs the same ones."
            " Use BlueGreenUpdatePolicy."
        )
    serverless = [name for name, it in old.items() if it.serverless is not None]
    if serverless:
        raise validation_error(
            f'Variant "{min(serverless)}" of endpoint "{endpoint.arn}" is serverless, without'
            f" instances that {ROLLING_POLICY} could replace. Use BlueGreenUpdatePolicy."
        )


def _get_request_kinds(deployment: Deployment) -> Mapping[str, str]:
    """The kind of requests that each variant takes."""
    queued = "asynchronous " if deployment.config.async_inference is not None else ""
    kinds = {}
    for variant in deployment.variants:
        kind = "multi-model" if any(it.is_multi_model for it in variant.models) else "single-model"
        if any(it.is_direct for it in variant.models):
            kind = "direct multi-container"
        kinds[variant.variant.name] = queued + kind
    return kinds


def deployment_config(endpoint: Endpoint, params: Params) -> Mapping[str, Any]:
    """Choose the DeploymentConfig that DescribeEndpoint shows from now on as the last."""
    given = params.get("DeploymentConfig")
    if given is None and params.get("RetainDeploymentConfig"):
        given = endpoint.given.get("DeploymentConfig")
    return {"DeploymentConfig": given}


def changes_by_variant(endpoint: Endpoint, params: Params) -> dict[str, Mapping[str, Any]]:
    """The requested changes, checked, by variant name."""
    live = {it.variant.name: it for it in endpoint.active.variants}
    changes: dict[str, Mapping[str, Any]] = {}
    for number, change in enumerate(params["DesiredWeightsAndCapacities"], start=1):
        name, path = change["VariantName"], f"DesiredWeightsAndCapacities.{number}."
        if name not in live:
            raise validation_error(
                f'Could not find variant "{name}" of endpoint "{endpoint.arn}"; its variants are'
                f" {', '.join(live)}."
            )
        if name in changes:
            raise validation_error(f'Variant "{name}" is named twice; give its changes together.')
        check_change(change, live[name], path, endpoint.active.config.least_instances)
        changes[name] = change
    return changes


def check_change(change: Mapping[str, Any], live: EndpointVariant, path: str, least: int) -> None:
    """Refuse an empty change, and a count that the variant cannot have."""
    count = change.get("DesiredInstanceCount")
    is_serverless = changed_config(live, change, path) is not None
    if count is None and change.get("DesiredWeight") is None and not is_serverless:
        other = "DesiredInstanceCount" if live.serverless is None else "ServerlessUpdateConfig"
        raise validation_error(f"{path}DesiredWeight or {path}{other} is required.")
    if count is not None:
        check_instance_count(live.variant, count, least)


def _resize(wanted: EndpointVariant, change: Mapping[str, Any]) -> EndpointVariant:
    """`wanted` with the weight, and the count or the concurrency, that `change` gives."""
    config = changed_config(wanted, change, "")
    return replace(
        wanted if config is None else set_serverless(wanted, config),
        desired_weight=float(change.get("DesiredWeight", wanted.desired_weight)),
        desired_instance_count=change.get("DesiredInstanceCount", wanted.desired_instance_count),
    )


def check_keeps_scaled_variants(
    context: CallContext, endpoint: Endpoint, pending: Deployment
) -> None:
    """Refuse an update that removes a variant which is a scalable target.

    Source: "Update endpoints that use auto scaling" in the SageMaker developer guide.
    """
    kept = {it.variant.name: it.variant for it in pending.variants}
    for variant in (it.variant for it in endpoint.active.variants):
        resource_id = f"endpoint/{endpoint.name}/variant/{variant.name}"
        for dimension in (Dimension.INSTANCES, Dimension.PROVISIONED_CONCURRENCY):
            name = target_name(resource_id, dimension)
            if context.state.scalable_targets.get(context.scope, name) is None:
                continue
            what = why_unscalable(kept.get(variant.name), dimension)
            if what is not None:
                raise validation_error(
                    f'Variant "{variant.name}" of endpoint "{endpoint.arn}" is registered as a'
                    f' scalable target, but endpoint configuration "{pending.config.arn}" {what}.'
                    f" Deregister {resource_id} from Application Auto Scaling first, or keep the"
                    " variant."
                )


def why_unscalable(variant: Variant | None, dimension: Dimension) -> str | None:
    """Find the reason why a variant cannot be scaled in this dimension, or None."""
    if variant is None:
        return "has no such variant"
    if dimension is Dimension.PROVISIONED_CONCURRENCY:
        config = variant.serverless
        return (
            None
            if config and config.provisioned_concurrency
            else ("has no ProvisionedConcurrency there")
        )
    if variant.scaling is not None and variant.scaling.enabled:
        return "manages its instances"
    return None
