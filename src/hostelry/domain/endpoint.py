"""An endpoint: a configuration brought to life on instances."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hostelry.domain.at_zero import AtZero
from hostelry.domain.endpoint_config import EndpointConfig, Variant
from hostelry.domain.model import Model
from hostelry.domain.scope import Scope


class EndpointStatus(Enum):
    """EndpointStatus as DescribeEndpoint shows it: those of AWS's that something here leads to."""

    CREATING = "Creating"
    UPDATING = "Updating"
    IN_SERVICE = "InService"
    DELETING = "Deleting"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """An instance type that is not tried before `until`, and why: none of it came up."""

    instance_type: str
    until: float
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointVariant:
    """A variant as this endpoint wants it now.

    `model` is the endpoint's own copy, taken when the configuration was applied, so that the model
    and the configuration may be deleted while the endpoint runs. `pool_models` has, by instance
    type, those that pools name instead (ModelNameOverride); `model_on` knows which one runs.
    """

    variant: Variant
    model: Model | None
    desired_instance_count: int
    desired_weight: float
    scaled_in_at: float | None = None  # the last time that instances were taken away
    pool_models: Mapping[str, Model] = field(default_factory=dict)
    passed_over: tuple[PassedOver, ...] = ()

    def model_on(self, instance_type: str) -> Model | None:
        """What an instance of that type runs; None on an endpoint for components."""
        return self.pool_models.get(instance_type, self.model)

    @property
    def models(self) -> tuple[Model, ...]:
        """Every model that some instance type of the variant runs, each once."""
        found = (self.model_on(it) for it in self.variant.instance_types)
        by_name = {model.name: model for model in found if model is not None}
        return tuple(by_name.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGuard:
    """What takes an update back: an alarm that alarms, or that it lasts for too long.

    `bake_s` is TerminationWaitInSeconds: how long the new deployment serves on trial, with the old
    one kept beside it.
    """

    alarm_names: tuple[str, ...] = ()
    bake_s: float = 0.0
    max_execution_s: float | None = None

    @property
    def may_go_back(self) -> bool:
        """Whether anything here can take the update back once its instances are there."""
        return bool(self.alarm_names) or self.bake_s > 0 or self.max_execution_s is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One configuration applied to an endpoint; `generation` grows with each."""

    generation: int
    config: EndpointConfig
    variants: tuple[EndpointVariant, ...]
    started_at: float
    guard: UpdateGuard | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bake:
    """A trial of the active deployment since `since`; `before` is kept to go back to.

    `failure` is set once the trial has failed and `before` cannot serve yet: the active deployment
    serves until it can.
    """

    before: Deployment
    since: float
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint.

    `active` serves (or is being created); `pending` is a newer deployment that an update brings up
    beside it and that replaces it once every copy of it has proven ready. `bake` is set while it
    then serves on trial. `deadline_at` is when the present non-final status fails, in seconds since
    the epoch; None in final states.
    """

    scope: Scope
    name: str
    arn: str
    created_at: float
    modified_at: float
    status: EndpointStatus
    active: Deployment
    pending: Deployment | None = None
    bake: Bake | None = None
    deadline_at: float | None = None
    failure_reason: str | None = None
    at_zero: AtZero | None = None  # None: as the home has it
    given: Mapping[str, Any]

    @property
    def takes_components(self) -> bool:
        """Whether inference components are placed on this endpoint."""
        return self.active.config.takes_components

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """The active deployment, and the one that comes up, or is kept, beside it."""
        beside = (self.pending, None if self.bake is None else self.bake.before)
        return (self.active, *(it for it in beside if it is not None))
