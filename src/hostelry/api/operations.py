"""Every control-plane operation by service and name, and their common execution."""

from collections.abc import Mapping

from hostelry.api import ecr, scheduler
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
from hostelry.api.secretsmanager import operations as secretsmanager
from hostelry.api.sns import operations as sns
from hostelry.api.sqs import operations as sqs
from hostelry.api.sts import operations as sts
from hostelry.api.sts.temporary_keys import check_session
from hostelry.api.values import check_values
from hostelry.base.errors import Conflict, ServiceError

SERVED: Mapping[str, Mapping[str, Operation]] = {
    "sagemaker": {
        "CreateModel": model.create_model,
        "DescribeModel": model.describe_model,
        "ListModels": model.list_models,
        "DeleteModel": model.delete_model,
        "CreateEndpointConfig": endpoint_config.create_endpoint_config,
        "DescribeEndpointConfig": endpoint_config.describe_endpoint_config,
        "ListEndpointConfigs": endpoint_config.list_endpoint_configs,
        "DeleteEndpointConfig": endpoint_config.delete_endpoint_config,
        "CreateEndpoint": endpoint.create_endpoint,
        "DescribeEndpoint": endpoint.describe_endpoint,
        "ListEndpoints": endpoint.list_endpoints,
        "UpdateEndpoint": endpoint_update.update_endpoint,
        "UpdateEndpointWeightsAndCapacities": (
            endpoint_update.update_endpoint_weights_and_capacities
        ),
        "DeleteEndpoint": endpoint.delete_endpoint,
        "CreateInferenceComponent": component.create_inference_component,
        "DescribeInferenceComponent": component.describe_inference_component,
        "ListInferenceComponents": component.list_inference_components,
        "UpdateInferenceComponent": component_update.update_inference_component,
        "UpdateInferenceComponentRuntimeConfig": (
            component_update.update_inference_component_runtime_config
        ),
        "DeleteInferenceComponent": component.delete_inference_component,
        "CreateTransformJob": transform_job.create_transform_job,
        "DescribeTransformJob": transform_job.describe_transform_job,
        "ListTransformJobs": transform_job.list_transform_jobs,
        "StopTransformJob": transform_job.stop_transform_job,
        "CreateInferenceExperiment": experiment.create_inference_experiment,
        "DescribeInferenceExperiment": experiment.describe_inference_experiment,
        "ListInferenceExperiments": experiment.list_inference_experiments,
        "StartInferenceExperiment": experiment.start_inference_experiment,
        "StopInferenceExperiment": experiment_change.stop_inference_experiment,
        "UpdateInferenceExperiment": experiment_change.update_inference_experiment,
        "DeleteInferenceExperiment": experiment.delete_inference_experiment,
        "AddTags": tag.add_tags,
        "ListTags": tag.list_tags,
        "DeleteTags": tag.delete_tags,
    },
    "cloudwatch": {
        "PutMetricData": metric_data.put_metric_data,
        "GetMetricData": metric_query.get_metric_data,
        "GetMetricStatistics": metric_statistics.get_metric_statistics,
        "ListMetrics": metric_list.list_metrics,
        "PutMetricAlarm": alarm.put_metric_alarm,
        "PutCompositeAlarm": alarm.put_composite_alarm,
        "DescribeAlarms": alarm_describe.describe_alarms,
        "DescribeAlarmsForMetric": alarm_describe.describe_alarms_for_metric,
        "DescribeAlarmHistory": alarm_history.describe_alarm_history,
        "SetAlarmState": alarm_state.set_alarm_state,
        "EnableAlarmActions": alarm_state.enable_alarm_actions,
        "DisableAlarmActions": alarm_state.disable_alarm_actions,
        "DeleteAlarms": alarm_state.delete_alarms,
        "PutDashboard": dashboard.put_dashboard,
        "GetDashboard": dashboard.get_dashboard,
        "ListDashboards": dashboard.list_dashboards,
        "DeleteDashboards": dashboard.delete_dashboards,
        "ListTagsForResource": alarm_tag.list_tags_for_resource,
        "TagResource": alarm_tag.tag_resource,
        "UntagResource": alarm_tag.untag_resource,
    },
    "application-autoscaling": {
        "RegisterScalableTarget": scalable_target.register_scalable_target,
        "DescribeScalableTargets": scalable_target.describe_scalable_targets,
        "DeregisterScalableTarget": scalable_target.deregister_scalable_target,
        "PutScalingPolicy": policy.put_scaling_policy,
        "DescribeScalingPolicies": policy.describe_scaling_policies,
        "DeleteScalingPolicy": policy.delete_scaling_policy,
        "PutScheduledAction": scheduled_action.put_scheduled_action,
        "DescribeScheduledActions": scheduled_action.describe_scheduled_actions,
        "DeleteScheduledAction": scheduled_action.delete_scheduled_action,
        "DescribeScalingActivities": activity.describe_scaling_activities,
        "TagResource": autoscaling_tag.tag_resource,
        "UntagResource": autoscaling_tag.untag_resource,
        "ListTagsForResource": autoscaling_tag.list_tags_for_resource,
    },
    "kms": kms.OPERATIONS,
    "sts": sts.OPERATIONS,
    "iam": iam.OPERATIONS,
    "events": events.OPERATIONS,
    "scheduler": {
        "CreateSchedule": scheduler.create_schedule,
        "GetSchedule": scheduler.get_schedule,
        "ListSchedules": scheduler.list_schedules,
        "UpdateSchedule": scheduler.update_schedule,
        "DeleteSchedule": scheduler.delete_schedule,
        "CreateScheduleGroup": scheduler.create_schedule_group,
        "GetScheduleGroup": scheduler.get_schedule_group,
        "ListScheduleGroups": scheduler.list_schedule_groups,
        "DeleteScheduleGroup": scheduler.delete_schedule_group,
        "ListTagsForResource": scheduler.TAGS.list_tags_for_resource,
        "TagResource": scheduler.TAGS.tag_resource,
        "UntagResource": scheduler.TAGS.untag_resource,
    },
    "secretsmanager": secretsmanager.OPERATIONS,
    "ec2": ec2.OPERATIONS,
    "ecr": {
        "CreateRepository": ecr.create_repository,
        "DescribeRepositories": ecr.describe_repositories,
        "DeleteRepository": ecr.delete_repository,
        "ListImages": ecr.list_images,
        "DescribeImages": ecr.describe_images,
        "BatchGetImage": ecr.batch_get_image,
        "TagResource": ecr.TAGS.tag_resource,
        "UntagResource": ecr.TAGS.untag_resource,
        "ListTagsForResource": ecr.TAGS.list_tags_for_resource,
    },
    "logs": logs.OPERATIONS,
    "sns": sns.OPERATIONS,
    "sqs": sqs.OPERATIONS,
}
"""The operations that are served, by service and name."""

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    (service, name): run
    for service, operations in SERVED.items()
    for name, run in operations.items()
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
