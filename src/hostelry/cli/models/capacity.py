"""Numbers of copies: what is asked for, and whether it is there. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.named import NamedModel

POLICY_NAME = "hostelry-scale"
DEFAULT_TARGET = 5.0  # requests under way on each copy
STUCK_AFTER_S = 15.0  # without a change, while the platform says that there is no room
SERVICE = {"ServiceNamespace": "sagemaker"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChange:
    """A number of copies, or bounds with the load that a copy is to have."""

    copies: int | None = None
    least: int | None = None
    most: int | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        """Raise TerminalError where it contradicts itself, or asks for nothing."""
        bounds = (self.least, self.most, self.target)
        if self.copies is None and bounds == (None, None, None):
            raise UsageError("give --copies N, or --min A and --max B")
        if self.copies is not None and bounds != (None, None, None):
            raise UsageError("--copies is a number, --min, --max and --target are bounds: give one")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise UsageError(f"--min {self.least} is more than --max {self.most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCapacity:
    """The copies of a model, of an endpoint its instances, as they are described."""

    ready: int
    desired: int
    status: str
    note: str | None = None

    def text(self) -> str:
        """The state in a line."""
        return f"{self.ready} of {self.desired} ready, {self.status}"


def scalable_id(model: NamedModel, variant: str | None) -> dict[str, str]:
    """The scalable target of a component, or of an endpoint's variant."""
    if model.component is not None:
        return target_id(f"inference-component/{model.component}")
    return target_id(f"endpoint/{model.endpoint}/variant/{variant}")


def target_id(resource_id: str) -> dict[str, str]:
    """What calls name the scalable target of a resource by."""
    is_component = resource_id.startswith("inference-component/")
    scaled = (
        "inference-component:DesiredCopyCount" if is_component else "variant:DesiredInstanceCount"
    )
    return {**SERVICE, "ResourceId": resource_id, "ScalableDimension": f"sagemaker:{scaled}"}


def bounds(change: CapacityChange, registered: Mapping[str, Any] | None) -> dict[str, int]:
    """The bounds to register; what is not given stays. Raises TerminalError without one."""
    known = registered or {}
    least = known.get("MinCapacity") if change.least is None else change.least
    most = known.get("MaxCapacity") if change.most is None else change.most
    if least is None or most is None:
        raise TerminalError("nothing scales it yet: give --min and --max")
    if least > most:
        raise TerminalError(f"the bounds would be {least} to {most}: give both --min and --max")
    return {"MinCapacity": least, "MaxCapacity": most}


def tracking_policy(
    scaled: Mapping[str, str], target: float, name: str = POLICY_NAME
) -> dict[str, Any]:
    """PutScalingPolicy's request: so many requests under way on each copy, or instance."""
    metric = (
        "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
        if scaled["ResourceId"].startswith("inference-component/")
        else "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    )
    return {
        **scaled,
        "PolicyName": name,
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": target,
            "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
        },
    }


def is_there(seen: SeenCapacity, least: int, most: int) -> bool:
    """Whether there are so many copies, and no more are on their way."""
    settled = seen.status == "InService" and seen.ready == seen.desired
    return settled and least <= seen.ready <= most


def trouble(seen: SeenCapacity, unchanged_s: float) -> str | None:
    """Why it is no use to wait any longer; None: it is."""
    if seen.status == "Failed":
        return seen.note or "it is Failed"
    if seen.note and unchanged_s >= STUCK_AFTER_S:
        fits = f"{seen.ready} of {seen.desired} fit and are ready"
        return f"{fits}; the rest waits for room, and starts once there is: {seen.note}"
    return None
