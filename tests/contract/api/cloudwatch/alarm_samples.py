"""Alarms with the values that tests do not care about, and requests for alarms."""

from typing import Any

import pytest
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError

POLICY = (
    "arn:aws:autoscaling:us-west-2:123456789012:scalingPolicy:5d3c:resource/sagemaker/"
    "inference-component/chat:policyName/steps"
)
TOPIC = "arn:aws:sns:us-west-2:123456789012:alerts"
PLAIN: dict[str, Any] = {
    "AlarmName": "high",
    "Namespace": "AWS/SageMaker",
    "MetricName": "ConcurrentRequestsPerCopy",
    "Dimensions": [{"Name": "InferenceComponentName", "Value": "chat"}],
    "Statistic": "Maximum",
    "Period": 10,
    "EvaluationPeriods": 3,
    "Threshold": 5.0,
    "ComparisonOperator": "GreaterThanThreshold",
}
STAT = {
    "Metric": {"Namespace": "Own", "MetricName": "Load"},
    "Period": 60,
    "Stat": "Sum",
}


def described(api: Api, name: str = "high") -> dict[str, Any]:
    found = api.cloudwatch("DescribeAlarms", AlarmNames=[name])["MetricAlarms"]
    assert len(found) == 1
    shown: dict[str, Any] = found[0]
    return shown


def refusal(api: Api, operation: str, **params: Any) -> ServiceError:
    with pytest.raises(ServiceError) as refused:
        api.cloudwatch(operation, **params)
    return refused.value


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in PLAIN.items() if key != name}


def make(api: Api, *names: str, **more: Any) -> None:
    for name in names:
        api.cloudwatch("PutMetricAlarm", **{**PLAIN, "AlarmName": name, **more})


def composite(api: Api, name: str, rule: str, **more: Any) -> None:
    api.cloudwatch("PutCompositeAlarm", AlarmName=name, AlarmRule=rule, **more)
