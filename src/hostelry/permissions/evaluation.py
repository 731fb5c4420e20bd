"""The statements of policies that apply to a request."""

from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec

from hostelry.permissions.statement import PolicyStatement, StatementTest, is_for
from hostelry.permissions.wildcard import Context, MatchWork


class Outcome(Enum):
    """What is decided, in the words of SimulatePrincipalPolicy."""

    ALLOWED = "allowed"
    EXPLICIT_DENY = "explicitDeny"
    IMPLICIT_DENY = "implicitDeny"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The statements of one policy, and the words that a result names it by."""

    id: str
    type: str
    statements: tuple[PolicyStatement, ...]


class AccessRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An action on a resource. The keys of `context` are in lower case."""

    action: str
    resource: str
    context: Context


class StatementMatch(msgspec.Struct, frozen=True):
    """A statement that applies: its policy, and its place in the policy from 0."""

    policy: Policy
    index: int

    @property
    def statement(self) -> PolicyStatement:
        """The statement."""
        return self.policy.statements[self.index]


class StatementMatches(msgspec.Struct, frozen=True):
    """The statements that apply to a request, in the order of the policies."""

    denied: tuple[StatementMatch, ...] = ()
    allowed: tuple[StatementMatch, ...] = ()


def find_matches(
    policies: Iterable[Policy], test: StatementTest, who: frozenset[str] | None = None
) -> StatementMatches:
    """The statements that apply, of policies of resources only those about `who`."""
    denied: list[StatementMatch] = []
    allowed: list[StatementMatch] = []
    for policy in policies:
        for index, statement in enumerate(policy.statements):
            if (who is None or is_for(statement, who)) and test.applies(statement):
                (allowed if statement.allows else denied).append(StatementMatch(policy, index))
    return StatementMatches(tuple(denied), tuple(allowed))


def trusts(
    statements: Sequence[PolicyStatement],
    who: frozenset[str],
    context: Context,
    action: str = "sts:AssumeRole",
) -> bool:
    """Whether a role's trust policy lets a principal assume it.

    `who` are the principal's names, each as ``TYPE:NAME``, for example ``AWS:111122223333``.
    """
    test = StatementTest(action, "*", context, MatchWork())
    policy = Policy(id="trust", type="trust", statements=tuple(statements))
    matches = find_matches([policy], test, who)
    return bool(matches.allowed) and not matches.denied
