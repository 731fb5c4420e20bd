"""CreateEndpoint, DescribeEndpoint, ListEndpoints and DeleteEndpoint."""

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.deregistration import deregister_endpoint
from hostelry.api.page import list_answer, passes
from hostelry.api.refusals import short_reason
from hostelry.api.sagemaker.async_inference import describe_async_config, notify_topics
from hostelry.api.sagemaker.data_capture import check_captured_deployment, describe_capture
from hostelry.api.sagemaker.deployment import build_deployment, check_deployment_config
from hostelry.api.sagemaker.endpoint_summary import (
    EndpointFleet,
    pending_summary,
    variant_summaries,
)
from hostelry.api.sagemaker.kinds import (
    ENDPOINT_CONFIGS,
    ENDPOINT_POLICIES,
    ENDPOINTS,
    check_new,
    not_found,
)
from hostelry.api.sagemaker.serverless import check_quotas
from hostelry.api.sagemaker.tag import check_verdict_tag, get_at_zero
from hostelry.api.tags import parse_tags, write_tags
from hostelry.base.errors import validation_error
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.hidden_endpoint import is_hidden
from hostelry.domain.resize import deployment_deadline
from hostelry.domain.status import Event, delete_deadline, next_status
from hostelry.store.records import Versioned, on_endpoint

KIND = "endpoint"


def create_endpoint(context: CallContext, params: Params) -> Result:
    """CreateEndpoint: the endpoint takes its own copy of the configuration and its models.

    Earlier versions kept the scalable targets of a deleted endpoint, and a killed DeleteEndpoint
    may have left its policy. They do not act on a new endpoint with the same name.
    """
    scope, name = context.scope, params["EndpointName"]
    tags = parse_tags(params.get("Tags"))
    check_new(context, KIND, name)
    config = ENDPOINT_CONFIGS.find(context, params["EndpointConfigName"]).value
    check_verdict_tag(tags, KIND, takes_components=config.takes_components)
    active = build_deployment(context, config)
    check_deployment_config(params.get("DeploymentConfig"), active)
    check_captured_deployment(active)
    check_quotas(context, name, active)
    endpoint = Endpoint(
        scope=scope,
        name=name,
        arn=scope.arn(KIND, name),
        created_at=context.now,
        modified_at=context.now,
        status=EndpointStatus.CREATING,
        active=active,
        deadline_at=deployment_deadline(active, context.now),
        at_zero=get_at_zero(tags),
        given=dict(params),
    )
    notify_topics(context, config)
    deregister_endpoint(context, name)
    forget_endpoint_policy(context, name)
    ENDPOINTS.put(context, endpoint)
    write_tags(context, endpoint.arn, tags)
    return {"EndpointArn": endpoint.arn}


def describe_endpoint(context: CallContext, params: Params) -> Result:
    """DescribeEndpoint, with the old configuration until an update is finished."""
    endpoint = find_endpoint(context, params["EndpointName"]).value
    fleet = EndpointFleet.of(context, endpoint.name)
    before, coming = endpoint.active, endpoint.pending
    if endpoint.bake is not None:
        before, coming = endpoint.bake.before, endpoint.active
    result: Result = {
        "EndpointName": endpoint.name,
        "EndpointArn": endpoint.arn,
        "EndpointConfigName": before.config.name,
        **variant_summaries(endpoint, before, fleet),
        "EndpointStatus": endpoint.status.value,
        "CreationTime": endpoint.created_at,
        "LastModifiedTime": endpoint.modified_at,
    }
    if endpoint.failure_reason:
        result["FailureReason"] = short_reason(endpoint.failure_reason)
    if endpoint.given.get("DeploymentConfig"):
        result["LastDeploymentConfig"] = endpoint.given["DeploymentConfig"]
    if coming is not None:
        result["PendingDeploymentSummary"] = pending_summary(context, endpoint, coming, fleet)
    result.update(describe_async_config(before.config))
    result.update(describe_capture(before, endpoint.status))
    if before.config.given.get("MetricsConfig"):
        result["MetricsConfig"] = before.config.given["MetricsConfig"]
    return result


def list_endpoints(context: CallContext, params: Params) -> Result:
    """ListEndpoints."""
    shown = [it for it in ENDPOINTS.values(context) if not is_hidden(it.name)]
    endpoints = [it for it in shown if passes(it, params)]
    return list_answer(context, "ListEndpoints", params, "Endpoints", endpoints, _summarize)


def _summarize(endpoint: Endpoint) -> Result:
    return {
        "EndpointName": endpoint.name,
        "EndpointArn": endpoint.arn,
        "CreationTime": endpoint.created_at,
        "LastModifiedTime": endpoint.modified_at,
        "EndpointStatus": endpoint.status.value,
    }


def delete_endpoint(context: CallContext, params: Params) -> Result:
    """DeleteEndpoint, in every status. May be repeated.

    The variants are deregistered as scalable targets, and the policy is deleted. A delete cancels a
    create or an update in progress, which AWS refuses. The record is deleted once every instance is
    stopped.
    """
    found = find_endpoint(context, params["EndpointName"])
    endpoint = found.value
    check_no_components(context, endpoint)
    deleting = replace(
        endpoint,
        status=next_status(endpoint.status, Event.DELETE),
        modified_at=context.now,
        deadline_at=delete_deadline(context.now),
    )
    if deleting.status is endpoint.status:
        return {}
    deregister_endpoint(context, endpoint.name)
    ENDPOINTS.put(context, deleting, found)
    write_tags(context, endpoint.arn, {})
    forget_endpoint_policy(context, endpoint.name)
    return {}


def forget_endpoint_policy(context: CallContext, name: str) -> None:
    """Delete the resource policy of an endpoint, if it has one."""
    stored = ENDPOINT_POLICIES.get(context, name.lower())
    if stored is not None:
        ENDPOINT_POLICIES.delete(context, stored)


def find_endpoint(context: CallContext, name: str) -> Versioned[Endpoint]:
    """The endpoint. Raises ValidationException. Hides the endpoints of transform jobs."""
    if is_hidden(name):
        raise not_found(context.scope, KIND, name)
    return ENDPOINTS.find(context, name)


def check_no_components(context: CallContext, endpoint: Endpoint) -> None:
    """Refuse to delete an endpoint while it has components that are not being deleted."""
    hosted = [
        component.name
        for component in on_endpoint(
            context.state.components, context.scope, endpoint.name
        ).values()
        if component.status is not ComponentStatus.DELETING
    ]
    if hosted:
        raise validation_error(
            f'Cannot delete endpoint "{endpoint.arn}" as it has inference components:'
            f" {', '.join(hosted[:10])}{', ...' if len(hosted) > 10 else ''}. Delete them first."
        )
