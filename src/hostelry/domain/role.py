"""IAM: roles, instance profiles, and managed policies with their versions."""

from collections.abc import Mapping

import msgspec

ROLE_PREFIX = "arn:aws:iam::"
SERVICE_LINKED_PATH = "/aws-service-role/"


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """One role. In an account, names must differ in more than upper and lower case.

    `inline_policies` has documents by name, `attached_policies` ARNs in order of attachment.
    """

    account: str
    name: str
    id: str
    trust_policy: str
    created_at: float
    path: str = "/"
    description: str | None = None
    max_session_s: int = 3600
    boundary: str | None = None
    inline_policies: Mapping[str, str] = msgspec.field(default_factory=dict)
    attached_policies: tuple[str, ...] = ()
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"{ROLE_PREFIX}{self.account}:role{self.path}{self.name}"

    @property
    def is_service_linked(self) -> bool:
        """Whether it belongs to a service, which alone may change it."""
        return self.path.startswith(SERVICE_LINKED_PATH)


def build_role_arn(account: str, name: str) -> str:
    """The ARN of a role without a path."""
    return f"{ROLE_PREFIX}{account}:role/{name}"


def parse_role_name(arn: str) -> str:
    """Return the name in a role's ARN, or "" for another ARN."""
    return parse_entity_name(arn, "role")


def parse_entity_name(arn: str, kind: str) -> str:
    """Return the name in the ARN of a `kind` (role or user), or "" for another ARN."""
    resource = arn.split(":", 5)[-1]
    return resource.rpartition("/")[2] if resource.startswith(f"{kind}/") else ""


def assumed_role_arn(account: str, role_name: str, session_name: str) -> str:
    """The ARN of a session in a role."""
    return f"arn:aws:sts::{account}:assumed-role/{role_name}/{session_name}"


class InstanceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One instance profile. `role` is the name of its only role, or empty."""

    account: str
    name: str
    id: str
    created_at: float
    path: str = "/"
    role: str = ""
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:iam::{self.account}:instance-profile{self.path}{self.name}"


class PolicyVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version. Ids are ``v1``, ``v2`` and so on, and are not used again."""

    id: str
    document: str
    created_at: float


class ManagedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One managed policy. Its versions are sorted, oldest first.

    `account` is ``aws`` for AWS's own policies.
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
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:iam::{self.account}:policy{self.path}{self.name}"

    @property
    def document(self) -> str:
        """The document of the default version."""
        return next(it.document for it in self.versions if it.id == self.default_version)
