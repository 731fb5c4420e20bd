"""Accounts, users and their keys, and identity providers of other parties.

No secret is stored. A secret access key is derived from its id and a secret of the home
(`aws.access_keys`), and of an OpenAI key the record has the SHA-256 only.
"""

from collections.abc import Mapping

import msgspec

from hostelry.domain.scope import ALL_REGIONS, Scope

MAX_ACCESS_KEYS = 2  # of a user, and of an account's root


class AccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """A permanent access key. A key that is not active is refused, and can be activated again."""

    id: str
    created_at: float
    is_active: bool = True


class OpenAiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer key of the OpenAI routes, which acts as its user.

    `digest` is the SHA-256 of the key in hexadecimal. `models` are the names of endpoints,
    components and adapters that the key may call, besides the user's policies. Empty: all of them.
    """

    id: str
    digest: str
    created_at: float
    name: str = ""
    expires_at: float | None = None
    is_active: bool = True
    models: tuple[str, ...] = ()


class User(msgspec.Struct, frozen=True, kw_only=True):
    """One user. In an account, names must differ in more than upper and lower case.

    `inline_policies` has documents by name, `attached_policies` ARNs in order of attachment.
    """

    account: str
    name: str
    id: str
    created_at: float
    path: str = "/"
    boundary: str | None = None
    inline_policies: Mapping[str, str] = msgspec.field(default_factory=dict)
    attached_policies: tuple[str, ...] = ()
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    access_keys: tuple[AccessKey, ...] = ()
    openai_keys: tuple[OpenAiKey, ...] = ()

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:iam::{self.account}:user{self.path}{self.name}"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account besides the platform's first account, whose keys are in the home.

    `access_keys` are the keys of its root, who may do everything in the account. While the account
    is closed, all its keys are refused, and its data is kept.
    """

    id: str
    name: str
    created_at: float
    is_closed: bool = False
    access_keys: tuple[AccessKey, ...] = ()


BUCKET_SCOPE = Scope("", ALL_REGIONS)
"""The scope of the records of buckets, whose names are shared by all accounts."""


class BucketOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket of an account besides the platform's first account, which has all other buckets."""

    name: str
    account: str
    created_at: float


class BucketClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A report of the S3 port to control: an account makes a bucket, or has deleted it."""

    bucket: str
    account: str
    is_claimed: bool


class OidcProvider(msgspec.Struct, frozen=True, kw_only=True):
    """An OpenID Connect provider, whose tokens roles may trust.

    `name` is its URL without the scheme, `issuer` the whole URL, which tokens have as their issuer.
    """

    account: str
    name: str
    issuer: str
    created_at: float
    client_ids: tuple[str, ...] = ()
    thumbprints: tuple[str, ...] = ()
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:iam::{self.account}:oidc-provider/{self.name}"
