"""Scope: the account and region that own a resource. Names are unique within a scope."""

from collections.abc import Mapping

import msgspec

ALL_REGIONS = "aws-global"
"""The region of what an account has once: IAM's roles and policies."""
ZONE_LETTERS = "abc"
"""A region's availability zones, which are names only: ``us-west-2a`` and so on."""


class Scope(msgspec.Struct, frozen=True):
    """An account (12 digits) in a region (for example ``us-west-2``)."""

    account: str
    region: str

    @property
    def account_wide(self) -> "Scope":
        """The scope of account-wide resources, which does not depend on a caller's region."""
        return Scope(self.account, ALL_REGIONS)

    def arn(self, kind: str, name: str) -> str:
        """ARN of the SageMaker resource `name` of `kind`, for example ``inference-component``."""
        return f"arn:aws:sagemaker:{self.region}:{self.account}:{kind}/{name.lower()}"


MAX_TAGS = 50


class TagSet(msgspec.Struct, frozen=True, kw_only=True):
    """All tags of the resource `arn`: values by key, in the order of addition."""

    scope: Scope
    arn: str
    tags: Mapping[str, str]
