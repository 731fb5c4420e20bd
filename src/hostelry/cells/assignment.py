"""Choice of a request's cell. Pure.

the request                                     goes to
----------------------------------------------  ----------------------------------------------
shows a key of an account, and names a          the cell of that resource
  resource that is assigned apart from it
shows a key of an account, otherwise            the account's cell
shows a session token that claims an account    the same, for the claimed account
shows a key that no account has                 the default cell, or is refused (403) without one
shows no key                                    the same
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.base.ids import read_key_account
from hostelry.cells.request_claims import NamedKind, NamedResource, RequestClaims


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A whole platform. `url` is its gateway's URL."""

    name: str
    url: str


class CellAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account, its default cell, and the keys that identify it."""

    id: str
    cell: str
    access_key_ids: frozenset[str] = frozenset()
    openai_key_sha256: frozenset[str] = frozenset()


class AssignedApart(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of an account that are in another cell than the rest. Names may end in ``*``."""

    account_id: str
    cell: str
    names: Mapping[NamedKind, Sequence[str]] = msgspec.field(default_factory=dict)

    def has(self, resource: NamedResource) -> bool:
        """Whether the resource is one of these."""
        return any(
            fnmatchcase(resource.name, pattern) for pattern in self.names.get(resource.kind, ())
        )


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Accounts and resources divided among cells. If several entries fit, the first counts."""

    cells: Mapping[str, Cell]
    accounts: Sequence[CellAccount] = ()
    apart: Sequence[AssignedApart] = ()
    default: str | None = None

    def find_cell(self, claims: RequestClaims) -> Cell:
        """Find the cell of a request. Raises ServiceError 403 if no account has its keys."""
        account = self.find_account(claims)
        if account is None:
            if self.default is not None:
                return self.cells[self.default]
            raise unknown_caller(claims)
        for resource in claims.names:
            for entry in self.apart:
                if entry.account_id == account.id and entry.has(resource):
                    return self.cells[entry.cell]
        return self.cells[account.cell]

    def find_account(self, claims: RequestClaims) -> CellAccount | None:
        """The account that the request's keys stand for."""
        if claims.account_id is not None:
            return self._by_id.get(claims.account_id)
        if claims.bearer_sha256 is not None:
            return self._by_openai_key.get(claims.bearer_sha256)
        key_id = claims.access_key_id or ""
        # The ids of keys that a cell makes for its users and accounts hold their account.
        return self._by_access_key.get(key_id) or self._by_id.get(read_key_account(key_id) or "")

    @cached_property
    def _by_id(self) -> dict[str, CellAccount]:
        return {it.id: it for it in self.accounts}

    @cached_property
    def _by_access_key(self) -> dict[str, CellAccount]:
        return {key: it for it in self.accounts for key in it.access_key_ids}

    @cached_property
    def _by_openai_key(self) -> dict[str, CellAccount]:
        return {key: it for it in self.accounts for key in it.openai_key_sha256}


def unknown_caller(claims: RequestClaims) -> ServiceError:
    """The refusal of a request whose keys no account has, with AWS's codes."""
    if claims.is_anonymous:
        return ServiceError(
            "MissingAuthenticationTokenException",
            "The request shows no key, so that no cell is known to serve it.",
            403,
        )
    return ServiceError(
        "UnrecognizedClientException",
        "The security token included in the request is invalid: no cell is known to have its key.",
        403,
    )
