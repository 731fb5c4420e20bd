"""Steps: one call or one upload each, with what it needs to be done before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hostelry.cli.artifacts.object_order import ObjectOrder
from hostelry.cli.declared.change import FieldChange
from hostelry.cli.declared.resource import ResourceKey

OLD_VERSION = "a newer version is in its place"
"""The reason of deletions of former models and configurations."""


class StepAct(Enum):
    """Effects of a step on its resource."""

    UPLOAD = "upload"
    CREATE = "create"
    UPDATE = "update"
    TAG = "tag"
    DELETE = "delete"


class Until(Enum):
    """Ends of a wait for a resource."""

    IN_SERVICE = "InService"
    GONE = "deleted"


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """An object of the local artifact at `path`, or all of it, and the bucket for it."""

    path: str
    bucket: str
    order: ObjectOrder

    @property
    def uri(self) -> str:
        """Its address in S3."""
        return f"s3://{self.bucket}/{self.order.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyStep:
    """One call of `service`, or the upload of `file`.

    `needs` are numbers of steps. `params` may hold references to policies (`policy/RESOURCE/NAME`)
    instead of their ARNs, which AWS chooses. `because` says why, where the changes do not.
    """

    number: int
    act: StepAct
    key: ResourceKey
    service: str = ""
    operation: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    file: UploadedFile | None = None
    needs: Sequence[int] = ()
    until: Until | None = None
    changes: Sequence[FieldChange] = ()
    because: str = ""

    @property
    def is_destructive(self) -> bool:
        """Whether it ends something that serves."""
        return self.operation in ("DeleteEndpoint", "DeleteInferenceComponent")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """The steps from what is there to what is wanted; none where both are the same.

    `num_same` resources need no step.
    """

    steps: Sequence[ApplyStep]
    num_same: int = 0
