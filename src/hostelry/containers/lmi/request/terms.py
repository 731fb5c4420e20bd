"""Tenant and first-token deadline of a request, from its headers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import shown

PRINCIPAL_HEADER = "x-hostelry-principal"
TENANT_HEADER = "x-hostelry-tenant"
DEADLINE_HEADER = "x-hostelry-first-token-deadline-s"
MAX_TENANT_CHARACTERS = 256  # also of the names in option.tenants
MAX_DEADLINE_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A request's tenant (None: the adapter's name) and deadline (None: no deadline).

    `principal` is the caller as the gateway verified it, "" for the account itself.
    """

    tenant: str | None = None
    first_token_deadline_s: float | None = None
    principal: str = ""

    def salt(self, given: str) -> str:
        """The salt of cached prefixes: callers share none, whatever salt they give.

        A caller's own salt has no slash, so that it stands for no other principal.
        """
        return f"{self.principal}/{given}" if self.principal else given


def terms_of(headers: Mapping[str, str], default_deadline_s: float | None) -> Terms:
    """The terms by the request's headers. Raises Refusal for invalid values."""
    tenant = headers.get(TENANT_HEADER)
    if tenant is not None and not is_tenant_name(tenant):
        raise bad_request(
            f"the header X-Hostelry-Tenant is {shown(tenant)}; it must be 1 to "
            f"{MAX_TENANT_CHARACTERS} printable characters"
        )
    text = headers.get(DEADLINE_HEADER)
    deadline_s = default_deadline_s if text is None else parse_deadline(text)
    principal = headers.get(PRINCIPAL_HEADER, "")
    return Terms(tenant=tenant, first_token_deadline_s=deadline_s, principal=principal)


def is_tenant_name(name: str) -> bool:
    """Whether `name` is valid for a tenant."""
    return 0 < len(name) <= MAX_TENANT_CHARACTERS and name.isprintable()


def parse_deadline(text: str) -> float:
    """Seconds. Raises Refusal."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MAX_DEADLINE_S:
        raise bad_request(
            f"the header X-Hostelry-First-Token-Deadline-S is {shown(text)}; it must be a number "
            f"of seconds greater than 0 and at most {MAX_DEADLINE_S:g}"
        )
    return value
