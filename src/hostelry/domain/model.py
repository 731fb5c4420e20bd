"""A model: containers, each with an image, artifacts and environment."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.domain.scope import Scope

MAX_TARGET_CHARS = 1024


class SourceKind(Enum):
    """The form of an artifact in the object store."""

    ARCHIVE = "archive"  # one .tar.gz object, which is unpacked
    OBJECT = "object"  # one object, stored under the last part of its key
    PREFIX = "prefix"  # all objects under a prefix, with their relative paths
    MODELS = "models"  # .tar.gz objects under a prefix, each a model that is loaded on demand


class ModelCacheSetting(Enum):
    """MultiModelConfig.ModelCacheSetting: whether a model stays in memory after its requests."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class ExecutionMode(Enum):
    """InferenceExecutionConfig.Mode: how requests use several containers of a model."""

    SERIAL = "Serial"  # a pipeline: each container gets the answer of the container before
    DIRECT = "Direct"  # requests name the container


class ArtifactSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a model's or an adapter's files. `uri` is ``s3://bucket/key``."""

    uri: str
    kind: SourceKind


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """The container of one model server, for one model or (source MODELS) for many models.

    `hostname` is its name among the containers of its model, or None for a single container.
    `model_cache` applies to many models only. `role` is the name of the execution role, whose
    policies bound the artifacts that its copies may read. Empty: the account alone bounds them.
    """

    image: str
    source: ArtifactSource | None = None
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    hostname: str | None = None
    model_cache: ModelCacheSetting = ModelCacheSetting.ENABLED
    role: str = ""

    @property
    def is_multi_model(self) -> bool:
        """Whether requests name a model by TargetModel."""
        return self.source is not None and self.source.kind is SourceKind.MODELS

    @property
    def models_uri(self) -> str:
        """The prefix of its many models, with a trailing slash."""
        assert self.source is not None, "asked of multi-model containers"
        return self.source.uri


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """CreateModel's result. `given` is the request, which only Describe uses."""

    scope: Scope
    name: str
    arn: str
    created_at: float
    containers: tuple[Container, ...]
    execution: ExecutionMode = ExecutionMode.SERIAL
    given: Mapping[str, Any]

    def add_environment(self, variables: Mapping[str, str]) -> "Model":
        """The model whose containers also have these variables."""
        containers = tuple(
            replace(container, environment={**container.environment, **variables})
            for container in self.containers
        )
        return replace(self, containers=containers)

    @property
    def is_direct(self) -> bool:
        """Whether requests name a container by TargetContainerHostname."""
        return self.execution is ExecutionMode.DIRECT

    @property
    def is_multi_model(self) -> bool:
        """Whether requests name a model in one of its containers by TargetModel."""
        return any(it.is_multi_model for it in self.containers)


def is_target(target: str) -> bool:
    """Whether `target` can follow the prefix of a multi-model container as an object's key."""
    parts = target.split("/")
    return (
        len(target) <= MAX_TARGET_CHARS
        and target.isprintable()
        and not any(part in ("", ".", "..") for part in parts)
    )


class Repository(msgspec.Struct, frozen=True, kw_only=True):
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
        """The image name without a tag, for models and for `docker build --tag`."""
        return f"{self.scope.account}.dkr.ecr.{self.scope.region}.amazonaws.com/{self.name}"
