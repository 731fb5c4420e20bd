"""The principals of a platform as control sends them to gateways and to the S3 port.

The table has no secret: secret access keys are derived (`aws.access_keys`), and OpenAI keys are
SHA-256 digests.
"""

import hashlib
from collections.abc import Mapping

import msgspec


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's document. `id` and `type` name it in decisions."""

    id: str
    type: str
    document: str


class PrincipalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A user or a role. `policies` and `boundary` are keys of `PrincipalTable.policies`."""

    account: str
    name: str
    id: str
    arn: str
    policies: tuple[str, ...] = ()
    boundary: str | None = None
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of an active access key: a user (a key of `users`), or the account's root."""

    account: str
    user: str = ""

    @property
    def user_name(self) -> str:
        """The user's name in lower case, or empty."""
        return self.user.partition("/")[2]


class OpenAiKeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The user of an active OpenAI key, and the restrictions of the key."""

    account: str
    user: str
    id: str
    expires_at: float | None = None
    models: tuple[str, ...] = ()


class KmsKeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A KMS key: AWS's KeyState, its policy, and whether a service of AWS manages it.

    An empty policy is KMS's default: the policies in the account decide.
    """

    state: str
    policy: str = ""
    is_managed: bool = False


class PrincipalTable(msgspec.Struct, frozen=True, kw_only=True):
    """All principals. `version` is a digest of the content.

    `users` and `roles` are by `principal_key`. `access_keys` are by id, `openai_keys` by digest.
    `policies` has attached policies by ARN and inline policies by `inline_key`. `accounts` are the
    open accounts besides the platform's first one. `endpoint_policies` are by the endpoint's ARN.
    `tags` are the tags of endpoints and components by ARN. `buckets`
    names the account of each bucket that does not belong to the first account. `kms_keys` are the
    KMS keys by ARN.
    """

    version: str = ""
    accounts: frozenset[str] = frozenset()
    users: Mapping[str, PrincipalRow] = msgspec.field(default_factory=dict)
    roles: Mapping[str, PrincipalRow] = msgspec.field(default_factory=dict)
    access_keys: Mapping[str, KeyRow] = msgspec.field(default_factory=dict)
    openai_keys: Mapping[str, OpenAiKeyRow] = msgspec.field(default_factory=dict)
    policies: Mapping[str, PolicyRow] = msgspec.field(default_factory=dict)
    endpoint_policies: Mapping[str, str] = msgspec.field(default_factory=dict)
    tags: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    buckets: Mapping[str, str] = msgspec.field(default_factory=dict)
    kms_keys: Mapping[str, KmsKeyRow] = msgspec.field(default_factory=dict)


def principal_key(account: str, name: str) -> str:
    """The key of a user or a role in the table."""
    return f"{account}/{name.lower()}"


def inline_key(arn: str, name: str) -> str:
    """The key of an inline policy of a user or a role in the table."""
    return f"{arn}#{name}"


def stamp_version(table: PrincipalTable) -> PrincipalTable:
    """The table with the version of its content."""
    content = msgspec.json.encode(msgspec.structs.replace(table, version=""), order="deterministic")
    version = hashlib.blake2b(content, digest_size=16).hexdigest()
    return msgspec.structs.replace(table, version=version)
