"""The tags of one resource."""

from collections.abc import Mapping
from dataclasses import dataclass

from hostelry.domain.scope import Scope

MAX_TAGS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TagSet:
    """Every tag of the resource `arn`, value by key, in the order they were added."""

    scope: Scope
    arn: str
    tags: Mapping[str, str]
