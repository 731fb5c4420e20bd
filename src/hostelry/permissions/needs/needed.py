"""A permission that a call needs: an action on a resource, with the values for conditions."""

from collections.abc import Mapping

import msgspec

from hostelry.permissions.wildcard import Context

ALL = "*"
"""The resource of actions without resources. Only statements for all resources allow them."""


class NeededPermission(msgspec.Struct, frozen=True, kw_only=True):
    """An action on a resource, with the context keys about the request and the resource.

    The keys of `context` are in lower case. `resource` is an ARN or `ALL`. `shown` is the name of
    the resource in the text of a refusal, if it differs from `resource`: an answer to a caller
    without the permission may not tell what the name in the request stands for.
    """

    action: str
    resource: str
    context: Context = msgspec.field(default_factory=dict)
    shown: str = ""

    @property
    def name(self) -> str:
        """The name of the resource in the text of a refusal."""
        return self.shown or self.resource


def add_keys(needed: NeededPermission, keys: Context) -> NeededPermission:
    """The same permission with more context keys. `keys` win."""
    return msgspec.structs.replace(needed, context={**needed.context, **keys})


def build_tag_keys(prefix: str, tags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The context keys of tags, for example ``aws:ResourceTag``.

    The names of context keys ignore case, so that tags which differ only in case share a key.
    """
    found: dict[str, tuple[str, ...]] = {}
    for key, value in tags.items():
        name = f"{prefix}/{key}".lower()
        found[name] = (*found.get(name, ()), value)
    return found
