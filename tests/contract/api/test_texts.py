"""The texts that programs decide by, as docs/wire.md lists them."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.endpoint import EndpointStatus

PAGE = Path(__file__).parents[3] / "docs" / "wire.md"
ROW = re.compile(
    r"\| (?P<operations>[A-Za-z, ]+) \| (?P<situation>[^|]+) "
    r"\| (?P<code>\w+(?:Exception|NotFound)) \| `(?P<text>[^`]+)` \| [^|]+ \|"
)
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"
SCALING = "application-autoscaling"
VARIANT = {"VariantName": "v", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
WEIGHTS = {"DesiredWeightsAndCapacities": [{"VariantName": "main", "DesiredWeight": 1.0}]}
ONE_COPY = {"CopyCount": 1}
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "inference-component/base",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
STEPS = {
    "AdjustmentType": "ChangeInCapacity",
    "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
}
MODEL = {"PrimaryContainer": {"Image": "image"}, "ExecutionRoleArn": ROLE}
CONFIG = {"ProductionVariants": [VARIANT], "ExecutionRoleArn": ROLE}
COMPONENT = {
    "Specification": {
        "Container": {"Image": "image"},
        "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024},
    },
    "RuntimeConfig": ONE_COPY,
}

# By operation and situation: a refused request, and the resources that `served` must create.
REQUESTS: dict[tuple[str, str], dict[str, Any]] = {
    ("DescribeEndpoint", "no such endpoint"): {"EndpointName": "x"},
    ("UpdateEndpoint", "no such endpoint"): {"EndpointName": "x", "EndpointConfigName": "e-config"},
    ("DeleteEndpoint", "no such endpoint"): {"EndpointName": "x"},
    ("UpdateEndpointWeightsAndCapacities", "no such endpoint"): {"EndpointName": "x", **WEIGHTS},
    ("DescribeEndpointConfig", "no such endpoint configuration"): {"EndpointConfigName": "x"},
    ("DeleteEndpointConfig", "no such endpoint configuration"): {"EndpointConfigName": "x"},
    ("CreateEndpoint", "no such endpoint configuration"): {
        "EndpointName": "new", "EndpointConfigName": "x"
    },
    ("UpdateEndpoint", "no such endpoint configuration"): {
        "EndpointName": "e", "EndpointConfigName": "x"
    },
    ("DescribeModel", "no such model"): {"ModelName": "x"},
    ("DeleteModel", "no such model"): {"ModelName": "x"},
    ("CreateEndpointConfig", "no such model"): {
        "EndpointConfigName": "new", "ProductionVariants": [{**VARIANT, "ModelName": "x"}]
    },
    ("DescribeInferenceComponent", "no such component"): {"InferenceComponentName": "x"},
    ("UpdateInferenceComponent", "no such component"): {
        "InferenceComponentName": "x", "RuntimeConfig": ONE_COPY
    },
    ("UpdateInferenceComponentRuntimeConfig", "no such component"): {
        "InferenceComponentName": "x", "DesiredRuntimeConfig": ONE_COPY
    },
    ("DeleteInferenceComponent", "no such component"): {"InferenceComponentName": "x"},
    ("CreateModel", "a name that is taken"): {"ModelName": "m", **MODEL},
    ("CreateEndpointConfig", "a name that is taken"): {"EndpointConfigName": "e-config", **CONFIG},
    ("CreateEndpoint", "a name that is taken"): {
        "EndpointName": "e", "EndpointConfigName": "e-config"
    },
    ("CreateInferenceComponent", "a name that is taken"): {
        "InferenceComponentName": "base", "EndpointName": "e", **COMPONENT
    },
    ("UpdateEndpoint", "an update is under way"): {
        "EndpointName": "busy", "EndpointConfigName": "e-config"
    },
    ("UpdateEndpointWeightsAndCapacities", "an update is under way"): {
        "EndpointName": "busy", **WEIGHTS
    },
    ("CreateInferenceComponent", "the endpoint hosts a model"): {
        "InferenceComponentName": "new", "EndpointName": "v", **COMPONENT
    },
    ("DeleteInferenceComponent", "a base with adapters"): {"InferenceComponentName": "base"},
    ("PutScalingPolicy", "no such scalable target"): {
        **TARGET, "PolicyName": "p", "PolicyType": "StepScaling",
        "StepScalingPolicyConfiguration": STEPS,
    },
    ("PutScheduledAction", "no such scalable target"): {
        **TARGET, "ScheduledActionName": "a", "Schedule": "rate(1 hour)",
        "ScalableTargetAction": {"MinCapacity": 1},
    },
    ("DeregisterScalableTarget", "no such scalable target"): TARGET,
    ("DeleteScalingPolicy", "no such policy"): {**TARGET, "PolicyName": "p"},
    ("DeleteScheduledAction", "no such action"): {**TARGET, "ScheduledActionName": "a"},
    ("GetDashboard", "no such dashboard"): {"DashboardName": "x"},
    ("DeleteDashboards", "no such dashboard"): {"DashboardNames": ["x"]},
    ("SetAlarmState", "no such alarm"): {
        "AlarmName": "x", "StateValue": "OK", "StateReason": "tried"
    },
    ("ListTagsForResource", "no such alarm"): {
        "ResourceARN": "arn:aws:cloudwatch:us-west-2:123456789012:alarm:x"
    },
}  # fmt: skip


class Text(NamedTuple):
    """A row of the page, for one of its operations."""

    operation: str
    situation: str
    code: str
    text: str


def service_of(row: Text) -> str:
    """The service that has the operation."""
    if row.situation in ("no such dashboard", "no such alarm"):
        return "cloudwatch"
    return SCALING if "scal" in row.text or "scheduled" in row.text else "sagemaker"


def texts() -> list[Text]:
    """Each row of the page, once for each operation that it names."""
    rows = [found for line in PAGE.read_text().splitlines() if (found := ROW.fullmatch(line))]
    return [
        Text(operation, row["situation"], row["code"], row["text"])
        for row in rows
        for operation in row["operations"].split(", ")
    ]


def test_every_row_of_the_page_is_provoked() -> None:
    assert {(it.operation, it.situation) for it in texts()} == set(REQUESTS)


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("row", texts(), ids=lambda it: f"{it.operation}, {it.situation}")
def test_a_text_that_programs_match_is_the_one_on_the_page(api: Api, row: Text) -> None:
    api.make.endpoint("busy")
    api.change_endpoint("busy", status=EndpointStatus.UPDATING)
    with pytest.raises(ServiceError) as caught:
        api.call(row.operation, service_of(row), **REQUESTS[row.operation, row.situation])
    status = 404 if row.code.startswith("ResourceNotFound") else 400  # CloudWatch's
    assert (caught.value.code, caught.value.http_status) == (row.code, status)
    text = row.text.removeprefix("... ")
    assert text in caught.value.message
    assert row.text.startswith("...") or caught.value.message.startswith(text)
