"""Rows of the tables: the needs of an operation, as rules over the parameters of a call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hostelry.api.context import Params
from hostelry.domain.scope import Scope
from hostelry.permissions.needs.needed import (
    ALL,
    NeededPermission,
    Values,
    build_resource_keys,
    build_tag_keys,
)
from hostelry.permissions.wildcard import Context


def _find_no_tags(_: str) -> Mapping[str, str]:
    return {}


def _find_no_arn(*_: str) -> str:
    return ""


def _find_no_keys(_: str) -> Context:
    return {}


class ResourceLookup(msgspec.Struct, frozen=True, kw_only=True):
    """Looks up the existing resources that a request names.

    `tags_of` returns the tags of the resource with an ARN. `find_arn` returns the ARN for a kind
    and a name that is not a part of the ARN, or "" if it is not known. The kinds are `role`,
    `user`, `instance-profile`, `access-key` (the user with the key's id), `key` (an id, alias or
    ARN of KMS), `customer-key` (the same, but not a key that the platform manages), `secret` (a
    name or ARN), `secret-key` (the customer key of the secret with an ARN) and `scalable-target` (a
    record's name). `find_keys` returns further context keys of the resource with an ARN, in lower
    case. `caller` is the ARN of the caller, the user of IAM's requests without a UserName.
    """

    tags_of: Callable[[str], Mapping[str, str]] = _find_no_tags
    find_arn: Callable[[str, str], str] = _find_no_arn
    find_keys: Callable[[str], Context] = _find_no_keys
    caller: str = ""


class AskedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose permissions are to be found. `params` have passed the service's model."""

    service: str
    operation: str
    params: Params
    scope: Scope
    lookup: ResourceLookup

    def get_values(self, path: str) -> tuple[str, ...]:
        """The values of the parameters at `path` (`read_values`)."""
        return read_values(self.params, path)


class Target(msgspec.Struct, frozen=True):
    """The ARN of a resource of a call, and its name in the text of a refusal if it differs."""

    arn: str
    shown: str = ""


TargetRule = Callable[[AskedCall], Sequence[Target]]
"""The resources that a call is about. An unclear resource is `ALL`."""
KeyRule = Callable[[AskedCall, str], Context]
"""Context keys of the action on the resource with an ARN."""
FurtherRule = Callable[[AskedCall], Iterable[NeededPermission]]


class NeedRow(msgspec.Struct, frozen=True, kw_only=True):
    """What an operation needs.

    `on` finds the resources, on each of which the action is needed. Without rules it is needed on
    `ALL`. `creates` means that the first rule finds the resource that the call makes, which has no
    tags yet. `action` is the action's name if it is not the operation's name.

    `keys` has paths of parameters by context key, and `more` finds further keys. `tags` and
    `tag_keys` are the members with the tags and the keys of tags in the request. `tagging` is the
    action that a request with tags needs as well, on the first rule's resources, or on the
    resources of `tagged` if it is set. `passes` are pairs: the path of a role's ARN, and the
    service that gets the role. `further` finds all other permissions.
    """

    on: tuple[TargetRule, ...] = ()
    creates: bool = False
    action: str = ""
    keys: Mapping[str, str] = msgspec.field(default_factory=dict)
    more: tuple[KeyRule, ...] = ()
    tags: str = ""
    tag_keys: str = ""
    tagging: str = ""
    tagged: TargetRule | None = None
    passes: tuple[tuple[str, str], ...] = ()
    further: tuple[FurtherRule, ...] = ()


Rows = Mapping[str, NeedRow | FurtherRule]
"""The rows of a service by operation. A function finds everything that its operation needs."""


def read_values(params: Params, path: str) -> tuple[str, ...]:
    """The values at a path such as `Variants.Name`, as texts. `|` joins alternative paths.

    A list on the way gives the values of all its elements. Missing members give none.
    """
    if "|" in path:
        return tuple(value for each in path.split("|") for value in read_values(params, each))
    found: list[Any] = [params]
    for name in path.split("."):
        members = [it[name] for it in found if isinstance(it, Mapping) and it.get(name) is not None]
        found = [one for it in members for one in (it if isinstance(it, list | tuple) else [it])]
    return tuple(_print_value(it) for it in found if isinstance(it, str | int | float))


def _print_value(value: str | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def read_tags(params: Params, member: str) -> Mapping[str, str]:
    """The tags of a request, which are pairs or a mapping. Later tags win."""
    given = params.get(member) or {}
    if isinstance(given, Mapping):
        return {str(key): str(value) for key, value in given.items()}
    found = {}
    for pair in given:
        key = pair.get("Key", pair.get("TagKey"))
        if key is not None:
            found[str(key)] = str(pair.get("Value", pair.get("TagValue", "")))
    return found


def build_tags_context(tags: Mapping[str, str]) -> dict[str, Values]:
    """The context keys of the tags in a request. Empty without tags."""
    found = build_tag_keys("aws:RequestTag", tags)
    return {**found, "aws:tagkeys": tuple(tags)} if tags else found


def build_need(
    call: AskedCall, action: str, target: Target, keys: Context, *, is_new: bool = False
) -> NeededPermission:
    """The permission for an action on a resource. A new resource has no tags."""
    tags = {} if is_new or target.arn == ALL else call.lookup.tags_of(target.arn)
    about = build_resource_keys(target.arn, tags, call.scope.account)
    region = "us-east-1" if action.startswith("iam:") else call.scope.region
    context = {"aws:requestedregion": (region,), **about, **keys}
    return NeededPermission(action=action, resource=target.arn, context=context, shown=target.shown)


def pass_role(call: AskedCall, arn: str, service: str, shown: str = "") -> NeededPermission:
    """The permission to pass the role with an ARN to a service."""
    keys = {"iam:passedtoservice": (service,)}
    return build_need(call, "iam:PassRole", Target(arn, shown), keys)
