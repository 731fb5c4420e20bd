"""CreateLogGroup, DescribeLogGroups, DeleteLogGroup and the retention of a group."""

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.logs.lookup import (
    group_arn,
    group_named,
    identified,
    invalid,
    not_supported,
    now_ms,
    refuse,
)
from hostelry.api.logs.tag import checked_tags
from hostelry.api.logs.tokens import position_of, token_to
from hostelry.api.tags import write_tags
from hostelry.base.errors import ServiceError
from hostelry.logs.events import LogGroup

PAGE_SIZE = 50
STANDARD = "STANDARD"
YEARS = (365, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)
RETENTION_DAYS = frozenset((1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 400, 545, *YEARS))


def create_log_group(context: CallContext, params: Params) -> Result:
    """CreateLogGroup."""
    name = params["logGroupName"]
    if params.get("logGroupClass", STANDARD) != STANDARD:
        raise not_supported(f"logGroupClass {params['logGroupClass']}")
    refuse(params, ("deletionProtectionEnabled",))
    tags = checked_tags(params.get("tags") or {})
    if context.logs.group(context.scope, name) is not None:
        message = "The specified log group already exists"
        raise ServiceError("ResourceAlreadyExistsException", message)
    write_tags(context, group_arn(context, name), tags)  # may be repeated, unlike the creation
    key_id = params.get("kmsKeyId")
    if not context.logs.create_group(context.scope, name, now_ms(context), key_id):
        raise ServiceError("LimitExceededException", "Resource limit exceeded.")
    return {}


def describe_log_groups(context: CallContext, params: Params) -> Result:
    """DescribeLogGroups. There are no linked accounts: other accounts have no groups."""
    prefix, part = params.get("logGroupNamePrefix"), params.get("logGroupNamePattern")
    if prefix and part:
        raise invalid(
            "LogGroup name prefix and LogGroup name pattern are mutually exclusive parameters."
        )
    accounts = params.get("accountIdentifiers") or [context.scope.account]
    if context.scope.account not in accounts:
        return {"logGroups": []}
    if params.get("logGroupClass", STANDARD) != STANDARD:
        return {"logGroups": []}
    if params.get("logGroupIdentifiers"):
        named = [identified(context, it) for it in params["logGroupIdentifiers"]]
        return {"logGroups": [described(context, it) for it in named]}
    size = params.get("limit") or PAGE_SIZE
    position = position_of(context, params)
    found = context.logs.groups(
        context.scope,
        prefix=prefix or "",
        part=part or "",
        after="" if position is None else str(position[1]),
        limit=size + 1,
    )
    page = found[:size]
    result: Result = {"logGroups": [described(context, it) for it in page]}
    if len(found) > size:
        result["nextToken"] = token_to(context, params, [0, page[-1].name])
    return result


def delete_log_group(context: CallContext, params: Params) -> Result:
    """DeleteLogGroup: with its streams, events and tags."""
    group = group_named(context, params["logGroupName"])
    write_tags(context, group_arn(context, group.name), {})
    context.logs.delete_group(group)
    return {}


def put_retention_policy(context: CallContext, params: Params) -> Result:
    """PutRetentionPolicy."""
    days = params["retentionInDays"]
    if days not in RETENTION_DAYS:
        allowed = ", ".join(str(it) for it in sorted(RETENTION_DAYS))
        raise invalid(f"retentionInDays must be one of {allowed}; it is {days}.")
    context.logs.set_retention(group_named(context, params["logGroupName"]), days)
    return {}


def delete_retention_policy(context: CallContext, params: Params) -> Result:
    """DeleteRetentionPolicy: the platform's own time holds again."""
    context.logs.set_retention(group_named(context, params["logGroupName"]), None)
    return {}


def described(context: CallContext, group: LogGroup) -> Result:
    """A group in AWS's form."""
    arn = group_arn(context, group.name)
    optional = {"retentionInDays": group.retention_days, "kmsKeyId": group.kms_key_id}
    return {
        "logGroupName": group.name,
        "creationTime": group.created_ms,
        "metricFilterCount": 0,
        "arn": f"{arn}:*",
        "logGroupArn": arn,
        "storedBytes": group.stored_bytes,
        "logGroupClass": STANDARD,
        "deletionProtectionEnabled": False,
        **{name: it for name, it in optional.items() if it is not None},
    }
