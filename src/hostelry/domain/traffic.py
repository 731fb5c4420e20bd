"""Traffic policy of a blue/green update: the steps in which traffic moves to a new fleet.

policy        steps                      share of the new fleet after step k
-----------   ------------------------   -----------------------------------
ALL_AT_ONCE   1                          all
CANARY        2                          CanarySize, then all
LINEAR        fleet / LinearStepSize     k times LinearStepSize, at last all

A size is whole instances of the new fleet, at least one; the share of requests is the share of
those instances. A fleet of one instance cannot be divided, but its traffic can: there a percentage
is the share itself.

Source: TrafficRoutingConfig in the SageMaker API reference, and "Use canary traffic shifting" and
"Use linear traffic shifting" in the developer guide.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from hostelry.base.errors import validation_error

WHOLE_PERCENT = 100
LEAST_STEP_PERCENT, MOST_PERCENT = 10, 50
POLICY = "DeploymentConfig.BlueGreenUpdatePolicy"
ROUTING = f"{POLICY}.TrafficRoutingConfiguration"


class TrafficType(Enum):
    """TrafficRoutingConfig.Type."""

    ALL_AT_ONCE = "ALL_AT_ONCE"
    CANARY = "CANARY"
    LINEAR = "LINEAR"


class FleetUnit(Enum):
    """CapacitySize.Type."""

    INSTANCE_COUNT = "INSTANCE_COUNT"
    CAPACITY_PERCENT = "CAPACITY_PERCENT"


# The field that has the size, by type.
SIZE_FIELDS = {TrafficType.CANARY: "CanarySize", TrafficType.LINEAR: "LinearStepSize"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSize:
    """A part of a fleet: a number of its instances, or a percentage."""

    unit: FleetUnit
    value: int

    def part(self, instances: int) -> tuple[int, int]:
        """The part of a fleet of so many instances, as a numerator and a denominator.

        A percentage is rounded to whole instances: at least one, at most half of them.
        """
        if self.unit is FleetUnit.INSTANCE_COUNT:
            return min(self.value, max(1, instances)), max(1, instances)
        if instances < 2:
            return self.value, WHOLE_PERCENT
        whole = math.floor(instances * self.value / WHOLE_PERCENT + 0.5)
        return min(max(1, whole), instances // 2), instances


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPolicy:
    """TrafficRoutingConfiguration: the size is None for ALL_AT_ONCE alone.

    `wait_s` is WaitIntervalInSeconds, between two steps.
    """

    type: TrafficType = TrafficType.ALL_AT_ONCE
    size: FleetSize | None = None
    wait_s: float = 0.0

    @property
    def is_gradual(self) -> bool:
        """Whether the traffic moves in several steps."""
        return self.size is not None

    def num_steps(self, fleets: Collection[int]) -> int:
        """The number of steps; `fleets` has the instances of each variant."""
        if self.size is None:
            return 1
        if self.type is TrafficType.CANARY:
            return 2
        parts = [self.size.part(it) for it in fleets]
        return max((-(-whole // part) for part, whole in parts), default=1)

    def share(self, step: int, instances: int) -> float:
        """The share of a variant's requests for its new fleet after that step, from 0 to 1."""
        if self.size is None or (self.type is TrafficType.CANARY and step > 1):
            return 1.0
        part, whole = self.size.part(instances)
        return min(1.0, step * part / whole)

    def turned_on(self, step: int, instances: int) -> int:
        """The instances of a variant's new fleet that have requests after that step."""
        if self.size is None or (self.type is TrafficType.CANARY and step > 1):
            return instances
        part, whole = self.size.part(instances)
        return min(instances, -(-step * part * instances // whole))

    def waits_s(self, fleets: Collection[int]) -> float:
        """The sum of the waits between the steps."""
        return (self.num_steps(fleets) - 1) * self.wait_s


ALL_AT_ONCE = TrafficPolicy()


def check_size(policy: TrafficPolicy, variant_name: str, instances: int) -> None:
    """Refuse a step that is too large, or too small, for a variant of so many instances.

    Raises ValidationException. A canary is at most half of the fleet, a linear step a tenth to half
    of it.
    """
    if policy.size is None or not instances:
        return
    value, is_canary = policy.size.value, policy.type is TrafficType.CANARY
    path = f"{ROUTING}.{SIZE_FIELDS[policy.type]}.Value"
    least_percent = 1 if is_canary else LEAST_STEP_PERCENT
    if policy.size.unit is FleetUnit.CAPACITY_PERCENT:
        if not least_percent <= value <= MOST_PERCENT:
            raise validation_error(
                f"{path} is {value}; it must be {least_percent} to {MOST_PERCENT} per cent of the"
                " instances."
            )
        return
    least = max(1, -(-instances * least_percent // WHOLE_PERCENT))
    most = instances * MOST_PERCENT // WHOLE_PERCENT
    if not least <= value <= most:
        plural = "" if instances == 1 else "s"
        bounds = f"it must be {least} to {most}" if most else "use CAPACITY_PERCENT"
        raise validation_error(
            f"{path} is {value}, and variant {variant_name} has {instances} instance{plural};"
            f" {bounds}, as a step is {least_percent} to {MOST_PERCENT} per cent of them."
        )


def check_waits(
    policy: TrafficPolicy, fleets: Collection[int], bake_s: float, limit_s: float | None
) -> None:
    """Refuse waits that leave no time for the update itself; raises ValidationException.

    `bake_s` is TerminationWaitInSeconds, `limit_s` MaximumExecutionTimeoutInSeconds.
    """
    waits_s = policy.waits_s(fleets)
    if limit_s is None or waits_s + bake_s < limit_s:
        return
    bake = f"TerminationWaitInSeconds {bake_s:g}"
    if waits_s:
        num_waits = policy.num_steps(fleets) - 1
        bake = f"{num_waits} times WaitIntervalInSeconds {policy.wait_s:g} and {bake}"
    raise validation_error(
        f"{POLICY}: {bake} must be less than MaximumExecutionTimeoutInSeconds {limit_s:g}."
    )
