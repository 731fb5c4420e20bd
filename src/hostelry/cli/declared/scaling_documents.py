"""Scaling in documents: a target's policies and scheduled actions as AWS's requests. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from hostelry.base.errors import HostelryError
from hostelry.cli.declared.document import SCALING, STEPPING, TRACKING, member_names
from hostelry.cli.declared.fault import Path
from hostelry.cli.declared.forms import form_of, instant_of
from hostelry.cli.declared.resource import ResourceKey, ResourceKind, target_key
from hostelry.domain.scaling import Dimension

Given = Mapping[str, Any]
USUAL_METRIC: Mapping[str, str] = {
    Dimension.INSTANCES.value: "SageMakerVariantInvocationsPerInstance",
    Dimension.COPIES.value: "SageMakerInferenceComponentInvocationsPerCopy",
    Dimension.PROVISIONED_CONCURRENCY.value: "SageMakerVariantProvisionedConcurrencyUtilization",
}
USUAL_POLICY = "target-tracking"
TRACKING_TYPE, STEPPING_TYPE = "TargetTrackingScaling", "StepScaling"
BOUNDS = ("MinCapacity", "MaxCapacity")


class ScalingError(HostelryError):
    """A document's scaling that can be no target; `path` leads to the field."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(reason)


def scaling_resources(
    resource_id: str, given: Given, *, serverless: bool = False
) -> Iterator[tuple[ResourceKey, Given, Path]]:
    """The target, its policies and actions: key, params, path. Raises ScalingError."""
    dimension = given.get("ScalableDimension") or dimension_of(resource_id, serverless=serverless)
    target = target_key(resource_id, dimension)
    own = ("Policies", "ScheduledActions", "TargetValue", "Tags", "ScalableDimension")
    for name in BOUNDS:
        if name not in given:
            raise ScalingError((), f"{name} is required")
    yield target, form_of({name: it for name, it in given.items() if name not in own}), ()
    if "TargetValue" in given:
        policy = policy_params({"TargetValue": given["TargetValue"]}, dimension)
        yield ResourceKey(ResourceKind.POLICY, USUAL_POLICY, target.name), policy, ("TargetValue",)
    for name, inner in given.get("Policies", {}).items():
        path = ("Policies", name)
        try:
            params = policy_params(inner, dimension)
        except ValueError as error:
            raise ScalingError(path, str(error)) from None
        yield ResourceKey(ResourceKind.POLICY, name, target.name), params, path
    for name, inner in given.get("ScheduledActions", {}).items():
        path = ("ScheduledActions", name)
        try:
            params = action_params(inner)
        except ValueError as error:
            raise ScalingError(path, str(error)) from None
        yield ResourceKey(ResourceKind.ACTION, name, target.name), params, path


def dimension_of(resource_id: str, *, serverless: bool) -> str:
    """The dimension that a resource of that id is scaled in. Raises ScalingError."""
    match resource_id.split("/"):
        case ["endpoint", _, "variant", _]:
            kind = Dimension.PROVISIONED_CONCURRENCY if serverless else Dimension.INSTANCES
            return kind.value
        case ["inference-component", _]:
            return Dimension.COPIES.value
    raise ScalingError((), "its name is endpoint/NAME/variant/NAME or inference-component/NAME")


def policy_params(given: Given, dimension: str) -> dict[str, Any]:
    """PolicyType and configuration of a policy; raises ValueError where it is of neither type."""
    tracking, stepping = member_names(SCALING, TRACKING), member_names(SCALING, STEPPING)
    if "TargetValue" in given:
        wrong = [it for it in given if it not in (*tracking, "Metric")]
        if wrong:
            raise ValueError(f"{wrong[0]} is of step scaling; TargetValue is of target tracking")
        configuration = {name: it for name, it in given.items() if name != "Metric"}
        if not any(name.endswith("MetricSpecification") for name in configuration):
            metric = given.get("Metric", USUAL_METRIC.get(dimension))
            configuration["PredefinedMetricSpecification"] = {"PredefinedMetricType": metric}
        return {"PolicyType": TRACKING_TYPE, TRACKING: form_of(configuration)}
    if "StepAdjustments" not in given:
        raise ValueError("it needs TargetValue (target tracking) or StepAdjustments (step scaling)")
    wrong = [it for it in given if it not in stepping]
    if wrong:
        raise ValueError(f"{wrong[0]} is of target tracking; StepAdjustments is of step scaling")
    return {"PolicyType": STEPPING_TYPE, STEPPING: form_of(given)}


def action_params(given: Given) -> dict[str, Any]:
    """PutScheduledAction's fields of an action; raises ValueError for a time that is none."""
    bounds = {name: given[name] for name in BOUNDS if name in given}
    rest = {
        name: instant_of(it) if name in ("StartTime", "EndTime") else it
        for name, it in given.items()
        if name not in BOUNDS
    }
    params: dict[str, Any] = form_of(rest)
    return {**params, "ScalableTargetAction": bounds}
