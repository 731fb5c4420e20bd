"""A model: containers, each an image with its artifacts and environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hostelry.domain.scope import Scope


class SourceKind(Enum):
    """How an artifact lies in the object store."""

    ARCHIVE = "archive"  # one .tar.gz object, unpacked
    OBJECT = "object"  # one object, stored under its last key segment
    PREFIX = "prefix"  # every object under a prefix, relative paths kept


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSource:
    """Where a model's or an adapter's files come from; `uri` is ``s3://bucket/key``."""

    uri: str
    kind: SourceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What one model server is started from."""

    image: str
    source: ArtifactSource | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    hostname: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """CreateModel's result. `given` is the request, echoed by Describe and read nowhere else."""

    scope: Scope
    name: str
    arn: str
    created_at: float
    containers: tuple[Container, ...]
    given: Mapping[str, Any]
