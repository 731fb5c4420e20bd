"""The operations that roles and users share: their tags, policies and permissions boundary."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

from hostelry.api.context import CallContext, Operation, Params, Result
from hostelry.api.iam.answers import (
    answer_tag_page,
    build_page,
    count_characters,
    delete_conflict,
    describe_tags,
    limit_exceeded,
    merge_tags,
    no_such_entity,
    parse_document,
    remove_tags,
)
from hostelry.api.iam.policy import check_attachable, find_policy
from hostelry.api.record_kind import RecordKind
from hostelry.domain.principal import User
from hostelry.domain.role import Role
from hostelry.permissions.document import DocumentKind
from hostelry.store.records import Versioned

MAX_ATTACHED = 20
P = TypeVar("P", Role, User)


@dataclass(frozen=True, kw_only=True)
class PrincipalKind(Generic[P]):
    """Roles or users, and the operations on both.

    `word` is "Role" or "User" in names of operations and members. `max_inline_characters` limits
    the inline policies of one principal. `check_modifiable` raises UnmodifiableEntity.
    """

    word: str
    records: RecordKind[P]
    max_inline_characters: int
    check_modifiable: Callable[[P], None] = lambda _: None

    def operations(self) -> Mapping[str, Operation]:
        """The operations by name."""
        word = self.word
        return {
            f"Tag{word}": self.tag,
            f"Untag{word}": self.untag,
            f"List{word}Tags": self.list_tags,
            f"Put{word}Policy": self.put_policy,
            f"Get{word}Policy": self.get_policy,
            f"List{word}Policies": self.list_policies,
            f"Delete{word}Policy": self.delete_policy,
            f"Attach{word}Policy": self.attach_policy,
            f"Detach{word}Policy": self.detach_policy,
            f"ListAttached{word}Policies": self.list_attached_policies,
            f"Put{word}PermissionsBoundary": self.put_boundary,
            f"Delete{word}PermissionsBoundary": self.delete_boundary,
        }

    def find(self, context: CallContext, name: str) -> Versioned[P]:
        """The principal of that name in any case. Raises NoSuchEntity."""
        stored = self.records.get(context, name.lower())
        if stored is None:
            raise self.records.not_found(context, name)
        return stored

    def find_modifiable(self, context: CallContext, name: str) -> Versioned[P]:
        """The principal of that name. Raises UnmodifiableEntity if its service owns it."""
        stored = self.find(context, name)
        self.check_modifiable(stored.value)
        return stored

    def change(self, context: CallContext, name: str, **changes: Any) -> P:
        """Replace fields of a modifiable principal."""
        stored = self.find_modifiable(context, name)
        return self.records.put(context, replace(stored.value, **changes), stored)

    def tag(self, context: CallContext, params: Params) -> Result:
        """TagRole, TagUser: adds or overwrites."""
        principal = self._find_named(context, params)
        self.change(context, principal.name, tags=merge_tags(principal.tags, params))
        return {}

    def untag(self, context: CallContext, params: Params) -> Result:
        """UntagRole, UntagUser. Missing keys are ignored."""
        principal = self._find_named(context, params)
        self.change(context, principal.name, tags=remove_tags(principal.tags, params))
        return {}

    def list_tags(self, context: CallContext, params: Params) -> Result:
        """ListRoleTags, ListUserTags."""
        return answer_tag_page(self._find_named(context, params).tags, params)

    def put_policy(self, context: CallContext, params: Params) -> Result:
        """PutRolePolicy, PutUserPolicy: adds or replaces an inline policy."""
        principal = self._find_modifiable_named(context, params)
        document, limit = params["PolicyDocument"], self.max_inline_characters
        parse_document(document, DocumentKind.IDENTITY)
        policies = {**principal.inline_policies, params["PolicyName"]: document}
        if sum(map(count_characters, policies.values())) > limit:
            raise limit_exceeded(
                f"Maximum policy size of {limit} bytes exceeded for {self.word.lower()}"
                f" {principal.name}"
            )
        self.change(context, principal.name, inline_policies=policies)
        return {}

    def get_policy(self, context: CallContext, params: Params) -> Result:
        """GetRolePolicy, GetUserPolicy."""
        principal, name = self._find_named(context, params), params["PolicyName"]
        self._check_inline(principal, name)
        return {
            f"{self.word}Name": principal.name,
            "PolicyName": name,
            "PolicyDocument": quote(principal.inline_policies[name]),
        }

    def list_policies(self, context: CallContext, params: Params) -> Result:
        """ListRolePolicies, ListUserPolicies: the names of the inline policies."""
        principal = self._find_named(context, params)
        page, members = build_page(params, [(name, name) for name in principal.inline_policies])
        return {"PolicyNames": page, **members}

    def delete_policy(self, context: CallContext, params: Params) -> Result:
        """DeleteRolePolicy, DeleteUserPolicy."""
        principal, name = self._find_modifiable_named(context, params), params["PolicyName"]
        self._check_inline(principal, name)
        left = {key: it for key, it in principal.inline_policies.items() if key != name}
        self.change(context, principal.name, inline_policies=left)
        return {}

    def attach_policy(self, context: CallContext, params: Params) -> Result:
        """AttachRolePolicy, AttachUserPolicy. A policy that is attached already is ignored."""
        arn: str = params["PolicyArn"]
        principal = self._find_modifiable_named(context, params)
        attached: tuple[str, ...] = principal.attached_policies
        check_attachable(context, arn)
        if arn in attached:
            return {}
        if len(attached) >= MAX_ATTACHED:
            raise limit_exceeded(f"Cannot exceed quota for PoliciesPer{self.word}: {MAX_ATTACHED}")
        self.change(context, principal.name, attached_policies=(*attached, arn))
        return {}

    def detach_policy(self, context: CallContext, params: Params) -> Result:
        """DetachRolePolicy, DetachUserPolicy."""
        principal, arn = self._find_modifiable_named(context, params), params["PolicyArn"]
        if arn not in principal.attached_policies:
            raise no_such_entity(f"Policy {arn} was not found.")
        left = tuple(it for it in principal.attached_policies if it != arn)
        self.change(context, principal.name, attached_policies=left)
        return {}

    def list_attached_policies(self, context: CallContext, params: Params) -> Result:
        """ListAttachedRolePolicies, ListAttachedUserPolicies."""
        principal = self._find_named(context, params)
        prefix = params.get("PathPrefix") or "/"
        policies = [find_policy(context, arn) for arn in principal.attached_policies]
        rows = [
            (policy.name, {"PolicyName": policy.name, "PolicyArn": policy.arn})
            for policy in policies
            if policy.path.startswith(prefix)
        ]
        page, members = build_page(params, rows)
        return {"AttachedPolicies": page, **members}

    def put_boundary(self, context: CallContext, params: Params) -> Result:
        """PutRolePermissionsBoundary, PutUserPermissionsBoundary."""
        check_attachable(context, params["PermissionsBoundary"])
        name = params[f"{self.word}Name"]
        self.change(context, name, boundary=params["PermissionsBoundary"])
        return {}

    def delete_boundary(self, context: CallContext, params: Params) -> Result:
        """DeleteRolePermissionsBoundary, DeleteUserPermissionsBoundary."""
        self.change(context, params[f"{self.word}Name"], boundary=None)
        return {}

    def _find_named(self, context: CallContext, params: Params) -> P:
        return self.find(context, params[f"{self.word}Name"]).value

    def _find_modifiable_named(self, context: CallContext, params: Params) -> P:
        return self.find_modifiable(context, params[f"{self.word}Name"]).value

    def _check_inline(self, principal: P, name: str) -> None:
        if name not in principal.inline_policies:
            word = self.word.lower()
            raise no_such_entity(f"The {word} policy with name {name} cannot be found.")


def check_without_policies(principal: Role | User) -> None:
    """Raise DeleteConflict while a principal has policies."""
    if principal.attached_policies:
        raise delete_conflict("Cannot delete entity, must detach all policies first.")
    if principal.inline_policies:
        raise delete_conflict("Cannot delete entity, must delete policies first.")


def describe_details(principal: Role | User) -> Result:
    """The boundary and the tags of a principal, which lists do not show."""
    shown: Result = {}
    if principal.boundary:
        shown["PermissionsBoundary"] = {
            "PermissionsBoundaryType": "PermissionsBoundaryPolicy",
            "PermissionsBoundaryArn": principal.boundary,
        }
    if principal.tags:
        shown["Tags"] = describe_tags(principal.tags)
    return shown
