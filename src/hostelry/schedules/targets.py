"""Targets of schedules and rules: the operation of an ARN, and its input. PURE.

target ARN                                           operation
---------------------------------------------------  ------------------------------------------
arn:aws:scheduler:::aws-sdk:SERVICE:OPERATION        the named one. Input has its parameters
arn:aws:sns:REGION:ACCOUNT:TOPIC                     Publish, with Input as the message
arn:aws:sqs:REGION:ACCOUNT:QUEUE                     SendMessage, with Input as the body
any other                                            refused

Source: "Managing targets in EventBridge Scheduler" (universal and templated targets, context
attributes) in the EventBridge Scheduler user guide.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from hostelry.domain.event_schedule import EventSchedule, ScheduledExecution

# The name of a service in a target's ARN -> its name in boto3, and its allowed operations.
CALLABLE: Mapping[str, tuple[str, frozenset[str]]] = {
    "sagemaker": (
        "sagemaker",
        frozenset(
            {
                "CreateAIBenchmarkJob",
                "CreateAIRecommendationJob",
                "CreateEndpoint",
                "CreateEndpointConfig",
                "CreateInferenceComponent",
                "CreateInferenceExperiment",
                "CreateInferenceRecommendationsJob",
                "CreateModel",
                "CreateTransformJob",
                "DeleteEndpoint",
                "DeleteEndpointConfig",
                "DeleteInferenceComponent",
                "DeleteInferenceExperiment",
                "DeleteModel",
                "StartInferenceExperiment",
                "StopAIBenchmarkJob",
                "StopAIRecommendationJob",
                "StopInferenceExperiment",
                "StopInferenceRecommendationsJob",
                "StopTransformJob",
                "UpdateEndpoint",
                "UpdateEndpointWeightsAndCapacities",
                "UpdateInferenceComponent",
                "UpdateInferenceComponentRuntimeConfig",
                "UpdateInferenceExperiment",
            }
        ),
    ),
    "applicationautoscaling": (
        "application-autoscaling",
        frozenset({"DeregisterScalableTarget", "PutScalingPolicy", "RegisterScalableTarget"}),
    ),
    "cloudwatch": ("cloudwatch", frozenset({"PutMetricData", "SetAlarmState"})),
    "sns": ("sns", frozenset({"Publish"})),
    "sqs": ("sqs", frozenset({"SendMessage"})),
}
_UNIVERSAL = re.compile(r"arn:aws:scheduler:::aws-sdk:([a-z0-9]+):([a-zA-Z]+)(\.\w+)?")
_PLACE = re.compile(r"arn:aws:(sns|sqs):([a-z0-9-]+):(\d{12}):([A-Za-z0-9_.-]+)")


class TargetError(ValueError):
    """The target cannot be called. The message says why."""


class TargetCall(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a service (boto3's name), with its parameters."""

    service: str
    operation: str
    params: Mapping[str, Any]


def check_arn(arn: str) -> bool:
    """True for an operation, False for a topic or queue. Raises TargetError for any other."""
    universal = _UNIVERSAL.fullmatch(arn)
    if universal is not None:
        _universal(arn, universal[1], universal[2])
    elif _PLACE.fullmatch(arn) is None:
        raise _unknown(arn)
    return universal is not None


def build_call(arn: str, text: str | None, gateway_url: str) -> TargetCall:
    """Build the call of a target with this input. Raises TargetError."""
    universal, place = _UNIVERSAL.fullmatch(arn), _PLACE.fullmatch(arn)
    if universal is not None:
        service, operation = _universal(arn, universal[1], universal[2])
        return TargetCall(service=service, operation=operation, params=_params(text))
    if place is None:
        raise _unknown(arn)
    service, _, account, name = place.groups()
    message = text or ""
    if service == "sns":
        params = {"TopicArn": arn, "Message": message}
        return TargetCall(service="sns", operation="Publish", params=params)
    url = f"{gateway_url}/{account}/{name}"
    params = {"QueueUrl": url, "MessageBody": message}
    return TargetCall(service="sqs", operation="SendMessage", params=params)


def fill_template(schedule: EventSchedule, execution: ScheduledExecution) -> str | None:
    """Build the input of an execution: context attributes are replaced by their values."""
    text = schedule.target.input
    if text is None:
        return None
    at = datetime.fromtimestamp(execution.scheduled_at, UTC)
    attributes = {
        "schedule-arn": schedule.arn,
        "scheduled-time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "execution-id": execution.id,
        "attempt-number": str(execution.attempt + 1),
    }
    for name, value in attributes.items():
        text = text.replace(f"<aws.scheduler.{name}>", value)
    return text


def _unknown(arn: str) -> TargetError:
    return TargetError(
        f"Provided target {arn:.200} is not supported: it is neither"
        f" arn:aws:scheduler:::aws-sdk:SERVICE:OPERATION, with SERVICE one of"
        f" {', '.join(sorted(CALLABLE))}, nor the ARN of a topic or a queue."
    )


def _universal(arn: str, service: str, operation: str) -> tuple[str, str]:
    name = operation[:1].upper() + operation[1:]
    boto3_name, operations = CALLABLE.get(service, ("", frozenset()))
    if not operations:
        known = ", ".join(sorted(CALLABLE))
        raise TargetError(f"Service {service} in {arn:.200} cannot be called: use one of {known}.")
    if name not in operations:
        known = ", ".join(sorted(operations))
        raise TargetError(
            f"Operation {operation} in {arn:.200} cannot be called by a schedule: use one of"
            f" {known}."
        )
    return boto3_name, name


def _params(text: str | None) -> Mapping[str, Any]:
    try:
        params = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise TargetError(f"Invalid RequestJson provided: Input is not JSON ({error}).") from None
    if not isinstance(params, dict):
        raise TargetError("Invalid RequestJson provided: Input must be a JSON object.")
    return params
