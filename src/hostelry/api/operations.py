"""Every control-plane operation by service and name, and their common execution."""

import math
from collections.abc import Mapping
from typing import Any

from hostelry.api import (
    cloudtrail,
    ec2,
    ecr,
    events,
    scheduler,
    secretsmanager,
    sts,
    web_identity,
)
from hostelry.api.application_autoscaling import activity, policy, scalable_target, scheduled_action
from hostelry.api.cloudwatch import (
    alarm,
    alarm_describe,
    alarm_state,
    dashboard,
    metric_data,
    metric_query,
)
from hostelry.api.context import CallContext, Operation, Params, Result
from hostelry.api.iam import (
    access_key,
    instance_profile,
    oidc_provider,
    openai_key,
    role,
    simulation,
    user,
)
from hostelry.api.iam import policy as managed_policy
from hostelry.api.kms import encryption, key
from hostelry.api.logs import group, log_events
from hostelry.api.permit import check_permissions
from hostelry.api.sagemaker import (
    ai_benchmark_job,
    ai_recommendation_job,
    ai_workload_config,
    component,
    component_update,
    endpoint,
    endpoint_config,
    endpoint_policy,
    endpoint_update,
    experiment,
    experiment_change,
    model,
    recommendation_job,
    scaling_recommendation,
    tag,
    transform_job,
)
from hostelry.api.sns import publish, subscription, topic
from hostelry.api.sqs import message, queue
from hostelry.base.errors import Conflict, ServiceError, validation_error
from hostelry.metrics.query.math_functions import BAND_ADVICE

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
        **endpoint_policy.OPERATIONS,
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
        **recommendation_job.OPERATIONS,
        **ai_workload_config.OPERATIONS,
        **ai_benchmark_job.OPERATIONS,
        **ai_recommendation_job.OPERATIONS,
        "GetScalingConfigurationRecommendation": (
            scaling_recommendation.get_scaling_configuration_recommendation
        ),
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
        "GetMetricStatistics": metric_query.get_metric_statistics,
        "ListMetrics": metric_query.list_metrics,
        "PutMetricAlarm": alarm.put_metric_alarm,
        "PutCompositeAlarm": alarm.put_composite_alarm,
        "DescribeAlarms": alarm_describe.describe_alarms,
        "DescribeAlarmsForMetric": alarm_describe.describe_alarms_for_metric,
        "DescribeAlarmHistory": alarm_describe.describe_alarm_history,
        "SetAlarmState": alarm_state.set_alarm_state,
        "EnableAlarmActions": alarm_state.enable_alarm_actions,
        "DisableAlarmActions": alarm_state.disable_alarm_actions,
        "DeleteAlarms": alarm_state.delete_alarms,
        "PutDashboard": dashboard.put_dashboard,
        "GetDashboard": dashboard.get_dashboard,
        "ListDashboards": dashboard.list_dashboards,
        "DeleteDashboards": dashboard.delete_dashboards,
        "ListTagsForResource": alarm_state.TAGS.list_tags_for_resource,
        "TagResource": alarm_state.TAGS.tag_resource,
        "UntagResource": alarm_state.TAGS.untag_resource,
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
        "TagResource": scalable_target.tag_resource,
        "UntagResource": scalable_target.untag_resource,
        "ListTagsForResource": scalable_target.list_tags_for_resource,
    },
    "kms": {
        "CreateKey": key.create_key,
        "DescribeKey": key.describe_key,
        "ListKeys": key.list_keys,
        "EnableKey": key.enable_key,
        "DisableKey": key.disable_key,
        "UpdateKeyDescription": key.update_key_description,
        "ScheduleKeyDeletion": key.schedule_key_deletion,
        "CancelKeyDeletion": key.cancel_key_deletion,
        "GetKeyPolicy": key.get_key_policy,
        "PutKeyPolicy": key.put_key_policy,
        "ListKeyPolicies": key.list_key_policies,
        "GetKeyRotationStatus": key.get_key_rotation_status,
        "CreateAlias": key.create_alias,
        "UpdateAlias": key.update_alias,
        "DeleteAlias": key.delete_alias,
        "ListAliases": key.list_aliases,
        "Encrypt": encryption.encrypt,
        "Decrypt": encryption.decrypt,
        "ReEncrypt": encryption.re_encrypt,
        "GenerateDataKey": encryption.generate_data_key,
        "GenerateDataKeyWithoutPlaintext": encryption.generate_data_key_without_plaintext,
        "GenerateRandom": encryption.generate_random,
        "TagResource": key.tag_resource,
        "UntagResource": key.untag_resource,
        "ListResourceTags": key.list_resource_tags,
    },
    "sts": {
        "GetCallerIdentity": sts.get_caller_identity,
        "AssumeRole": sts.assume_role,
        "GetSessionToken": sts.get_session_token,
        "GetAccessKeyInfo": sts.get_access_key_info,
        "AssumeRoleWithWebIdentity": web_identity.assume_role_with_web_identity,
    },
    "iam": {
        "CreateRole": role.create_role,
        "GetRole": role.get_role,
        "ListRoles": role.list_roles,
        "UpdateRole": role.update_role,
        "UpdateRoleDescription": role.update_role_description,
        "UpdateAssumeRolePolicy": role.update_assume_role_policy,
        "DeleteRole": role.delete_role,
        **role.ROLES.operations(),
        **user.OPERATIONS,
        **access_key.OPERATIONS,
        **openai_key.OPERATIONS,
        **oidc_provider.OPERATIONS,
        "ListEntitiesForPolicy": managed_policy.list_entities_for_policy,
        "CreatePolicy": managed_policy.create_policy,
        "GetPolicy": managed_policy.get_policy,
        "ListPolicies": managed_policy.list_policies,
        "DeletePolicy": managed_policy.delete_policy,
        "TagPolicy": managed_policy.tag_policy,
        "UntagPolicy": managed_policy.untag_policy,
        "ListPolicyTags": managed_policy.list_policy_tags,
        "CreatePolicyVersion": managed_policy.create_policy_version,
        "GetPolicyVersion": managed_policy.get_policy_version,
        "ListPolicyVersions": managed_policy.list_policy_versions,
        "SetDefaultPolicyVersion": managed_policy.set_default_policy_version,
        "DeletePolicyVersion": managed_policy.delete_policy_version,
        "SimulatePrincipalPolicy": simulation.simulate_principal_policy,
        "SimulateCustomPolicy": simulation.simulate_custom_policy,
        "CreateInstanceProfile": instance_profile.create_instance_profile,
        "GetInstanceProfile": instance_profile.get_instance_profile,
        "ListInstanceProfiles": instance_profile.list_instance_profiles,
        "ListInstanceProfilesForRole": instance_profile.list_instance_profiles_for_role,
        "AddRoleToInstanceProfile": instance_profile.add_role_to_instance_profile,
        "RemoveRoleFromInstanceProfile": instance_profile.remove_role_from_instance_profile,
        "DeleteInstanceProfile": instance_profile.delete_instance_profile,
        "CreateServiceLinkedRole": role.create_service_linked_role,
        "DeleteServiceLinkedRole": role.delete_service_linked_role,
        "GetServiceLinkedRoleDeletionStatus": (role.get_service_linked_role_deletion_status),
    },
    "events": {
        "PutRule": events.put_rule,
        "DescribeRule": events.describe_rule,
        "ListRules": events.list_rules,
        "EnableRule": events.enable_rule,
        "DisableRule": events.disable_rule,
        "DeleteRule": events.delete_rule,
        "TestEventPattern": events.check_event_pattern,
        "PutTargets": events.put_targets,
        "RemoveTargets": events.remove_targets,
        "ListTargetsByRule": events.list_targets_by_rule,
        "ListRuleNamesByTarget": events.list_rule_names_by_target,
        "PutEvents": events.put_events,
        "DescribeEventBus": events.describe_event_bus,
        "ListEventBuses": events.list_event_buses,
        "ListTagsForResource": events.TAGS.list_tags_for_resource,
        "TagResource": events.TAGS.tag_resource,
        "UntagResource": events.TAGS.untag_resource,
    },
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
    "secretsmanager": {
        "CreateSecret": secretsmanager.create_secret,
        "DescribeSecret": secretsmanager.describe_secret,
        "ListSecrets": secretsmanager.list_secrets,
        "UpdateSecret": secretsmanager.update_secret,
        "DeleteSecret": secretsmanager.delete_secret,
        "RestoreSecret": secretsmanager.restore_secret,
        "GetSecretValue": secretsmanager.get_secret_value,
        "PutSecretValue": secretsmanager.put_secret_value,
        "ListSecretVersionIds": secretsmanager.list_secret_version_ids,
        "GetResourcePolicy": secretsmanager.get_resource_policy,
        "TagResource": secretsmanager.TAGS.tag_resource,
        "UntagResource": secretsmanager.TAGS.untag_resource,
    },
    "ec2": {
        "DescribeInstanceTypes": ec2.describe_instance_types,
        "DescribeInstanceTypeOfferings": ec2.describe_instance_type_offerings,
        "DescribeAvailabilityZones": ec2.describe_availability_zones,
        "DescribeRegions": ec2.describe_regions,
    },
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
    "logs": {
        "CreateLogGroup": group.create_log_group,
        "DescribeLogGroups": group.describe_log_groups,
        "DeleteLogGroup": group.delete_log_group,
        "PutRetentionPolicy": group.put_retention_policy,
        "DeleteRetentionPolicy": group.delete_retention_policy,
        "CreateLogStream": group.create_log_stream,
        "DescribeLogStreams": group.describe_log_streams,
        "DeleteLogStream": group.delete_log_stream,
        "PutLogEvents": log_events.put_log_events,
        "GetLogEvents": log_events.get_log_events,
        "FilterLogEvents": log_events.filter_log_events,
        "TagResource": group.tag_resource,
        "UntagResource": group.untag_resource,
        "ListTagsForResource": group.list_tags_for_resource,
        "TagLogGroup": group.tag_log_group,
        "UntagLogGroup": group.untag_log_group,
        "ListTagsLogGroup": group.list_tags_log_group,
    },
    "cloudtrail": {"LookupEvents": cloudtrail.lookup_events},
    "sns": {
        "CreateTopic": topic.create_topic,
        "DeleteTopic": topic.delete_topic,
        "ListTopics": topic.list_topics,
        "GetTopicAttributes": topic.get_topic_attributes,
        "SetTopicAttributes": topic.set_topic_attributes,
        "Subscribe": subscription.subscribe,
        "ConfirmSubscription": subscription.confirm_subscription,
        "Unsubscribe": subscription.unsubscribe,
        "ListSubscriptions": subscription.list_subscriptions,
        "ListSubscriptionsByTopic": subscription.list_subscriptions_by_topic,
        "GetSubscriptionAttributes": subscription.get_subscription_attributes,
        "SetSubscriptionAttributes": subscription.set_subscription_attributes,
        "Publish": publish.publish,
        "PublishBatch": publish.publish_batch,
        "TagResource": topic.TAGS.tag_resource,
        "UntagResource": topic.TAGS.untag_resource,
        "ListTagsForResource": topic.TAGS.list_tags_for_resource,
    },
    "sqs": {
        "CreateQueue": queue.create_queue,
        "GetQueueUrl": queue.get_queue_url,
        "ListQueues": queue.list_queues,
        "ListDeadLetterSourceQueues": queue.list_dead_letter_source_queues,
        "GetQueueAttributes": queue.get_queue_attributes,
        "SetQueueAttributes": queue.set_queue_attributes,
        "PurgeQueue": queue.purge_queue,
        "DeleteQueue": queue.delete_queue,
        "ListQueueTags": queue.list_queue_tags,
        "TagQueue": queue.tag_queue,
        "UntagQueue": queue.untag_queue,
        "SendMessage": message.send_message,
        "ReceiveMessage": message.receive_message,
        "DeleteMessage": message.delete_message,
        "ChangeMessageVisibility": message.change_message_visibility,
        "SendMessageBatch": message.send_message_batch,
        "DeleteMessageBatch": message.delete_message_batch,
        "ChangeMessageVisibilityBatch": message.change_message_visibility_batch,
    },
}
"""The operations that are served, by service and name."""

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    (service, name): run
    for service, operations in SERVED.items()
    for name, run in operations.items()
}
NO_BAND = f"there is no anomaly detection here; {BAND_ADVICE}"
NO_RULES = "Contributor Insights is not here. GetMetricData answers SELECT ... GROUP BY"
NO_STREAMS = (
    "metrics are not streamed. The gateway's /metrics has them for Prometheus, and OTEL_EXPORTER_*"
    " sends them to a collector"
)
NO_GROUPS = "groups are not served. Attach policies to users, or let users assume a role"
NO_PASSWORDS = (
    "users have access keys and OpenAI keys, and no passwords, MFA devices, certificates or SSH"
    " keys"
)
NO_SAML = "SAML providers are not served. Use AssumeRoleWithWebIdentity with an OIDC provider"
GROUP_OPERATIONS = (
    *("CreateGroup", "GetGroup", "ListGroups", "UpdateGroup", "DeleteGroup", "AddUserToGroup"),
    *("RemoveUserFromGroup", "PutGroupPolicy", "GetGroupPolicy"),
    *("ListGroupPolicies", "DeleteGroupPolicy", "AttachGroupPolicy", "DetachGroupPolicy"),
    "ListAttachedGroupPolicies",
)
PASSWORD_OPERATIONS = (
    *("CreateLoginProfile", "GetLoginProfile", "UpdateLoginProfile", "DeleteLoginProfile"),
    *("ChangePassword", "GetAccountPasswordPolicy", "UpdateAccountPasswordPolicy"),
    *("CreateVirtualMFADevice", "EnableMFADevice", "ListMFADevices", "ListVirtualMFADevices"),
    *("DeactivateMFADevice", "ResyncMFADevice", "DeleteVirtualMFADevice", "UploadSSHPublicKey"),
    *("ListSSHPublicKeys", "UploadSigningCertificate", "ListSigningCertificates"),
)
SAML_OPERATIONS = (
    *("CreateSAMLProvider", "GetSAMLProvider", "ListSAMLProviders", "UpdateSAMLProvider"),
    "DeleteSAMLProvider",
)
REFUSED: Mapping[tuple[str, str], str] = {
    ("ecr", "GetAuthorizationToken"): (
        "there is no image registry to log in to. Build or tag the image on this machine (docker"
        " build --tag NAME), skip the push, and give that NAME to CreateModel"
    ),
    ("sts", "AssumeRoleWithSAML"): NO_SAML,
    ("sts", "GetFederationToken"): "federated users are not kept. Use AssumeRole with tags",
    **{("iam", it): NO_GROUPS for it in GROUP_OPERATIONS},
    **{("iam", it): NO_PASSWORDS for it in PASSWORD_OPERATIONS},
    **{("iam", it): NO_SAML for it in SAML_OPERATIONS},
    ("cloudwatch", "PutAnomalyDetector"): NO_BAND,
    ("cloudwatch", "DescribeAnomalyDetectors"): NO_BAND,
    ("cloudwatch", "DeleteAnomalyDetector"): NO_BAND,
    ("cloudwatch", "GetMetricWidgetImage"): (
        "graphs are not drawn here. GetMetricData has their values"
    ),
    ("cloudwatch", "PutInsightRule"): NO_RULES,
    ("cloudwatch", "DescribeInsightRules"): NO_RULES,
    ("cloudwatch", "GetInsightRuleReport"): NO_RULES,
    ("cloudwatch", "PutMetricStream"): NO_STREAMS,
    ("cloudwatch", "ListMetricStreams"): NO_STREAMS,
}
"""The reasons of unsupported operations, which their errors state."""

READS = ("Describe", "List", "Get", "Filter", "Lookup", "AssumeRole", "Simulate", "Test")
# These operations write no record: the file of messages has separate transactions.
MESSAGE_OPERATIONS = frozenset(
    {
        ("sns", "Publish"),
        ("sns", "PublishBatch"),
        ("events", "PutEvents"),
        *(("sqs", it) for it in SERVED["sqs"] if "Message" in it),
    }
)
# These calls have no signature. They prove their sender by a token in their parameters.
UNSIGNED_OPERATIONS = frozenset(
    {("sts", "AssumeRoleWithWebIdentity"), ("sns", "ConfirmSubscription")}
)
# Reconcilers write the same records. After each lost race another writer has made progress.
ATTEMPTS = 20


def perform(context: CallContext, service: str, operation: str, params: Params) -> Result:
    """The operation's result, as the members of its output shape with timestamps in epoch seconds.

    `params` have passed the service model. Raises ServiceError if the call is refused.
    """
    run = implementation(service, operation)
    context.check_time()
    _check_values(params)
    check_permissions(context, service, operation, params)
    if operation.startswith(READS) or (service, operation) in MESSAGE_OPERATIONS:
        return run(context, params)
    with context.state.writing:
        return _run_until_settled(run, context, params)


def implementation(service: str, operation: str) -> Operation:
    """The implementation of an operation. Raises UnknownOperationException."""
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


def _run_until_settled(run: Operation, context: CallContext, params: Params) -> Result:
    """Run an operation again from its checks while other writers change its records."""
    for _ in range(ATTEMPTS - 1):
        context.check_time()
        try:
            return run(context, params)
        except Conflict:
            continue
    return run(context, params)


def _check_values(value: Any, path: str = "") -> None:
    """Refuse numbers that are not finite and text that is not Unicode. They cannot be stored."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            _check_values(name, path)
            _check_values(member, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for number, member in enumerate(value, start=1):
            _check_values(member, f"{path}.{number}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise validation_error(f"Value {value} at '{path}' must be a finite number.")
    elif isinstance(value, str):
        _check_text(value, path)


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        where = f" at '{path}'" if path else ""
        raise validation_error(f"Text{where} is not valid Unicode: {text!a}.") from None
