"""An instance profile: a name under which a machine would be given a role."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceProfile:
    """One instance profile; `role` is the name of its only role, empty without one."""

    account: str
    name: str
    id: str
    created_at: float
    path: str = "/"
    role: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:iam::{self.account}:instance-profile{self.path}{self.name}"
