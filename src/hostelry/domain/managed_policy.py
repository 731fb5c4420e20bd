"""A managed policy of an account, and its versions."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """One version; ids are ``v1``, ``v2`` and so on, and are not given twice."""

    id: str
    document: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedPolicy:
    """One managed policy, the oldest of its versions first.

    `account` is ``aws`` for AWS's own.
    """

    account: str
    name: str
    id: str
    created_at: float
    updated_at: float
    versions: tuple[PolicyVersion, ...]
    default_version: str = "v1"
    next_version: int = 2
    path: str = "/"
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:iam::{self.account}:policy{self.path}{self.name}"

    @property
    def document(self) -> str:
        """The document of the default version."""
        return next(it.document for it in self.versions if it.id == self.default_version)
