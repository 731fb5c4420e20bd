"""Quotas and calls for tests."""

from typing import Any

from hostelry.domain.quota import CallPrices, Quota
from hostelry.quotas.matching import QuotaCall, QuotaCount, QuotaIndex, build_document

ACCOUNT = "111122223333"
ANA = f"arn:aws:iam::{ACCOUNT}:user/ana"
BEN = f"arn:aws:iam::{ACCOUNT}:user/ben"
NOON = 1_800_014_400.0 - 1_800_014_400.0 % 86_400 + 43_200


def quota(name: str = "q", **fields: Any) -> Quota:
    """A quota of ACCOUNT whose id is its name."""
    return Quota(**{"id": name, "name": name, "account": ACCOUNT, "created_at": 0.0, **fields})


def call(principal: str = ANA, **names: Any) -> QuotaCall:
    return QuotaCall(**{"account": ACCOUNT, "principal": principal, **names})


def index(*quotas: Quota, prices: CallPrices | None = None) -> QuotaIndex:
    return QuotaIndex(build_document(quotas, prices or CallPrices()))


def counted(*quotas: Quota, by: QuotaCall | None = None) -> tuple[QuotaCount, ...]:
    """The counts of a call."""
    return index(*quotas).find(by or call()).counts
