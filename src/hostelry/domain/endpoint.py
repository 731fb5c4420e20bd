"""An endpoint: a configuration brought to life on instances."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

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
class EndpointVariant:
    """A variant as this endpoint wants it now.

    `model` is the endpoint's own copy, taken when the configuration was applied, so that the model
    and the configuration may be deleted while the endpoint runs.
    """

    variant: Variant
    model: Model | None
    desired_instance_count: int
    desired_weight: float
    scaled_in_at: float | None = None  # the last time that instances were taken away


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One configuration applied to an endpoint; `generation` grows with each."""

    generation: int
    config: EndpointConfig
    variants: tuple[EndpointVariant, ...]
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint.

    `active` serves (or is being created); `pending` is a newer deployment that an update brings up
    beside it and that replaces it once every copy of it has proven ready. `deadline_at` is when the
    present non-final status fails, in seconds since the epoch; None in final states.
    """

    scope: Scope
    name: str
    arn: str
    created_at: float
    modified_at: float
    status: EndpointStatus
    active: Deployment
    pending: Deployment | None = None
    deadline_at: float | None = None
    failure_reason: str | None = None
    given: Mapping[str, Any]

    @property
    def takes_components(self) -> bool:
        """Whether inference components are placed on this endpoint."""
        return self.active.config.takes_components
