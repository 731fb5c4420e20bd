"""Model: containers, each an image with its artifacts and environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hostelry.domain.scope import Scope

MAX_TARGET_CHARS = 1024


class SourceKind(Enum):
    """The form of an artifact in the object store."""

    ARCHIVE = "archive"  # one .tar.gz object, unpacked
    OBJECT = "object"  # one object, stored under its last key segment
    PREFIX = "prefix"  # every object under a prefix, relative paths kept
    MODELS = "models"  # .tar.gz objects under a prefix, each a model that is got when asked for


class ModelCacheSetting(Enum):
    """MultiModelConfig.ModelCacheSetting: whether a model stays in memory after its requests."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class ExecutionMode(Enum):
    """InferenceExecutionConfig.Mode: how requests use the containers of a model of several."""

    SERIAL = "Serial"  # a pipeline: each container gets the answer of the one before
    DIRECT = "Direct"  # requests name the container


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSource:
    """The source of a model's or an adapter's files. `uri` is ``s3://bucket/key``."""

    uri: str
    kind: SourceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The container of one model server, of one model or (a source of MODELS) of many.

    `hostname` is its name among the containers of its model, or None for an only container.
    `model_cache` is read for many models only.
    """

    image: str
    source: ArtifactSource | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    hostname: str | None = None
    model_cache: ModelCacheSetting = ModelCacheSetting.ENABLED

    @property
    def is_multi_model(self) -> bool:
        """Whether requests name the model, by TargetModel."""
        return self.source is not None and self.source.kind is SourceKind.MODELS

    @property
    def models_uri(self) -> str:
        """The prefix of its many models, with a slash at its end."""
        assert self.source is not None, "asked of multi-model containers"
        return self.source.uri


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """CreateModel's result. `given` is the request, which only Describe reads."""

    scope: Scope
    name: str
    arn: str
    created_at: float
    containers: tuple[Container, ...]
    execution: ExecutionMode = ExecutionMode.SERIAL
    given: Mapping[str, Any]

    @property
    def is_direct(self) -> bool:
        """Whether requests name the container, by TargetContainerHostname."""
        return self.execution is ExecutionMode.DIRECT

    @property
    def is_multi_model(self) -> bool:
        """Whether requests name the model of one of its containers, by TargetModel."""
        return any(it.is_multi_model for it in self.containers)


def is_target(target: str) -> bool:
    """Whether `target` can follow a multi-model container's prefix as the key of an object."""
    parts = target.split("/")
    return (
        len(target) <= MAX_TARGET_CHARS
        and target.isprintable()
        and not any(part in ("", ".", "..") for part in parts)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """One repository. `mutability` and `scan_on_push` have no effect."""

    scope: Scope
    name: str
    created_at: float
    mutability: str = "MUTABLE"
    scan_on_push: bool = False

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:ecr:{self.scope.region}:{self.scope.account}:repository/{self.name}"

    @property
    def uri(self) -> str:
        """The name, without a tag, of its images in models and in `docker build --tag`."""
        return f"{self.scope.account}.dkr.ecr.{self.scope.region}.amazonaws.com/{self.name}"
