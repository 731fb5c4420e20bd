"""The present state of a deployment, as the platform's APIs show it. Plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

IN_SERVICE, FAILED, DELETING = "InService", "Failed", "Deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentEndpoint:
    """The endpoint; `has_models`: it serves models of its variants, not components."""

    status: str
    config: str
    reason: str = ""
    instance_type: str | None = None
    has_models: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentComponent:
    """A component or an adapter; `uri` is an adapter's archive."""

    endpoint: str
    status: str
    reason: str = ""
    model: str = ""
    memory_mb: int = 0
    cpus: float = 0.0
    accelerators: float = 0.0
    copies: int = 0
    base: str = ""
    uri: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What is there: of objects and models those of the deployment alone.

    `bounds` are the scalable target's, None without one; `has_policy`: deploy's own.
    """

    has_bucket: bool = False
    objects: frozenset[str] = frozenset()
    has_model: bool = False
    has_config: bool = False
    endpoint: PresentEndpoint | None = None
    components: Mapping[str, PresentComponent] = field(default_factory=dict)
    bounds: tuple[int, int] | None = None
    has_policy: bool = False
