"""The permissions that operations of IAM and STS need."""

from collections.abc import Iterable, Mapping, Sequence

from hostelry.api.authorization.row import (
    AskedCall,
    FurtherRule,
    NeedRow,
    Rows,
    Target,
    TargetRule,
    build_need,
    build_tags_context,
    pass_role,
    read_tags,
)
from hostelry.api.authorization.targets import build_arn_rule, build_lookup_rule, fill, find_one
from hostelry.api.iam.openai_key import SERVICE
from hostelry.api.iam.role import build_service_role_name
from hostelry.domain.role import SERVICE_LINKED_PATH
from hostelry.permissions.needs.needed import ALL, NeededPermission, Values
from hostelry.permissions.wildcard import Context

_ROLE = "arn:aws:iam::{account}:role/{name}"
_USER = "arn:aws:iam::{account}:user/{name}"
_PROFILE = "arn:aws:iam::{account}:instance-profile/{name}"
# AWS shows names in these words, whose paths the caller may not know.
_ROLE_RULE = build_lookup_rule("role", "RoleName", _ROLE, "role {name}")
_PROFILE_RULE = build_lookup_rule(
    "instance-profile", "InstanceProfileName", _PROFILE, "instance profile {name}"
)
_POLICY_RULE = build_arn_rule("PolicyArn")


def _find_user(call: AskedCall) -> Sequence[Target]:
    """The user of the request, or the caller if the request names no user."""
    names = call.get_values("UserName")
    if names:
        return [find_one(call, "user", it, _USER, "user {name}") for it in names]
    return (Target(call.lookup.caller or ALL),)


def _find_listed_user(call: AskedCall) -> Sequence[Target]:
    """The user whose credentials are listed, or every user."""
    if call.params.get("AllUsers"):
        return (Target(fill(_USER, call, "*")),)
    return _find_user(call)


def _find_key_owner(call: AskedCall) -> Sequence[Target]:
    """The user with the access key. A refusal does not show whose key it is."""
    ids = call.get_values("AccessKeyId")
    return [Target(call.lookup.find_arn("access-key", it) or ALL, it) for it in ids] or (
        Target(ALL),
    )


def _new(kind: str, path: str) -> TargetRule:
    """The ARN of a principal, policy or profile to be made, with its path."""

    def find(call: AskedCall) -> Sequence[Target]:
        folder = next(iter(call.get_values("Path")), "/")
        prefix = f"arn:aws:iam::{call.scope.account}:{kind}{folder}"
        return [Target(prefix + name) for name in call.get_values(path)] or (Target(ALL),)

    return find


def _rename_user(call: AskedCall) -> Iterable[NeededPermission]:
    """UpdateUser is needed on the user's new name as well."""
    names, paths = call.get_values("NewUserName"), call.get_values("NewPath")
    if not names and not paths:
        return
    for target in _find_user(call):
        place, _, rest = target.arn.partition(":user/")
        folder, _, name = f"/{rest}".rpartition("/")
        path = paths[0] if paths else f"{folder}/"
        yield build_need(
            call, "iam:UpdateUser", Target(f"{place}:user{path}{names[0] if names else name}"), {}
        )


def _find_boundary(call: AskedCall, arn: str) -> Context:
    """`iam:PermissionsBoundary` of the role or user that exists."""
    found = call.lookup.find_keys(arn)
    return {name: it for name, it in found.items() if name == "iam:permissionsboundary"}


def _find_credential_service(_: AskedCall, __: str) -> Context:
    """The service of every service-specific credential."""
    return {"iam:servicespecificcredentialservicename": (SERVICE,)}


def _find_service_role(call: AskedCall) -> Sequence[Target]:
    suffix = next(iter(call.get_values("CustomSuffix")), None)
    return [
        Target(
            f"arn:aws:iam::{call.scope.account}:role{SERVICE_LINKED_PATH}{service}/"
            + build_service_role_name(service, suffix)
        )
        for service in call.get_values("AWSServiceName")
    ] or (Target(ALL),)


def _find_deleted_role(call: AskedCall) -> Sequence[Target]:
    """The role of a deletion's task, ``task/aws-service-role/SERVICE/ROLE/ID``."""
    task = next(iter(call.get_values("DeletionTaskId")), "")
    parts = task.split("/")
    if len(parts) != 5 or not task.startswith(f"task{SERVICE_LINKED_PATH}"):
        return (Target(ALL),)
    return (Target(f"arn:aws:iam::{call.scope.account}:role/{'/'.join(parts[1:4])}"),)


def _pass_to_machines(call: AskedCall) -> Iterable[NeededPermission]:
    for name in call.get_values("RoleName"):
        role = find_one(call, "role", name, _ROLE, "role {name}")
        yield pass_role(call, role.arn, "ec2.amazonaws.com", role.shown)


def _change(rule: TargetRule, **members: Mapping[str, str]) -> NeedRow:
    """The row of a change to a role or user, which policies may limit by its boundary."""
    return NeedRow(on=(rule,), more=(_find_boundary,), keys=members.get("keys", {}))


def _principal_rows(kind: str, rule: TargetRule) -> dict[str, NeedRow]:
    """The rows that roles and users share. `kind` is Role or User."""
    policy_key = {"iam:PolicyARN": "PolicyArn"}
    changed = _change(rule)
    return {
        f"Create{kind}": NeedRow(
            on=(_new(kind.lower(), f"{kind}Name"),), creates=True, tags="Tags",
            tagging=f"iam:Tag{kind}", keys={"iam:PermissionsBoundary": "PermissionsBoundary"},
        ),
        f"Get{kind}": changed if kind == "Role" else NeedRow(on=(rule,)),
        f"List{kind}s": NeedRow(),
        f"Update{kind}": changed,
        f"Delete{kind}": changed if kind == "Role" else NeedRow(on=(rule,)),
        f"Tag{kind}": NeedRow(on=(rule,), tags="Tags"),
        f"Untag{kind}": NeedRow(on=(rule,), tag_keys="TagKeys"),
        f"List{kind}Tags": NeedRow(on=(rule,)),
        f"Put{kind}Policy": changed,
        f"Get{kind}Policy": NeedRow(on=(rule,)),
        f"List{kind}Policies": NeedRow(on=(rule,)),
        f"Delete{kind}Policy": changed,
        f"Attach{kind}Policy": _change(rule, keys=policy_key),
        f"Detach{kind}Policy": _change(rule, keys=policy_key),
        f"ListAttached{kind}Policies": NeedRow(on=(rule,)),
        f"Put{kind}PermissionsBoundary": NeedRow(
            on=(rule,), keys={"iam:PermissionsBoundary": "PermissionsBoundary"}
        ),
        f"Delete{kind}PermissionsBoundary": changed,
    }  # fmt: skip


_ON_USER = NeedRow(on=(_find_user,))
_ON_CREDENTIAL = NeedRow(on=(_find_user,), more=(_find_credential_service,))
_ON_POLICY = NeedRow(on=(_POLICY_RULE,))
_PROVIDER_RULE = build_arn_rule("OpenIDConnectProviderArn")
_ON_PROVIDER = NeedRow(on=(_PROVIDER_RULE,))
_PROVIDER = "arn:aws:iam::{account}:oidc-provider/{name}"


def _find_new_provider(call: AskedCall) -> Sequence[Target]:
    """The provider of an address, whose ARN has the address without its scheme."""
    urls = [it.partition("://")[2] or it for it in call.get_values("Url")]
    return [Target(fill(_PROVIDER, call, it.rstrip("/"))) for it in urls] or (Target(ALL),)


IAM: Rows = {
    **_principal_rows("Role", _ROLE_RULE),
    **_principal_rows("User", _find_user),
    "UpdateUser": NeedRow(on=(_find_user,), further=(_rename_user,)),
    "UpdateRoleDescription": _change(_ROLE_RULE),
    "UpdateAssumeRolePolicy": _change(_ROLE_RULE),
    "CreateAccessKey": _ON_USER,
    "UpdateAccessKey": _ON_USER,
    "DeleteAccessKey": _ON_USER,
    "ListAccessKeys": _ON_USER,
    "GetAccessKeyLastUsed": NeedRow(on=(_find_key_owner,)),
    "CreateServiceSpecificCredential": NeedRow(
        on=(_find_user,),
        keys={
            "iam:ServiceSpecificCredentialServiceName": "ServiceName",
            "iam:ServiceSpecificCredentialAgeDays": "CredentialAgeDays",
        },
    ),
    "ListServiceSpecificCredentials": NeedRow(on=(_find_listed_user,)),
    "UpdateServiceSpecificCredential": _ON_CREDENTIAL,
    "ResetServiceSpecificCredential": _ON_CREDENTIAL,
    "DeleteServiceSpecificCredential": _ON_CREDENTIAL,
    "ListGroupsForUser": _ON_USER,
    "ListEntitiesForPolicy": _ON_POLICY,
    "CreatePolicy": NeedRow(
        on=(_new("policy", "PolicyName"),), creates=True, tags="Tags", tagging="iam:TagPolicy"
    ),
    "GetPolicy": _ON_POLICY,
    "ListPolicies": NeedRow(),
    "DeletePolicy": _ON_POLICY,
    "TagPolicy": NeedRow(on=(_POLICY_RULE,), tags="Tags"),
    "UntagPolicy": NeedRow(on=(_POLICY_RULE,), tag_keys="TagKeys"),
    "ListPolicyTags": _ON_POLICY,
    "CreatePolicyVersion": _ON_POLICY,
    "GetPolicyVersion": _ON_POLICY,
    "ListPolicyVersions": _ON_POLICY,
    "SetDefaultPolicyVersion": _ON_POLICY,
    "DeletePolicyVersion": _ON_POLICY,
    "SimulatePrincipalPolicy": NeedRow(on=(build_arn_rule("PolicySourceArn"),)),
    "SimulateCustomPolicy": NeedRow(),
    "CreateInstanceProfile": NeedRow(
        on=(_new("instance-profile", "InstanceProfileName"),), creates=True, tags="Tags",
        tagging="iam:TagInstanceProfile",
    ),
    "GetInstanceProfile": NeedRow(on=(_PROFILE_RULE,)),
    "ListInstanceProfiles": NeedRow(),
    "ListInstanceProfilesForRole": NeedRow(on=(_ROLE_RULE,)),
    "AddRoleToInstanceProfile": NeedRow(on=(_PROFILE_RULE,), further=(_pass_to_machines,)),
    "RemoveRoleFromInstanceProfile": NeedRow(on=(_PROFILE_RULE,)),
    "DeleteInstanceProfile": NeedRow(on=(_PROFILE_RULE,)),
    "CreateServiceLinkedRole": NeedRow(
        on=(_find_service_role,), creates=True, keys={"iam:AWSServiceName": "AWSServiceName"}
    ),
    "DeleteServiceLinkedRole": NeedRow(on=(_ROLE_RULE,)),
    "GetServiceLinkedRoleDeletionStatus": NeedRow(on=(_find_deleted_role,)),
    "CreateOpenIDConnectProvider": NeedRow(
        on=(_find_new_provider,), creates=True, tags="Tags", tagging="iam:TagOpenIDConnectProvider"
    ),
    "GetOpenIDConnectProvider": _ON_PROVIDER,
    "ListOpenIDConnectProviders": NeedRow(),
    "DeleteOpenIDConnectProvider": _ON_PROVIDER,
    "AddClientIDToOpenIDConnectProvider": _ON_PROVIDER,
    "RemoveClientIDFromOpenIDConnectProvider": _ON_PROVIDER,
    "UpdateOpenIDConnectProviderThumbprint": _ON_PROVIDER,
    "TagOpenIDConnectProvider": NeedRow(on=(_PROVIDER_RULE,), tags="Tags"),
    "UntagOpenIDConnectProvider": NeedRow(on=(_PROVIDER_RULE,), tag_keys="TagKeys"),
    "ListOpenIDConnectProviderTags": _ON_PROVIDER,
}  # fmt: skip


def _need_nothing(_: AskedCall) -> Sequence[NeededPermission]:
    """AWS answers without any permission, even against an explicit deny."""
    return ()


def _keep_given(members: Mapping[str, Values]) -> dict[str, Values]:
    return {name: it for name, it in members.items() if it}


def _assume(action: str) -> FurtherRule:
    """The action on the role, and the permissions for the tags and source of the session."""

    def find(call: AskedCall) -> Iterable[NeededPermission]:
        transitive = {"sts:transitivetagkeys": call.get_values("TransitiveTagKeys")}
        tags = _keep_given(transitive) | build_tags_context(read_tags(call.params, "Tags"))
        source = _keep_given({"sts:sourceidentity": call.get_values("SourceIdentity")})
        members = {
            "sts:rolesessionname": call.get_values("RoleSessionName"),
            "sts:externalid": call.get_values("ExternalId"),
        }
        actions = {action: {**_keep_given(members), **tags, **source}}
        actions |= {"sts:TagSession": tags} if tags else {}
        actions |= {"sts:SetSourceIdentity": source} if source else {}
        for arn in call.get_values("RoleArn") or (ALL,):
            for name, keys in actions.items():
                yield build_need(call, name, Target(arn), keys)

    return find


STS: Rows = {
    "GetCallerIdentity": _need_nothing,
    "GetSessionToken": _need_nothing,
    "GetAccessKeyInfo": NeedRow(),
    "AssumeRole": _assume("sts:AssumeRole"),
    "AssumeRoleWithWebIdentity": _assume("sts:AssumeRoleWithWebIdentity"),
}
ROWS: Mapping[str, Rows] = {"iam": IAM, "sts": STS}
