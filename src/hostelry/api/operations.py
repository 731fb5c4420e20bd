"""Every control-plane operation by service and name, and their common execution."""

from collections.abc import Mapping

from hostelry.api.application_autoscaling import activity, policy, scalable_target, scheduled_action
from hostelry.api.application_autoscaling import tag as autoscaling_tag
from hostelry.api.cloudwatch import (
    alarm,
    alarm_describe,
    alarm_history,
    alarm_state,
    alarm_tag,
    dashboard,
    metric_data,
    metric_list,
    metric_query,
    metric_statistics,
)
from hostelry.api.cloudwatch import refused as cloudwatch
from hostelry.api.context import CallContext, Operation, Params, Result
from hostelry.api.ec2 import operations as ec2
from hostelry.api.ecr import operations as ecr
from hostelry.api.events import operations as events
from hostelry.api.iam import operations as iam
from hostelry.api.kms import operations as kms
from hostelry.api.logs import operations as logs
from hostelry.api.sagemaker import (
    component,
    component_update,
    endpoint,
    endpoint_config,
    endpoint_update,
    experiment,
    experiment_change,
    model,
    tag,
    transform_job,
)
from hostelry.api.scheduler import operations as scheduler
from hostelry.api.secretsmanager import operations as secretsmanager
from hostelry.api.sns import operations as sns
from hostelry.api.sqs import operations as sqs
from hostelry.api.sts import operations as sts
from hostelry.api.sts.temporary_keys import check_session
from hostelry.api.values import check_values
from hostelry.base.errors import Conflict, ServiceError


def of_service(
    service: str, operations: Mapping[str, Operation]
) -> dict[tuple[str, str], Operation]:
    """A service's operations by name, as rows of `OPERATIONS`."""
    return {(service, name): run for name, run in operations.items()}


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("sagemaker", "CreateModel"): model.create_model,
    ("sagemaker", "DescribeModel"): model.describe_model,
    ("sagemaker", "ListModels"): model.list_models,
    ("sagemaker", "DeleteModel"): model.delete_model,
    ("sagemaker", "CreateEndpointConfig"): endpoint_config.create_endpoint_config,
    ("sagemaker", "DescribeEndpointConfig"): endpoint_config.describe_endpoint_config,
    ("sagemaker", "ListEndpointConfigs"): endpoint_config.list_endpoint_configs,
    ("sagemaker", "DeleteEndpointConfig"): endpoint_config.delete_endpoint_config,
    ("sagemaker", "CreateEndpoint"): endpoint.create_endpoint,
    ("sagemaker", "DescribeEndpoint"): endpoint.describe_endpoint,
    ("sagemaker", "ListEndpoints"): endpoint.list_endpoints,
    ("sagemaker", "UpdateEndpoint"): endpoint_update.update_endpoint,
    (
        "sagemaker",
        "UpdateEndpointWeightsAndCapacities",
    ): endpoint_update.update_endpoint_weights_and_capacities,
    ("sagemaker", "DeleteEndpoint"): endpoint.delete_endpoint,
    ("sagemaker", "CreateInferenceComponent"): component.create_inference_component,
    ("sagemaker", "DescribeInferenceComponent"): component.describe_inference_component,
    ("sagemaker", "ListInferenceComponents"): component.list_inference_components,
    ("sagemaker", "UpdateInferenceComponent"): component_update.update_inference_component,
    (
        "sagemaker",
        "UpdateInferenceComponentRuntimeConfig",
    ): component_update.update_inference_component_runtime_config,
    ("sagemaker", "DeleteInferenceComponent"): component.delete_inference_component,
    ("sagemaker", "CreateTransformJob"): transform_job.create_transform_job,
    ("sagemaker", "DescribeTransformJob"): transform_job.describe_transform_job,
    ("sagemaker", "ListTransformJobs"): transform_job.list_transform_jobs,
    ("sagemaker", "StopTransformJob"): transform_job.stop_transform_job,
    ("sagemaker", "CreateInferenceExperiment"): experiment.create_inference_experiment,
    ("sagemaker", "DescribeInferenceExperiment"): experiment.describe_inference_experiment,
    ("sagemaker", "ListInferenceExperiments"): experiment.list_inference_experiments,
    ("sagemaker", "StartInferenceExperiment"): experiment.start_inference_experiment,
    ("sagemaker", "StopInferenceExperiment"): experiment_change.stop_inference_experiment,
    ("sagemaker", "UpdateInferenceExperiment"): experiment_change.update_inference_experiment,
    ("sagemaker", "DeleteInferenceExperiment"): experiment.delete_inference_experiment,
    ("sagemaker", "AddTags"): tag.add_tags,
    ("sagemaker", "ListTags"): tag.list_tags,
    ("sagemaker", "DeleteTags"): tag.delete_tags,
    ("cloudwatch", "PutMetricData"): metric_data.put_metric_data,
    ("cloudwatch", "GetMetricData"): metric_query.get_metric_data,
    ("cloudwatch", "GetMetricStatistics"): metric_statistics.get_metric_statistics,
    ("cloudwatch", "ListMetrics"): metric_list.list_metrics,
    ("cloudwatch", "PutMetricAlarm"): alarm.put_metric_alarm,
    ("cloudwatch", "PutCompositeAlarm"): alarm.put_composite_alarm,
    ("cloudwatch", "DescribeAlarms"): alarm_describe.describe_alarms,
    ("cloudwatch", "DescribeAlarmsForMetric"): alarm_describe.describe_alarms_for_metric,
    ("cloudwatch", "DescribeAlarmHistory"): alarm_history.describe_alarm_history,
    ("cloudwatch", "SetAlarmState"): alarm_state.set_alarm_state,
    ("cloudwatch", "EnableAlarmActions"): alarm_state.enable_alarm_actions,
    ("cloudwatch", "DisableAlarmActions"): alarm_state.disable_alarm_actions,
    ("cloudwatch", "DeleteAlarms"): alarm_state.delete_alarms,
    ("cloudwatch", "PutDashboard"): dashboard.put_dashboard,
    ("cloudwatch", "GetDashboard"): dashboard.get_dashboard,
    ("cloudwatch", "ListDashboards"): dashboard.list_dashboards,
    ("cloudwatch", "DeleteDashboards"): dashboard.delete_dashboards,
    ("cloudwatch", "ListTagsForResource"): alarm_tag.list_tags_for_resource,
    ("cloudwatch", "TagResource"): alarm_tag.tag_resource,
    ("cloudwatch", "UntagResource"): alarm_tag.untag_resource,
    ("application-autoscaling", "RegisterScalableTarget"): scalable_target.register_scalable_target,
    (
        "application-autoscaling",
        "DescribeScalableTargets",
    ): scalable_target.describe_scalable_targets,
    (
        "application-autoscaling",
        "DeregisterScalableTarget",
    ): scalable_target.deregister_scalable_target,
    ("application-autoscaling", "PutScalingPolicy"): policy.put_scaling_policy,
    (
        "application-autoscaling",
        "DescribeScalingPolicies",
    ): policy.describe_scaling_policies,
    ("application-autoscaling", "DeleteScalingPolicy"): policy.delete_scaling_policy,
    ("application-autoscaling", "PutScheduledAction"): scheduled_action.put_scheduled_action,
    (
        "application-autoscaling",
        "DescribeScheduledActions",
    ): scheduled_action.describe_scheduled_actions,
    ("application-autoscaling", "DeleteScheduledAction"): scheduled_action.delete_scheduled_action,
    (
        "application-autoscaling",
        "DescribeScalingActivities",
    ): activity.describe_scaling_activities,
    ("application-autoscaling", "TagResource"): autoscaling_tag.tag_resource,
    ("application-autoscaling", "UntagResource"): autoscaling_tag.untag_resource,
    ("application-autoscaling", "ListTagsForResource"): autoscaling_tag.list_tags_for_resource,
    **of_service("kms", kms.OPERATIONS),
    **of_service("sts", sts.OPERATIONS),
    **of_service("iam", iam.OPERATIONS),
    **of_service("events", events.OPERATIONS),
    **of_service("scheduler", scheduler.OPERATIONS),
    **of_service("secretsmanager", secretsmanager.OPERATIONS),
    **of_service("ec2", ec2.OPERATIONS),
    **of_service("ecr", ecr.OPERATIONS),
    **of_service("logs", logs.OPERATIONS),
    **of_service("sns", sns.OPERATIONS),
    **of_service("sqs", sqs.OPERATIONS),
}
REFUSED: Mapping[tuple[str, str], str] = {
    ("ecr", "GetAuthorizationToken"): (
        "there is no image registry to log in to. Build or tag the image on this machine (docker"
        " build --tag NAME), skip the push, and give that NAME to CreateModel"
    ),
    ("sts", "AssumeRoleWithWebIdentity"): "there is no identity provider. Use AssumeRole",
    ("sts", "AssumeRoleWithSAML"): "there is no identity provider. Use AssumeRole",
    **{("cloudwatch", name): reason for name, reason in cloudwatch.REFUSED.items()},
}
"""Operations that are not served for a reason of their own, which their error states."""

READS = ("Describe", "List", "Get", "Filter", "AssumeRole", "Simulate", "Test")
# These write no record: the file of messages has transactions of its own.
OF_MESSAGES = frozenset(
    {
        ("sns", "Publish"),
        ("sns", "PublishBatch"),
        ("events", "PutEvents"),
        *(("sqs", it) for it in sqs.OPERATIONS if "Message" in it),
    }
)
# Reconcilers write the same records; each lost race means that one of them made progress.
ATTEMPTS = 20


def perform(context: CallContext, service: str, operation: str, params: Params) -> Result:
    """The operation's result, as the members of its output shape; timestamps in epoch seconds.

    `params` have passed the service model. Raises ServiceError where the call is refused.
    """
    run = implementation(service, operation)
    context.check_time()
    check_values(params)
    check_session(context)
    if operation.startswith(READS) or (service, operation) in OF_MESSAGES:
        return run(context, params)
    with context.state.writing:
        return until_settled(run, context, params)


def implementation(service: str, operation: str) -> Operation:
    """The implementation of an operation; raises UnknownOperationException without one."""
    run = OPERATIONS.get((service, operation))
    if run is None:
        reason = REFUSED.get((service, operation))
        raise ServiceError(
            "UnknownOperationException",
            f"Hostelry does not implement {service}:{operation}"
            + (f": {reason}." if reason else ".")
            + " docs/compatibility.md lists what it does.",
        )
    return run


def until_settled(run: Operation, context: CallContext, params: Params) -> Result:
    """The result; the operation is repeated from its checks while records change meanwhile."""
    for _ in range(ATTEMPTS - 1):
        context.check_time()
        try:
            return run(context, params)
        except Conflict:
            continue
    return run(context, params)
