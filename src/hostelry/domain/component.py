"""An inference component: a base model with reserved resources, or an adapter of a base."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.domain.at_zero import AtZero
from hostelry.domain.model import ArtifactSource, Container
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Requirements


class ComponentStatus(Enum):
    """InferenceComponentStatus as DescribeInferenceComponent shows it."""

    IN_SERVICE = "InService"
    CREATING = "Creating"
    UPDATING = "Updating"
    FAILED = "Failed"
    DELETING = "Deleting"


class PlacementStrategy(Enum):
    """SchedulingConfig.PlacementStrategy: how copies are distributed over instances."""

    SPREAD = "SPREAD"
    BINPACK = "BINPACK"


class Scheduling(msgspec.Struct, frozen=True, kw_only=True):
    """SchedulingConfig. `max_imbalance` is MaxImbalance of AvailabilityZoneBalance, if given.

    The balance of zones is a preference (EnforcementMode PERMISSIVE): it never keeps a copy
    unplaced.
    """

    strategy: PlacementStrategy = PlacementStrategy.SPREAD
    max_imbalance: int | None = None


class TypedSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The specification for one instance type, if a component has several Specifications."""

    instance_type: str
    container: Container
    requirements: Requirements
    download_timeout_s: float
    startup_timeout_s: float


class ComponentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The specification of a base component's copies. A change makes a new `generation`.

    If one specification applies to all instance types, `by_type` is empty. Otherwise it has a
    specification for each type that can hold the component, and the other fields equal the fields
    of the first one.
    """

    generation: int
    container: Container
    requirements: Requirements
    download_timeout_s: float
    startup_timeout_s: float
    scheduling: Scheduling = Scheduling()
    by_type: tuple[TypedSpec, ...] = ()

    def on(self, instance_type: str) -> TypedSpec | None:
        """The specification for an instance type. None if it cannot hold copies."""
        if self.by_type:
            return next((it for it in self.by_type if it.instance_type == instance_type), None)
        return TypedSpec(
            instance_type=instance_type,
            container=self.container,
            requirements=self.requirements,
            download_timeout_s=self.download_timeout_s,
            startup_timeout_s=self.startup_timeout_s,
        )


class AdapterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of an adapter component. A change makes a new `generation`.

    Without a time limit (None), the base's limit applies to downloads, the server's to loading.
    """

    generation: int
    base_name: str
    source: ArtifactSource
    download_timeout_s: float | None = None
    startup_timeout_s: float | None = None


class CapacityUnit(Enum):
    """The unit of a CapacitySize."""

    COPY_COUNT = "COPY_COUNT"
    CAPACITY_PERCENT = "CAPACITY_PERCENT"


class CapacitySize(msgspec.Struct, frozen=True, kw_only=True):
    """A number of copies, or a percentage of them."""

    unit: CapacityUnit
    value: int

    def copies(self, of: int) -> int:
        """The number of copies out of `of` copies, at least one."""
        if self.unit is CapacityUnit.COPY_COUNT:
            return max(1, self.value)
        return max(1, of * self.value // 100)


class RollingUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """RollingUpdatePolicy and AutoRollbackConfiguration of a component's update.

    Without `rollback_batch` (None), a rollback takes one step.
    """

    max_batch: CapacitySize
    wait_s: float
    max_execution_s: float | None = None
    rollback_batch: CapacitySize | None = None
    alarm_names: tuple[str, ...] = ()


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """A rolling update under way: its policy and progress.

    `new_copies` of the new generation may exist now. `batch_ready_at` is when the last batch became
    ready and `policy.wait_s` began, or None while the batch starts. `failure` is the reason for a
    rollback, if there is one. A rollback also goes batch by batch.
    """

    policy: RollingUpdate
    started_at: float
    new_copies: int = 0
    batch_ready_at: float | None = None
    failure: str | None = None


class InferenceComponent(msgspec.Struct, frozen=True, kw_only=True):
    """An inference component. Exactly one of `spec` (base) and `adapter` is set.

    An update replaces `previous_spec` or `previous_adapter`, and a rollback restores it.
    `deadline_at` is when the current status fails, or None in final statuses. `pinned` copies never
    move to another instance for packing. `placement_note` says why some copies fit nowhere yet. It
    is missing (None) once all copies are placed.
    """

    scope: Scope
    name: str
    arn: str
    endpoint_name: str
    variant_name: str
    created_at: float
    modified_at: float
    status: ComponentStatus
    desired_copies: int
    spec: ComponentSpec | None = None
    previous_spec: ComponentSpec | None = None
    adapter: AdapterSpec | None = None
    previous_adapter: AdapterSpec | None = None
    deadline_at: float | None = None
    failure_reason: str | None = None
    rollout: Rollout | None = None
    pinned: bool = False
    placement_note: str | None = None
    at_zero: AtZero | None = None  # None: the endpoint's setting
    given: Mapping[str, Any]


def family_name(component: InferenceComponent) -> str:
    """The name of a component's base. A base is its own base."""
    return component.name if component.adapter is None else component.adapter.base_name
