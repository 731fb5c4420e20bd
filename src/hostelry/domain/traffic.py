"""Traffic policy of an endpoint's update: the steps in which traffic moves to a new fleet.

policy        steps                      share of the new fleet after step k
-----------   ------------------------   -----------------------------------
ALL_AT_ONCE   1                          all
CANARY        2                          CanarySize, then all
LINEAR        fleet / LinearStepSize     k times LinearStepSize, at last all
ROLLING       fleet / MaximumBatchSize   k times MaximumBatchSize, at last all

A size is a number of whole instances of the new fleet, at least one. The share of requests is the
share of these instances. A fleet of one instance cannot be divided, but its traffic can. Then a
percentage is the share of requests, and a batch is the whole fleet. With ROLLING, the instances of
a step start just before it, and the old instances that they replace end after it.

Source: TrafficRoutingConfig and RollingUpdatePolicy in the SageMaker API reference, and "Use canary
traffic shifting", "Use linear traffic shifting" and "Use rolling deployments" in the developer
guide.
"""

import math
from collections.abc import Collection, Mapping
from enum import Enum

import msgspec

from hostelry.base.errors import validation_error

WHOLE_PERCENT = 100
MOST_PERCENT = 50
POLICY = "DeploymentConfig.BlueGreenUpdatePolicy"
ROUTING = f"{POLICY}.TrafficRoutingConfiguration"
ROLLING_POLICY = "DeploymentConfig.RollingUpdatePolicy"


class TrafficType(Enum):
    """TrafficRoutingConfig.Type, or ROLLING for a RollingUpdatePolicy."""

    ALL_AT_ONCE = "ALL_AT_ONCE"
    CANARY = "CANARY"
    LINEAR = "LINEAR"
    ROLLING = "ROLLING"


class FleetUnit(Enum):
    """CapacitySize.Type."""

    INSTANCE_COUNT = "INSTANCE_COUNT"
    CAPACITY_PERCENT = "CAPACITY_PERCENT"


# The field of TrafficRoutingConfiguration that has the size, by type.
SIZE_FIELDS = {TrafficType.CANARY: "CanarySize", TrafficType.LINEAR: "LinearStepSize"}
SIZE_PATHS = {
    **{kind: f"{ROUTING}.{name}" for kind, name in SIZE_FIELDS.items()},
    TrafficType.ROLLING: f"{ROLLING_POLICY}.MaximumBatchSize",
}
LEAST_PERCENT = {TrafficType.CANARY: 1, TrafficType.LINEAR: 10, TrafficType.ROLLING: 5}


class FleetSize(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a fleet: a number of its instances, or a percentage."""

    unit: FleetUnit
    value: int

    def part(self, instances: int) -> tuple[int, int]:
        """A part of a fleet of `instances` as a numerator and a denominator.

        A percentage is rounded to whole instances: at least one, at most half of the fleet.
        """
        if self.unit is FleetUnit.INSTANCE_COUNT:
            return min(self.value, max(1, instances)), max(1, instances)
        if instances < 2:
            return self.value, WHOLE_PERCENT
        whole = math.floor(instances * self.value / WHOLE_PERCENT + 0.5)
        return min(max(1, whole), instances // 2), instances

    def batch(self, instances: int) -> int:
        """The size of a batch of a fleet, at least one. A percentage is rounded down."""
        if self.unit is FleetUnit.INSTANCE_COUNT:
            return min(self.value, max(1, instances))
        return max(1, instances * self.value // WHOLE_PERCENT)


class TrafficPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """TrafficRoutingConfiguration or RollingUpdatePolicy. ALL_AT_ONCE has no size.

    `wait_s` is WaitIntervalInSeconds: the wait between two steps, and after each batch.
    `rollback_size` is RollbackMaximumBatchSize. Without it, a rollback takes one step.
    """

    type: TrafficType = TrafficType.ALL_AT_ONCE
    size: FleetSize | None = None
    wait_s: float = 0.0
    rollback_size: FleetSize | None = None

    @property
    def is_gradual(self) -> bool:
        """Whether the traffic moves in several steps."""
        return self.size is not None

    @property
    def is_rolling(self) -> bool:
        """Whether instances of the new fleet start, and old ones end, batch by batch."""
        return self.type is TrafficType.ROLLING

    def num_steps(self, fleets: Collection[int]) -> int:
        """The number of steps. `fleets` has the instances of each variant."""
        if self.size is None:
            return 1
        if self.type is TrafficType.CANARY:
            return 2
        parts = [self._part(self.size, it) for it in fleets]
        return max((-(-whole // part) for part, whole in parts), default=1)

    def share(self, step: int, instances: int) -> float:
        """The new fleet's share of a variant's requests after that step, from 0 to 1."""
        if self.size is None or (self.type is TrafficType.CANARY and step > 1):
            return 1.0
        part, whole = self._part(self.size, instances)
        return min(1.0, step * part / whole)

    def turned_on(self, step: int, instances: int) -> int:
        """The instances of a variant's new fleet that get requests after that step."""
        if self.size is None or (self.type is TrafficType.CANARY and step > 1):
            return instances
        part, whole = self._part(self.size, instances)
        return min(instances, -(-step * part * instances // whole))

    def count_replaced(self, step: int, old: int, instances: int) -> int:
        """Count the `old` instances of the old fleet that the batches up to `step` replace.

        The count is in proportion to these batches' part of the `instances` in the new fleet, and
        is rounded down.
        """
        assert self.size is not None, "only a policy with steps has batches"
        part, whole = self._part(self.size, instances)
        return old * min(step * part, whole) // whole

    def rollback_batch(self, instances: int) -> int:
        """The maximum number of a variant's new instances that a rollback removes at once."""
        return instances if self.rollback_size is None else self.rollback_size.batch(instances)

    def num_waits(self, fleets: Collection[int]) -> int:
        """The number of waits: between the steps, and after each batch."""
        return self.num_steps(fleets) - (0 if self.is_rolling else 1)

    def _part(self, size: FleetSize, instances: int) -> tuple[int, int]:
        if self.is_rolling:
            return size.batch(instances), max(1, instances)
        return size.part(instances)


ALL_AT_ONCE = TrafficPolicy()


def check_size(policy: TrafficPolicy, variant_name: str, instances: int) -> None:
    """Refuse a step that is too large, or too small, for a variant of `instances`.

    Raises ValidationException. A canary is at most half of the fleet, a linear step a tenth to half
    of the fleet. A batch is a twentieth to half of it, or one instance.
    """
    if policy.size is None or not instances:
        return
    value, least_percent = policy.size.value, LEAST_PERCENT[policy.type]
    path = f"{SIZE_PATHS[policy.type]}.Value"
    if policy.size.unit is FleetUnit.CAPACITY_PERCENT:
        if not least_percent <= value <= MOST_PERCENT:
            raise validation_error(
                f"{path} is {value}; it must be {least_percent} to {MOST_PERCENT} per cent of the"
                " instances."
            )
        return
    least = max(1, -(-instances * least_percent // WHOLE_PERCENT))
    most = instances * MOST_PERCENT // WHOLE_PERCENT
    if policy.is_rolling:
        most = max(1, most)
    if not least <= value <= most:
        plural = "" if instances == 1 else "s"
        bounds = f"it must be {least} to {most}" if most else "use CAPACITY_PERCENT"
        raise validation_error(
            f"{path} is {value}, and variant {variant_name} has {instances} instance{plural};"
            f" {bounds}, as a {'batch' if policy.is_rolling else 'step'} is {least_percent} to"
            f" {MOST_PERCENT} per cent of them."
        )


def check_rollback_size(policy: TrafficPolicy, variant_name: str, instances: int) -> None:
    """Refuse a RollbackMaximumBatchSize larger than a variant's whole fleet.

    Raises ValidationException.
    """
    size = policy.rollback_size
    if size is None or not instances:
        return
    is_count = size.unit is FleetUnit.INSTANCE_COUNT
    most = instances if is_count else WHOLE_PERCENT
    if size.value > most:
        of = f", the instances of variant {variant_name}" if is_count else " per cent"
        raise validation_error(
            f"{ROLLING_POLICY}.RollbackMaximumBatchSize.Value is {size.value}; it must be 1 to"
            f" {most}{of}."
        )


def check_waits(
    policy: TrafficPolicy, fleets: Collection[int], bake_s: float, limit_s: float | None
) -> None:
    """Refuse waits that leave no time for the update. Raises ValidationException.

    `bake_s` is TerminationWaitInSeconds, `limit_s` MaximumExecutionTimeoutInSeconds.
    """
    num_waits = policy.num_waits(fleets)
    waits_s = num_waits * policy.wait_s
    if limit_s is None or waits_s + bake_s < limit_s:
        return
    waits = f"{num_waits} times WaitIntervalInSeconds {policy.wait_s:g}" if waits_s else ""
    bake = "" if policy.is_rolling else f"TerminationWaitInSeconds {bake_s:g}"
    raise validation_error(
        f"{ROLLING_POLICY if policy.is_rolling else POLICY}:"
        f" {' and '.join(it for it in (waits, bake) if it)} must be less than"
        f" MaximumExecutionTimeoutInSeconds {limit_s:g}."
    )


# The maximum of each setting. alpha is more than 0.
MOST: Mapping[str, float] = {"errors": 1.0, "latency": 100.0, "alpha": 0.5, "divergence": 1.0}


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """How much worse a version may be: errors as a share of requests, latency relative to before.

    `divergence` is the share of a shadow's answers that may differ from production's. None allows
    any. `alpha` is the maximum probability of a wrong verdict.
    """

    errors: float = 0.01
    latency: float = 0.25
    alpha: float = 0.01
    divergence: float | None = None


def build_allowance(given: Mapping[str, str], known: Collection[str] = tuple(MOST)) -> Allowance:
    """Build the allowance from settings by name. `known` has the valid names.

    Raises ValueError, which names the invalid setting.
    """
    found: dict[str, float] = {}
    for name, text in given.items():
        if name not in known:
            raise ValueError(f'"{name}" is no setting; there are {", ".join(known)}')
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f'{name} is "{text}"; it must be a number') from None
        if not 0.0 <= value <= MOST[name] or (name == "alpha" and value == 0.0):
            least = "more than 0, at most" if name == "alpha" else "from 0 to"
            raise ValueError(f"{name} is {text}; it must be {least} {MOST[name]:g}")
        found[name] = value
    return Allowance(**found)
