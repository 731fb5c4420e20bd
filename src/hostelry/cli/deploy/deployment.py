"""A deployment to bring about: a model, an endpoint, components, their uploads. Plain values."""

from collections.abc import Mapping
from dataclasses import dataclass

from hostelry.cli.artifacts.object_order import ObjectOrder
from hostelry.domain.shape import Requirements

VARIANT = "AllTraffic"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOrder:
    """A model to be there; `uri` "" for an image alone, an archive where `is_archive`."""

    name: str
    image: str
    environment: Mapping[str, str]
    uri: str = ""
    is_archive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOrder:
    """An adapter's component to be there, and its archive in S3."""

    component: str
    adapter: str
    uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingOrder:
    """The bounds of the number of copies, and the concurrent requests a copy that are aimed at."""

    min_copies: int
    max_copies: int
    target: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOrder:
    """An endpoint configuration to be there; its name has a digest of the rest."""

    name: str
    instance_type: str
    initial_instances: int
    min_instances: int
    max_instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDeployment:
    """All that is to be there. `copies` None: one at the creation, then whatever there is."""

    name: str
    bucket: str
    objects: tuple[ObjectOrder, ...]
    model: ModelOrder
    config: ConfigOrder
    requirements: Requirements
    copies: int | None
    adapters: tuple[AdapterOrder, ...]
    scaling: ScalingOrder | None
