"""The sentences of scaling activities, as Application Auto Scaling words them. Pure.

Source: "Scaling activities for Application Auto Scaling" in its user guide.
"""

from hostelry.domain.scaling import Dimension, ScalableTarget

NUMBER = {
    Dimension.INSTANCES: "desired instance count",
    Dimension.COPIES: "desired copy count",
    Dimension.PROVISIONED_CONCURRENCY: "desired provisioned concurrency",
}
ATTEMPTING = "Attempting to scale due to alarm triggered"
MAX_MESSAGE_CHARS = 1024


def describe_act(dimension: Dimension, wanted: int) -> str:
    """Description of an act."""
    return f"Setting {NUMBER[dimension]} to {wanted}."


def describe_bounds(target: ScalableTarget) -> str:
    """Description of new bounds."""
    low, high = target.min_capacity, target.max_capacity
    return f"Setting min capacity to {low} and max capacity to {high}"


def confirm_bounds(target: ScalableTarget) -> str:
    """StatusMessage of new bounds."""
    return (
        f"Successfully set min capacity to {target.min_capacity} and max capacity to"
        f" {target.max_capacity}"
    )


def build_alarm_cause(alarm_name: str, policy_name: str) -> str:
    """The cause of a policy's decision."""
    return f"monitor alarm {alarm_name} in state ALARM triggered policy {policy_name}"


def build_bounds_cause(target: ScalableTarget, desired: int) -> str:
    """The cause of a change that the bounds themselves ask for."""
    if desired > target.max_capacity:
        return f"maximum capacity was set to {target.max_capacity}"
    return f"minimum capacity was set to {target.min_capacity}"


def build_schedule_cause(action_name: str) -> str:
    """Cause of bounds that a schedule set."""
    return f"scheduled action name {action_name} was triggered"


def describe_waiting(dimension: Dimension, wanted: int) -> str:
    """StatusMessage while the resource follows."""
    return (
        f"Successfully set {NUMBER[dimension]} to {wanted}. Waiting for change to be fulfilled by"
        " sagemaker."
    )


def describe_fulfilled(dimension: Dimension, wanted: int) -> str:
    """StatusMessage of an act that succeeded."""
    return (
        f"Successfully set {NUMBER[dimension]} to {wanted}. Change successfully fulfilled by"
        " sagemaker."
    )


def describe_unfulfilled(dimension: Dimension, wanted: int, serving: int, why: str | None) -> str:
    """StatusMessage of an act after which less serves than it asked for."""
    text = f"Successfully set {NUMBER[dimension]} to {wanted}, but {serving} serve"
    return f"{text}: {why}"[:MAX_MESSAGE_CHARS] if why else f"{text}."


def describe_failed(dimension: Dimension, wanted: int, why: str) -> str:
    """StatusMessage of an act that could not be done."""
    return f"Failed to set {NUMBER[dimension]} to {wanted}. Reason: {why}"[:MAX_MESSAGE_CHARS]


def describe_superseded(dimension: Dimension, wanted: int, by: str) -> str:
    """StatusMessage of an act that a later one replaced before it was fulfilled."""
    return f"Setting {NUMBER[dimension]} to {wanted} was superseded by {by}."


def build_wake_cause(held: int, resource_id: str) -> str:
    """Cause of a wake."""
    name = resource_id.partition("/")[2]
    requests = f"{held} request{'' if held == 1 else 's'}"
    return f"{requests} waited for a copy of inference component {name}"
