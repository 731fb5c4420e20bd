"""Parser of `option.tenants` and `option.default_tenant`: JSON to the engine's policies."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from hostelry.base.json import decode
from hostelry.containers.lmi.request.terms import is_tenant_name
from hostelry.engine.scheduler.tenants import TenantPolicy

T = TypeVar("T")


class PolicyOption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON form of a policy; see TenantPolicy."""

    weight: float = 1.0
    tokens_per_s: float | None = None
    burst_s: float = 10.0
    max_concurrent: int | None = None
    max_queued: int | None = None

    def policy(self) -> TenantPolicy:
        """The engine's value. Raises ValueError for a value out of range."""
        return TenantPolicy(**msgspec.structs.asdict(self))


def parse_policy(text: str) -> TenantPolicy:
    """One policy. Raises ValueError naming field and fault."""
    return decoded(text, PolicyOption).policy()


def parse_policies(text: str) -> Mapping[str, TenantPolicy]:
    """Policies by tenant. Raises ValueError naming tenant, field and fault."""
    policies = {}
    for name, option in decoded(text, dict[str, PolicyOption]).items():
        if not is_tenant_name(name):
            raise ValueError(f"{name[:80]!r} cannot be a tenant's name")
        try:
            policies[name] = option.policy()
        except ValueError as error:
            raise ValueError(f"{error}, of tenant {name!r}") from error
    return policies


def decoded(text: str, kind: type[T]) -> T:
    """The JSON as `kind`. Raises ValueError."""
    try:
        return decode(text, kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
