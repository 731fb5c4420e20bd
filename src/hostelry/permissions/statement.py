"""Statements, compiled so that a decision costs little, and whether one applies to a request.

Sources: IAM user guide, pages reference_policies_elements_action, -_resource, -_notresource,
-_principal and -_notprincipal.
"""

from collections.abc import Iterable, Sequence

import msgspec

from hostelry.permissions.condition import PolicyCondition, holds
from hostelry.permissions.wildcard import (
    ANY,
    ONE,
    ArnPattern,
    Context,
    MatchWork,
    Template,
    TextPattern,
    build_template,
    compile_pattern,
    compile_resource,
    expand,
    mark_wildcards,
    matches,
    matches_resource,
)

ALL_PRINCIPALS = "AWS:*"


class ActionSet(msgspec.Struct, frozen=True):
    """Actions in lower case. With `excludes`, all actions except these (NotAction)."""

    names: frozenset[str]
    patterns: tuple[TextPattern, ...]
    excludes: bool


class ResourceSet(msgspec.Struct, frozen=True):
    """Resources: patterns, and texts with variables. With `excludes`, all others (NotResource)."""

    patterns: tuple[ArnPattern, ...]
    templates: tuple[Template, ...]
    excludes: bool


class PrincipalSet(msgspec.Struct, frozen=True):
    """Principals as ``TYPE:NAME``. With `excludes`, all others (NotPrincipal)."""

    names: frozenset[str]
    excludes: bool


class PolicyStatement(msgspec.Struct, frozen=True, kw_only=True):
    """One statement. A policy of an identity has no principals, and a trust policy no resources.

    `keys` are the keys of the context that decide whether it applies, in lower case.
    """

    sid: str
    allows: bool
    actions: ActionSet
    resources: ResourceSet | None = None
    principals: PrincipalSet | None = None
    conditions: tuple[PolicyCondition, ...] = ()
    keys: frozenset[str] = frozenset()


def compile_actions(texts: Iterable[str], *, excludes: bool) -> ActionSet:
    """The actions of a statement."""
    marked = [mark_wildcards(it.lower()) for it in texts]
    wild = [it for it in marked if ANY in it or ONE in it]
    patterns = tuple(map(compile_pattern, wild))
    return ActionSet(frozenset(marked).difference(wild), patterns, excludes)


def compile_resources(texts: Iterable[str], *, excludes: bool, variables: bool) -> ResourceSet:
    """The resources of a statement. Unless `variables`, a policy variable is a text like others."""
    patterns, templates = [], []
    for template in (build_template(it, variables=variables) for it in texts):
        if template.text is None:
            templates.append(template)
        else:
            patterns.append(compile_resource(template.text))
    return ResourceSet(tuple(patterns), tuple(templates), excludes)


def list_keys(
    resources: ResourceSet | None, conditions: Sequence[PolicyCondition]
) -> frozenset[str]:
    """The keys of the context that the elements of a statement read, in lower case."""
    templates = resources.templates if resources else ()
    read = [it.keys for it in conditions] + [it.keys for it in templates]
    return frozenset().union(*read)


class StatementTest:
    """Tests statements against one request.

    `missing` collects the keys that the statements read and the context lacks. `work` limits all
    comparisons together.
    """

    def __init__(self, action: str, resource: str, context: Context, work: MatchWork) -> None:
        self.missing: set[str] = set()
        self._action = action.lower()
        self._resource = resource
        self._context = context
        self._work = work

    def applies(self, statement: PolicyStatement) -> bool:
        """Whether action, resource and conditions fit. Raises TooMuchMatching."""
        return (
            self._is_action(statement.actions)
            and (statement.resources is None or self._is_resource(statement.resources))
            and (not statement.conditions or self._conditions_hold(statement.conditions))
        )

    def _is_action(self, actions: ActionSet) -> bool:
        name = self._action
        if name in actions.names:
            return not actions.excludes
        for pattern in actions.patterns:
            if matches(pattern, name, self._work):
                return not actions.excludes
        return actions.excludes

    def _is_resource(self, resources: ResourceSet) -> bool:
        # A variable without a value matches no resource, neither in Resource nor in NotResource.
        name, work = self._resource, self._work
        found = any(matches_resource(it, name, work) for it in resources.patterns)
        for template in resources.templates:  # all of them, for the missing keys
            marked = expand(template, self._context, self.missing, work)
            if marked is not None and not found:
                found = matches_resource(compile_resource(marked), name, work)
        return found != resources.excludes

    def _conditions_hold(self, conditions: Sequence[PolicyCondition]) -> bool:
        context, missing, work = self._context, self.missing, self._work
        held = [holds(it, context, missing, work) for it in conditions]  # all missing keys
        return all(held)


def is_for(statement: PolicyStatement, who: frozenset[str]) -> bool:
    """Whether a statement is about a principal with the names `who`, each as ``TYPE:NAME``.

    A session has several names: its account, its role and itself. NotPrincipal in a statement that
    denies excepts only a principal all of whose names are listed, the account by its id or ARN.
    """
    principals = statement.principals
    if principals is None:
        return True
    names = principals.names
    if not principals.excludes:
        return ALL_PRINCIPALS in names or not names.isdisjoint(who)
    if ALL_PRINCIPALS in names:
        return False
    if statement.allows:
        return names.isdisjoint(who)
    accounts = {it for it in who if is_account(it)}
    listed = who - accounts - {ALL_PRINCIPALS} <= names
    return not (listed and (not accounts or not names.isdisjoint(accounts)))


def is_account(name: str) -> bool:
    """Whether a principal's name is an account: its id, or the ARN of its root."""
    kind, _, text = name.partition(":")
    return kind == "AWS" and (text.isdecimal() or text.endswith(":root"))
