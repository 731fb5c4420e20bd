"""A permission that a call needs: an action on a resource, with the values for conditions."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hostelry.permissions.wildcard import Context

Values = Sequence[str]
ALL = "*"
"""The resource of actions without resources. Only statements for all resources allow them."""


class NeededPermission(msgspec.Struct, frozen=True, kw_only=True):
    """An action on a resource, with the context keys about the request and the resource.

    The keys of `context` are in lower case. `resource` is an ARN or `ALL`. `shown` is the name of
    the resource in the text of a refusal, if it differs from `resource`: a caller without the
    permission must not learn which resource the name in the request stands for.
    """

    action: str
    resource: str
    context: Context = msgspec.field(default_factory=dict)
    shown: str = ""

    @property
    def name(self) -> str:
        """The name of the resource in the text of a refusal."""
        return self.shown or self.resource


def drop_repeats(needed: Iterable[NeededPermission]) -> tuple[NeededPermission, ...]:
    """The permissions without repeats, in their order. The time grows with their number."""
    found: dict[tuple[str, str], list[Context]] = {}
    kept = []
    for need in needed:
        contexts = found.setdefault((need.action, need.resource), [])
        if need.context not in contexts:
            contexts.append(need.context)
            kept.append(need)
    return tuple(kept)


def build_tag_keys(prefix: str, tags: Mapping[str, str]) -> dict[str, Values]:
    """The context keys of tags, for example ``aws:ResourceTag``.

    The names of context keys ignore case, so that tags which differ only in case share a key.
    """
    found: dict[str, Values] = {}
    for key, value in tags.items():
        name = f"{prefix}/{key}".lower()
        found[name] = (*found.get(name, ()), value)
    return found


RESOURCE_TAG_SERVICES = frozenset({"sagemaker", "ecr", "secretsmanager"})
"""The services with keys of resource tags besides ``aws:ResourceTag``, without IAM."""


def build_resource_keys(arn: str, tags: Mapping[str, str], account: str) -> dict[str, Values]:
    """The context keys about the resource with an ARN: its account, or else `account`, its tags."""
    parts = arn.split(":", 5)
    service, owner, rest = (parts[2], parts[4], parts[5]) if len(parts) == 6 else ("", "", "")
    found: dict[str, Values] = {"aws:resourceaccount": (owner or account,)}
    found |= build_tag_keys("aws:ResourceTag", tags)
    is_principal = service == "iam" and rest.startswith(("role/", "user/"))
    if service in RESOURCE_TAG_SERVICES or is_principal:
        found |= build_tag_keys(f"{service}:ResourceTag", tags)
    return found
