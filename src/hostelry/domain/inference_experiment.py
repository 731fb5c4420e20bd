"""An inference experiment: an endpoint has a shadow variant for some time, and then changes.

Source: CreateInferenceExperiment, StopInferenceExperiment and UpdateInferenceExperiment in the
SageMaker API reference, and "Shadow tests" in the developer guide.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint import Deployment
from hostelry.domain.model import Model
from hostelry.domain.scope import Scope


class ExperimentStatus(Enum):
    """InferenceExperimentStatus as DescribeInferenceExperiment shows it."""

    CREATING = "Creating"
    CREATED = "Created"  # waits for its start time
    UPDATING = "Updating"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    CANCELLED = "Cancelled"


OVER = frozenset({ExperimentStatus.COMPLETED, ExperimentStatus.CANCELLED})


class VariantAction(Enum):
    """What happens to a variant when its experiment stops."""

    RETAIN = "Retain"
    REMOVE = "Remove"
    PROMOTE = "Promote"


class ExperimentVariant(msgspec.Struct, frozen=True, kw_only=True):
    """A variant in an experiment's request: a model, and instances."""

    name: str
    model_name: str
    instance_type: str
    instance_count: int


class ExperimentStop(msgspec.Struct, frozen=True, kw_only=True):
    """How an experiment stops: an action for each variant, and the final status and reason.

    `desired` has the remaining variants, if a client gave their instances. `at` is the time of the
    request. `is_applied` is set once the endpoint was seen changing to this state.
    """

    production: VariantAction = VariantAction.RETAIN
    shadow: VariantAction = VariantAction.REMOVE
    desired: tuple[ExperimentVariant, ...] = ()
    is_completed: bool = False
    reason: str | None = None
    at: float
    is_applied: bool = False

    @property
    def promotes(self) -> bool:
        """Whether the shadow replaces the production variant."""
        return self.shadow is VariantAction.PROMOTE

    @property
    def changes_nothing(self) -> bool:
        """Whether the endpoint keeps the state that it has in the experiment."""
        return self.shadow is VariantAction.RETAIN and not self.desired


class InferenceExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """An inference experiment. Times are seconds since the epoch.

    `models` has copies of the models of `variants`, by variant name. If `variants` has no
    production variant, the endpoint's variant is used. `percent` of the requests are mirrored.
    `expects_endpoint` is set if the endpoint existed when the experiment was created. `before` is
    the endpoint's deployment just before the experiment changed it. `is_deployed` is set once the
    endpoint was seen with the experiment's configuration, or changing to it. `deadline_at` is when
    the current status fails, or None if the status is final or the schedule ends it.
    """

    scope: Scope
    name: str
    arn: str
    created_at: float
    modified_at: float
    status: ExperimentStatus
    endpoint_name: str
    variants: tuple[ExperimentVariant, ...]
    models: Mapping[str, Model]
    production_name: str
    shadow_name: str
    percent: int
    start_at: float
    end_at: float
    capture: DataCapture | None = None
    expects_endpoint: bool = False
    before: Deployment | None = None
    is_deployed: bool = False
    stop: ExperimentStop | None = None
    started_at: float | None = None
    completed_at: float | None = None
    deadline_at: float | None = None
    status_reason: str | None = None
    given: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the experiment has ended."""
        return self.status in OVER

    @property
    def production(self) -> ExperimentVariant | None:
        """The production variant, if the experiment names its model and instances."""
        return next((it for it in self.variants if it.name == self.production_name), None)

    @property
    def shadow(self) -> ExperimentVariant:
        """The shadow variant."""
        return next(it for it in self.variants if it.name == self.shadow_name)

    @property
    def share(self) -> float:
        """The share of requests that are mirrored, from 0 to 1."""
        return self.percent / 100
