"""From the DeploymentConfig of an inference component's update to a rolling update."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext
from hostelry.api.sagemaker.deployment import rollback_alarms
from hostelry.base.errors import validation_error
from hostelry.domain.component import CapacitySize, CapacityUnit, RollingUpdate

LEAST_PERCENT, MOST_PERCENT = 5, 50
WHOLE_PERCENT = 100
# The longest MaximumExecutionTimeoutInSeconds that AWS takes, and the one where none is given.
MAX_EXECUTION_S = 28_800.0
POLICY = "DeploymentConfig.RollingUpdatePolicy"


def rolling_update(context: CallContext, given: Mapping[str, Any], copies: int) -> RollingUpdate:
    """The policy that `given` describes for so many copies; raises ValidationException."""
    policy = given["RollingUpdatePolicy"]
    update = RollingUpdate(
        max_batch=batch_of(policy["MaximumBatchSize"], copies),
        wait_s=float(policy["WaitIntervalInSeconds"]),
        max_execution_s=float(policy.get("MaximumExecutionTimeoutInSeconds", MAX_EXECUTION_S)),
        rollback_batch=rollback_batch_of(policy.get("RollbackMaximumBatchSize")),
        alarm_names=rollback_alarms(context, given),
    )
    check_waits(update, copies)
    return update


def batch_of(given: Mapping[str, Any], copies: int) -> CapacitySize:
    """MaximumBatchSize: 5 to 50 per cent of the copies, or one."""
    size = size_of(given)
    if size.unit is CapacityUnit.CAPACITY_PERCENT:
        least, most, of = LEAST_PERCENT, MOST_PERCENT, "per cent of the copies"
    else:
        least = max(1, -(-copies * LEAST_PERCENT // WHOLE_PERCENT))
        most = max(1, copies * MOST_PERCENT // WHOLE_PERCENT)
        of = f"of {copies} copies ({LEAST_PERCENT} to {MOST_PERCENT} per cent, at least one)"
    if not least <= size.value <= most:
        raise validation_error(
            f"{POLICY}.MaximumBatchSize is {size.value}; it must be {least} to {most} {of}."
        )
    return size


def rollback_batch_of(given: Mapping[str, Any] | None) -> CapacitySize | None:
    """RollbackMaximumBatchSize; None where all copies roll back in one step."""
    if given is None:
        return None
    size = size_of(given)
    if size.unit is CapacityUnit.COPY_COUNT or size.value < WHOLE_PERCENT:
        return size
    if size.value > WHOLE_PERCENT:
        raise validation_error(
            f"{POLICY}.RollbackMaximumBatchSize is {size.value} per cent; at most"
            f" {WHOLE_PERCENT} are possible."
        )
    return None


def size_of(given: Mapping[str, Any]) -> CapacitySize:
    """An InferenceComponentCapacitySize."""
    return CapacitySize(unit=CapacityUnit(given["Type"]), value=given["Value"])


def check_waits(update: RollingUpdate, copies: int) -> None:
    """Refuse waits that take longer than the update may."""
    limit_s = update.max_execution_s or MAX_EXECUTION_S
    waits_s = num_batches(update, copies) * update.wait_s
    if waits_s >= limit_s:
        raise validation_error(
            f"{POLICY}: {num_batches(update, copies)} batches that wait {update.wait_s:.0f} s each"
            f" take {waits_s:.0f} s, and the whole update may take {limit_s:.0f} s."
            " Make batches larger, waits shorter or MaximumExecutionTimeoutInSeconds longer."
        )


def num_batches(update: RollingUpdate, copies: int) -> int:
    """The number of batches in which so many copies are replaced."""
    return -(-copies // update.max_batch.copies(copies))
