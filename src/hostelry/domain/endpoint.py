"""An endpoint: an endpoint configuration deployed on instances."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.domain.at_zero import AtZero
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint_config import EndpointConfig, Variant
from hostelry.domain.model import Model
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import ServerlessConfig
from hostelry.domain.traffic import ALL_AT_ONCE, Allowance, TrafficPolicy


class CopyRestart(msgspec.Struct, frozen=True, kw_only=True):
    """The requested replacement of a copy. It is in the endpoint's record until it is over.

    In a group (a component, or a variant's model), copies are replaced one after another.
    `began_at` is when this copy's turn began. With `with_instance` the copy is alone on its
    instance, and its successor gets another instance. `failure` says why the replacement was given
    up. Then the old copy continues to serve.
    """

    copy_id: str
    component_name: str | None
    variant_name: str
    instance_id: str
    asked_at: float
    with_instance: bool = False
    began_at: float | None = None
    failure: str | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a successor is starting now."""
        return self.began_at is not None and self.failure is None

    @property
    def group(self) -> tuple[str | None, str]:
        """The component and the variant. One copy of them is replaced at a time."""
        return (self.component_name, self.variant_name)


class UpdateOutcome(Enum):
    """The outcome of an update."""

    UNDER_WAY = "under way"
    COMPLETE = "complete"
    ROLLED_BACK = "rolled back"


class PastStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an update. The current step has no `ended_at`.

    `least_share` and `most_share` are the smallest and largest share of a variant's traffic, from 0
    to 1, on the new fleet. `verdict` is the last verdict on the new fleet, if fleets were compared.
    """

    name: str
    began_at: float
    ended_at: float | None = None
    least_share: float = 0.0
    most_share: float = 0.0
    verdict: str | None = None


class PastUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """An update from one configuration to another. `cause` is the reason for its rollback.

    `alarm_names` are the alarms that guarded the update. `steps_left_out` counts the oldest steps,
    which are no longer kept.
    """

    from_config: str
    to_config: str
    began_at: float
    ended_at: float | None = None
    outcome: UpdateOutcome = UpdateOutcome.UNDER_WAY
    cause: str | None = None
    alarm_names: tuple[str, ...] = ()
    steps: tuple[PastStep, ...] = ()
    steps_left_out: int = 0


class EndpointStatus(Enum):
    """EndpointStatus as DescribeEndpoint shows it, without AWS's statuses that never occur here."""

    CREATING = "Creating"
    UPDATING = "Updating"
    IN_SERVICE = "InService"
    DELETING = "Deleting"
    FAILED = "Failed"


class PassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """An instance type that is not tried until `until`, because none came up, and the reason."""

    instance_type: str
    until: float
    problem: str


class EndpointVariant(msgspec.Struct, frozen=True, kw_only=True):
    """The desired state of a variant.

    `model` is a copy from the time when the configuration was applied, so the model and the
    configuration may be deleted while the endpoint runs. `pool_models` has, by instance type, the
    models that pools name instead (ModelNameOverride). `model_on` chooses between them.
    `serverless` is the variant's current configuration, `environments` the desired number of
    environments, and `idle` the environments that end first. While `serverless` is changed in
    place, `serverless_before` is the configuration before.
    """

    variant: Variant
    model: Model | None
    desired_instance_count: int
    desired_weight: float
    scaled_in_at: float | None = None  # when instances were last scaled in
    pool_models: Mapping[str, Model] = msgspec.field(default_factory=dict)
    passed_over: tuple[PassedOver, ...] = ()
    serverless: ServerlessConfig | None = None
    environments: int = 0
    idle: tuple[str, ...] = ()
    serverless_before: ServerlessConfig | None = None

    def model_on(self, instance_type: str) -> Model | None:
        """The model on an instance of that type. None if the endpoint is for components."""
        return self.pool_models.get(instance_type, self.model)

    @property
    def models(self) -> tuple[Model, ...]:
        """The distinct models of all instance types of the variant."""
        found = (self.model_on(it) for it in self.variant.instance_types)
        by_name = {model.name: model for model in found if model is not None}
        return tuple(by_name.values())


class UpdateGuard(msgspec.Struct, frozen=True, kw_only=True):
    """The guards that can roll an update back: alarms, and a time limit.

    `bake_s` is TerminationWaitInSeconds: the new deployment serves on trial, and, except in a
    rolling update, the old deployment is kept. `traffic` has the steps before this, in which the
    traffic moves to the new deployment. With an `allowance` each step ends with a verdict that
    compares the new fleet with the old fleet.
    """

    alarm_names: tuple[str, ...] = ()
    bake_s: float = 0.0
    max_execution_s: float | None = None
    traffic: TrafficPolicy = ALL_AT_ONCE
    allowance: Allowance | None = None

    @property
    def may_go_back(self) -> bool:
        """Whether any guard can still roll the update back after its instances run."""
        has_guard = bool(self.alarm_names) or self.max_execution_s is not None
        return has_guard or self.bake_s > 0 or self.traffic.is_gradual


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration applied to an endpoint. `generation` grows with each deployment.

    `capture` comes from the configuration, or an update has retained it.
    """

    generation: int
    config: EndpointConfig
    variants: tuple[EndpointVariant, ...]
    started_at: float
    guard: UpdateGuard | None = None
    capture: DataCapture | None = None

    @property
    def production(self) -> tuple[EndpointVariant, ...]:
        """The variants that answer requests."""
        return tuple(it for it in self.variants if not it.variant.is_shadow)

    @property
    def shadow(self) -> EndpointVariant | None:
        """The variant that gets copies of requests, if any."""
        return next((it for it in self.variants if it.variant.is_shadow), None)

    @property
    def shadow_share(self) -> float:
        """The share of requests that the shadow variant gets copies of, from 0 to 1.

        The shadow's weight divided by the weights of production. Source: "Shadow variants" in the
        SageMaker developer guide.
        """
        if self.shadow is None or self.shadow.desired_weight <= 0:
            return 0.0
        whole = sum(it.desired_weight for it in self.production)
        return min(1.0, self.shadow.desired_weight / whole) if whole > 0 else 1.0

    @property
    def without_shadow(self) -> "Deployment":
        """The deployment without its shadow."""
        return self if self.shadow is None else replace(self, variants=self.production)

    @property
    def fleets(self) -> tuple[int, ...]:
        """The desired number of instances of each production variant."""
        return tuple(it.desired_instance_count for it in self.production)

    @property
    def num_steps(self) -> int:
        """The number of steps in which the traffic moves to the deployment."""
        return 1 if self.guard is None else self.guard.traffic.num_steps(self.fleets)

    @property
    def is_rolling(self) -> bool:
        """Whether it replaces the deployment before batch by batch."""
        return self.guard is not None and self.guard.traffic.is_rolling


class ShiftStage(Enum):
    """The stage of a step. Only a rolling update has stages after BAKING."""

    BAKING = "baking"  # the new instances have their share of the traffic, old instances are kept
    LEAVING = "leaving"  # the old instances that the batch replaces are ending
    COMING = "coming"  # the instances of the next batch are starting


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """A step, begun at `since`, that moves traffic to the pending deployment. Steps count from 1.

    The active deployment gets the other traffic. `stage_since` is when a stage after BAKING began.
    `failure` is set if the update has failed, but a part of the active deployment cannot serve.
    Then the pending deployment serves until it can, and `left` is the number of a rolling update's
    new instances after the last step back.
    """

    step: int
    since: float
    failure: str | None = None
    stage: ShiftStage = ShiftStage.BAKING
    stage_since: float | None = None
    left: int | None = None


class Bake(msgspec.Struct, frozen=True, kw_only=True):
    """A trial of the active deployment, begun at `since`. A rollback restores `before`.

    `failure` is set if the trial has failed, but `before` cannot serve. Then the active deployment
    serves until it can.
    """

    before: Deployment
    since: float
    failure: str | None = None


class EndpointPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The resource policy of an endpoint. Its record has the endpoint's name in lower case."""

    scope: Scope
    endpoint_name: str
    document: str


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint.

    `active` serves, or is being created. `pending` is a newer deployment that starts next to
    `active`, and replaces it when it is ready. `shift` is set while both serve and the traffic
    moves in steps, then `bake` while the new deployment serves on trial. `deadline_at` is when the
    current status fails, in seconds since the epoch, or None in final statuses. `updates` has the
    newest updates, oldest first (see `update_history`). `restarts` has the copies to replace, and
    those whose replacement was given up.
    """

    scope: Scope
    name: str
    arn: str
    created_at: float
    modified_at: float
    status: EndpointStatus
    active: Deployment
    pending: Deployment | None = None
    shift: Shift | None = None
    bake: Bake | None = None
    deadline_at: float | None = None
    failure_reason: str | None = None
    at_zero: AtZero | None = None  # None: the home's default
    updates: tuple[PastUpdate, ...] = ()
    restarts: tuple[CopyRestart, ...] = ()
    given: Mapping[str, Any]

    @property
    def takes_components(self) -> bool:
        """Whether inference components are placed on this endpoint."""
        return self.active.config.takes_components

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """The active deployment, and the pending or kept deployment, if any."""
        beside = (self.pending, None if self.bake is None else self.bake.before)
        return (self.active, *(it for it in beside if it is not None))
