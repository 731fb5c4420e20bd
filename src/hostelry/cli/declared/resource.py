"""Resources: as documents want them, and as they were observed, in one form for both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hostelry.cli.declared.fault import SourcePlace

Params = Mapping[str, Any]
OWNER_TAG = "hostelry:applied-by"
"""On what `apply` made: the name of the set of documents."""
NAME_TAG = "hostelry:applied-as"
"""On models and configurations, whose names may end in a hash: their name in the documents."""
UNNAMED_SET = "unnamed"


class ResourceKind(Enum):
    """Kinds of resources, in the order in which one may need another."""

    ARTIFACT = "artifact"
    MODEL = "model"
    ENDPOINT = "endpoint"
    COMPONENT = "component"
    TARGET = "scalable target"
    POLICY = "scaling policy"
    ACTION = "scheduled action"
    ALARM = "alarm"
    CONFIG = "endpoint configuration"


@dataclass(frozen=True, slots=True)
class ResourceKey:
    """A resource. `within` is, of a policy or an action, the name of its target."""

    kind: ResourceKind
    name: str
    within: str = ""

    def __str__(self) -> str:
        name = f"{self.name} of {self.within.partition('|')[0]}" if self.within else self.name
        return f"{self.kind.value} {name.partition('|')[0] if not self.within else name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A resource as the documents want it.

    `params` are in the form of `hostelry.cli.declared.forms`; names of models in it are those of
    the documents. `tags` None leaves the tags that are there alone.
    """

    key: ResourceKey
    params: Params
    place: SourcePlace
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A resource as it is, its params in the same form as `Wanted.params`.

    `arn` is what its tags are at. `live` are, of an endpoint, instance counts and weights by
    variant. `reason` is its FailureReason.
    """

    key: ResourceKey
    params: Params
    arn: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    status: str = "InService"
    reason: str = ""
    config_name: str = ""
    live: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """The set that made it; empty where none did."""
        return self.tags.get(OWNER_TAG, "")

    @property
    def is_busy(self) -> bool:
        """Whether a change of it is under way."""
        return self.status not in ("InService", "Failed")


Resources = Mapping[ResourceKey, Observed]


def target_key(resource_id: str, dimension: str) -> ResourceKey:
    """The key of a scalable target."""
    return ResourceKey(ResourceKind.TARGET, f"{resource_id}|{dimension}")


def target_of(name: str) -> tuple[str, str]:
    """Resource id and dimension of a target's name."""
    resource_id, _, dimension = name.partition("|")
    return resource_id, dimension
