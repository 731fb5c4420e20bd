"""Steps to deploy and change endpoints: which calls and acts are steps, and of which kind. Pure.

A step is a successful call of AWS's API that deploys, changes or removes something, or an act of an
operator that changed a record. Calls that only read, such as the polls of a waiting client, do not
count.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from hostelry.cost.usage import HourUsage


class StepKind(StrEnum):
    """What a step does to an endpoint."""

    DEPLOY = "deploy"
    CHANGE = "change"
    SCALING = "scaling"
    REMOVE = "remove"
    ACT = "operator's act"


# By service and operation. An operation that is missing here is not a step.
KINDS: Mapping[tuple[str, str], StepKind] = {
    ("sagemaker", "CreateModel"): StepKind.DEPLOY,
    ("sagemaker", "CreateEndpointConfig"): StepKind.DEPLOY,
    ("sagemaker", "CreateEndpoint"): StepKind.DEPLOY,
    ("sagemaker", "CreateInferenceComponent"): StepKind.DEPLOY,
    ("sagemaker", "UpdateEndpoint"): StepKind.CHANGE,
    ("sagemaker", "UpdateEndpointWeightsAndCapacities"): StepKind.CHANGE,
    ("sagemaker", "UpdateInferenceComponent"): StepKind.CHANGE,
    ("sagemaker", "UpdateInferenceComponentRuntimeConfig"): StepKind.CHANGE,
    ("application-autoscaling", "RegisterScalableTarget"): StepKind.SCALING,
    ("application-autoscaling", "DeregisterScalableTarget"): StepKind.SCALING,
    ("application-autoscaling", "PutScalingPolicy"): StepKind.SCALING,
    ("application-autoscaling", "DeleteScalingPolicy"): StepKind.SCALING,
    ("application-autoscaling", "PutScheduledAction"): StepKind.SCALING,
    ("application-autoscaling", "DeleteScheduledAction"): StepKind.SCALING,
    ("sagemaker", "DeleteModel"): StepKind.REMOVE,
    ("sagemaker", "DeleteEndpointConfig"): StepKind.REMOVE,
    ("sagemaker", "DeleteEndpoint"): StepKind.REMOVE,
    ("sagemaker", "DeleteInferenceComponent"): StepKind.REMOVE,
}
BY_OPERATION: Mapping[str, StepKind] = {name: kind for (_, name), kind in KINDS.items()}


class StepCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of an operation's steps. Without a price for steps `amount` is unknown (None).

    `endpoint` is empty for models and configurations, which several endpoints can use.
    """

    endpoint: str
    kind: StepKind
    operation: str
    num: float
    amount: float | None


def find_step_kind(operation: str) -> StepKind:
    """The kind of a recorded step. Whatever is not an operation of the API is an operator's act."""
    return BY_OPERATION.get(operation, StepKind.ACT)


def sum_steps(hours: Iterable[HourUsage], price: float | None) -> list[StepCount]:
    """The steps of all hours by endpoint, kind and operation."""
    nums: dict[tuple[str, str], float] = {}
    for hour in hours:
        for key, num in hour.steps.items():
            nums[key] = nums.get(key, 0.0) + num
    rows = [
        StepCount(
            endpoint=endpoint,
            kind=find_step_kind(operation),
            operation=operation,
            num=num,
            amount=None if price is None else num * price,
        )
        for (endpoint, operation), num in nums.items()
    ]
    order = list(StepKind)
    return sorted(rows, key=lambda it: (it.endpoint, order.index(it.kind), it.operation))
