"""Finds the permissions that a call of an operation needs."""

from collections.abc import Iterator, Mapping

from hostelry.api.authorization import identities, monitoring, notifications, sealing, serving
from hostelry.api.authorization.row import (
    AskedCall,
    FurtherRule,
    NeedRow,
    ResourceLookup,
    Target,
    build_need,
    build_tags_context,
    pass_role,
    read_tags,
)
from hostelry.api.context import Params
from hostelry.domain.scope import Scope
from hostelry.permissions.needs.needed import ALL, NeededPermission, Values, drop_repeats
from hostelry.permissions.wildcard import Context

ROWS: Mapping[tuple[str, str], NeedRow | FurtherRule] = {
    (service, operation): row
    for tables in (
        serving.ROWS, monitoring.ROWS, sealing.ROWS, identities.ROWS, notifications.ROWS,
    )
    for service, rows in tables.items()
    for operation, row in rows.items()
}  # fmt: skip
"""What each operation needs, by service and operation."""
NOTHING_KNOWN = ResourceLookup()


def find_needed(
    service: str,
    operation: str,
    params: Params,
    scope: Scope,
    lookup: ResourceLookup = NOTHING_KNOWN,
) -> tuple[NeededPermission, ...]:
    """The permissions that a call needs, all of them. `params` have passed the service's model.

    Empty for the calls that AWS answers without any permission. An operation without a row needs
    its action on all resources.
    """
    call = AskedCall(
        service=service, operation=operation, params=params, scope=scope, lookup=lookup
    )
    row = ROWS.get((service, operation), NeedRow())
    needs = _apply(row, call) if isinstance(row, NeedRow) else row(call)
    return drop_repeats(needs)


def _apply(row: NeedRow, call: AskedCall) -> Iterator[NeededPermission]:
    action = f"{call.service}:{row.action or call.operation}"
    keys = _find_request_keys(row, call)
    by_rule = [rule(call) for rule in row.on] or [(Target(ALL),)]
    for number, targets in enumerate(by_rule):
        for target in targets or (Target(ALL),):
            more = {name: it for rule in row.more for name, it in rule(call, target.arn).items()}
            is_new = row.creates and number == 0
            yield build_need(call, action, target, {**keys, **more}, is_new=is_new)
    tags = read_tags(call.params, row.tags) if row.tags and row.tagging else {}
    if tags:
        of_tags = build_tags_context(tags)
        if call.service == "sagemaker":
            of_tags["sagemaker:taggingaction"] = (call.operation,)
        for target in row.tagged(call) if row.tagged else by_rule[0]:
            yield build_need(call, row.tagging, target, of_tags, is_new=row.creates)
    for path, receiver in row.passes:
        for arn in call.get_values(path):
            yield pass_role(call, arn, receiver)
    for rule in row.further:
        yield from rule(call)


def _find_request_keys(row: NeedRow, call: AskedCall) -> Context:
    """The context keys of a row whose parameters are given. An empty list gives no key."""
    given = {name.lower(): call.get_values(path) for name, path in row.keys.items()}
    found: dict[str, Values] = {name: values for name, values in given.items() if values}
    if row.tags:
        found |= build_tags_context(read_tags(call.params, row.tags))
    if row.tag_keys:
        names = call.get_values(row.tag_keys)
        found |= {"aws:tagkeys": names} if names else {}
    return found
