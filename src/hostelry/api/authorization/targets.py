"""Rules that find the resources of a call from names and ARNs in its parameters."""

from collections.abc import Sequence

from hostelry.api.authorization.row import AskedCall, Target, TargetRule
from hostelry.permissions.needs.needed import ALL


def build_name_rule(template: str, path: str, missing: str = ALL) -> TargetRule:
    """The resources whose names are at `path`. `template` is their ARN.

    `missing` is the template of the resource if the request names none.
    """

    def find(call: AskedCall) -> Sequence[Target]:
        names = call.get_values(path)
        if not names:
            return (Target(fill(missing, call)),)
        return tuple(Target(fill(template, call, name)) for name in names)

    return find


def build_arn_rule(path: str) -> TargetRule:
    """The resources whose ARNs are at `path`, as the operation compares them: unchanged."""

    def find(call: AskedCall) -> Sequence[Target]:
        return tuple(Target(arn) for arn in call.get_values(path)) or (Target(ALL),)

    return find


def fill(template: str, call: AskedCall, name: str = "") -> str:
    """The ARN of a template with `{region}`, `{account}` and `{name}`."""
    scope = call.scope
    return template.format(region=scope.region, account=scope.account, name=name)


def build_lookup_rule(kind: str, path: str, template: str, words: str = "{name}") -> TargetRule:
    """The existing resources of a kind with the names at `path`.

    Unknown names get the ARN of `template`. A refusal shows `words` in both cases.
    """

    def find(call: AskedCall) -> Sequence[Target]:
        found = [find_one(call, kind, name, template, words) for name in call.get_values(path)]
        return found or (Target(ALL),)

    return find


def find_one(call: AskedCall, kind: str, name: str, template: str, words: str) -> Target:
    """The existing resource of a kind with a name, or else the ARN of `template`."""
    arn = call.lookup.find_arn(kind, name) or fill(template, call, name)
    return Target(arn, fill(words, call, name))
