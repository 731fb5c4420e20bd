"""An inference component: a base model with reserved resources, or an adapter of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """What every copy of a base component runs; a change makes a new `generation`."""

    generation: int
    container: Container
    requirements: Requirements
    download_timeout_s: float
    startup_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSpec:
    """An adapter component's weights; a change makes a new `generation`."""

    generation: int
    base_name: str
    source: ArtifactSource


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceComponent:
    """An inference component; exactly one of `spec` (base) and `adapter` is set.

    `previous_spec` / `previous_adapter` is what an update replaces and falls back to.
    `deadline_at` is when the present non-final status fails; None in final states.
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
    given: Mapping[str, Any]
